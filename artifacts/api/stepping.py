"""What optimizer steps need beside gradients: their number, the learning rates, the moments, the schedule."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from artifacts.manifest import Input, Manifest
from onnxblock.checkpoint import OptimizerGroup, element_type_of
from onnxblock.errors import ArgumentError, CheckpointError, OnnxBlockError, UnknownNameError, did_you_mean
from onnxblock.names import LEARNING_RATE

from .bound import BoundModel, part_of, single
from .moments import Moment, array_of, moments_of, prepare, replace
from .storage import Array, Storage, data_of

DEFAULT_LEARNING_RATE = 0.001


class Stepping:
    """What :class:`Optimizer` and :class:`TrainingStep` have in common, and schedulers work on.

    The number of completed steps, the moments, the learning rate and the scheduler belong to the state: they are saved
    with ``include_optimizer_state=True`` and restored.
    """

    manifest: Manifest
    _storage: Storage

    def _about_steps(self) -> str:
        kind = self.manifest.settings.get("optimizer", "unknown rule")
        return f"{kind}, steps done: {self._group.step}, learning rate {self.get_learning_rate():g}"

    def _begin_steps(self) -> None:
        """Make the numbers that change from step to step, and the state's group of moments if it has none."""
        rates = self.manifest.inputs_of("learning_rate")
        self._learning_rates = [(port, single(port, np.float32)) for port in rates]
        self._step = single(next(iter(self.manifest.inputs_of("step")), None), np.int64)
        self._flags: list[Array] = []
        self._moments: Sequence[Moment] = ()
        if self._storage.optimizer is None:
            self._storage.optimizer = OptimizerGroup()
        self._group = self._storage.optimizer

    def _prepare_moments(self, trained: list[str]) -> list[Moment]:
        """The moments of the parameters ``trained``, which the state holds from here on."""
        moments = moments_of(self.manifest, trained, self._storage)
        if self._group.step or self._group.moments:
            self._require_same_memory()
        prepare(self._group, moments, self._storage)
        extras = self._storage.extras
        extras.optimizer, extras.memory = self.manifest.settings.get("optimizer"), self.manifest.memory
        self._moments = moments
        return moments

    def _require_same_memory(self) -> None:
        """Check that the state is one that this optimizer can go on from, as far as both say what it is."""
        extras, wanted = self._storage.extras, self.manifest.memory
        if None in (extras.memory, wanted) or extras.memory == wanted:
            return
        raise CheckpointError(
            f"the optimizer state of the checkpoint is that of another optimizer: {extras.optimizer} keeps "
            f"{extras.memory}, and {self.manifest.settings.get('optimizer')} keeps {wanted}",
            "Use the optimizer that it was saved with; or start this one anew, from a checkpoint without optimizer "
            "state: CheckpointState.save_checkpoint(state, path).",
        )

    def _numbers(self) -> dict[str, Array]:
        """The arrays that the learning rates and the step are fed from, by input."""
        numbers = {port.name: array for port, array in self._learning_rates}
        return numbers | {port.name: self._step for port in self.manifest.inputs_of("step")}

    def _bind_steps(self, model: BoundModel, moments: Sequence[Moment]) -> None:
        """Bind the numbers, the moments and what tells whether a step was done."""
        for name, array in self._numbers().items():
            model.bind(name, array, element_type_of(array.dtype))
        for moment in moments:
            array = array_of(self._group, moment)
            for port in moment.inputs:
                another = None if port.offset is not None else partial(replace, self._group, moment)
                model.bind(port.name, part_of(array, port), moment.element_type, another)
        for output in self.manifest.outputs_of("updated"):
            self._flags.append(single(output, np.bool_))
            model.bind_output(output.name, self._flags[-1], element_type_of("bool"))

    def _set_numbers(self) -> None:
        """Set the learning rates and the number of the step that comes."""
        common, scales = self.get_learning_rate(), self.learning_rate_scales
        for port, array in self._learning_rates:
            array[...] = common * scales.get(_group_of(port), 1.0)
        self._step[...] = self._group.step + 1

    def _says_done(self) -> bool:
        """Whether the model says that the step was done, as far as it says anything."""
        return all(flag.all() for flag in self._flags)

    def set_learning_rate(self, learning_rate: float) -> None:
        """Set the learning rate of the steps to come.

        Raises:
            ArgumentError: it is not a finite number.
        """
        self._storage.extras.learning_rate = _finite(learning_rate)

    def get_learning_rate(self, *, group: str | None = None) -> float:
        """The learning rate of the next step, 0.001 unless it was set; that of a group of parameters if one is named.

        Raises:
            UnknownNameError: there is no such group with a learning rate of its own.
        """
        value = self._storage.extras.learning_rate
        common = DEFAULT_LEARNING_RATE if value is None else value
        return common if group is None else common * self.learning_rate_scales[self._known(group)]

    @property
    def learning_rate_scales(self) -> dict[str, float]:
        """What the learning rate of each group of parameters is a multiple of the common one by, if it has its own."""
        chosen = {_group_of(port): port.scale for port, _ in self._learning_rates if port.scale is not None}
        return {group: self._storage.extras.learning_rate_scales.get(group, scale) for group, scale in chosen.items()}

    def set_learning_rate_scale(self, group: str, scale: float) -> None:
        """Let the learning rate of a group of parameters be ``scale`` times the common one; 0 freezes the group.

        Raises:
            UnknownNameError: there is no such group with a learning rate of its own.
            ArgumentError: the scale is not a finite number.
        """
        self._storage.extras.learning_rate_scales[self._known(group)] = _finite(scale)

    def _known(self, group: str) -> str:
        groups = self.learning_rate_scales
        if group not in groups:
            raise UnknownNameError(
                f"there is no group {group!r} with a learning rate of its own.{did_you_mean(group, groups)}",
                f"There is {', '.join(map(repr, groups)) or 'none'}; "
                "optim.Group(..., name=..., learning_rate_scale=1.0) makes one.",
            )
        return group

    @property
    def averages(self) -> dict[str, Array]:
        """The averaged weights by parameter, live; none unless ``optim.ExponentialMovingAverage`` keeps them."""
        return {m.parameter: array_of(self._group, m) for m in self._moments if m.initial.kind == "parameter"}

    @contextmanager
    def averaged_weights(self) -> Iterator[None]:
        """Let the parameters be their averages in a ``with`` block, to evaluate, export or save; then as they were.

        Training in the block is lost with it.

        Raises:
            OnnxBlockError: the optimizer keeps no averages.
        """
        averages = self.averages
        if not averages:
            raise OnnxBlockError(
                "the optimizer keeps no averages of the weights"
                + (": the checkpoint is nominal, and has no data yet" if self._storage.nominal else ""),
                "Generate with optimizer=optim.ExponentialMovingAverage(optim.AdamW()), for example.",
            )
        held = {name: data_of(self._storage.parameter(name)) for name in averages}
        trained = {name: array.copy() for name, array in held.items()}
        for name, array in held.items():
            np.copyto(array, averages[name])
        try:
            yield
        finally:
            for name, array in held.items():
                np.copyto(array, trained[name])

    def register_scheduler(
        self, state_dict: Callable[[], dict[str, Any]], is_of: Callable[[Mapping[str, Any]], bool]
    ) -> Mapping[str, Any] | None:
        """Save what ``state_dict`` gives with the optimizer's state from now on.

        Returns:
            What the checkpoint holds of a scheduler, if ``is_of`` takes it for one of this kind; it is given once.
        """
        self._storage.scheduler = state_dict
        saved = self._storage.extras.scheduler
        if saved is None or self._storage.scheduler_resumed or not is_of(saved):
            return None
        self._storage.scheduler_resumed = True
        return saved

    @property
    def completed_steps(self) -> int:
        """Steps done so far, those before a checkpoint was loaded included."""
        return self._group.step

    def set_initial_learning_rate(self, learning_rate: float) -> None:
        """Record the learning rate that a schedule starts from, for the checkpoint."""
        self._group.initial_learning_rate = _finite(learning_rate)


def _group_of(port: Input) -> str:
    """The name of the group of parameters whose learning rate an input is."""
    return port.name.removeprefix(f"{LEARNING_RATE}.")


def _finite(learning_rate: object) -> float:
    is_number = isinstance(learning_rate, (int, float, np.number)) or (
        isinstance(learning_rate, np.ndarray) and learning_rate.size == 1
    )
    value = float(np.asarray(learning_rate).item()) if is_number else math.nan
    if not math.isfinite(value):
        raise ArgumentError(f"the learning rate {learning_rate!r} is not a finite number", "Give a finite number.")
    return value
