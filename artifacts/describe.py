"""The manifests of the models."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, takewhile
from typing import Any

from onnx import ModelProto, TypeProto, ValueInfoProto

from onnxblock import names
from onnxblock.errors import InvalidModelError
from onnxblock.graph.inplace import InPlace
from onnxblock.graph.schemas import opset_of
from onnxblock.graph.types import dtype_name, tensor_type
from onnxblock.training import OLD_RUNTIME_OPSET, TrainingModels

from .manifest import Initial, Input, InputRole, Manifest, Output, OutputRole, Runtime, StatePair

OLD_RUNTIME_DTYPES = frozenset(
    {"float32", "float64", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"}
)
"""What the discontinued runtime can load from a checkpoint."""

_SEQUENCES: dict[str, InputRole] = {
    names.PARAMETERS_SEQUENCE: "parameters",
    names.GRADIENTS_SEQUENCE: "gradients",
    names.FIRST_MOMENTS_SEQUENCE: "moments",
    names.SECOND_MOMENTS_SEQUENCE: "moments",
}


def generation_fingerprint(models: Sequence[ModelProto]) -> str:
    """A digest of the graphs of one run."""
    digest = hashlib.sha256()
    for model in models:
        digest.update(model.SerializeToString(deterministic=True))
    return digest.hexdigest()


def describe_training(
    models: TrainingModels, fingerprint: str, generation: str, settings: Mapping[str, Any]
) -> Manifest:
    """The manifest of the training model."""
    model, choice = models.training, models.choice
    in_place = InPlace(model)
    owner: dict[str, tuple[InputRole, str | None]] = {names.LAZY_RESET_GRAD: ("reset", None)}
    made: dict[str, tuple[OutputRole, str | None]] = {models.outputs[0]: ("loss", None)}
    pairs = []
    for name in choice.trainable:
        buffer, out = names.gradient_buffer(name), names.accumulated_gradient(name)
        owner[buffer] = ("gradient_buffer", name)
        made[names.gradient_flag(name)] = ("gradient_flag", name)
        made[out] = ("accumulated_gradient", name)
        pairs.append(StatePair(buffer, out, in_place.is_safe(buffer, out), Initial("zeros")))
    statistics, moved = _statistics(models, in_place)
    made.update(statistics)
    owner.update(_parameter_roles(models))
    return Manifest(
        kind="training",
        model=fingerprint,
        generation=generation,
        runtimes=_runtimes(models),
        inputs=_inputs(model, owner),
        outputs=_outputs(model, made),
        state=(*pairs, *moved),
        settings=dict(settings),
    )


def describe_evaluation(
    models: TrainingModels, fingerprint: str, generation: str, settings: Mapping[str, Any]
) -> Manifest:
    """The manifest of the evaluation model."""
    return Manifest(
        kind="eval",
        model=fingerprint,
        generation=generation,
        runtimes=_runtimes(models),
        inputs=_inputs(models.evaluation, _parameter_roles(models)),
        outputs=_outputs(models.evaluation, {models.outputs[0]: ("loss", None)}),
        settings=dict(settings),
    )


def describe_optimizer(
    model: ModelProto, models: TrainingModels, fingerprint: str, generation: str, settings: Mapping[str, Any]
) -> Manifest:
    """The manifest of the optimizer model, in either form; its metadata lose what the manifest says."""
    if any(v.name == names.PARAMETERS_SEQUENCE and v.type.HasField("sequence_type") for v in model.graph.input):
        return _describe_sequences(model, models, fingerprint, generation, settings)
    update = _take_update(model, models.choice.trainable)
    for value in model.graph.output:
        update.made.setdefault(value.name, ("updated", None))
    return Manifest(
        kind="optimizer",
        model=fingerprint,
        generation=generation,
        runtimes=("onnxruntime",),
        inputs=_inputs(model, update.owner, "parameter", update),
        outputs=_outputs(model, update.made, update),
        state=tuple(update.pairs),
        settings=_with_optimizer(settings, update.about),
        memory=update.about.get("memory"),
    )


def describe_step(
    model: ModelProto, models: TrainingModels, fingerprint: str, generation: str, settings: Mapping[str, Any]
) -> Manifest:
    """The manifest of the step model; its metadata lose what the manifest says."""
    update = _take_update(model, models.choice.trainable)
    inputs = {name: role for name, role in update.owner.items() if role[0] != "gradient"} | _parameter_roles(models)
    made, pairs = _statistics(models, update.in_place)
    update.made.update(made)
    user = {*models.outputs, *(name + names.GRADIENT_SUFFIX for name in models.choice.inputs)}
    for value in model.graph.output:
        if value.name not in user:
            update.made.setdefault(value.name, ("updated", None))
    return Manifest(
        kind="step",
        model=fingerprint,
        generation=generation,
        runtimes=("onnxruntime",),
        inputs=_inputs(model, inputs, update=update),
        outputs=_outputs(model, {**update.made, models.outputs[0]: ("loss", None)}, update),
        state=(*update.pairs, *pairs),
        settings=_with_optimizer(settings, update.about),
        memory=update.about.get("memory"),
    )


@dataclass(frozen=True)
class _Update:
    """What the ports of an update are: the inputs, the outputs, the states, and what the optimizer says of itself."""

    owner: dict[str, tuple[InputRole, str | None]]
    made: dict[str, tuple[OutputRole, str | None]]
    pairs: list[StatePair]
    about: dict[str, Any]
    offsets: dict[str, int]
    in_place: InPlace

    @property
    def scales(self) -> dict[str, float]:
        """What the learning rates of groups are multiples of the common one by."""
        scales: dict[str, float] = self.about.get("learning_rate_scales", {})
        return scales


def _take_update(model: ModelProto, trainable: Iterable[str]) -> _Update:
    """The update in a model with one input per tensor, whose metadata lose what is told here."""
    owner: dict[str, tuple[InputRole, str | None]] = {
        names.LEARNING_RATE: ("learning_rate", None),
        names.STEP: ("step", None),
    }
    made: dict[str, tuple[OutputRole, str | None]] = {}
    pairs = []
    starts = _take_metadata(model, names.INITIAL_STATES_KEY)
    about = _take_metadata(model, names.OPTIMIZER_KEY)
    owner.update((name, ("learning_rate", None)) for name in about.get("learning_rate_scales", {}))
    offsets: dict[str, int] = {}
    tensors = list(_tensors(trainable, about.get("slices", {})))
    in_place = InPlace(model, {tensor: name for name, tensor, offset in tensors if offset is not None})
    outputs = {v.name for v in model.graph.output}
    given = {v.name for v in model.graph.input}
    for name, tensor, offset in tensors:
        gradient = tensor + names.GRADIENT_SUFFIX
        owner[tensor] = ("parameter", None if offset is None else name)
        owner[gradient] = ("gradient", name)
        moments = list(takewhile(given.__contains__, (names.moment(tensor, k) for k in count())))
        for state in (tensor, *moments):
            out = names.updated(state)
            if out not in outputs:
                continue
            if state == tensor:
                made[out] = ("parameter", name)
                initial = Initial("parameter", parameter=name)
            else:
                owner[state] = ("moment", name)
                made[out] = ("moment", name)
                initial = _initial(starts.get(state, 0), name)
            pairs.append(StatePair(state, out, in_place.is_safe(state, out), initial))
        if offset is not None:
            offsets.update(dict.fromkeys((tensor, gradient, *moments, *map(names.updated, (tensor, *moments))), offset))
    return _Update(owner, made, pairs, about, offsets, in_place)


def _statistics(
    models: TrainingModels, in_place: InPlace
) -> tuple[dict[str, tuple[OutputRole, str | None]], list[StatePair]]:
    """The outputs that are running statistics, and what they replace."""
    made: dict[str, tuple[OutputRole, str | None]] = {}
    pairs = []
    for name in models.choice.statistics:
        out = names.updated_statistic(name)
        made[out] = ("statistic", name)
        pairs.append(StatePair(name, out, in_place.is_safe(name, out), Initial("parameter", parameter=name)))
    return made, pairs


def _with_optimizer(settings: Mapping[str, Any], about: Mapping[str, Any]) -> dict[str, Any]:
    return {**settings, **({"optimizer": about["description"]} if about else {})}


def _tensors(
    trainable: Iterable[str], slices: Mapping[str, Sequence[tuple[int, int]]]
) -> Iterator[tuple[str, str, int | None]]:
    """Each parameter, and each slice of those that are taken in slices: parameter, name of the tensor, offset."""
    for name in trainable:
        if name not in slices:
            yield name, name, None
        for start, stop in slices.get(name, ()):
            yield name, names.slice_of(name, start, stop), start


def _initial(content: float | str, parameter: str) -> Initial:
    """How a state starts, from how optimizer blocks write it into the metadata where it is not zero."""
    if content == "parameter":
        return Initial("parameter", parameter)
    return Initial("constant", value=float(content)) if content else Initial("zeros")


def _take_metadata(model: ModelProto, key: str) -> dict[str, Any]:
    """The JSON object under ``key`` in the model's metadata, which loses it."""
    for k, entry in enumerate(model.metadata_props):
        if entry.key == key:
            found: dict[str, Any] = json.loads(entry.value)
            del model.metadata_props[k]
            return found
    return {}


