"""What a node reads, what a graph needs: names only, nothing about types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from onnx import AttributeProto, GraphProto, NodeProto


def subgraphs(node: NodeProto) -> Sequence[GraphProto]:
    """The bodies of a control-flow node."""
    if not node.attribute:
        return ()
    found: list[GraphProto] = []
    for attribute in node.attribute:
        kind = attribute.type
        if kind == AttributeProto.GRAPH:
            found.append(attribute.g)
        elif kind == AttributeProto.GRAPHS:
            found.extend(attribute.graphs)
    return found


def has_operator(nodes: Iterable[NodeProto], *op_types: str) -> bool:
    """Whether one of the nodes is one of these operators of ONNX."""
    return any(node.op_type in op_types and not node.domain for node in nodes)


def inner_names(node: NodeProto) -> Iterator[str]:
    """Every name given to a value or a node inside the bodies of ``node``."""
    for body in subgraphs(node):
        yield from (v.name for v in body.input)
        yield from (t.name for t in body.initializer)
        for inner in body.node:
            yield inner.name
            yield from inner.output
            yield from inner_names(inner)


def all_nodes(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Nodes, and those of their bodies however deep."""
    for node in nodes:
        yield node
        for body in subgraphs(node):
            yield from all_nodes(body.node)


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


def needs_of(node: NodeProto, output: str) -> set[str]:
    """The values that must be there before ``output`` of ``node`` is.

    A runtime that finds the condition of an If constant puts the nodes of one branch in its place, each of which runs
    on its own: so of an If they are what the output depends on in every branch.  All other nodes run as a whole.
    """
    if node.op_type != "If" or node.domain:
        return reads(node)
    place = list(node.output).index(output)
    return set.intersection(*(_needed_from_outside(body, body.output[place].name) for body in subgraphs(node)))


def _needed_from_outside(body: GraphProto, output: str) -> set[str]:
    producers = {name: node for node in body.node for name in node.output if name}
    inside = {t.name for t in body.initializer}
    found, pending = {output}, [output]
    while pending:
        name = pending.pop()
        if name in producers:
            fresh = needs_of(producers[name], name) - found
            found |= fresh
            pending += fresh
    return found - producers.keys() - inside - {""}


def read_counts(graph: GraphProto) -> Counter[str]:
    """How many nodes read each value, and the graph where it is an output."""
    count = Counter(name for node in graph.node for name in reads(node))
    count.update(o.name for o in graph.output)
    return count


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


def topological_order(nodes: Iterable[NodeProto]) -> list[NodeProto]:
    """The nodes so that each comes after what it reads, otherwise in the order given (a cycle keeps its order)."""
    given = list(nodes)
    producers = {name: k for k, node in enumerate(given) for name in node.output if name}
    ordered: list[NodeProto] = []
    entered = [False] * len(given)
    for start in range(len(given)):
        pending = [(start, False)]
        while pending:
            k, ready = pending.pop()
            if ready:
                ordered.append(given[k])
            elif not entered[k]:
                entered[k] = True
                pending.append((k, True))
                pending.extend((producers[n], False) for n in sorted(reads(given[k]), reverse=True) if n in producers)
    return ordered
