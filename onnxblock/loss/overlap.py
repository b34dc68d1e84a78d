"""Losses on regions: how much the predicted one and the true one have in common."""

from __future__ import annotations

from ..block import Block
from ..graph.value import Value
from .reduction import as_reduction, reduce
from .target import widened_pair


class DiceLoss(Block):
    """1 - (2 Σ p t + smooth) / (Σ p + Σ t + smooth) for each sample, summed over all axes but the first; reduced.

    p is the sigmoid of the prediction, or the prediction itself with ``logits=False``; the target t in [0, 1] is a new
    input of the model with the element type and shape of the prediction.  Milletari et al. 2016.
    """

    def __init__(self, smooth: float = 1.0, reduction: str = "mean", logits: bool = True) -> None:
        self._smooth, self._reduction, self._logits = smooth, as_reduction(reduction), logits

    def build(self, loss_input_name: Value, target_name: str = "target") -> Value:
        """Add the loss.  Raises :class:`BlockBuildError` when the name of the target is taken."""
        op = self.graph.op
        x, t = widened_pair(loss_input_name, target_name)
        t = op.Flatten(t, axis=1)
        p = op.Flatten(x.sigmoid() if self._logits else x, axis=1)
        common, total = (p * t).sum(1), p.sum(1) + t.sum(1)
        return reduce(1 - (common * 2 + self._smooth) / (total + self._smooth), self._reduction, loss_input_name)


class GIoULoss(Block):
    """1 - |A ∩ B| / |A ∪ B| + (|C| - |A ∪ B|) / |C| for boxes A and B and the smallest box C around both; reduced.

    Boxes are ``[..., 4]``: left, top, right, bottom.  The target is a new input of the model with the element type and
    shape of the prediction.  ``eps`` keeps the quotients finite.  Rezatofighi et al. 2019.
    """

    def __init__(self, reduction: str = "mean", eps: float = 1e-7) -> None:
        self._reduction, self._eps = as_reduction(reduction), eps

    def build(self, loss_input_name: Value, target_name: str = "target") -> Value:
        """Add the loss.  Raises :class:`BlockBuildError` when the name of the target is taken."""
        op = self.graph.op
        boxes = widened_pair(loss_input_name, target_name)
        (low_a, high_a), (low_b, high_b) = (op.Split(b, [2, 2], axis=-1, outputs=2) for b in boxes)
        common = _area(op.Max(low_a, low_b), op.Min(high_a, high_b), may_be_empty=True)
        union = _area(low_a, high_a) + _area(low_b, high_b) - common
        around = _area(op.Min(low_a, low_b), op.Max(high_a, high_b))
        overlap = common / (union + self._eps)
        return reduce(1 - overlap + (around - union) / (around + self._eps), self._reduction, loss_input_name)


def _area(low: Value, high: Value, *, may_be_empty: bool = False) -> Value:
    sides = (high - low).relu() if may_be_empty else high - low
    width, height = low.graph.op.Split(sides, [1, 1], axis=-1, outputs=2)
    area: Value = width * height
    return area.squeeze(-1)
