"""From one loss per element to one number."""

from __future__ import annotations

from typing import Literal, TypeAlias, cast

from ..errors import BlockBuildError, did_you_mean
from ..graph.arithmetic import narrowed
from ..graph.value import Value

Reduction: TypeAlias = Literal["mean", "sum", "none"]
_REDUCTIONS = ("mean", "sum", "none")


def as_reduction(spelling: str) -> Reduction:
    """``spelling``, if it is a reduction; raises :class:`BlockBuildError` otherwise."""
    if spelling not in _REDUCTIONS:
        raise BlockBuildError(
            f"reduction={spelling!r} is not one of 'mean', 'sum' and 'none'." + did_you_mean(str(spelling), _REDUCTIONS)
        )
    return cast(Reduction, spelling)


def reduce(losses: Value, reduction: Reduction, like: Value) -> Value:
    """The mean or the sum of all elements as a scalar (rank 0), or ``losses`` themselves for ``"none"``.

    In the element type of ``like``, the prediction: losses in half precision are computed in float32, since there a
    small constant that keeps a quotient finite is 0, and the sum over a batch soon infinite.
    """
    if reduction != "none":
        losses = losses.mean() if reduction == "mean" else losses.sum()
    return narrowed(losses, like)