def _describe_sequences(
    model: ModelProto, models: TrainingModels, fingerprint: str, generation: str, settings: Mapping[str, Any]
) -> Manifest:
    owner: dict[str, tuple[InputRole, str | None]] = {
        names.LEARNING_RATE: ("learning_rate", None),
        names.STEP: ("step", None),
    }
    owner.update((name, (role, None)) for name, role in _SEQUENCES.items())
    about = _take_metadata(model, names.OPTIMIZER_KEY)
    made: dict[str, tuple[OutputRole, str | None]] = {}
    pairs = []
    for value in model.graph.output:
        state = value.name.removesuffix(names.UPDATED_SUFFIX)
        if value.name.endswith(names.UPDATED_SUFFIX) and state in _SEQUENCES:
            made[value.name] = ("parameters" if state == names.PARAMETERS_SEQUENCE else "moments", None)
            pairs.append(StatePair(state, value.name, False, Initial("zeros")))
        else:
            made[value.name] = ("updated", None)
    return Manifest(
        kind="optimizer",
        model=fingerprint,
        generation=generation,
        runtimes=_runtimes(models),
        inputs=_inputs(model, owner),
        outputs=_outputs(model, made),
        state=tuple(pairs),
        settings=_with_optimizer(settings, about),
        memory=about.get("memory"),
    )


