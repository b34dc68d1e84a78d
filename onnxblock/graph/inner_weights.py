"""Weights inside the bodies of If, Loop and Scan: their own initializers, and the tensors of Constant nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

from .dependencies import subgraphs
from .passes.renaming import rename_reads
from .types import FLOATS
from .weights import Weights, constant_tensor, is_large, stub


@dataclass(frozen=True)
class InnerWeight:
    """A tensor in a body.

    ``name`` is what it is called outside: its own name where nothing else in the model has that, else with the nodes
    and attributes in front through which it is reached, such as ``If_3.then_branch.weight``.
    """

    name: str
    own_name: str
    tensor: TensorProto
    body: GraphProto
    node: NodeProto | None
    """The Constant that holds it, None for an initializer."""


def inner_weights(graph: GraphProto) -> list[InnerWeight]:
    """The tensors in the bodies of ``graph``, at whatever depth, in the order of the nodes."""
    counts = Counter(_values(graph))
    found, used = [], set(counts)
    for path, weight in _in_bodies(graph.node, ""):
        name = weight.own_name
        is_output = any(output.name == name for output in weight.body.output)
        if counts[name] > 1 or is_output:
            name = base = f"{path}.{name}"
            number = 0
            while name in used:
                number += 1
                name = f"{base}_{number}"
            used.add(name)
        found.append(InnerWeight(name, weight.own_name, weight.tensor, weight.body, weight.node))
    return found


def _values(graph: GraphProto) -> Iterator[str]:
    inputs = {v.name for v in graph.input}
    yield from inputs
    yield from (t.name for t in graph.initializer if t.name not in inputs)
    for node in graph.node:
        yield from node.output
        for body in subgraphs(node):
            yield from _values(body)


def _in_bodies(nodes: Iterable[NodeProto], path: str) -> Iterator[tuple[str, InnerWeight]]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type != AttributeProto.GRAPH:
                continue
            body = attribute.g
            inside = f"{path}{node.name or node.output[0]}.{attribute.name}"
            given = {v.name for v in body.input}
            for tensor in body.initializer:
                if tensor.name not in given:
                    yield inside, InnerWeight(tensor.name, tensor.name, tensor, body, None)
            for inner in body.node:
                held = constant_tensor(inner)
                if held is not None:
                    yield inside, InnerWeight(inner.output[0], inner.output[0], held, body, inner)
            yield from _in_bodies(body.node, f"{inside}.")


def lift_inner_weights(model: ModelProto, weights: Weights) -> None:
    """Make the float weights of bodies initializers of the main graph, in place.

    Those are the bodies' own initializers, and Constant nodes with large tensors.  Large ones are held by ``weights``.
    """
    for weight in inner_weights(model.graph):
        large = is_large(weight.tensor)
        if weight.tensor.data_type not in FLOATS or not (large or weight.node is None):
            continue
        tensor = lifted(weight)
        if large:
            weights.add(tensor)
            tensor = stub(tensor)
        model.graph.initializer.append(tensor)


def lifted(weight: InnerWeight) -> TensorProto:
    """Take a weight out of its body, which reads the value ``weight.name`` of the main graph instead."""
    tensor = TensorProto()
    tensor.CopyFrom(weight.tensor)
    tensor.name = weight.name
    _remove_from_body(weight)
    return tensor


def _remove_from_body(weight: InnerWeight) -> None:
    body, own = weight.body, weight.own_name
    if weight.node is None:
        body.initializer.remove(weight.tensor)
    else:
        body.node.remove(weight.node)
    if any(output.name == own for output in body.output):
        # What a body puts out must be computed by one of its nodes.
        body.node.insert(0, NodeProto(op_type="Identity", name=own, input=[weight.name], output=[own]))
    elif weight.name != own:
        for node in body.node:
            rename_reads(node, {own: weight.name})
