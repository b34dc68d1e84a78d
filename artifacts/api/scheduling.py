"""What all learning rate schedulers have in common, and the warm-up before any of them."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np

from onnxblock.errors import ArgumentError, listed

from .optimizer import Optimizer
from .state import require
from .step import TrainingStep
from .stepping import Stepping


class LRScheduler(ABC):
    """A learning rate that is a function of how often :meth:`step` was called, and of the rate at the beginning.

    As PyTorch's schedulers of the same names and parameters: call :meth:`step` after each optimizer step, or after each
    epoch, whatever the numbers are meant to count.  The first rate is set at once.  Groups of parameters with a rate of
    their own follow in proportion.

    The state is saved in checkpoints with the optimizer's.  A scheduler that is made for an optimizer of such a
    checkpoint goes on where the saved one stood if it is of the same kind and settings; another one starts anew, from
    the rate that the optimizer has.

    Args:
        optimizer: the :class:`Optimizer` or :class:`TrainingStep` whose learning rate to set; the rate that it has is
            the one to begin with, ``base_lr``.
        settings: what a saved scheduler must agree in.

    Raises:
        ArgumentError: ``optimizer`` is none, or a setting is out of range; all are listed.
    """

    def __init__(self, optimizer: Stepping, **settings: Any) -> None:
        require(optimizer, Optimizer, "optimizer", TrainingStep)
        self.optimizer = optimizer
        self._settings: dict[str, Any] = json.loads(json.dumps(settings, default=lambda number: number.item()))
        self.base_lr = self._first_rate()
        self.steps = 0
        saved = optimizer.register_scheduler(self.state_dict, self._is_of)
        if saved is not None:
            self.load_state_dict(saved)
        else:
            optimizer.set_initial_learning_rate(self.base_lr)
            self._apply()

    @abstractmethod
    def rate(self) -> float:
        """The learning rate after :attr:`steps` steps."""

    def step(self, metrics: float | None = None) -> None:  # noqa: ARG002 - for those who look at it
        """Set the next learning rate.  ``metrics`` is what :class:`ReduceLROnPlateau` watches; others ignore it."""
        self.steps += 1
        self._apply()

    def state_dict(self) -> dict[str, Any]:
        """Kind, settings and progress, as JSON can hold them."""
        own = {"kind": type(self).__name__, "settings": self._settings, "base_lr": self.base_lr, "steps": self.steps}
        return own | self._progress()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state_dict` gave, and set the learning rate that belongs there.

        Raises:
            ArgumentError: it is of a scheduler of another kind or with other settings.
        """
        if not self._is_of(state):
            raise ArgumentError(
                f"the state is of {state.get('kind')} with {state.get('settings')}, "
                f"not of {type(self).__name__} with {self._settings}.",
                "Make the scheduler with the same settings.",
            )
        self.base_lr, self.steps = float(state["base_lr"]), int(state["steps"])
        self._resume(state)
        self.optimizer.set_initial_learning_rate(self.base_lr)
        self._apply()

    def _is_of(self, state: Mapping[str, Any]) -> bool:
        return state.get("kind") == type(self).__name__ and state.get("settings") == self._settings

    def _first_rate(self) -> float:
        return self.optimizer.get_learning_rate()

    def _apply(self) -> None:
        self.optimizer.set_learning_rate(self.rate())

    def _progress(self) -> dict[str, Any]:
        """What changes from step to step beside the number of steps."""
        return {}

    def _resume(self, state: Mapping[str, Any]) -> None:  # noqa: B027 - most have nothing to take up
        """Take up what :meth:`_progress` gave."""


class WarmUp(LRScheduler):
    """A linear rise to where another scheduler begins, and then that scheduler.

    In the first ``total_iters`` steps the rate goes from ``start_factor`` times the first rate of ``scheduler`` to that
    rate; the step after them is the first of ``scheduler``.  As ``LinearLR`` before another one in PyTorch's
    ``SequentialLR``.  Call :meth:`step` of this one only.

    Args:
        scheduler: what comes after; made just before, for the same optimizer.
        total_iters: the length of the rise.
        start_factor: where it begins; 0 by default, so that the first step changes nothing.
    """

    def __init__(self, scheduler: LRScheduler, total_iters: int, start_factor: float = 0.0) -> None:
        require(scheduler, LRScheduler, "scheduler")
        check(self, whole={"total_iters": total_iters}, not_negative={"start_factor": start_factor})
        self._scheduler, self._total, self._start = scheduler, total_iters, start_factor
        settings = {"total_iters": total_iters, "start_factor": start_factor}
        inner = {k: v for k, v in scheduler.state_dict().items() if k in ("kind", "settings")}
        super().__init__(scheduler.optimizer, **settings, scheduler=inner)

    def rate(self) -> float:
        """The learning rate after the steps so far."""
        if self.steps >= self._total:
            return self._scheduler.rate()
        return self.base_lr * (self._start + (1 - self._start) * self.steps / self._total)

    def step(self, metrics: float | None = None) -> None:
        """Set the next learning rate; ``metrics`` goes to the scheduler once the warm-up is over."""
        if self.steps >= self._total:
            self._scheduler.step(metrics)
        super().step()

    def _progress(self) -> dict[str, Any]:
        return {"scheduler": self._scheduler.state_dict()}

    def _resume(self, state: Mapping[str, Any]) -> None:
        self._scheduler.load_state_dict(state["scheduler"])


def check(
    scheduler: LRScheduler,
    *,
    whole: Mapping[str, object] | None = None,
    positive_whole: Mapping[str, object] | None = None,
    not_negative: Mapping[str, object] | None = None,
    positive: Mapping[str, object] | None = None,
    problems: Sequence[str] = (),
) -> None:
    """Raise :class:`ArgumentError` that lists every setting out of range."""
    found = [f"{k}={x!r} is no number of steps" for k, x in (whole or {}).items() if not (is_whole(x) and x >= 0)]
    found += [
        f"{k}={x!r} is not a number of steps from 1 on"
        for k, x in (positive_whole or {}).items()
        if not (is_whole(x) and x >= 1)
    ]
    found += [f"{k}={x!r} is no number from 0 on" for k, x in (not_negative or {}).items() if not _is_not_negative(x)]
    found += [f"{k}={x!r} is not positive" for k, x in (positive or {}).items() if not (_is_not_negative(x) and x != 0)]
    found += problems
    if found:
        raise ArgumentError(f"{type(scheduler).__name__}: {listed(found)}")


def is_whole(count: object) -> TypeGuard[int]:
    """Whether it is an integer."""
    return isinstance(count, (int, np.integer))


def _is_not_negative(number: object) -> bool:
    return isinstance(number, (int, float, np.number)) and 0 <= float(number) < math.inf
