"""Learning rates that change from step to step."""

from __future__ import annotations

import numpy as np

from onnxblock.errors import ArgumentError

from .optimizer import Optimizer
from .state import require


class LinearLRScheduler:
    """A learning rate that rises linearly from 0 and then falls linearly to 0.

    With s = optimizer steps done, w = ``warmup_step_count``, n = ``total_step_count``::

        s < w:   initial_lr · s / max(1, w)
        s ≥ w:   initial_lr · max(0, (n − s) / max(1, n − w))

    The first learning rate is set at once, so with a warm-up it is 0 for the first step.

    Args:
        optimizer: whose learning rate to set.
        warmup_step_count: steps of the rise.
        total_step_count: steps of rise and fall together.
        initial_lr: the learning rate at the top.

    Raises:
        ArgumentError: ``optimizer`` is none, a count is no number of steps, or the learning rate is not finite.
    """

    def __init__(self, optimizer: Optimizer, warmup_step_count: int, total_step_count: int, initial_lr: float) -> None:
        require(optimizer, Optimizer, "optimizer")
        counts = {"warmup_step_count": warmup_step_count, "total_step_count": total_step_count}
        wrong = [f"{name}={count!r}" for name, count in counts.items() if not (_is_whole(count) and count >= 0)]
        if wrong:
            raise ArgumentError(f"{', '.join(wrong)} is no number of steps.", "Give integers from 0 on.")
        self._optimizer = optimizer
        self._warmup = warmup_step_count
        self._total = total_step_count
        self._initial = initial_lr
        optimizer.set_initial_learning_rate(initial_lr)
        self.step()

    def step(self) -> None:
        """Set the learning rate for the optimizer steps done so far; call it after ``optimizer.step()``."""
        done = self._optimizer.completed_steps
        if done < self._warmup:
            factor = done / max(1, self._warmup)
        else:
            factor = max(0.0, (self._total - done) / max(1, self._total - self._warmup))
        self._optimizer.set_learning_rate(self._initial * factor)


def _is_whole(count: object) -> bool:
    return isinstance(count, (int, np.integer))
