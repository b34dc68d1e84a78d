"""Nodes that draw random numbers."""

from __future__ import annotations

from onnx import NodeProto

from ..graph.dependencies import subgraphs
from ..graph.graph import Graph

_RANDOM = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)


def is_random(graph: Graph, node: NodeProto) -> bool:
    """Whether two runs of the node may differ, so that it must not be computed again."""
    if node.op_type in _RANDOM or (node.op_type == "Dropout" and len(node.input) > 2 and node.input[2]):
        return True
    inside = [body.node for body in subgraphs(node)]
    inside += [f.node for f in graph.model.functions if (f.domain, f.name) == (node.domain, node.op_type)]
    return any(is_random(graph, inner) for nodes in inside for inner in nodes)


def varies_between_steps(graph: Graph, node: NodeProto) -> bool:
    """Whether a node is a Scan whose body draws, inside bodies of its own, what may have another shape at every step.

    A Scan can collect values of one shape only; a Loop can keep others in a sequence.
    """
    if node.op_type != "Scan" or node.domain:
        return False
    inner = (inner for body in subgraphs(node) for inner in body.node)
    return any(True for other in inner if any(True for _ in subgraphs(other)) and is_random(graph, other))
