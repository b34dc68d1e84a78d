"""Averages of the weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..graph.types import Shape
from ..graph.value import Value
from .optimizer import Optimizer, Part, require_optimizer
from .parameters import Parameter
from .pieces import average, check_settings
from .state import State
from .step import Step, Update


class ExponentialMovingAverage(Optimizer):
    """An optimizer that also keeps e ← decay · e + (1 - decay) · p of every parameter, after each of its steps.

    e begins at the parameter and is the last state of it (Polyak and Juditsky 1992).  float16 parameters are averaged
    in float32.  ``with optimizer.averaged_weights():`` evaluates and exports with the averages.
    """

    elementwise = True

    def __init__(self, optimizer: Optimizer, decay: float = 0.999) -> None:
        require_optimizer("ExponentialMovingAverage", optimizer)
        super().__init__(optimizer.clip_grad, optimizer=optimizer, decay=decay)
        check_settings("ExponentialMovingAverage", fractions={"decay": decay})
        self._optimizer, self._decay = optimizer, decay
        self.elementwise = type(self).elementwise and optimizer.elementwise
        self._of_groups: dict[Optimizer, ExponentialMovingAverage] = {optimizer: self}

    def part_for(self, parameter: Parameter) -> Part:
        """That of the optimizer, averaged."""
        part = self._optimizer.part_for(parameter)
        if part.optimizer not in self._of_groups:
            self._of_groups[part.optimizer] = ExponentialMovingAverage(part.optimizer, self._decay)
        return Part(self._of_groups[part.optimizer], part.group)

    @property
    def learning_rate_scales(self) -> Mapping[str, float]:
        """Those of the optimizer."""
        return self._optimizer.learning_rate_scales

    @property
    def memory(self) -> str:
        """That of the optimizer, and the average."""
        return f"{self._optimizer.memory}, average of p"

    def states(self, shape: Shape) -> Sequence[State]:
        """Those of the optimizer, and the average."""
        return [*self._optimizer.states(shape), State(shape, "parameter", "average of p")]

    def rule(self, step: Step) -> Update:
        """Add what the tensors share, and return the function that updates one of them."""
        inner = self._optimizer.rule(step)

        def update(p: Value, g: Value, *states: Value) -> list[Value]:
            new, *moved = inner(p, g, *states[:-1])
            return [new, *moved, average(states[-1], new, self._decay)]

        return update
