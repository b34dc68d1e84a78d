"""Losses on numbers: how far the prediction is from the target, element by element."""

from __future__ import annotations

from abc import abstractmethod

from ..block import Block
from ..errors import BlockBuildError
from ..graph.value import Value
from .reduction import as_reduction, reduce
from .target import widened_pair


class _Distance(Block):
    """A function of prediction - target, reduced.

    The target is a new input of the model with the element type and shape of the prediction.  ``reduction`` is
    ``"mean"``, ``"sum"`` or ``"none"``.
    """

    def __init__(self, reduction: str = "mean") -> None:
        self._reduction = as_reduction(reduction)

    def build(self, loss_input_name: Value, target_name: str = "target") -> Value:
        """Add the loss.  Raises :class:`BlockBuildError` when the name of the target is taken."""
        prediction, target = widened_pair(loss_input_name, target_name)
        return reduce(self._of(prediction - target), self._reduction, loss_input_name)

    @abstractmethod
    def _of(self, difference: Value) -> Value: ...


class MSELoss(_Distance):
    """(prediction - target)², reduced (``"mean"``, ``"sum"`` or ``"none"``).  As ``torch.nn.MSELoss``."""

    def _of(self, difference: Value) -> Value:
        return difference * difference


class L1Loss(_Distance):
    """|prediction - target|, reduced (``"mean"``, ``"sum"`` or ``"none"``); its derivative where they are equal is 0.

    As ``torch.nn.L1Loss``.
    """

    def build(self, loss_input_name: Value, target_name: str | None = "target") -> Value:
        """Add the loss.  Raises :class:`BlockBuildError` when the name of the target is taken."""
        return super().build(loss_input_name, "target" if target_name is None else target_name)

    def _of(self, difference: Value) -> Value:
        return difference.abs()


class HuberLoss(_Distance):
    """d²/2 where |d| ≤ delta, delta (|d| - delta/2) beyond, with d = prediction - target; reduced.

    Huber 1964.  As ``torch.nn.HuberLoss``.
    """

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction)
        if not delta > 0:
            raise BlockBuildError(f"HuberLoss: delta={delta!r} is not positive.")
        self._delta = delta

    def _of(self, difference: Value) -> Value:
        return huber(difference, self._delta)


class SmoothL1Loss(_Distance):
    """d²/(2 beta) where |d| < beta, |d| - beta/2 beyond, with d = prediction - target; reduced.

    Girshick 2015.  With ``beta=0`` it is :class:`L1Loss`.  As ``torch.nn.SmoothL1Loss``.
    """

    def __init__(self, reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__(reduction)
        if not beta >= 0:
            raise BlockBuildError(f"SmoothL1Loss: beta={beta!r} is negative.")
        self._beta = beta

    def _of(self, difference: Value) -> Value:
        return huber(difference, self._beta) / self._beta if self._beta else difference.abs()


def huber(difference: Value, delta: float) -> Value:
    """q²/2 + delta (|d| - q) with q = min(|d|, delta): nothing is selected, and the derivative is clip(d, ±delta)."""
    size = difference.abs()
    quadratic = difference.graph.op.Min(size, delta)
    return quadratic * quadratic * 0.5 + (size - quadratic) * delta
