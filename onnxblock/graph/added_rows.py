"""Rows added up in a matrix: how the gradients of embeddings are written down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from onnx import NodeProto, TensorProto, helper

from .graph import Graph
from .passes.scattered_sums import makes_zeros
from .scatter import LARGE
from .value import Value

_OFTEN = 2
"""From one row in so many on, passing over the whole matrix costs no more than to sort out which rows are used."""


@dataclass(frozen=True)
class AddedRows:
    """``matrix`` [v, w] with ``rows`` [n, w] added to its rows of the ``numbers`` (int64 [n]), from 0 up to v."""

    matrix: str
    numbers: Value
    rows: Value


@dataclass(frozen=True)
class UsedRows:
    """What is not zero of a matrix: ``rows`` [n, w], and their ``numbers`` (int64 [n], distinct, in order)."""

    numbers: Value
    rows: Value


def added_rows(graph: Graph, node: NodeProto | None) -> AddedRows | None:
    """What ``node`` adds to the rows of a matrix, if that is what it does."""
    if node is None or node.op_type != "ScatterElements" or node.domain:
        return None
    matrix, places, rows = node.input
    settings = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    expand = graph.producer(places)
    if settings.get("reduction") != b"add" or settings.get("axis") or expand is None or expand.op_type != "Expand":
        return None
    op, column, added, target = graph.op, graph.value(expand.input[0]), graph.value(rows), graph.value(matrix).shape
    if column.rank != 2 or column.shape is None or column.shape[-1] != 1 or added.shape is None or target is None:
        return None
    if not all(isinstance(size, int) for size in target) or added.shape[-1] != target[-1]:
        return None
    if not isinstance(column.shape[0], int) or column.shape[0] != added.shape[0]:
        # one number may stand for all rows
        column = op.Expand(column, op.Concat(op.Shape(added, end=1), [1], axis=0))
    numbers = op.Mod(column.reshape(-1).cast(TensorProto.INT64), target[0])
    return AddedRows(matrix, numbers, added)


def _rows_among_zeros(graph: Graph, node: NodeProto | None, length: int, width: int) -> AddedRows | None:
    """The rows that ``node`` pads with zeros, or puts into zeros, if that is what it does and it is known where."""
    if node is None or node.op_type not in ("Pad", "ScatterND") or node.domain or node.attribute:
        return None
    known = graph.constant_value(node.input[1])
    if known is None:
        return None
    if node.op_type == "ScatterND":
        if not makes_zeros(graph.producer(node.input[0])):
            return None
        return AddedRows("", graph.constant(known.reshape(-1) % length), graph.value(node.input[2]).reshape(-1, width))
    (first, left), (behind, right) = known.reshape(2, 2).tolist()
    if len(node.input) > 2 or left or right or min(first, behind) < 0:
        return None
    return AddedRows("", graph.constant(np.arange(first, length - behind)), graph.value(node.input[0]))


def used_rows(graph: Graph, name: str, readers: Mapping[str, int]) -> UsedRows | None:
    """The rows of the matrix ``name`` that something is added to, added up without the matrix.

    The sums have the bits that they have in the matrix.  None where it is not made of zeros, or of rows between zeros,
    and of added rows, where it has more than one of ``readers``, and where it is small or most of its rows may be used.
    """
    whole = graph.value(name)
    if whole.rank != 2 or not whole.is_static:
        return None
    length, width = (int(size or 0) for size in whole.shape or ())
    found: list[AddedRows] = []
    while readers[name] <= 1 and (added := added_rows(graph, graph.producer(name))) is not None:
        found.insert(0, added)
        name = added.matrix
    made = graph.producer(name)
    among_zeros = _rows_among_zeros(graph, made, length, width) if readers[name] <= 1 else None
    if among_zeros is not None:
        found.insert(0, among_zeros)
    elif not makes_zeros(made):
        return None
    counts = [added.rows.shape[0] if added.rows.shape else None for added in found]
    at_most = sum(count for count in counts if isinstance(count, int))
    if not found or length * width < LARGE or at_most * _OFTEN > length:
        return None
    op = graph.op
    places, rows = (_joined(values) for values in ([a.numbers for a in found], [a.rows for a in found]))
    numbers, first, places = op.Unique(places, sorted=1, outputs=3)
    repeated = op.ScatterElements(op.Expand(True, op.Shape(places)), first, op.Expand(False, op.Shape(first)))
    sums, others = op.Gather(rows, first, axis=0), op.Compress(rows, repeated, axis=0)
    places = op.Expand(op.Compress(places, repeated).unsqueeze(-1), [1, width])
    return UsedRows(numbers, op.ScatterElements(sums, places, others, axis=0, reduction="add"))


def _joined(values: list[Value]) -> Value:
    joined: Value = values[0] if len(values) == 1 else values[0].graph.op.Concat(*values, axis=0)
    return joined
