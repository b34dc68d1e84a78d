"""Which nodes a gradient cannot pass, at whatever depth: all of them at once."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from onnx import AttributeProto, GraphProto, NodeProto

from ..errors import UnsupportedOperatorError
from ..graph.dependencies import captured, needed_nodes, reads
from ..graph.graph import Graph
from ..graph.subgraph import Subgraph
from . import registry
from .functions import expand, nodes_without_rule, passing_nodes
from .registry import NoGradient, Rule


def live_values(graph: Graph, nodes: Sequence[NodeProto], wrt: Iterable[str]) -> set[str]:
    """The values that carry a gradient: they depend on ``wrt`` through operators that pass one back."""
    live = set(wrt)
    for node in nodes:
        if live.isdisjoint(reads(node)) or isinstance(registry.find(node.op_type, node.domain), NoGradient):
            continue
        live.update(name for name in node.output if name and graph.carries_gradient(name))
    return live


def without_gradient(graph: Graph, nodes: Iterable[NodeProto], live: set[str]) -> list[NodeProto]:
    """The nodes that a gradient has to pass (they read ``live`` values) and for whose operator nobody wrote a rule."""
    return [
        node
        for node in nodes
        if registry.find(node.op_type, node.domain) is None
        and not live.isdisjoint(reads(node))
        and any(graph.carries_gradient(name) for name in node.output if name)
    ]


def called(node: NodeProto) -> str:
    """What a node is called in messages: its name, else that of its first output."""
    return node.name or next((name for name in node.output if name), "")


@dataclass(frozen=True)
class Level:
    """The main graph or a body: the nodes between what is differentiated and the outputs, and what is said of them."""

    path: tuple[str, ...]
    """The nodes and attributes that lead to a body, from the outside; empty for the main graph."""
    outer: NodeProto | None
    """The node of the main graph in which a body lies."""
    nodes: Sequence[NodeProto]
    replaced: Sequence[NodeProto]
    """Nodes that were replaced by what they are made of."""
    missing: Sequence[NodeProto]
    """Nodes without a gradient."""
    refused: Mapping[str, str]
    """Why nodes could not be replaced, by the name of their first output."""


def levels(
    graph: Graph, wrt: Iterable[str], ends: Iterable[str], path: tuple[str, ...] = (), outer: NodeProto | None = None
) -> Iterator[Level]:
    """The main graph and then its bodies.  Operators without a rule are replaced in it, and in copies of its bodies."""
    roots, last = list(wrt), list(ends)
    before = []
    for node in nodes_without_rule(graph, roots, last):
        before.append(NodeProto())
        before[-1].CopyFrom(node)
    refused = expand(graph, roots, last)
    nodes = passing_nodes(graph.proto.node, last)
    live = live_values(graph, nodes, roots)
    missing = without_gradient(graph, nodes, live)
    left = {called(node) for node in missing}
    yield Level(path, outer, nodes, [n for n in before if called(n) not in left], missing, refused)
    needed = needed_nodes(nodes, last)[1]
    for node in nodes:
        if live.isdisjoint(reads(node)):
            continue
        for attribute in node.attribute:
            if attribute.type != AttributeProto.GRAPH:
                continue
            body = GraphProto()
            body.CopyFrom(attribute.g)
            inner = [*(v.name for v in body.input), *sorted(captured(body) & live)]
            results = [v.name for v in body.output]
            if node.op_type == "If":
                results = [r for r, name in zip(results, node.output, strict=False) if name in needed]
            inside = (*path, f"{node.op_type} {called(node)!r}.{attribute.name}")
            yield from levels(Subgraph(graph, body), inner, results, inside, outer or node)


class NoRuleError(UnsupportedOperatorError):
    """Nodes without a gradient in one graph; whoever began the sweep lists those of all."""


def unsupported(graph: Graph, wrt: Sequence[str], ends: Iterable[str]) -> UnsupportedOperatorError:
    """The error that lists every node without a gradient between ``wrt`` and ``ends``, those in bodies included."""
    known = [entry.op_type for entry in registry.entries() if isinstance(entry, Rule)]
    graphs = list(levels(graph, wrt, ends))
    found = [(level, node) for level in graphs for node in level.missing]
    lines = []
    for level, node in found:
        behind = sorted(set(wrt) & needed_nodes(graphs[0].nodes, (level.outer or node).output)[1])
        why = level.refused.get(node.output[0]) or registry.refusal(node.op_type, node.domain)
        near = [] if why else difflib.get_close_matches(node.op_type, known, 3)
        lines.append(
            f"{node.op_type} (domain {node.domain or 'ai.onnx'}, opset {graph.opset}, node {called(node)!r}"
            + "".join(f" in {step}" for step in reversed(level.path))
            + f"), behind it {_few(behind)}"
            + (f"; {why}" if why else "")
            + (f"; operators of a similar name: {', '.join(near)}" if near else "")
        )
    first = found[0][1]
    return UnsupportedOperatorError(
        f"{len(found)} node{'s' if len(found) > 1 else ''} on the way to the loss "
        f"{'have' if len(found) > 1 else 'has'} no gradient:\n    " + "\n    ".join(lines),
        f"Write a rule (@onnxblock.gradient({first.op_type!r}"
        + (f", domain={first.domain!r}" if first.domain else "")
        + "), docs/adding-a-gradient.md), or freeze the parameters behind them.",
    )


def _few(names: Sequence[str], most: int = 5) -> str:
    shown = ", ".join(repr(n) for n in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "") or "nothing that is trained"
