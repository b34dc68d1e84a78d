"""Compute the same thing once."""

from __future__ import annotations

from typing import Any

from onnx import ModelProto, NodeProto

from ..dependencies import subgraphs
from .renaming import rename_reads
from .types import Types, unknown

RANDOM = frozenset(
    {"Dropout", "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)
"""Operators whose result differs from one run to the next: two of them are never the same."""


def merge_common_subexpressions(model: ModelProto, _: Types = unknown) -> bool:
    """Make readers of a node that repeats an earlier one (operator, inputs, attributes) read the earlier one.

    Left alone: random nodes, control flow, and nodes with an output of the graph or without outputs in common.
    """
    graph = model.graph
    outputs = {o.name for o in graph.output}
    first: dict[Any, NodeProto] = {}
    replaced: dict[str, str] = {}
    kept = []
    for node in graph.node:
        if replaced:
            rename_reads(node, replaced)
        if node.op_type in RANDOM or subgraphs(node):
            kept.append(node)
            continue
        key = _key(node)
        earlier = first.get(key)
        if earlier is None or not outputs.isdisjoint(node.output):
            first.setdefault(key, node)
            kept.append(node)
            continue
        replaced.update((mine, theirs) for mine, theirs in zip(node.output, earlier.output, strict=True) if mine)
    if not replaced:
        return False
    del graph.node[:]
    graph.node.extend(kept)
    return True


def _key(node: NodeProto) -> tuple[Any, ...]:
    attributes: tuple[tuple[str, bytes], ...] = ()
    if node.attribute:
        attributes = tuple(sorted((a.name, a.SerializeToString(deterministic=True)) for a in node.attribute))
    present = tuple(map(bool, node.output))
    return node.domain, node.op_type, tuple(node.input), attributes, present
