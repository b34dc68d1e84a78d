"""What a node reads, what a graph needs: names only, nothing about types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from onnx import AttributeProto, GraphProto, NodeProto


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """The bodies of a control-flow node."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == AttributeProto.GRAPHS:
            yield from attribute.graphs


def captured(graph: GraphProto) -> set[str]:
    """The outer values that a body reads, those of nested bodies included."""
    local = {v.name for v in graph.input} | {t.name for t in graph.initializer}
    outer: set[str] = set()
    for node in graph.node:
        outer.update(name for name in reads(node) if name not in local)
        local.update(node.output)
    outer.update(v.name for v in graph.output if v.name not in local)
    return outer


def reads(node: NodeProto) -> set[str]:
    """Every value that ``node`` reads: its inputs, and what its bodies capture."""
    names = set(node.input)
    for body in subgraphs(node):
        names |= captured(body)
    names.discard("")
    return names


def needed_nodes(nodes: Iterable[NodeProto], outputs: Iterable[str]) -> tuple[list[NodeProto], set[str]]:
    """The nodes (topologically ordered) that ``outputs`` depend on, and every name those nodes read."""
    needed = set(outputs)
    kept = []
    for node in reversed(list(nodes)):
        if not needed.isdisjoint(node.output):
            kept.append(node)
            needed |= reads(node)
    kept.reverse()
    return kept, needed


def dependents(nodes: Iterable[NodeProto], roots: Iterable[str]) -> set[str]:
    """Every value that depends on one of ``roots``, the roots included."""
    live = set(roots)
    for node in nodes:
        if not live.isdisjoint(reads(node)):
            live.update(name for name in node.output if name)
    return live
