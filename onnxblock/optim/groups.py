"""Several groups of parameters, each with settings and a learning rate of its own."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

from ..errors import BlockBuildError, ParameterError, did_you_mean
from ..graph.types import Shape
from ..graph.value import Value
from .optimizer import Optimizer, Part, require_optimizer
from .parameters import Parameter, Parameters, trainable
from .state import State
from .step import Step, Update

Match: TypeAlias = "str | Callable[[Parameter], bool]"
"""Parameters: one name, a pattern with ``*`` and ``?``, or a function that says of each whether it is meant."""


def vectors(parameter: Parameter) -> bool:
    """Whether a parameter has at most one axis: biases and the scales of normalizations, which seldom decay."""
    return parameter.shape is not None and len(parameter.shape) <= 1


class Group:
    """Some of the parameters, and what is different for them: ``Group("*.bias", vectors, weight_decay=0.0)``.

    ``match`` says which they are, in any of the ways of :data:`Match`; one of them suffices.  What differs are
    ``settings`` of the optimizer by their names, or a whole ``optimizer``.

    With ``learning_rate_scale`` the group has a learning rate of its own: that many times the common one, whatever that
    is.  It can be changed while training under the ``name`` of the group, and 0 freezes the group.  Without it the
    group takes the common rate, and costs nothing.
    """

    def __init__(
        self,
        *match: Match,
        name: str | None = None,
        learning_rate_scale: float | None = None,
        optimizer: Optimizer | None = None,
        **settings: Any,
    ) -> None:
        given: tuple[object, ...] = match
        wrong = [] if given else ["it names no parameters"]
        wrong += [f"{m!r} is neither text nor a function" for m in given if not (isinstance(m, str) or callable(m))]
        if optimizer is not None and settings:
            wrong.append(f"{', '.join(settings)} belongs in the optimizer that is given")
        if learning_rate_scale is not None and not 0 <= learning_rate_scale < math.inf:
            wrong.append(f"learning_rate_scale = {learning_rate_scale!r} is not a number from 0 on")
        if "clip_grad" in settings or (optimizer is not None and optimizer.clip_grad is not None):
            wrong.append("gradients are clipped all together, by the optimizer that the groups belong to")
        if wrong:
            raise BlockBuildError(
                f"{type(self).__name__}: {'; '.join(wrong)}.",
                "optim.Group('*.bias', weight_decay=0.0, learning_rate_scale=2.0)",
            )
        self.match, self.name, self.learning_rate_scale = match, name, learning_rate_scale
        self.optimizer, self.settings = optimizer, settings

    def __repr__(self) -> str:
        shown = [repr(m) if isinstance(m, str) else getattr(m, "__name__", repr(m)) for m in self.match]
        given = {"name": self.name, "learning_rate_scale": self.learning_rate_scale, "optimizer": self.optimizer}
        changes = {**{k: v for k, v in given.items() if v is not None}, **self.settings}
        return f"Group({', '.join([*shown, *(f'{k}={v!r}' for k, v in changes.items())])})"

    def matches(self, parameter: Parameter) -> bool:
        """Whether a parameter belongs here."""
        return any(_matches(match, parameter) for match in self.match)


def _matches(match: Match, parameter: Parameter) -> bool:
    if not isinstance(match, str):
        return bool(match(parameter))
    return match == parameter.name or fnmatchcase(parameter.name, match)


def _has_groups(optimizer: Optimizer | None) -> bool:
    inner = [] if optimizer is None else [o for o in optimizer.settings.values() if isinstance(o, Optimizer)]
    return isinstance(optimizer, ParameterGroups) or any(map(_has_groups, inner))


class ParameterGroups(Optimizer):
    """An optimizer that treats some parameters differently: biases that do not decay, a head that learns faster.

    ``ParameterGroups(AdamW(weight_decay=0.01), Group(vectors, weight_decay=0.0))``: a parameter belongs to the first
    group that matches it, and to the optimizer as it stands where none does.  All settings are constants of the model;
    nothing is looked up at run time.  As the ``params`` of a PyTorch optimizer; gradients are clipped all together.
    """

    def __init__(self, optimizer: Optimizer, *groups: Group) -> None:
        super().__init__(require_optimizer(type(self).__name__, optimizer).clip_grad)
        self._optimizer, self._groups = optimizer, groups
        self._names = [getattr(g, "name", None) or f"group{k}" for k, g in enumerate(groups, 1)]
        problems = list(self._problems())
        if problems:
            raise BlockBuildError(
                f"{type(self).__name__}: {'; '.join(problems)}.",
                "optim.ParameterGroups(optim.AdamW(weight_decay=0.01), optim.Group('*.bias', weight_decay=0.0))",
            )
        self._parts = [
            Part(
                g.optimizer or (optimizer.with_settings(**g.settings) if g.settings else optimizer),
                None if g.learning_rate_scale is None else name,
            )
            for name, g in zip(self._names, groups)
        ]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, (self._optimizer, *self._groups)))})"

    def build(self, parameters: Parameters) -> Any:
        """Add the step; raises also :class:`ParameterError` when a group is of no parameter."""
        chosen = trainable(parameters)
        empty = [f"{name} {group!r}.{self._near(group, chosen)}" for name, group in self._without(chosen)]
        if empty:
            raise ParameterError(
                "groups that no trained parameter belongs to: " + " ".join(empty),
                "A parameter is in the first group that matches it; print(onnxblock.inspect(model)) lists the names.",
            )
        return super().build(parameters)

    def part_for(self, parameter: Parameter) -> Part:
        """That of the first group which matches."""
        place = self._place(parameter)
        return Part(self._optimizer) if place is None else self._parts[place]

    @property
    def learning_rate_scales(self) -> Mapping[str, float]:
        """Those of the groups that have one."""
        scales = {name: g.learning_rate_scale for name, g in zip(self._names, self._groups)}
        return {name: scale for name, scale in scales.items() if scale is not None}

    def states(self, shape: Shape) -> Sequence[State]:
        """Those of a parameter in no group."""
        return self._optimizer.states(shape)

    def rule(self, step: Step) -> Update:
        """The update of a parameter in no group."""
        return self._optimizer.rule(step)

    def _build_sequences(self, parameters: Sequence[Parameter]) -> Value:  # noqa: ARG002 - there is no such form
        raise BlockBuildError(
            "groups of parameters have no form for onnxruntime-training.",
            "Leave runtime= at its default, 'onnxruntime'.",
        )

    def _problems(self) -> Iterator[str]:
        if not self._groups or not all(isinstance(g, Group) for g in self._groups):
            yield f"{', '.join(map(repr, self._groups)) or 'nothing'} is not a list of Group"
            return
        yield from (f"the name {n!r} comes {k} times" for n, k in Counter(self._names).items() if k > 1)
        if any(map(_has_groups, (self._optimizer, *(g.optimizer for g in self._groups)))):
            yield "there are groups within groups"

    def _place(self, parameter: Parameter) -> int | None:
        return next((k for k, g in enumerate(self._groups) if g.matches(parameter)), None)

    def _without(self, parameters: Sequence[Parameter]) -> list[tuple[str, Group]]:
        taken = {self._place(p) for p in parameters}
        return [(self._names[k], g) for k, g in enumerate(self._groups) if k not in taken]

    def _near(self, group: Group, parameters: Sequence[Parameter]) -> str:
        texts = [m for m in group.match if isinstance(m, str)]
        return did_you_mean(texts[0], [p.name for p in parameters]) if texts else ""
