"""Cutting a model down to chosen outputs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from onnx import ModelProto, ValueInfoProto

from ..errors import ArgumentError, OnnxBlockError, UnknownNameError, did_you_mean
from .dependencies import needed_nodes
from .inference import infer_model


def choose_outputs(model: ModelProto, outputs: Sequence[str], offered: Sequence[str] | None = None) -> None:
    """Make ``outputs`` the outputs, in place, and drop the inputs that they do not depend on.

    ``offered`` are those to name where one is unknown, the model's own by default.

    Raises:
        UnknownNameError: no node, input or output of the model has such a name (all of them are listed).
        ArgumentError: the outputs are no list.
        OnnxBlockError: no output is named, or one twice.
    """
    given: object = outputs
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ArgumentError(
            f"the outputs are the {type(outputs).__name__} {outputs!r}, where a list of names is expected.",
            f"Write [{outputs!r}]." if isinstance(outputs, str) else "Write ['scores'], for example.",
        )
    graph = model.graph
    names = [str(name) for name in outputs]
    if not names or len(set(names)) < len(names):
        raise OnnxBlockError(f"the outputs asked for are {names}.", "Name at least one value, each of them once.")
    known = {name for node in graph.node for name in node.output if name}
    known |= {value.name for value in (*graph.input, *graph.output)}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UnknownNameError(
            "the model has no value " + ", ".join(f"{n!r}.{did_you_mean(n, known)}" for n in unknown),
            f"It gives {', '.join(map(repr, offered or [value.name for value in graph.output]))}; intermediate values"
            " may be named too.",
        )
    types = infer_model(model)
    del graph.output[:]
    graph.output.extend(ValueInfoProto(name=name, type=types.get(name)) for name in names)
    _, needed = needed_nodes(graph.node, names)
    inputs = [value for value in graph.input if value.name in needed]
    del graph.input[:]
    graph.input.extend(inputs)
