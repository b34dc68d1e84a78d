"""A model in its training and its evaluation form, with its parameters in a state."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from artifacts.manifest import Kind
from onnxblock.errors import (
    ArtifactMismatchError,
    CheckpointError,
    InvalidModelError,
    OnnxBlockError,
    ParameterError,
)
from onnxblock.files import as_path, file_version

from .bound import BoundModel, part_of
from .compatibility import require_fit, require_same_generation
from .interface import read_interface
from .seeding import checked_seed, seeded
from .session import (
    Provider,
    default_session_options,
    listed_providers,
    open_session,
    providers_for,
    runtime,
)
from .state import CheckpointState, require
from .storage import StoredParameter, data_of

if TYPE_CHECKING:
    from typing_extensions import Self


class TrainedModel(ABC):
    """What :class:`Module` and :class:`TrainingStep` have in common.

    A training form, which changes the state, and an evaluation form, which changes nothing.
    """

    _kind: ClassVar[Kind]
    """Which of the models the training form is."""

    def __init__(
        self,
        train_model_uri: str | os.PathLike[str],
        state: CheckpointState,
        eval_model_uri: str | os.PathLike[str] | None = None,
        device: str = "cpu",
        session_options: Any = None,
        *,
        providers: Sequence[Provider] | None = None,
        seed: int | None = None,
    ) -> None:
        require(state, CheckpointState, "state")
        self.training = True
        self.state = state
        self._storage = state.storage
        self.train_path = as_path(train_model_uri, InvalidModelError).absolute()
        self.providers = providers_for(device) if providers is None else listed_providers(providers)
        self.session_options = default_session_options() if session_options is None else session_options
        if seed is not None and seed != self._storage.extras.seed:
            self.set_seed(seed)
        extras = self._storage.extras
        with seeded(extras.seed, extras.runs):  # some random operators draw their own seed when they are made
            session = open_session(self.train_path, self.session_options, self.providers)
        manifest = read_interface(session, self.train_path, self._kind, self._storage)
        require_fit(manifest, self.train_path, self._storage)
        self.manifest = manifest
        self._train_model = BoundModel(session, self.train_path, manifest)
        self._eval_model = None if eval_model_uri is None else self._open_eval_model(eval_model_uri)
        self._is_bound = False
        self._begin()
        if not self._storage.nominal:
            self._bind()

    def _open_eval_model(self, uri: str | os.PathLike[str]) -> BoundModel:
        path = as_path(uri, InvalidModelError).absolute()
        session = open_session(path, self.session_options, self.providers)
        self._eval_version = file_version(path)
        manifest = read_interface(session, path, "eval", self._storage)
        require_same_generation(self.manifest, self.train_path, manifest, path)
        require_fit(manifest, path, self._storage)
        return BoundModel(session, path, manifest)

    @abstractmethod
    def _begin(self) -> None:
        """Get ready what does not need the data of the parameters."""

    def _bind(self) -> None:
        """Bind both models to the state's arrays."""
        for model in filter(None, (self._train_model, self._eval_model)):
            for port in model.manifest.inputs_of("parameter", "frozen", "statistic"):
                stored = self._storage.parameter(port.owner)
                model.bind(port.name, part_of(data_of(stored), port), stored.element_type)
        self._is_bound = True

    # -- running

    def _evaluate(self, user_inputs: Sequence[Any]) -> Any:
        if not self._is_bound:
            self._bind()
        return self._evaluation_model().run(user_inputs)

    def _train(self, user_inputs: Sequence[Any]) -> Any:
        extras = self._storage.extras
        with seeded(extras.seed, extras.runs):
            results = self._train_model.run(user_inputs)
        extras.runs += 1
        return results

    def _evaluation_model(self) -> BoundModel:
        if self._eval_model is None:
            raise OnnxBlockError(
                f"the {type(self).__name__} has no evaluation model",
                f"Pass eval_model_uri to {type(self).__name__}, or call train() to train.",
            )
        return self._eval_model

    def train(self, mode: bool = True) -> Self:
        """Switch to training mode, or to evaluation mode with ``mode=False``; returns this."""
        self.training = mode
        return self

    def eval(self) -> Self:
        """Switch to evaluation mode; returns this."""
        return self.train(False)

    def set_seed(self, seed: int | None) -> None:
        """Make the randomness of training runs from here on depend on ``seed`` alone; ``None`` leaves it to chance."""
        self._storage.extras.seed, self._storage.extras.runs = checked_seed(seed), 0

    def input_names(self) -> list[str]:
        """Names of the user's inputs, of the training or the evaluation model according to the mode."""
        return [port.name for port in self._current().user_inputs]

    def output_names(self) -> list[str]:
        """Names of the results, of the training or the evaluation model according to the mode."""
        return list(self._current().user_outputs)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._about()})"

    def _about(self) -> str:
        model = self._eval_model if not self.training and self._eval_model else self._train_model
        inputs = ", ".join(f"{port.name} {port}" for port in model.user_inputs)
        fixed = len(self.manifest.inputs_of("frozen", "statistic"))
        trained = len({port.owner for port in self.manifest.inputs_of("parameter")})
        mode = "training" if self.training else "evaluation"
        return f"{inputs} -> {', '.join(model.user_outputs)}; parameters: {trained} trained, {fixed} not; {mode}"

    def _current(self) -> BoundModel:
        return self._train_model if self.training else self._evaluation_model()

    # -- all parameters in one array

    def _in_order(self, trainable_only: bool) -> list[StoredParameter]:
        """Parameters in the order of the training model's inputs."""
        roles = ("parameter",) if trainable_only else ("parameter", "frozen", "statistic")
        ports = [port for port in self._train_model.manifest.inputs if port.role in roles and port.offset is None]
        stored = [self._storage.parameter(port.name) for port in ports]
        others = [p.name for p in stored if p.element_type.name != "float32"]
        if others:
            raise ParameterError(
                f"these parameters are not float32: {', '.join(others)}",
                "One array holds float32 only; pass trainable_only=True, or use state.parameters.",
            )
        return stored

    def _shape(self, stored: StoredParameter) -> tuple[int, ...]:
        if stored.array is not None:
            return stored.array.shape
        port = next(p for p in self._train_model.manifest.inputs if p.name == stored.name)
        shape = tuple(d for d in port.shape or () if isinstance(d, int))
        if len(shape) != len(port.shape or ()):
            raise OnnxBlockError(f"the training model does not give the shape of {stored.name!r}", "Generate it again.")
        return shape

    def get_parameters_size(self, trainable_only: bool = True) -> int:
        """Number of elements of the (trainable) parameters; works with a nominal state too.

        Raises:
            ParameterError: some are not float32.
        """
        return sum(int(np.prod(self._shape(stored))) for stored in self._in_order(trainable_only))

    def get_contiguous_parameters(self, trainable_only: bool = False) -> Any:
        """A copy of the parameters in one float32 ``OrtValue`` of rank 1, in the order of the training model's inputs.

        Raises:
            ParameterError: some are not float32.
            CheckpointError: the state is nominal and has no data yet.
        """
        arrays = [data_of(stored).ravel() for stored in self._in_order(trainable_only)]
        flat = np.concatenate(arrays) if arrays else np.empty(0, np.float32)
        make = runtime().OrtValue
        if not flat.size:
            return make.ortvalue_from_numpy(flat)
        # memory of its own: an array that it gives may live longer than it does
        value = make.ortvalue_from_shape_and_type([flat.size], np.float32)
        value.update_inplace(flat)
        return value

    def copy_buffer_to_parameters(self, buffer: Any, trainable_only: bool = True) -> None:
        """Copy what :meth:`get_contiguous_parameters` gave into the parameters.

        With ``trainable_only=False`` it gives a nominal state its data.

        Args:
            buffer: an ``OrtValue`` or array, float32, of as many elements.
            trainable_only: whether it holds the trainable parameters only.

        Raises:
            ParameterError: number or type of the elements is wrong.
            CheckpointError: a nominal state needs all parameters.
        """
        flat = np.asarray(buffer.numpy() if hasattr(buffer, "numpy") else buffer)
        size = self.get_parameters_size(trainable_only)
        if flat.dtype != np.float32 or flat.size != size:
            raise ParameterError(
                f"the buffer holds {flat.size} elements of {flat.dtype}, the parameters are {size} of float32",
                "Pass what get_contiguous_parameters gave, with the same trainable_only.",
            )
        parameters = self._in_order(trainable_only)
        if self._storage.nominal:
            self._give_data(parameters, trainable_only)
        flat = flat.reshape(-1)
        at = 0
        for stored in parameters:
            array = data_of(stored)
            np.copyto(array, flat[at : at + array.size].reshape(array.shape))
            at += array.size
        if not self._is_bound:
            self._bind()

    def _give_data(self, parameters: list[StoredParameter], trainable_only: bool) -> None:
        missing = set(self._storage.parameters) - {stored.name for stored in parameters}
        if trainable_only or missing:
            raise CheckpointError(
                "the checkpoint is nominal: all its parameters need data"
                + (f", also {', '.join(sorted(missing))}" if missing else ""),
                "Pass all of them, with trainable_only=False.",
            )
        for stored in parameters:
            stored.array = np.empty(self._shape(stored), stored.element_type.dtype())
        self._storage.nominal = False

    # -- export

    def export_model_for_inferencing(
        self, inference_model_uri: str | os.PathLike[str], graph_output_names: Sequence[str]
    ) -> None:
        """Write the evaluation model with the current parameters inside, cut down to some outputs.

        Args:
            inference_model_uri: the file to write; from 1,800 MiB on, weights go to ``<inference_model_uri>.data``.
            graph_output_names: the outputs: any values of the evaluation model.

        Raises:
            ArgumentError: the file is one of the artifacts, or the outputs are no list.
            ArtifactMismatchError: the evaluation model was replaced since it was opened.
            UnknownNameError: the evaluation model has no value of such a name.
            RuntimeUnavailableError: the package ``onnx`` is not installed.
            OnnxBlockError: there is no evaluation model, no output is named, or the file cannot be written.
        """
        from .inference import export_model

        model = self._evaluation_model()
        names = {port.name for port in model.manifest.inputs_of("parameter", "frozen", "statistic")}
        arrays = {name: array for name, array in self._storage.arrays().items() if name in names}
        if file_version(model.path) != self._eval_version:
            raise ArtifactMismatchError(
                f"{model.path} is no longer the file that was opened",
                f"Open a new {type(self).__name__}, and export it.",
            )
        export_model(model.path, arrays, inference_model_uri, graph_output_names, [self.train_path])
