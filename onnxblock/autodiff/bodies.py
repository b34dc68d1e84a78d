"""Differentiating the body of a control-flow node.

The nodes of the gradient are first built behind the forward nodes, in a copy of the body.  Then the copy is split in
two: the forward nodes go back into the node, and a second body gets the nodes of the gradient.  What those need of the
forward values is either kept by the forward node, as a further output, or computed again in the second body.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from onnx import GraphProto, NodeProto, TypeProto, ValueInfoProto

from ..graph.dependencies import needed_nodes, reads, subgraphs
from ..graph.graph import Graph
from ..graph.passes.renaming import rename_reads
from ..graph.sequences import sum_of
from ..graph.subgraph import Subgraph
from ..graph.value import Value
from .backward import backward


@dataclass(frozen=True)
class Split:
    """What goes into the second body, and the forward values that it reads and that must be kept."""

    again: list[NodeProto]
    gradient: list[NodeProto]
    kept: list[str]

    def reads(self) -> set[str]:
        return set().union(*map(reads, [*self.again, *self.gradient]))


class BodyGradient:
    """A copy of a body, in which the gradient is built behind the forward nodes."""

    def __init__(self, graph: Graph, body: GraphProto, types: Mapping[str, TypeProto] | None = None) -> None:
        """``types`` adds to what is known of the inputs of the body."""
        proto = GraphProto()
        proto.CopyFrom(body)
        self.body = body
        self.joint = Subgraph(graph, proto, types)

    def differentiate(self, cotangents: Iterable[tuple[str, Value]], wrt: Sequence[str]) -> dict[str, Value]:
        """Build the gradient; a value that is an output twice has two cotangents."""
        summed: dict[str, Value] = {}
        for name, d in cotangents:
            summed[name] = sum_of(summed[name], d) if name in summed else d
        return backward(self.joint, summed, wrt)

    def split(self, results: Iterable[str], keep: Callable[[NodeProto], bool]) -> Split:
        """Find the nodes that ``results`` need.

        ``keep`` says of a forward node that its values are kept, not computed again.  The node's own body takes over
        what rules changed in its nodes, such as further outputs.
        """
        nodes = list(self.joint.proto.node)
        forward, _ = needed_nodes(nodes, [output.name for output in self.body.output])
        is_forward = {id(node) for node in forward}
        needed = set(map(str, results))
        again: list[NodeProto] = []
        gradient: list[NodeProto] = []
        kept: list[str] = []
        for node in reversed(nodes):
            used = [name for name in node.output if name in needed]
            if not used:
                continue
            if id(node) in is_forward and keep(node):
                kept += used
                continue
            (again if id(node) in is_forward else gradient).append(node)
            needed |= reads(node)
        del self.body.node[:]
        self.body.node.extend(forward)
        return Split(again[::-1], gradient[::-1], kept)

    def fill(self, target: Graph, split: Split, names: dict[str, str]) -> None:
        """Copy nodes into the second body, or into the graph around it.

        ``names`` says what values are called there, and learns the new names.
        """
        read = split.reads()
        for tensor in self.joint.proto.initializer:
            if tensor.name in read:
                names[tensor.name] = target.unique(tensor.name)
                target.proto.initializer.append(tensor)
                target.proto.initializer[-1].name = names[tensor.name]
        for node in split.again:
            target.proto.node.append(node)
            _rename_all([target.proto.node[-1]], names, target.unique)
        for node in split.gradient:
            target.proto.node.append(node)
            rename_reads(target.proto.node[-1], names)
        for old, new in [*names.items(), *((name, name) for node in split.gradient for name in node.output)]:
            known = self.joint.type_proto(old)
            if known is not None:
                target.set_type(new, known)
        target.sync()


def _rename_all(nodes: Iterable[NodeProto], names: dict[str, str], unique: Callable[[str], str]) -> None:
    """Give everything that the nodes compute a new name, inside their bodies too; ``names`` learns them."""
    for node in nodes:
        for k, name in enumerate(node.input):
            node.input[k] = names.get(name, name)
        for k, name in enumerate(node.output):
            node.output[k] = names[name] = unique(name) if name else ""
        node.name = unique(node.name) if node.name else ""
        for body in subgraphs(node):
            inner = dict(names)
            for value in (*body.input, *body.initializer):
                inner[value.name] = value.name = unique(value.name)
            _rename_all(body.node, inner, unique)
            for output in body.output:
                output.name = inner.get(output.name, output.name)


def add_body_output(graph: Graph, body: GraphProto, name: str, type_: TypeProto, position: int | None = None) -> None:
    """Make a value of a body one more output of it, through an Identity if it is an input or an output already."""
    computed = any(name in node.output for node in body.node)
    if not computed or any(name == output.name for output in body.output):
        copied = graph.unique(name)
        body.node.append(NodeProto(op_type="Identity", name=copied, input=[name], output=[copied]))
        name = copied
    info = ValueInfoProto(name=name, type=type_)
    body.output.insert(len(body.output) if position is None else position, info)


def add_node_output(graph: Graph, node: NodeProto, name: str, type_: TypeProto, position: int | None = None) -> Value:
    """One more output of a node that is already in the graph."""
    unique = graph.unique(name)
    node.output.insert(len(node.output) if position is None else position, unique)
    graph.index.producers[unique] = node
    graph.set_type(unique, type_)
    return Value(unique, graph)


def insert_before(graph: Graph, node: NodeProto, new: NodeProto) -> None:
    """Put a node in front of one that is already in the graph."""
    place = next(k for k, other in enumerate(graph.proto.node) if set(other.output) & set(node.output))
    graph.proto.node.insert(place, new)
    for name in new.output:
        graph.index.producers[name] = graph.proto.node[place]
