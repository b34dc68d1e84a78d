"""What the inputs and outputs of an opened model are for: from its manifest, or else from their names."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from artifacts.manifest import Dimension, Initial, Input, InputRole, Kind, Manifest, Output, OutputRole, StatePair
from onnxblock import names
from onnxblock.errors import ArtifactMismatchError, InvalidModelError

from .storage import Storage

_UNKNOWN = ""
_GRADIENT_ENDINGS = (names.GRADIENT_BUFFER_SUFFIX, names.GRADIENT_FLAG_SUFFIX, names.GRADIENT_SUFFIX)
_TYPE_NAMES = {
    "float": "float32",
    "double": "float64",
    "float8e4m3fn": "float8_e4m3fn",
    "float8e4m3fnuz": "float8_e4m3fnuz",
    "float8e5m2": "float8_e5m2",
    "float8e5m2fnuz": "float8_e5m2fnuz",
}
_SEQUENCES: dict[str, InputRole] = {
    names.PARAMETERS_SEQUENCE: "parameters",
    names.GRADIENTS_SEQUENCE: "gradients",
    names.FIRST_MOMENTS_SEQUENCE: "moments",
    names.SECOND_MOMENTS_SEQUENCE: "moments",
}


def read_interface(session: Any, path: str | os.PathLike[str], kind: Kind, storage: Storage) -> Manifest:
    """The manifest of the model in ``session``; for a model without one it is derived from the names of its ports.

    A manifest that was derived has no fingerprints and promises nothing about binding in place.

    Raises:
        InvalidModelError: the manifest is not valid, or the names do not say how the model trains.
        ArtifactMismatchError: the model is of another kind or for another runtime.
    """
    manifest = Manifest.from_metadata(session.get_modelmeta().custom_metadata_map)
    if manifest is None and kind not in _DERIVED:
        raise InvalidModelError(
            f"{os.fspath(path)} has no manifest, so it is not a {kind} model of generate_artifacts",
            "Pass the file that generate_artifacts(..., fused_step=True) wrote.",
        )
    if manifest is None:
        return _DERIVED[kind](session, os.fspath(path), storage)
    if manifest.kind != kind:
        raise ArtifactMismatchError(
            f"{os.fspath(path)} is the {manifest.kind} model, where the {kind} model is expected",
            "Pass the files in the order training model, state, eval model; the optimizer model to Optimizer, and the "
            "step model, in the place of the training model, to TrainingStep.",
        )
    if "onnxruntime" not in manifest.runtimes:
        raise ArtifactMismatchError(
            f"{os.fspath(path)} was made for {', '.join(manifest.runtimes)} only",
            "Generate the artifacts with runtime='onnxruntime'.",
        )
    return manifest


def type_name(text: str) -> str:
    """The element type in onnxruntime's ``tensor(float)`` or ``seq(tensor(float))``, as NumPy spells it."""
    inner = text.removeprefix("seq(").removeprefix("tensor(").rstrip(")")
    return _TYPE_NAMES.get(inner, inner)


def _shape(port: Any) -> tuple[Dimension, ...] | None:
    """The declared shape; onnxruntime gives an unknown rank and rank 0 alike as no dimensions, so that is unknown."""
    return tuple(port.shape) or None


def _classify(name: str, storage: Storage) -> tuple[InputRole, str | None]:
    stored = storage.parameters.get(name)
    if stored is not None:
        return ("parameter" if stored.requires_grad else "frozen"), None
    if name == names.LAZY_RESET_GRAD:
        return "reset", None
    for ending in _GRADIENT_ENDINGS:
        if name.endswith(ending):
            return "gradient_buffer", name.removesuffix(ending)
    return "user", None


def _derive_training(session: Any, path: str, storage: Storage) -> Manifest:
    roles = {port.name: _classify(port.name, storage) for port in session.get_inputs()}
    outputs: list[Output] = []
    pairs: list[StatePair] = []
    statistics: set[str] = set()
    buffers = {parameter: name for name, (role, parameter) in roles.items() if role == "gradient_buffer"}
    for port in session.get_outputs():
        role, parameter = _classify_training_output(port.name, roles, buffers)
        outputs.append(Output(port.name, role, type_name(port.type), _shape(port), parameter))
        if role == "statistic":
            name = port.name.removesuffix(names.GRADIENT_SUFFIX)
            statistics.add(name)
            pairs.append(StatePair(name, port.name, False, Initial("parameter", parameter=name)))
        elif role == "accumulated_gradient":
            pairs.append(StatePair(buffers[parameter], port.name, False, Initial("zeros")))
    lost = sorted(set(buffers.values()) - {pair.input for pair in pairs})
    if lost:
        raise InvalidModelError(
            f"{path} has no output with the accumulated gradient for: {', '.join(lost)}",
            "It can train on onnxruntime-training only; generate the artifacts with this library.",
        )
    inputs = tuple(
        Input(
            port.name, "statistic" if port.name in statistics else role, type_name(port.type), _shape(port), parameter
        )
        for port in session.get_inputs()
        for role, parameter in [roles[port.name]]
    )
    return _derived("training", inputs, tuple(outputs), tuple(pairs))


