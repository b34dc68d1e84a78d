"""Losses on yes-or-no questions, each element one question."""

from __future__ import annotations

from ..block import Block
from ..graph.value import Value
from .formulas import softplus
from .reduction import as_reduction, reduce
from .target import Weights, target_like, weights_like


class BCEWithLogitsLoss(Block):
    """Binary cross-entropy on logits: w [(1 - y) x + (1 + (p - 1) y) log(1 + exp(-x))], reduced.

    x is the logit and y the target in [0, 1], a new input of the model with the element type and shape of x.
    ``weight`` (w) and ``pos_weight`` (p, the weight of positive answers) are arrays that broadcast to x.  ``reduction``
    is ``"mean"``, ``"sum"`` or ``"none"``; the mean divides by the number of elements, whatever the weights.  The value
    and its gradient stay finite for logits of any size.  As ``torch.nn.BCEWithLogitsLoss``.
    """

    def __init__(self, weight: Weights = None, reduction: str = "mean", pos_weight: Weights = None) -> None:
        self._weight, self._pos_weight = weight, pos_weight
        self._reduction = as_reduction(reduction)

    def build(self, loss_input_name: Value, target_name: str = "target") -> Value:
        """Add the loss.  Raises :class:`BlockBuildError` when the name of the target is taken."""
        x, y = loss_input_name, target_like(loss_input_name, target_name)
        positive = softplus(-x)
        pos_weight = weights_like(self._pos_weight, x)
        if pos_weight is not None:
            positive = positive * ((pos_weight - 1) * y + 1)
        losses = (1 - y) * x + positive
        weight = weights_like(self._weight, x)
        return reduce(losses if weight is None else losses * weight, self._reduction)
