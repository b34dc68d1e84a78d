"""Losses on numbers: how far the prediction is from the target, element by element."""

from __future__ import annotations

from ..block import Block
from ..graph.value import Value
from .reduction import as_reduction, reduce
from .target import target_like


class MSELoss(Block):
    """(prediction - target)², reduced.

    The target is a new input of the model with the element type and shape of the prediction.  ``reduction`` is
    ``"mean"``, ``"sum"`` or ``"none"``.  As ``torch.nn.MSELoss``.
    """

    def __init__(self, reduction: str = "mean") -> None:
        self._reduction = as_reduction(reduction)

    def build(self, loss_input_name: Value, target_name: str = "target") -> Value:
        """Add the loss.  Raises :class:`BlockBuildError` when the name of the target is taken."""
        difference = loss_input_name - target_like(loss_input_name, target_name)
        return reduce(difference * difference, self._reduction)


class L1Loss(Block):
    """|prediction - target|, reduced; its derivative where they are equal is 0.

    The target is a new input of the model with the element type and shape of the prediction.  ``reduction`` is
    ``"mean"``, ``"sum"`` or ``"none"``.  As ``torch.nn.L1Loss``.
    """

    def __init__(self, reduction: str = "mean") -> None:
        self._reduction = as_reduction(reduction)

    def build(self, loss_input_name: Value, target_name: str | None = "target") -> Value:
        """Add the loss.  Raises :class:`BlockBuildError` when the name of the target is taken."""
        target = target_like(loss_input_name, "target" if target_name is None else target_name)
        return reduce((loss_input_name - target).abs(), self._reduction)