def _classify_training_output(
    name: str, inputs: Mapping[str, tuple[InputRole, str | None]], buffers: Mapping[str | None, str]
) -> tuple[OutputRole, str | None]:
    if name.endswith(names.GRADIENT_FLAG_SUFFIX):
        return "gradient_flag", name.removesuffix(names.GRADIENT_FLAG_SUFFIX)
    if name.endswith(names.GRADIENT_SUFFIX):
        stem = name.removesuffix(names.GRADIENT_SUFFIX)
        if inputs.get(stem, ("user", None))[0] == "frozen":
            return "statistic", None
        owners = [p for p in buffers if p is not None and (stem == p or stem.startswith(p + "."))]
        if owners:
            return "accumulated_gradient", max(owners, key=len)
    return "user", None


def _derive_eval(session: Any, path: str, storage: Storage) -> Manifest:
    del path
    inputs = []
    for port in session.get_inputs():
        role, parameter = _classify(port.name, storage)
        if role not in {"parameter", "frozen"}:
            role, parameter = "user", None
        inputs.append(Input(port.name, role, type_name(port.type), _shape(port), parameter))
    outputs = [Output(port.name, "user", type_name(port.type), _shape(port)) for port in session.get_outputs()]
    return _derived("eval", tuple(inputs), tuple(outputs), ())


def _derive_optimizer(session: Any, path: str, storage: Storage) -> Manifest:
    inputs: list[Input] = []
    for port in session.get_inputs():
        role, parameter = _classify_optimizer_input(port.name, storage)
        if role is None:
            raise InvalidModelError(
                f"{path}: the input {port.name!r} is none that an optimizer model has",
                f"Name inputs {names.LEARNING_RATE}, {names.STEP}, <parameter>, <parameter>_grad, "
                f"<parameter>.momentum0 …; or {', '.join(_SEQUENCES)}.",
            )
        inputs.append(Input(port.name, role, type_name(port.type), _shape(port), parameter))
    ports = session.get_outputs()
    sequences = [p for p in inputs if p.role in {"parameters", "moments"}]
    if sequences:
        return _derive_sequences(path, tuple(inputs), sequences, ports)
    stateful = {p.name: p for p in inputs if p.role in {"parameter", "moment"}}
    outputs: list[Output] = []
    pairs: list[StatePair] = []
    for port in ports:
        source = stateful.get(port.name.removesuffix(names.UPDATED_SUFFIX))
        role_out: OutputRole = "updated" if source is None else "parameter" if source.role == "parameter" else "moment"
        parameter = None if source is None else source.parameter
        outputs.append(Output(port.name, role_out, type_name(port.type), _shape(port), parameter))
        if source is not None:
            start = Initial("parameter", parameter=source.name) if source.role == "parameter" else Initial("zeros")
            pairs.append(StatePair(source.name, port.name, False, start))
    lost = sorted(set(stateful) - {pair.input for pair in pairs})
    if lost:
        raise InvalidModelError(
            f"{path} has no output with the next value of: {', '.join(lost)}",
            f"Name each output as its input with {names.UPDATED_SUFFIX!r} behind it.",
        )
    return _derived("optimizer", tuple(inputs), tuple(outputs), tuple(pairs))


def _derive_sequences(path: str, inputs: tuple[Input, ...], sequences: list[Input], ports: list[Any]) -> Manifest:
    results = [port for port in ports if port.type.startswith("seq(")]
    if len(results) < len(sequences):
        raise InvalidModelError(
            f"{path} does not give back the sequences {', '.join(p.name for p in sequences[len(results) :])}",
            "It can train on onnxruntime-training only; generate the artifacts with this library.",
        )
    by_output = {port.name: source for port, source in zip(results, sequences, strict=False)}
    outputs, pairs = [], []
    for port in ports:
        source = by_output.get(port.name)
        role: OutputRole = "updated" if source is None else "parameters" if source.role == "parameters" else "moments"
        outputs.append(Output(port.name, role, type_name(port.type)))
        if source is not None:
            pairs.append(StatePair(source.name, port.name, False, Initial("zeros")))
    return _derived("optimizer", inputs, tuple(outputs), tuple(pairs))


def _classify_optimizer_input(name: str, storage: Storage) -> tuple[InputRole | None, str | None]:
    if name in storage.parameters:
        return "parameter", None
    if name == names.LEARNING_RATE:
        return "learning_rate", None
    if name == names.STEP:
        return "step", None
    if name in _SEQUENCES:
        return _SEQUENCES[name], None
    parameter = name.removesuffix(names.GRADIENT_SUFFIX)
    if parameter in storage.parameters:
        return "gradient", parameter
    moment = re.fullmatch(rf"(.+)\.{names.MOMENTUM_PREFIX}\d+", name)
    if moment and moment[1] in storage.parameters:
        return "moment", moment[1]
    return None, None


def _derived(
    kind: Kind, inputs: tuple[Input, ...], outputs: tuple[Output, ...], pairs: tuple[StatePair, ...]
) -> Manifest:
    return Manifest(kind, _UNKNOWN, _UNKNOWN, ("onnxruntime",), inputs, outputs, pairs)


_DERIVED: dict[str, Callable[[Any, str, Storage], Manifest]] = {
    "training": _derive_training,
    "eval": _derive_eval,
    "optimizer": _derive_optimizer,
}
