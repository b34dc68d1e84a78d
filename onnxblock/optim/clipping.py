"""Limits on the gradients, before the optimizer sees them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import TensorProto

from ..block import Block
from ..blocks.reduction import ReduceAllL2
from ..errors import BlockBuildError
from ..graph.arithmetic import with_shape_of
from ..graph.value import Value
from .pieces import is_number
from .sequences import TENSORS, call, for_each, map_sequences, require_sequences

_EPSILON = 1e-6


class ClipGradNorm(Block):
    """All gradients times min(max_norm / (norm + 1e-6), 1), where norm is the Euclidean norm of all of them together.

    As ``torch.nn.utils.clip_grad_norm_``.  Gradients within the limit do not change by a bit.
    """

    def __init__(self, max_norm: float) -> None:
        if not is_number(max_norm) or not max_norm > 0:
            raise BlockBuildError(f"ClipGradNorm: max_norm={max_norm!r} is not a positive number.")
        self._max_norm = float(max_norm)

    def __repr__(self) -> str:
        return f"ClipGradNorm({self._max_norm})"

    def build(self, gradients_name: str | Sequence[Value]) -> Value | list[Value]:
        """Clip a sequence of float32 tensors, or a list of tensors, and return the same kind."""
        if not isinstance(gradients_name, str):
            return self._clip_tensors(gradients_name)
        graph = self.graph
        require_sequences(graph, gradients_name)
        inputs = {"gradients": (gradients_name, TENSORS)}
        outputs = {"clipped_gradients": (graph.unique("clipped_gradients"), TENSORS)}
        attributes = {"max_norm": self._max_norm}
        return call(graph, "InplaceClipGradNorm", inputs, outputs, self._clip_sequence, attributes)[0]

    def _clip_tensors(self, gradients: Sequence[Value]) -> list[Value]:
        dtypes = sorted({g.dtype or TensorProto.FLOAT for g in gradients})
        norms = [ReduceAllL2()(*(g for g in gradients if g.dtype == dtype)) for dtype in dtypes]
        if len(norms) > 1:
            norms = [ReduceAllL2()(*(norm.cast(TensorProto.DOUBLE) for norm in norms))]
        factor = self._factor(norms[0])
        factors = {dtype: factor if factor.dtype == dtype else factor.cast(dtype) for dtype in dtypes}
        return [g * factors[g.dtype or TensorProto.FLOAT] for g in gradients]

    def _factor(self, norm: Value) -> Value:
        op = norm.graph.op
        return op.Min(op.Div(self._max_norm, norm + _EPSILON), 1.0)

    def _clip_sequence(self, gradients: Value) -> list[Value]:
        graph = gradients.graph

        def add_square(elements: list[Value], carried: list[Value]) -> list[Value]:
            return [carried[0] + elements[0].graph.op.ReduceSumSquare(elements[0], keepdims=0)]

        (total,) = for_each([gradients], [graph.constant(np.float32(0))], add_square)
        factor = self._factor(total.sqrt())
        return map_sequences([gradients], 1, lambda g: [g * factor])


class ClipGradValue(Block):
    """Every element of every gradient limited to [-limit, limit].  As ``torch.nn.utils.clip_grad_value_``."""

    def __init__(self, limit: float) -> None:
        if not limit > 0:
            raise BlockBuildError(f"ClipGradValue: limit={limit!r} is not positive.")
        self._limit = float(limit)

    def __repr__(self) -> str:
        return f"ClipGradValue({self._limit})"

    def build(self, gradients_name: str | Sequence[Value]) -> Value | list[Value]:
        """Clip a sequence of float32 tensors, or a list of tensors, and return the same kind."""
        if not isinstance(gradients_name, str):
            return [g.clip(-self._limit, self._limit) for g in gradients_name]
        require_sequences(self.graph, gradients_name)
        sequence = self.graph.value(gradients_name)
        return map_sequences([sequence], 1, lambda g: [g.clip(-self._limit, self._limit)])[0]


def clips_slices(block: Block | None) -> bool:
    """Whether ``block`` does the same to the slices of a gradient as to the whole."""
    return block is None or type(block) in (ClipGradNorm, ClipGradValue)


def clip(block: Block | None, gradients: Sequence[Value]) -> list[Value]:
    """The gradients after ``block``: one of the above, or a block that takes the name of a sequence of tensors."""
    if block is None:
        return list(gradients)
    if isinstance(block, ClipGradNorm | ClipGradValue):
        clipped: list[Value] = block(list(gradients))
        return clipped
    op = gradients[0].graph.op
    sequence = block(op.SequenceConstruct(*gradients))
    return [with_shape_of(op.SequenceAt(sequence, k), g) for k, g in enumerate(gradients)]
