"""Optimizer steps on the parameters of a module."""

from __future__ import annotations

import os
from collections.abc import Callable

from onnxblock.errors import InvalidModelError
from onnxblock.files import as_path

from .bound import BoundModel, part_of
from .compatibility import require_fit, require_same_generation
from .interface import read_interface
from .module import Module
from .moments import array_of
from .sequences import SequenceModel
from .session import open_session
from .state import require
from .stepping import Stepping
from .storage import Array, data_of, gradient_of


class Optimizer(Stepping):
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
        self.manifest = read_interface(self._session, path, "optimizer", self._storage)
        require_same_generation(module.manifest, module.train_path, self.manifest, path)
        require_fit(self.manifest, path, self._storage)
        self._trained = [port.name for port in module.manifest.inputs_of("parameter")]
        self._begin_steps()
        self._run: Callable[[], bool] | None = None
        if not self._storage.nominal:
            self._run = self._bind()

    def __repr__(self) -> str:
        return f"Optimizer({self._about_steps()})"

    def _bind(self) -> Callable[[], bool]:
        """Bind the model to the state's arrays; gives what does one step and tells whether it was done."""
        return self._bind_sequences() if self.manifest.inputs_of("parameters") else self._bind_tensors()

    def _bind_tensors(self) -> Callable[[], bool]:
        model = BoundModel(self._session, self._path, self.manifest)
        for port in self.manifest.inputs_of("parameter"):
            stored = self._storage.parameter(port.owner)
            model.bind(port.name, part_of(data_of(stored), port), stored.element_type)
        for port in self.manifest.inputs_of("gradient"):
            stored = self._storage.parameter(port.owner)
            model.bind(port.name, part_of(gradient_of(stored), port), stored.element_type)
        self._bind_steps(model, self._prepare_moments(self._trained))

        def run() -> bool:
            model.run()
            return self._says_done()

        return run

    def _bind_sequences(self) -> Callable[[], bool]:
        stored = [self._storage.parameter(name) for name in self._trained]
        sequences: dict[str, list[Array]] = {}
        for port in self.manifest.inputs_of("parameters"):
            sequences[port.name] = [data_of(parameter) for parameter in stored]
        for port in self.manifest.inputs_of("gradients"):
            sequences[port.name] = [gradient_of(parameter) for parameter in stored]
        for moment in self._prepare_moments(self._trained):
            sequences.setdefault(moment.inputs[0].name, []).append(array_of(self._group, moment))
        return SequenceModel(self._session, self._path, self.manifest, sequences, self._numbers()).run

    def step(self) -> None:
        """Update the parameters once.  Gradients stay as they are: call ``module.lazy_reset_grad()``.

        Raises:
            CheckpointError: the state is nominal and has no data yet.
            OnnxBlockError: the run failed.
        """
        if self._run is None:
            self._run = self._bind()
        self._set_numbers()
        if self._run():
            self._group.step += 1
