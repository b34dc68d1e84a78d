"""What was taken apart by slices and is put together again by a sum."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from ..dependencies import has_operator, read_counts
from .types import Types, unknown


def join_pads(model: ModelProto, types: Types = unknown) -> bool:
    """A sum of tensors that are padded with zeros to lie one behind the other becomes a Concat.

    That is the gradient of a Split that an exporter wrote as slices, as of queries, keys and values; each Pad and Add
    would pass over the whole.
    """
    graph = model.graph
    if not has_operator(graph.node, "Pad"):
        return False
    count = read_counts(graph)
    producers = {name: node for node in graph.node for name in node.output}
    constants = {t.name: t for t in graph.initializer}
    changed = False
    for node in reversed(graph.node):
        if node.op_type != "Add" or node.domain:
            continue
        terms = _terms(node, producers, count)
        parts = [_part(term, producers, constants, types) for term in terms]
        joined = _joined([part for part in parts if part is not None]) if None not in parts else None
        if joined is not None:
            axis, names = joined
            node.CopyFrom(helper.make_node("Concat", names, list(node.output), name=node.name, axis=axis))
            changed = True
    return changed


_Part = tuple[str, int, int, int, int]
"""A padded value, the axis, and the sizes along it: before, its own, behind."""


def _terms(node: NodeProto, producers: dict[str, NodeProto], count: Counter[str]) -> list[str]:
    """What a tree of Adds, each of which only the next one reads, adds up."""
    terms = []
    for name in node.input:
        made_by = producers.get(name)
        if made_by is not None and made_by.op_type == "Add" and not made_by.domain and count[name] == 1:
            terms += _terms(made_by, producers, count)
        else:
            terms.append(name)
    return terms


def _part(name: str, producers: dict[str, NodeProto], constants: dict[str, TensorProto], types: Types) -> _Part | None:
    node = producers.get(name)
    if node is None or node.op_type != "Pad" or node.domain or len(node.input) != 2 or node.attribute:
        return None
    sizes, known = constants.get(node.input[1]), types(node.input[0])
    if sizes is None or known is None or known.shape is None:
        return None
    before, behind = numpy_helper.to_array(sizes).reshape(2, -1)
    (axes,) = np.nonzero(before | behind)
    if len(axes) != 1 or min(before.min(), behind.min()) < 0:
        return None
    axis = int(axes[0])
    own = known.shape[axis]
    return (node.input[0], axis, int(before[axis]), own, int(behind[axis])) if isinstance(own, int) else None


def _joined(parts: list[_Part]) -> tuple[int, list[str]] | None:
    """The axis, and the parts in their order, if they leave no gap and do not overlap."""
    ordered = sorted(parts, key=lambda part: part[2])
    axes = {part[1] for part in ordered}
    ends = [before + own for _, _, before, own, _ in ordered]
    complete = ordered[0][2] == 0 and ordered[-1][4] == 0
    if len(axes) != 1 or not complete or any(end != after[2] for end, (_, after) in zip(ends, pairwise(ordered))):
        return None
    return axes.pop(), [part[0] for part in ordered]
