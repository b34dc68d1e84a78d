"""The manifest: what every input and output of an artifact is for, as JSON inside the model file.

It stands in the model's metadata under ``onnxblock.manifest``.  A training loop in any language needs nothing else:
feed each input by its role, and after a step let every state pair's output become the input it belongs to.
``docs/manifest.schema.json`` is the same contract as a JSON Schema.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from onnxblock.errors import InvalidModelError, did_you_mean
from onnxblock.names import MANIFEST_KEY, MANIFEST_VERSION

Kind: TypeAlias = Literal["training", "eval", "optimizer", "step"]
"""Which of the models a manifest describes; the step model does what training and optimizer model do together."""

Runtime: TypeAlias = Literal["onnxruntime", "onnxruntime-training"]
"""Stock onnxruntime, and the discontinued onnxruntime-training up to 1.19.2."""

InputRole: TypeAlias = Literal[
    "user",  # an array the user feeds: an input of the forward model, a target, labels
    "parameter",  # a trainable parameter; in the optimizer model the one to update
    "frozen",  # a parameter that is not trained
    "statistic",  # a running statistic; the checkpoint keeps it among the frozen parameters
    "gradient_buffer",  # the gradient of a parameter accumulated so far
    "reset",  # bool [1]: overwrite the gradient buffers instead of adding to them
    "learning_rate",  # float32 [1]; times ``scale`` for a group of parameters
    "step",  # int64 [1]: completed steps + 1
    "gradient",  # the gradient of a parameter
    "moment",  # a state that the optimizer keeps for a parameter
    "parameters",  # the sequence of all trainable parameters
    "gradients",  # the sequence of their gradients
    "moments",  # a sequence of one moment of each
]

OutputRole: TypeAlias = Literal[
    "loss",  # always the first output
    "user",  # another output the user asked for
    "gradient_flag",  # bool: a gradient was accumulated
    "accumulated_gradient",  # the gradient buffer after this step
    "statistic",  # the next value of a running statistic
    "parameter",  # the updated parameter
    "moment",  # the updated moment
    "updated",  # bool: the optimizer's step was done
    "parameters",  # the sequences after the step
    "moments",
]

InitialKind: TypeAlias = Literal["zeros", "ones", "parameter", "constant"]
"""How a state starts: filled with 0, 1 or a constant, or as a copy of a parameter of the checkpoint."""

Dimension: TypeAlias = "int | str | None"
"""A fixed size, the name of a size that may vary, or nothing known."""


def tensor_text(dtype: str, shape: Sequence[Dimension] | None) -> str:
    """A tensor as messages and overviews name it: ``float32[batch, 784]``, and ``float32`` when the rank is unknown."""
    return dtype if shape is None else f"{dtype}[{', '.join('?' if d is None else str(d) for d in shape)}]"


_INPUT_ROLES: dict[str, set[str]] = {
    "training": {"user", "parameter", "frozen", "statistic", "gradient_buffer", "reset"},
    "eval": {"user", "parameter", "frozen", "statistic"},
    "optimizer": {
        "learning_rate",
        "step",
        *("parameter", "gradient", "moment"),
        *("parameters", "gradients", "moments"),
    },
    "step": {"user", "parameter", "frozen", "statistic", "learning_rate", "step", "moment"},
}
_OUTPUT_ROLES: dict[str, set[str]] = {
    "training": {"loss", "user", "gradient_flag", "accumulated_gradient", "statistic"},
    "eval": {"loss", "user"},
    "optimizer": {"updated", "parameter", "moment", "parameters", "moments"},
    "step": {"loss", "user", "statistic", "updated", "parameter", "moment"},
}
_BELONGS_TO_PARAMETER = {"gradient_buffer", "gradient", "moment", "gradient_flag", "accumulated_gradient"}
_SLICED = {"parameter", "gradient", "moment"}
_AGAIN = "Generate the artifacts again with this release."


@dataclass(frozen=True)
class Input:
    """An input of the model: name, role, element type (as NumPy and ``ml_dtypes`` spell it) and shape if known.

    ``parameter`` names the parameter that a gradient, a buffer or a moment belongs to.  ``scale`` is what the learning
    rate of a group of parameters is a multiple of the common one by, unless the user changes it.  With ``offset`` the
    input is a slice of the ``parameter``, or of its gradient or moment: of the flattened array, from this element on.
    """

    name: str
    role: InputRole
    dtype: str
    shape: tuple[Dimension, ...] | None = None
    parameter: str | None = None
    scale: float | None = None
    offset: int | None = None

    @property
    def size(self) -> int | None:
        """How many elements it has, if that is fixed."""
        known = [d for d in self.shape or () if isinstance(d, int)]
        return None if self.shape is None or len(known) < len(self.shape) else math.prod(known)

    @property
    def owner(self) -> str:
        """The parameter that the input belongs to, or is."""
        return self.parameter or self.name


@dataclass(frozen=True)
class Output:
    """An output of the model; the fields are those of the same names of :class:`Input`."""

    name: str
    role: OutputRole
    dtype: str
    shape: tuple[Dimension, ...] | None = None
    parameter: str | None = None
    offset: int | None = None


@dataclass(frozen=True)
class Initial:
    """The value that a state starts with; ``parameter`` and ``value`` belong to the kinds of those meanings.

    A state that is a slice starts with the same slice of the parameter.
    """

    kind: InitialKind
    parameter: str | None = None
    value: float | None = None


@dataclass(frozen=True)
class StatePair:
    """``output`` feeds ``input`` at the next step.

    ``in_place`` says that the output may be bound onto the memory of the input: it was proved that nothing else reads
    the old value once the writer runs.  Otherwise two buffers take turns.
    """

    input: str
    output: str
    in_place: bool
    initial: Initial


@dataclass(frozen=True)
class Manifest:
    """The contract of one model file.

    Args:
        kind: which model this is.
        model: fingerprint of the forward model (structure, parameter names, types and shapes), as in the checkpoint.
        generation: fingerprint of the run that made the files; equal in all of them.
        runtimes: the runtimes that can use the file.
        inputs: every input, in the order of the graph.
        outputs: every output, in the order of the graph.
        state: the pairs of output and input that carry state from step to step.
        settings: what the generator chose, for the reader's information.
        memory: what the moments of an optimizer model or step model are, in words; moments that were saved under other
            words are those of another optimizer.
        version: version of this contract.
    """

    kind: Kind
    model: str
    generation: str
    runtimes: tuple[Runtime, ...]
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    state: tuple[StatePair, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    memory: str | None = None
    version: int = MANIFEST_VERSION

    def inputs_of(self, *roles: InputRole) -> list[Input]:
        """The inputs with one of these roles, in the order of the graph."""
        return [port for port in self.inputs if port.role in roles]

    def outputs_of(self, *roles: OutputRole) -> list[Output]:
        """The outputs with one of these roles, in the order of the graph."""
        return [port for port in self.outputs if port.role in roles]

    def validate(self) -> None:
        """Check that the parts fit together.

        Raises:
            InvalidModelError: they do not; all problems are listed.
        """
        _refuse(list(_problems(self)))

    def to_json(self) -> str:
        """The manifest as JSON; equal manifests give equal text.

        Raises:
            InvalidModelError: the parts do not fit together.
        """
        self.validate()
        return json.dumps({"version": self.version} | _plain(self), ensure_ascii=False, separators=(",", ":"))

    def metadata(self) -> dict[str, str]:
        """The entry for the model's metadata."""
        return {MANIFEST_KEY: self.to_json()}

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Read and check a manifest.

        Raises:
            InvalidModelError: it is not JSON, of another version, or not valid; all problems are listed.
        """
        try:
            data = json.loads(text)
        except json.JSONDecodeError as error:
            raise InvalidModelError(f"the model's manifest is not JSON: {error}", _AGAIN) from error
        if not isinstance(data, dict):
            raise InvalidModelError("the model's manifest is not a JSON object", _AGAIN)
        if data.get("version") != MANIFEST_VERSION:
            found = data.get("version")
            raise InvalidModelError(
                f"the model's manifest has version {found!r}; this release reads version {MANIFEST_VERSION}", _AGAIN
            )
        manifest = _manifest(data)
        manifest.validate()
        return manifest

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, str]) -> Manifest | None:
        """The manifest in a model's metadata, ``None`` if there is none.

        Raises:
            InvalidModelError: see :meth:`from_json`.
        """
        text = metadata.get(MANIFEST_KEY)
        return None if text is None else cls.from_json(text)


def _refuse(problems: list[str]) -> None:
    if problems:
        raise InvalidModelError("the manifest is not valid:\n    " + "\n    ".join(problems), _AGAIN)


def _plain(value: Any) -> Any:
    """Dataclasses as objects without their empty optional fields, tuples as lists."""
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if type(value) not in _FIELDS:
        return value
    items = {name: getattr(value, name) for name in _FIELDS[type(value)]}
    return {name: _plain(item) for name, item in items.items() if item is not None or name == "shape"}


_FIELDS = {
    kind: tuple(field.name for field in dataclasses.fields(kind))
    for kind in (Manifest, Input, Output, StatePair, Initial)
}


# -- reading: what each object holds


@dataclass(frozen=True)
class _Field:
    fits: Callable[[Any], bool]
    expected: str
    required: bool = True


def _is(*types: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, types) and (bool in types or not isinstance(value, bool))


def _one_of(literal: Any) -> _Field:
    return _Field(lambda value: value in get_args(literal), "one of " + ", ".join(get_args(literal)))


def _list_of(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(fits, value))


_TEXT = _Field(_is(str), "text")
_OPTIONAL_TEXT = _Field(_is(str), "text", required=False)
_OBJECTS = _Field(_list_of(_is(dict)), "a list of objects")
_FLAG = _Field(_is(bool), "true or false")
_SHAPE = _Field(
    lambda value: value is None or _list_of(lambda d: d is None or _is(str, int)(d))(value),
    "null or a list of numbers, names and nulls",
)


_OFFSET = _Field(lambda value: _is(int)(value) and value >= 0, "a number from 0 on", required=False)


def _port(role: Any) -> dict[str, _Field]:
    belongs = {"parameter": _OPTIONAL_TEXT, "offset": _OFFSET}
    return {"name": _TEXT, "role": _one_of(role), "dtype": _TEXT, "shape": _SHAPE, **belongs}


_NUMBER = _Field(_is(int, float), "a number", required=False)
_INPUT, _OUTPUT = {**_port(InputRole), "scale": _NUMBER}, _port(OutputRole)
_INITIAL = {
    "kind": _one_of(InitialKind),
    "parameter": _OPTIONAL_TEXT,
    "value": _NUMBER,
}
_PAIR = {"input": _TEXT, "output": _TEXT, "in_place": _FLAG, "initial": _Field(_is(dict), "an object")}
_MANIFEST = {
    "version": _Field(_is(int), "a number"),
    "kind": _one_of(Kind),
    "model": _TEXT,
    "generation": _TEXT,
    "runtimes": _Field(_list_of(lambda r: r in get_args(Runtime)), "a list of " + " and ".join(get_args(Runtime))),
    "inputs": _OBJECTS,
    "outputs": _OBJECTS,
    "state": _OBJECTS,
    "settings": _Field(_is(dict), "an object"),
    "memory": _OPTIONAL_TEXT,
}


def _check(data: dict[str, Any], fields: dict[str, _Field], where: str) -> list[str]:
    problems = [f"{where}: unknown field {key!r}.{did_you_mean(key, fields)}" for key in data if key not in fields]
    for key, expected in fields.items():
        if key not in data:
            if expected.required:
                problems.append(f"{where}: the field {key!r} is missing")
        elif not expected.fits(data[key]):
            problems.append(f"{where}: {key!r} is {data[key]!r}, not {expected.expected}")
    return problems


def _manifest(data: dict[str, Any]) -> Manifest:
    _refuse(_check(data, _MANIFEST, "manifest"))
    problems = []
    for key, fields in (("inputs", _INPUT), ("outputs", _OUTPUT), ("state", _PAIR)):
        for i, item in enumerate(data[key]):
            problems += _check(item, fields, f"{key}[{i}]")
    for i, pair in enumerate(data["state"]):
        if isinstance(pair.get("initial"), dict):
            problems += _check(pair["initial"], _INITIAL, f"state[{i}].initial")
    _refuse(problems)
    return Manifest(
        kind=data["kind"],
        model=data["model"],
        generation=data["generation"],
        runtimes=tuple(data["runtimes"]),
        inputs=tuple(Input(**_with_tuple_shape(item)) for item in data["inputs"]),
        outputs=tuple(Output(**_with_tuple_shape(item)) for item in data["outputs"]),
        state=tuple(StatePair(**{**item, "initial": Initial(**item["initial"])}) for item in data["state"]),
        settings=data["settings"],
        memory=data.get("memory"),
        version=data["version"],
    )


def _with_tuple_shape(item: dict[str, Any]) -> dict[str, Any]:
    return {**item, "shape": None if item["shape"] is None else tuple(item["shape"])}


# -- whether the parts fit together


def _problems(manifest: Manifest) -> Iterator[str]:
    if not manifest.runtimes:
        yield "runtimes: at least one is needed"
    ports: tuple[tuple[str, tuple[Input, ...] | tuple[Output, ...], dict[str, set[str]]], ...] = (
        ("input", manifest.inputs, _INPUT_ROLES),
        ("output", manifest.outputs, _OUTPUT_ROLES),
    )
    for what, group, roles in ports:
        yield from _twice(what, (port.name for port in group))
        for port in group:
            if port.role not in roles[manifest.kind]:
                yield f"{what} {port.name!r}: the role {port.role!r} does not belong in the {manifest.kind} model"
            if port.role in _BELONGS_TO_PARAMETER and port.parameter is None:
                yield f"{what} {port.name!r}: the role {port.role!r} needs the parameter it belongs to"
            if port.offset is not None and not _is_slice(port, manifest.kind):
                yield f"{what} {port.name!r}: only a slice, of fixed sizes and of a named parameter, has an offset"
    for port in manifest.inputs:
        if port.scale is not None and port.role != "learning_rate":
            yield f"input {port.name!r}: only a learning rate has a scale"
    for port in manifest.outputs[1:]:
        if port.role == "loss":
            yield f"output {port.name!r}: the loss is always the first output"
    yield from _state_problems(manifest)


def _is_slice(port: Input | Output, kind: Kind) -> bool:
    fixed = port.shape is not None and all(isinstance(d, int) for d in port.shape)
    return kind in ("optimizer", "step") and port.role in _SLICED and port.parameter is not None and fixed


def _state_problems(manifest: Manifest) -> Iterator[str]:
    inputs, outputs = {port.name for port in manifest.inputs}, {port.name for port in manifest.outputs}
    yield from _twice("state input", (pair.input for pair in manifest.state))
    yield from _twice("state output", (pair.output for pair in manifest.state))
    for pair in manifest.state:
        if pair.input not in inputs:
            yield f"state pair {pair.input!r}: there is no such input.{did_you_mean(pair.input, inputs)}"
        if pair.output not in outputs:
            yield f"state pair {pair.input!r}: there is no output {pair.output!r}.{did_you_mean(pair.output, outputs)}"
        if (pair.initial.kind == "parameter") != (pair.initial.parameter is not None):
            yield f"state pair {pair.input!r}: a parameter is named exactly when the initial value copies it"
        if (pair.initial.kind == "constant") != (pair.initial.value is not None):
            yield f"state pair {pair.input!r}: a value is given exactly when the initial value is a constant"


def _twice(what: str, names: Iterator[str]) -> Iterator[str]:
    for name, count in Counter(names).items():
        if count > 1:
            yield f"{what} {name!r} appears {count} times"
