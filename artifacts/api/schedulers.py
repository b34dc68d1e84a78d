"""Learning rates that change from step to step."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from onnxblock.errors import ArgumentError, did_you_mean

from .optimizer import Optimizer
from .scheduling import LRScheduler, check, is_whole
from .state import require
from .step import TrainingStep
from .stepping import Stepping


class LinearLRScheduler:
    """A learning rate that rises linearly from 0 and then falls linearly to 0.

    With s = optimizer steps done, w = ``warmup_step_count``, n = ``total_step_count``::

        s < w:   initial_lr · s / max(1, w)
        s ≥ w:   initial_lr · max(0, (n − s) / max(1, n − w))

    The first learning rate is set at once, so with a warm-up it is 0 for the first step.

    Args:
        optimizer: the :class:`Optimizer` or :class:`TrainingStep` whose learning rate to set.
        warmup_step_count: steps of the rise.
        total_step_count: steps of rise and fall together.
        initial_lr: the learning rate at the top.

    Raises:
        ArgumentError: ``optimizer`` is none, a count is no number of steps, or the learning rate is not finite.
    """

    def __init__(self, optimizer: Stepping, warmup_step_count: int, total_step_count: int, initial_lr: float) -> None:
        require(optimizer, Optimizer, "optimizer", TrainingStep)
        counts = {"warmup_step_count": warmup_step_count, "total_step_count": total_step_count}
        wrong = [f"{name}={count!r}" for name, count in counts.items() if not (is_whole(count) and count >= 0)]
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


class LambdaLR(LRScheduler):
    """``base_lr`` times what a function gives for the number of steps.  The function itself is not saved."""

    def __init__(self, optimizer: Stepping, lr_lambda: Callable[[int], float]) -> None:
        given: object = lr_lambda
        check(self, problems=[] if callable(given) else [f"lr_lambda={given!r} is no function"])
        self._lambda = lr_lambda
        super().__init__(optimizer)

    def rate(self) -> float:
        """The learning rate after the steps so far."""
        return self.base_lr * self._lambda(self.steps)


class ConstantLR(LRScheduler):
    """``base_lr`` times ``factor`` for ``total_iters`` steps, then ``base_lr``."""

    def __init__(self, optimizer: Stepping, factor: float = 1 / 3, total_iters: int = 5) -> None:
        check(self, whole={"total_iters": total_iters}, not_negative={"factor": factor})
        self._factor, self._total = factor, total_iters
        super().__init__(optimizer, factor=factor, total_iters=total_iters)

    def rate(self) -> float:
        """The learning rate after the steps so far."""
        return self.base_lr * (self._factor if self.steps < self._total else 1.0)


class LinearLR(LRScheduler):
    """``base_lr`` times a factor that moves from ``start_factor`` to ``end_factor`` in ``total_iters`` steps."""

    def __init__(
        self, optimizer: Stepping, start_factor: float = 1 / 3, end_factor: float = 1.0, total_iters: int = 5
    ) -> None:
        factors = {"start_factor": start_factor, "end_factor": end_factor}
        check(self, positive_whole={"total_iters": total_iters}, not_negative=factors)
        self._start, self._end, self._total = start_factor, end_factor, total_iters
        super().__init__(optimizer, **factors, total_iters=total_iters)

    def rate(self) -> float:
        """The learning rate after the steps so far."""
        share = min(self.steps, self._total) / self._total
        return self.base_lr * (self._start + (self._end - self._start) * share)


class CosineAnnealingLR(LRScheduler):
    """From ``base_lr`` to ``eta_min`` along half a cosine of ``T_max`` steps, and back up in the next ``T_max``.

    Loshchilov and Hutter 2017.
    """

    def __init__(self, optimizer: Stepping, T_max: int, eta_min: float = 0.0) -> None:
        check(self, positive_whole={"T_max": T_max}, not_negative={"eta_min": eta_min})
        self._half, self._least = T_max, eta_min
        super().__init__(optimizer, T_max=T_max, eta_min=eta_min)

    def rate(self) -> float:
        """The learning rate after the steps so far."""
        return _cosine(self.base_lr, self._least, self.steps / self._half)


class StepLR(LRScheduler):
    """``base_lr``, times ``gamma`` after every ``step_size`` steps."""

    def __init__(self, optimizer: Stepping, step_size: int, gamma: float = 0.1) -> None:
        check(self, positive_whole={"step_size": step_size}, not_negative={"gamma": gamma})
        self._size, self._gamma = step_size, gamma
        super().__init__(optimizer, step_size=step_size, gamma=gamma)

    def rate(self) -> float:
        """The learning rate after the steps so far."""
        return float(self.base_lr * self._gamma ** (self.steps // self._size))


class MultiStepLR(LRScheduler):
    """``base_lr``, times ``gamma`` after each of the numbers of steps in ``milestones``."""

    def __init__(self, optimizer: Stepping, milestones: Sequence[int], gamma: float = 0.1) -> None:
        places = {f"milestones[{k}]": m for k, m in enumerate(milestones)}
        check(self, whole=places, not_negative={"gamma": gamma})
        self._milestones, self._gamma = sorted(milestones), gamma
        super().__init__(optimizer, milestones=list(map(int, self._milestones)), gamma=gamma)

    def rate(self) -> float:
        """The learning rate after the steps so far."""
        return float(self.base_lr * self._gamma ** bisect_right(self._milestones, self.steps))


class ExponentialLR(LRScheduler):
    """``base_lr``, times ``gamma`` after every step."""

    def __init__(self, optimizer: Stepping, gamma: float) -> None:
        check(self, not_negative={"gamma": gamma})
        self._gamma = gamma
        super().__init__(optimizer, gamma=gamma)

    def rate(self) -> float:
        """The learning rate after the steps so far."""
        return float(self.base_lr * self._gamma**self.steps)


class PolynomialLR(LRScheduler):
    """``base_lr`` · (1 − s / ``total_iters``) ^ ``power`` after s steps, and 0 from ``total_iters`` on."""

    def __init__(self, optimizer: Stepping, total_iters: int = 5, power: float = 1.0) -> None:
        check(self, positive_whole={"total_iters": total_iters}, not_negative={"power": power})
        self._total, self._power = total_iters, power
        super().__init__(optimizer, total_iters=total_iters, power=power)

    def rate(self) -> float:
        """The learning rate after the steps so far."""
        return float(self.base_lr * (1 - min(self.steps, self._total) / self._total) ** self._power)


class OneCycleLR(LRScheduler):
    """Up from ``max_lr`` / ``div_factor`` to ``max_lr``, then down to a ``final_div_factor``-th of where it began.

    The rise takes the share ``pct_start`` of ``total_steps``; with ``three_phase`` the way back to the beginning takes
    as long, and the rest goes on from there.  ``anneal_strategy`` is ``"cos"`` or ``"linear"``.  After ``total_steps``
    the rate stays.  Smith and Topin 2018.  ``base_lr`` is what it begins with, whatever rate the optimizer had.
    """

    def __init__(
        self,
        optimizer: Stepping,
        max_lr: float,
        total_steps: int,
        pct_start: float = 0.3,
        anneal_strategy: Literal["cos", "linear"] = "cos",
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
    ) -> None:
        wrong = [] if 0 <= pct_start <= 1 else [f"pct_start={pct_start!r} is not in [0, 1]"]
        if anneal_strategy not in _ANNEAL:
            near = did_you_mean(anneal_strategy, _ANNEAL)
            wrong.append(f"anneal_strategy={anneal_strategy!r} is not 'cos' or 'linear'.{near}")
        positive = {"max_lr": max_lr, "div_factor": div_factor, "final_div_factor": final_div_factor}
        check(self, positive_whole={"total_steps": total_steps}, positive=positive, problems=wrong)
        first = max_lr / div_factor
        least = first / final_div_factor
        top, last = pct_start * total_steps - 1, total_steps - 1
        self._phases = [(0.0, top, first, max_lr), (top, last, max_lr, least)]
        if three_phase:
            self._phases[1:] = [(top, 2 * top, max_lr, first), (2 * top, last, first, least)]
        self._first, self._anneal = first, _ANNEAL[anneal_strategy]
        super().__init__(
            optimizer,
            **positive,
            total_steps=total_steps,
            pct_start=pct_start,
            anneal_strategy=anneal_strategy,
            three_phase=three_phase,
        )

    def rate(self) -> float:
        """The learning rate after the steps so far."""
        begin, end, first, last = next((p for p in self._phases if self.steps <= p[1]), self._phases[-1])
        share = (self.steps - begin) / (end - begin) if end > begin else 1.0
        return self._anneal(first, last, min(share, 1.0))

    def _first_rate(self) -> float:
        return self._first


class ReduceLROnPlateau(LRScheduler):
    """The learning rate times ``factor`` whenever more than ``patience`` steps in a row brought nothing better.

    ``step(metrics)`` is given what shall become small (``mode="min"``) or large (``"max"``).  Better than the best so
    far is what is better by more than ``threshold``, a share of the best (``threshold_mode="rel"``) or a difference
    (``"abs"``).  After a reduction ``cooldown`` steps do not count.  The rate does not go below ``min_lr``, and
    reductions by ``eps`` or less are left out.
    """

    def __init__(
        self,
        optimizer: Stepping,
        mode: Literal["min", "max"] = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: Literal["rel", "abs"] = "rel",
        cooldown: int = 0,
        min_lr: float = 0.0,
        eps: float = 1e-8,
    ) -> None:
        wrong = [] if 0 <= factor < 1 else [f"factor={factor!r} is not in [0, 1)"]
        wrong += [] if mode in ("min", "max") else [f"mode={mode!r} is not 'min' or 'max'"]
        wrong += (
            [] if threshold_mode in ("rel", "abs") else [f"threshold_mode={threshold_mode!r} is not 'rel' or 'abs'"]
        )
        numbers = {"threshold": threshold, "min_lr": min_lr, "eps": eps}
        check(self, whole={"patience": patience, "cooldown": cooldown}, not_negative=numbers, problems=wrong)
        self._mode, self._threshold_mode, self._threshold = mode, threshold_mode, threshold
        self._factor, self._patience, self._cooldown, self._least, self._eps = factor, patience, cooldown, min_lr, eps
        self._best: float | None = None
        self._bad = self._resting = 0
        self._rate: float | None = None
        super().__init__(
            optimizer,
            mode=mode,
            factor=factor,
            patience=patience,
            threshold_mode=threshold_mode,
            cooldown=cooldown,
            **numbers,
        )

    def rate(self) -> float:
        """The learning rate after the steps so far."""
        return self.base_lr if self._rate is None else self._rate

    def step(self, metrics: float | None = None) -> None:
        """Look at ``metrics`` and set the next learning rate.  Raises :class:`ArgumentError` unless it is a number."""
        if not isinstance(metrics, (int, float, np.number, np.ndarray)) or np.size(metrics) != 1:
            raise ArgumentError(
                f"ReduceLROnPlateau.step was given {metrics!r}, where a number is expected.",
                "Give it what to watch: scheduler.step(validation_loss).",
            )
        value = float(np.asarray(metrics).item())
        if self._is_better(value):
            self._best, self._bad = value, 0
        else:
            self._bad += 1
        if self._resting > 0:
            self._resting, self._bad = self._resting - 1, 0
        if self._bad > self._patience:
            self._reduce()
        super().step()

    def _is_better(self, value: float) -> bool:
        if self._best is None:
            return math.isfinite(value)
        sign = -1 if self._mode == "min" else 1
        change = sign * self._threshold
        limit = self._best * (1 + change) if self._threshold_mode == "rel" else self._best + change
        return (value - limit) * sign > 0

    def _reduce(self) -> None:
        before = self.rate()
        after = max(before * self._factor, self._least)
        if before - after > self._eps:
            self._rate = after
        self._resting, self._bad = self._cooldown, 0

    def _progress(self) -> dict[str, Any]:
        return {"rate": self._rate, "best": self._best, "bad": self._bad, "resting": self._resting}

    def _resume(self, state: Mapping[str, Any]) -> None:
        self._rate, self._best = state["rate"], state["best"]
        self._bad, self._resting = int(state["bad"]), int(state["resting"])


def _linear(first: float, last: float, share: float) -> float:
    return first + (last - first) * share


def _cosine(first: float, last: float, share: float) -> float:
    return last + (first - last) * (1 + math.cos(math.pi * share)) / 2


_ANNEAL = {"cos": _cosine, "linear": _linear}
