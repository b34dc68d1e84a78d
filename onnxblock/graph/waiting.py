"""Values that a runtime cannot have before others: what holds back a computation until its result is needed.

Nothing in ONNX orders two nodes that do not depend on each other, and an optimizer computes what depends on nothing
before the first run.  A dependency that it sees through would be removed, and one that costs something would be paid
for in every step.  The one used here is a shape: one element of what is waited for is appended to a vector of sizes
and cut off again, so the sizes are known only then, and what is reshaped to them, or filled, comes later.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from onnx import NodeProto, TensorProto, helper

from .types import TensorType
from .value import Value

_SCOPE = "waiting"


def is_waiting(node: NodeProto) -> bool:
    """Whether the node is a view that holds something back: it changes nothing, and must stay."""
    return node.op_type == "Reshape" and is_declared(node)


def is_declared(node: NodeProto) -> bool:
    """Whether only a declaration tells the shape of what the node makes, as for these views and late zeros."""
    return f"/{_SCOPE}/" in f"/{node.name}"


class Arrival:
    """The moment at which all of ``values`` (tensors of numbers, empty ones too) are computed."""

    def __init__(self, values: Sequence[Value]) -> None:
        op = values[0].graph.op
        self._graph = values[0].graph
        # of a row: onnx's shape inference follows each element of a vector
        firsts = [op.Slice(op.Reshape(v, [1, -1]), [0], [1], [1]) for v in values]
        self._firsts = [op.Reshape(first, [-1]).cast(TensorProto.INT64) for first in firsts]

    def view(self, x: Value) -> Value:
        """``x``, whose rank is known, as a runtime has it only from now on; no element is copied.

        The new shape is all zeros, which for Reshape mean the sizes that ``x`` has.
        """
        sizes = self._vector(np.zeros(x.rank or 0, np.int64))
        with self._graph.scope(_SCOPE):
            return self._declared(self._graph.op.Reshape(x, sizes), x)

    def zeros(self, x: Value, dtype: int) -> Value:
        """Zeros in the shape of ``x``, which is static, made only from now on."""
        sizes = np.array(x.shape, np.int64)
        content = helper.make_tensor("value", dtype, [1], [0])
        late = self._vector(sizes)
        with self._graph.scope(_SCOPE):
            return self._declared(self._graph.op.ConstantOfShape(late, value=content), x)

    def _vector(self, content: npt.NDArray[np.int64]) -> Value:
        op = self._graph.op
        late: Value = op.Slice(op.Concat(content, *self._firsts, axis=0), [0], [len(content)])
        return late

    def _declared(self, y: Value, x: Value) -> Value:
        """``y``, with its shape, that of ``x``, written down: no runtime can infer it, and it plans memory by it."""
        assert y.dtype is not None or x.dtype is not None
        known = TensorType(y.dtype or x.dtype or 0, x.shape)
        self._graph.set_type(y, known)
        self._graph.proto.value_info.append(helper.make_value_info(y, known.to_proto()))
        return y
