"""Losses between distributions."""

from __future__ import annotations

from ..block import Block
from ..graph.arithmetic import narrowed, size_of
from ..graph.value import Value
from .reduction import as_reduction, reduce
from .target import widened_pair


class KLDivLoss(Block):
    """t (log t - x), the terms of the Kullback-Leibler divergence of the target from the prediction; reduced.

    x is a logarithm of probabilities (from LogSoftmax).  The target t, a new input of the model with the element type
    and shape of x, holds probabilities, or their logarithms with ``log_target``.  ``reduction`` may also be
    ``"batchmean"``: the sum divided by the size of axis 0, which is the divergence.  As ``torch.nn.KLDivLoss``.
    """

    def __init__(self, reduction: str = "mean", log_target: bool = False) -> None:
        self._by_batch = reduction == "batchmean"
        self._reduction = as_reduction("sum" if self._by_batch else reduction)
        self._log_target = log_target

    def build(self, loss_input_name: Value, target_name: str = "target") -> Value:
        """Add the loss.  Raises :class:`BlockBuildError` when the name of the target is taken."""
        x, t = widened_pair(loss_input_name, target_name)
        op = x.graph.op
        # 0 log 0 is 0.
        share, log = (t.exp(), t) if self._log_target else (t, op.Where(op.Greater(t, 0.0), t, 1.0).log())
        total = reduce(share * (log - x), self._reduction, x)
        return narrowed(total / size_of(x, [0]).cast(total.dtype or 1) if self._by_batch else total, loss_input_name)
