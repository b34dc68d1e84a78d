"""Averages of the weights."""

from __future__ import annotations

from collections.abc import Sequence

from ..graph.types import Shape
from ..graph.value import Value
from .optimizer import Optimizer
from .pieces import average, check_settings
from .state import State
from .step import Step, Update


class ExponentialMovingAverage(Optimizer):
    """An optimizer that also keeps e ← decay · e + (1 - decay) · p of every parameter, after each of its steps.

    e begins at the parameter and is the last state of it (Polyak and Juditsky 1992).  float16 parameters are averaged
    in float32.
    """

    def __init__(self, optimizer: Optimizer, decay: float = 0.999) -> None:
        super().__init__(optimizer.clip_grad)
        check_settings("ExponentialMovingAverage", fractions={"decay": decay})
        self._optimizer, self._decay = optimizer, decay

    def states(self, shape: Shape) -> Sequence[State]:
        """Those of the optimizer, and the average."""
        return [*self._optimizer.states(shape), State(shape, "parameter")]

    def rule(self, step: Step) -> Update:
        """Add what the tensors share, and return the function that updates one of them."""
        inner = self._optimizer.rule(step)

        def update(p: Value, g: Value, *states: Value) -> list[Value]:
            new, *moved = inner(p, g, *states[:-1])
            return [new, *moved, average(states[-1], new, self._decay)]

        return update
