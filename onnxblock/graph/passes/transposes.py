"""Transposes that follow each other, or a product that could have come out transposed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnx import ModelProto, NodeProto, helper

from ..dependencies import has_operator, read_counts
from .types import Types, unknown

_SWAPPED = [1, 0]


def merge_transposes(model: ModelProto, types: Types = unknown) -> bool:
    """1. A Transpose of a Transpose reads what that read.  2. A Gemm that only a Transpose reads gives its transpose.

    (Aᵀ B)ᵀ = Bᵀ A, so the second costs nothing.  What nobody reads any more is left to the pass that prunes.
    """
    graph = model.graph
    if not has_operator(graph.node, "Transpose"):
        return False
    count = read_counts(graph)
    producers: dict[str, NodeProto] = {}
    changed = False
    for node in graph.node:
        if _is(node, "Transpose"):
            made_by = producers.get(node.input[0])
            if made_by is not None and _is(made_by, "Transpose"):
                changed |= _follow(node, made_by, types)
                made_by = producers.get(node.input[0])
            if made_by is not None and _is(made_by, "Gemm") and count[node.input[0]] == 1:
                changed |= _absorb(node, made_by)
        producers.update((name, node) for name in node.output)
    return changed


def _is(node: NodeProto, op_type: str) -> bool:
    return node.op_type == op_type and not node.domain


def _order(node: NodeProto) -> list[int] | None:
    """The axes of a Transpose; None where it reverses a number of axes that it does not say."""
    return next((list(a.ints) for a in node.attribute if a.name == "perm"), None)


def _follow(node: NodeProto, first: NodeProto, types: Types) -> bool:
    orders = [_order(first), _order(node)]
    known = types(first.input[0])
    rank = next((len(order) for order in orders if order is not None), None)
    if rank is None and known is not None and known.shape is not None:
        rank = len(known.shape)
    if rank is None:
        return False
    inner, outer = (list(reversed(range(rank))) if order is None else order for order in orders)
    _make(node, "Transpose", [first.input[0]], perm=[inner[k] for k in outer])
    return True


def _absorb(node: NodeProto, product: NodeProto) -> bool:
    if _order(node) not in (None, _SWAPPED) or len([name for name in product.input if name]) != 2:
        return False
    given = {a.name: helper.get_attribute_value(a) for a in product.attribute}
    swapped = {"transA": 1 - given.get("transB", 0), "transB": 1 - given.get("transA", 0)}
    attributes = {**given, **swapped}
    a, b = product.input[:2]
    _make(node, "Gemm", [b, a], **attributes)
    return True


def _make(node: NodeProto, op_type: str, inputs: Sequence[str], **attributes: Any) -> None:
    """Turn ``node`` into another one with the same name and outputs."""
    node.CopyFrom(helper.make_node(op_type, inputs, list(node.output), name=node.name, **attributes))
