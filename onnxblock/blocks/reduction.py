"""Sums, means and norms over all axes or some."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..block import Block
from ..errors import BlockBuildError
from ..graph.value import Operand, Value
from .operator import Operator


class _Reduction(Operator):
    def __init__(self, keepdims: bool = True, axes: int | Sequence[int] | None = None) -> None:
        axes_input = None if axes is None else np.atleast_1d(np.asarray(axes, np.int64))
        super().__init__(keepdims=int(keepdims), axes=axes_input)

    def build(self, input_name: Operand) -> Value:
        """Add the node."""
        return self._node(input_name)


class ReduceMean(_Reduction):
    """The mean over ``axes``, all of them by default.  With ``keepdims`` the axes stay, with size 1."""

    op_type = "ReduceMean"


class ReduceSum(_Reduction):
    """The sum over ``axes``, all of them by default.  With ``keepdims`` the axes stay, with size 1."""

    op_type = "ReduceSum"


class ReduceAllL2(Block):
    """The Euclidean norm of all elements of all inputs together, as a scalar (rank 0)."""

    def build(self, *reduce_node_input_names: Value) -> Value:
        """Add the nodes.  Raises :class:`BlockBuildError` without inputs."""
        if not reduce_node_input_names:
            raise BlockBuildError("ReduceAllL2 needs at least one input.")
        op = self.graph.op
        if len(reduce_node_input_names) == 1:
            return op.ReduceL2(reduce_node_input_names[0], keepdims=0)
        norms = [op.Reshape(op.ReduceL2(x, keepdims=0), [1]) for x in reduce_node_input_names]
        return op.ReduceL2(op.Concat(*norms, axis=0), keepdims=0)
