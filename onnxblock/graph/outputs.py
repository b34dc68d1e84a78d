"""Cutting a model down to chosen outputs."""

from __future__ import annotations

from collections.abc import Sequence

from onnx import ModelProto, ValueInfoProto

from ..errors import ArgumentError, OnnxBlockError, UnknownNameError, did_you_mean
from .dependencies import needed_nodes
from .inference import infer_model


def choose_outputs(model: ModelProto, outputs: Sequence[str]) -> None:
    """Make ``outputs`` the outputs, in place, and drop the inputs that they do not depend on.

    Raises:
        UnknownNameError: no node, input or output of the model has such a name (all of them are listed).
        ArgumentError: the outputs are no list.
        OnnxBlockError: no output is named, or one twice.
    """
    if isinstance(outputs, str):
        raise ArgumentError(
            f"the outputs are the str {outputs!r}, where a list of names is expected.", f"Write [{outputs!r}]."
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
            "Name outputs or intermediate values of the model.",
        )
    types = infer_model(model)
    del graph.output[:]
    graph.output.extend(ValueInfoProto(name=name, type=types.get(name)) for name in names)
    _, needed = needed_nodes(graph.node, names)
    inputs = [value for value in graph.input if value.name in needed]
    del graph.input[:]
    graph.input.extend(inputs)
