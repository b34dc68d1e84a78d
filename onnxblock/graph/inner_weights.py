"""Weights inside the bodies of If, Loop and Scan: their own initializers, and the tensors of Constant nodes.

Those inside model-local functions are in :mod:`~onnxblock.graph.function_weights`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto

from .dependencies import subgraphs
from .naming import Names
from .passes.renaming import rename_reads
from .types import FLOATS
from .weights import Weights, constant_tensor


@dataclass(frozen=True)
class InnerWeight:
    """A tensor in a body or a function.

    ``name`` is what it is called outside.  In a body of the model that is its own name where nothing else in the model
    has it, else with the nodes and attributes in front through which it is reached, as ``If_3.then_branch.weight``.
    """

    name: str
    own_name: str
    tensor: TensorProto
    body: GraphProto | FunctionProto
    node: NodeProto | None
    """The Constant that holds it, None for an initializer."""

    @property
    def is_output(self) -> bool:
        """Whether it is, as it stands, what its body or function puts out."""
        return any(self.own_name == (o if isinstance(o, str) else o.name) for o in self.body.output)


def inner_weights(graph: GraphProto) -> list[InnerWeight]:
    """The tensors in the bodies of ``graph``, at whatever depth, in the order of the nodes."""
    counts = Counter(_values(graph))
    found, names = [], Names()
    names.take(counts)
    for path, weight in in_bodies(graph.node, ""):
        name = weight.own_name
        if counts[name] > 1 or weight.is_output:
            name = names.unique(f"{path}.{name}")
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


def in_bodies(nodes: Iterable[NodeProto], path: str) -> Iterator[tuple[str, InnerWeight]]:
    """The tensors in the bodies of these nodes, each with the path to its body, which starts with ``path``."""
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                inside = f"{path}{node.name or node.output[0]}.{attribute.name}"
                body = attribute.g
                given = {v.name for v in body.input}
                for tensor in body.initializer:
                    if tensor.name not in given:
                        yield inside, InnerWeight(tensor.name, tensor.name, tensor, body, None)
                yield from in_constants(body, inside)


def in_constants(body: GraphProto | FunctionProto, path: str) -> Iterator[tuple[str, InnerWeight]]:
    """The tensors of the Constant nodes of a body or a function, and all in the bodies of its nodes, with paths."""
    for node in body.node:
        held = constant_tensor(node)
        if held is not None:
            yield path, InnerWeight(node.output[0], node.output[0], held, body, node)
    yield from in_bodies(body.node, f"{path}.")


def lift_inner_weights(model: ModelProto, weights: Weights, is_weight: Callable[[TensorProto], bool]) -> None:
    """Make the float weights of bodies initializers of the main graph, in place; large ones are held by ``weights``.

    Those are the bodies' own initializers, and the Constant nodes of which ``is_weight`` says so.
    """
    for weight in inner_weights(model.graph):
        if weight.tensor.data_type in FLOATS and (weight.node is None or is_weight(weight.tensor)):
            carry_notes(weight, model.graph)
            model.graph.initializer.append(weights.take(lifted(weight)))


def carry_notes(weight: InnerWeight, graph: GraphProto) -> None:
    """What the exporter noted of a weight in its body it says of the value ``weight.name`` of ``graph`` too."""
    for value in weight.body.value_info:
        if value.name == weight.own_name and value.metadata_props:
            carried = graph.value_info.add()
            carried.CopyFrom(value)
            carried.name = weight.name


def lifted(weight: InnerWeight) -> TensorProto:
    """Take a weight out of its body, which reads the value ``weight.name`` of the main graph instead."""
    tensor = TensorProto()
    tensor.CopyFrom(weight.tensor)
    tensor.name = weight.name
    _remove_from_body(weight)
    return tensor


def _remove_from_body(weight: InnerWeight) -> None:
    body, own = weight.body, weight.own_name
    if weight.node is not None:
        body.node.remove(weight.node)
    elif isinstance(body, GraphProto):
        body.initializer.remove(weight.tensor)
    if weight.is_output:
        # What a body puts out must be computed by one of its nodes.
        body.node.insert(0, NodeProto(op_type="Identity", name=own, input=[weight.name], output=[own]))
    elif weight.name != own:
        for node in body.node:
            rename_reads(node, {own: weight.name})
