"""What all tensors of one optimizer step share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from onnx import TensorProto

from ..graph.value import Value

Update: TypeAlias = "Callable[..., Sequence[Value]]"
"""``(parameter, gradient, *states) -> (new parameter, *new states)`` for one tensor."""


@dataclass(frozen=True)
class Step:
    """The numbers of one step, as float64 scalars (rank 0), and the element type that tensors are computed in.

    Arithmetic on the numbers stays in float64: ``1 - 0.999 ** step.count`` would lose half its digits in float32.
    """

    learning_rate: Value
    count: Value
    """1 in the first step."""
    dtype: int

    def scalar(self, number: Value) -> Value:
        """``number`` in the element type of the tensors."""
        return number if number.dtype == self.dtype else number.cast(self.dtype)


def begin(learning_rate: Value, step: Value, dtype: int) -> Step:
    """The step of the two inputs, whose shape is [1]."""
    rate, count = (x.reshape().cast(TensorProto.DOUBLE) for x in (learning_rate, step))
    return Step(rate, count, dtype)


def computed_in(dtype: int) -> int:
    """The element type that parameters of type ``dtype`` are updated in: float32 for the half-precision types."""
    return TensorProto.DOUBLE if dtype == TensorProto.DOUBLE else TensorProto.FLOAT
