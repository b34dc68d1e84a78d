"""A layer that owns its weights."""

from __future__ import annotations

import math
from weakref import WeakKeyDictionary

import numpy as np
from onnx import TensorProto

from ..block import Block
from ..errors import BlockBuildError
from ..graph.graph import Graph
from ..graph.types import FLOATS, dtype_name, numpy_dtype
from ..graph.value import Value


class Linear(Block):
    """y = alpha x W + beta b, with W of shape ``[in_features, out_features]`` and b of shape ``[out_features]``.

    x is ``[..., in_features]``; the weights take its element type.  They are initializers of the model, called
    ``Linear/weight`` and ``Linear/bias``, uniform in ±1/√in_features as in ``torch.nn.Linear``.  The random numbers
    come from ``seed``, or from the number of weights that the graph has already, so that two layers differ and
    building twice gives the same model.
    A block called twice in one graph uses the same weights twice.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        alpha: float = 1.0,
        beta: float = 1.0,
        *,
        seed: int | None = None,
    ) -> None:
        sizes: tuple[object, object] = (in_features, out_features)
        if not all(isinstance(size, (int, np.integer)) and size >= 1 for size in sizes):
            raise BlockBuildError(f"Linear{sizes}: both sizes are whole numbers, at least 1.")
        self._shape = (in_features, out_features)
        self._has_bias = bias
        self._alpha, self._beta = alpha, beta
        self._seed = seed
        self._weights: WeakKeyDictionary[Graph, tuple[Value, Value | None]] = WeakKeyDictionary()

    def build(self, linear_input_name: Value) -> Value:
        """Add the product.  Raises :class:`BlockBuildError` unless x is a float tensor of ``in_features`` columns."""
        x, op = linear_input_name, self.graph.op
        if x.dtype is not None and x.dtype not in FLOATS:
            raise BlockBuildError(f"Linear takes a float tensor, but {str(x)!r} is {dtype_name(x.dtype)}.")
        if self.graph not in self._weights:
            self._weights[self.graph] = self._make(x.dtype or TensorProto.FLOAT)
        weight, bias = self._weights[self.graph]
        if x.rank == 2:
            return op.Gemm(x, weight, bias, alpha=self._alpha, beta=self._beta)
        y = x @ weight
        if self._alpha != 1:
            y = y * self._alpha
        if bias is not None:
            y = y + (bias if self._beta == 1 else bias * self._beta)
        return y

    def _make(self, dtype: int) -> tuple[Value, Value | None]:
        graph, (rows, columns) = self.graph, self._shape
        seed = len(graph.model.graph.initializer) if self._seed is None else self._seed
        generator = np.random.default_rng(seed)
        limit, element = 1 / math.sqrt(rows), numpy_dtype(dtype)
        weight = graph.parameter("weight", generator.uniform(-limit, limit, (rows, columns)).astype(element))
        if not self._has_bias:
            return weight, None
        return weight, graph.parameter("bias", generator.uniform(-limit, limit, columns).astype(element))