def _parameter_roles(models: TrainingModels) -> dict[str, tuple[InputRole, str | None]]:
    roles: dict[str, tuple[InputRole, str | None]] = dict.fromkeys(models.choice.trainable, ("parameter", None))
    for name in models.choice.frozen:
        roles[name] = ("statistic" if name in models.choice.statistics else "frozen", None)
    return roles


def _runtimes(models: TrainingModels) -> tuple[Runtime, ...]:
    return ("onnxruntime",) if _beyond_old_runtime(models) else ("onnxruntime", "onnxruntime-training")


def _beyond_old_runtime(models: TrainingModels) -> list[str]:
    """Why the discontinued runtime could not train these models, or would without an error train nothing."""
    weights, choice = models.weights, models.choice
    opset = opset_of(models.training)
    reasons = []
    moved = sorted({dtype_name(weights.dtype(n)) for n in (*choice.trainable, *choice.statistics)} - {"float32"})
    if moved:
        reasons.append(f"it trains float32 only, and there are parameters of {', '.join(moved)}")
    kept = sorted({dtype_name(weights.dtype(n)) for n in choice.frozen} - OLD_RUNTIME_DTYPES)
    if kept:
        reasons.append(f"it cannot load frozen parameters of {', '.join(kept)}")
    if opset > OLD_RUNTIME_OPSET:
        reasons.append(f"it knows opsets up to {OLD_RUNTIME_OPSET}, and the model has {opset}")
    known = {*choice.trainable, *choice.frozen}
    given = [v.name for v in models.evaluation.graph.input if v.name not in known]
    taken = [name for name in given if name.endswith(names.SUFFIXES_OF_GRADIENTS)]
    if taken:
        reasons.append(f"it takes the inputs {', '.join(map(repr, taken))} for gradients, because of their names")
    return reasons


def _inputs(
    model: ModelProto,
    roles: Mapping[str, tuple[InputRole, str | None]],
    otherwise: InputRole = "user",
    update: _Update | None = None,
) -> tuple[Input, ...]:
    scales, offsets = ({}, {}) if update is None else (update.scales, update.offsets)
    made = []
    for value in model.graph.input:
        name = value.name
        role, parameter = roles.get(name, (otherwise, None))
        dtype, shape = _form(value)
        made.append(Input(name, role, dtype, shape, parameter, scales.get(name), offsets.get(name)))
    return tuple(made)


def _outputs(
    model: ModelProto, roles: Mapping[str, tuple[OutputRole, str | None]], update: _Update | None = None
) -> tuple[Output, ...]:
    offsets = {} if update is None else update.offsets
    made = []
    for value in model.graph.output:
        name = value.name
        role, parameter = roles.get(name, ("user", None))
        dtype, shape = _form(value)
        made.append(Output(name, role, dtype, shape, parameter, offsets.get(name)))
    return tuple(made)


def _form(value: ValueInfoProto) -> tuple[str, tuple[int | str | None, ...] | None]:
    known = tensor_type(_element(value.type))
    if known is None:
        return "unknown", None
    return dtype_name(known.dtype), known.shape if value.type.HasField("tensor_type") else None


def _element(type_: TypeProto) -> TypeProto:
    return type_.sequence_type.elem_type if type_.HasField("sequence_type") else type_


def require_old_runtime(models: TrainingModels) -> None:
    """Raise :class:`InvalidModelError` when the discontinued runtime could not train these models."""
    reasons = _beyond_old_runtime(models)
    if reasons:
        raise InvalidModelError(
            f"onnxruntime-training cannot train these artifacts: {'; '.join(reasons)}.",
            "Leave runtime= at its default, 'onnxruntime'.",
        )
