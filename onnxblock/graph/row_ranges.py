"""Ranges of the rows of a large matrix, each computed without the rest of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from onnx import NodeProto, helper, numpy_helper

from .added_rows import added_rows
from .graph import Graph
from .value import Value

Rows = Callable[[int, int], Value]
"""What computes the rows from the first number up to the second."""


def by_rows(graph: Graph, name: str, length: int, readers: Mapping[str, int]) -> Rows | None:
    """What computes ranges of the rows of the matrix ``name``, for ranges that begin at multiples of ``length``.

    1. A product: those rows of its first factor.  2. Rows added up: those that fall into the range.  3. Zeros.  None
    for anything else, and where the whole has more than one of ``readers``.
    """
    node, whole = graph.producer(name), graph.value(name)
    if node is None or node.domain or readers[name] > 1 or whole.rank != 2 or not whole.is_static:
        return None
    if node.op_type == "Gemm":
        return _product(graph, node)
    if node.op_type == "ScatterElements":
        return _sum(graph, node, length, readers)
    return _zeros(graph, node) if node.op_type == "ConstantOfShape" else None


def _product(graph: Graph, node: NodeProto) -> Rows | None:
    if len(node.input) > 2 and node.input[2]:
        return None
    a, b = map(graph.value, node.input[:2])
    settings = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}

    def rows(start: int, stop: int) -> Value:
        # both axes are named: onnxruntime would join slices of one axis to a Split, which copies all of them at once
        ends = ([0, start], [2**62, stop]) if settings.get("transA") else ([start, 0], [stop, 2**62])
        return graph.op.Gemm(graph.op.Slice(a, *ends, [0, 1]), b, **settings)

    return rows


def _sum(graph: Graph, node: NodeProto, length: int, readers: Mapping[str, int]) -> Rows | None:
    op, added = graph.op, added_rows(graph, node)
    whole = None if added is None else by_rows(graph, added.matrix, length, readers)
    if added is None or whole is None:
        return None
    _, width = _sizes(graph, added.matrix)
    range_number, place = op.Div(added.numbers, length), op.Mod(added.numbers, length)

    def rows(start: int, stop: int) -> Value:
        inside = op.Equal(range_number, start // length)
        places = op.Compress(place, inside, axis=0).unsqueeze(-1)
        found = op.Compress(added.rows, inside, axis=0)
        places = op.Expand(places, [1, width])
        return op.ScatterElements(whole(start, stop), places, found, axis=0, reduction="add")

    return rows


def _zeros(graph: Graph, node: NodeProto) -> Rows:
    made: dict[int, Value] = {}
    fill = next((numpy_helper.to_array(a.t) for a in node.attribute), np.zeros(1, np.float32))
    _, width = _sizes(graph, node.output[0])

    def rows(start: int, stop: int) -> Value:
        if stop - start not in made:
            made[stop - start] = graph.op.ConstantOfShape([stop - start, width], value=fill)
        return made[stop - start]

    return rows


def _sizes(graph: Graph, name: str) -> list[int]:
    return [size for size in graph.value(name).shape or () if isinstance(size, int)]
