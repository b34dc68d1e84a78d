"""Optimizer steps on the parameters of a module."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from artifacts.manifest import Input, InputRole
from onnxblock.checkpoint import OptimizerGroup, element_type_of
from onnxblock.errors import ArgumentError, CheckpointError, InvalidModelError, UnknownNameError, did_you_mean
from onnxblock.files import as_path
from onnxblock.names import LEARNING_RATE

from .bound import BoundModel, single
from .compatibility import require_fit, require_same_generation
from .interface import read_interface
from .module import Module
from .moments import Moment, array_of, moments_of, prepare, replace
from .sequences import SequenceModel
from .session import open_session
from .state import require
from .storage import Array, data_of, gradient_of

DEFAULT_LEARNING_RATE = 0.001


class Optimizer:
    """Updates the parameters of a module from their accumulated gradients.

    The number of completed steps, the moments, the learning rate and the scheduler belong to the module's state: they
    are saved with ``include_optimizer_state=True`` and restored.

    Args:
        optimizer_uri: the optimizer model.
        module: the module whose parameters are trained.

    Raises:
        ArgumentError: ``module`` is none.
        InvalidModelError: the file is missing or cannot be loaded.
        ArtifactMismatchError: it does not belong to the module's files.
        CheckpointError: the state holds moments of another optimizer, or that do not fit this one.
    """

    def __init__(self, optimizer_uri: str | os.PathLike[str], module: Module) -> None:
        require(module, Module, "module")
        self._storage = module.state.storage
        self._path = str(path := as_path(optimizer_uri, InvalidModelError))
        self._session = open_session(path, module.session_options, module.providers)
        self._manifest = read_interface(self._session, path, "optimizer", self._storage)
        require_same_generation(module.manifest, module.train_path, self._manifest, path)
        require_fit(self._manifest, path, self._storage)
        self._trained = [port.name for port in module.manifest.inputs_of("parameter")]
        rates = self._manifest.inputs_of("learning_rate")
        self._learning_rates = [(port, single(port, np.float32)) for port in rates]
        self._step = single(self._port("step"), np.int64)
        self._run: Callable[[], bool] | None = None
        if self._storage.optimizer is None:
            self._storage.optimizer = OptimizerGroup()
        self._group = self._storage.optimizer
        if not self._storage.nominal:
            self._run = self._bind()

    def _port(self, role: InputRole) -> Input | None:
        return next(iter(self._manifest.inputs_of(role)), None)

    def _bind(self) -> Callable[[], bool]:
        """Bind the model to the state's arrays; gives what does one step and tells whether it was done."""
        moments = moments_of(self._manifest, self._trained, self._storage)
        extras, manifest = self._storage.extras, self._manifest
        if self._group.step or self._group.moments:
            self._require_same_memory()
        prepare(self._group, moments, self._storage)
        extras.optimizer, extras.memory = manifest.settings.get("optimizer"), manifest.memory
        scalars = {port.name: array for port, array in self._learning_rates}
        scalars |= {port.name: self._step for port in self._manifest.inputs_of("step")}
        if self._manifest.inputs_of("parameters"):
            return self._bind_sequences(moments, scalars)
        return self._bind_tensors(moments, scalars)

    def _require_same_memory(self) -> None:
        """Check that the state is one that this optimizer can go on from, as far as both say what it is."""
        extras, wanted = self._storage.extras, self._manifest.memory
        if None in (extras.memory, wanted) or extras.memory == wanted:
            return
        raise CheckpointError(
            f"the optimizer state of the checkpoint is that of another optimizer: {extras.optimizer} keeps "
            f"{extras.memory}, and {self._manifest.settings.get('optimizer')} keeps {wanted}",
            "Use the optimizer that it was saved with; or start this one anew, from a checkpoint without optimizer "
            "state: CheckpointState.save_checkpoint(state, path).",
        )

    def _bind_tensors(self, moments: Sequence[Moment], scalars: dict[str, Array]) -> Callable[[], bool]:
        model = BoundModel(self._session, self._path, self._manifest)
        for name, array in scalars.items():
            model.bind(name, array, element_type_of(array.dtype))
        for port in self._manifest.inputs_of("parameter"):
            stored = self._storage.parameter(port.name)
            model.bind(port.name, data_of(stored), stored.element_type)
        for port in self._manifest.inputs_of("gradient"):
            stored = self._storage.parameter(port.parameter or "")
            model.bind(port.name, gradient_of(stored), stored.element_type)
        for moment in moments:
            model.bind(
                moment.input,
                array_of(self._group, moment),
                moment.element_type,
                partial(replace, self._group, moment),
            )
        flags = []
        for output in self._manifest.outputs_of("updated"):
            flags.append(single(output, np.bool_))
            model.bind_output(output.name, flags[-1], element_type_of("bool"))

        def run() -> bool:
            model.run()
            return all(flag.all() for flag in flags)

        return run

    def _bind_sequences(self, moments: Sequence[Moment], scalars: dict[str, Array]) -> Callable[[], bool]:
        stored = [self._storage.parameter(name) for name in self._trained]
        sequences: dict[str, list[Array]] = {}
        for port in self._manifest.inputs_of("parameters"):
            sequences[port.name] = [data_of(parameter) for parameter in stored]
        for port in self._manifest.inputs_of("gradients"):
            sequences[port.name] = [gradient_of(parameter) for parameter in stored]
        for moment in moments:
            sequences.setdefault(moment.input, []).append(array_of(self._group, moment))
        return SequenceModel(self._session, self._path, self._manifest, sequences, scalars).run

    def step(self) -> None:
        """Update the parameters once.  Gradients stay as they are: call ``module.lazy_reset_grad()``.

        Raises:
            CheckpointError: the state is nominal and has no data yet.
            OnnxBlockError: the run failed.
        """
        if self._run is None:
            self._run = self._bind()
        scales = self.learning_rate_scales
        for port, array in self._learning_rates:
            array[...] = self.get_learning_rate() * scales.get(_group_of(port), 1.0)
        self._step[...] = self._group.step + 1
        if self._run():
            self._group.step += 1

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
