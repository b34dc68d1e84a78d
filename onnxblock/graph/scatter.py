"""Adding values into places of an array: the adjoint of every operator that picks elements.

* The CPU provider refuses to reduce float16 and bfloat16, so those pass through float32.
* Its ScatterND divides the updates among threads that do not wait for each other: of updates of one place some are
  lost.  Its ScatterElements takes them one after the other, so it adds what may meet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, helper

from .arithmetic import reshape_like, shape_of, size_of, with_shape_of
from .types import HALVES
from .value import Operand, Value
from .waiting import Arrival

LARGE = 2**18
"""The number of elements from which on memory decides."""


def around(x: Value, axis: int) -> tuple[Value, Value, Value]:
    """How many elements ``x`` has before, along and behind an axis, each as a vector of one number."""
    op, shape, end = x.graph.op, shape_of(x), 2**62
    behind = axis + 1 if axis != -1 else end
    before, after = (op.ReduceProd(op.Slice(shape, [a], [b]), keepdims=1) for a, b in ((0, axis), (behind, end)))
    return before, op.Slice(shape, [axis], [behind]), after


def zeros(shape: Operand, like: Value) -> Value:
    """Zeros of this shape, in the element type of ``like``."""
    wanted = like.dtype or TensorProto.FLOAT
    # before, the operator has no bfloat16
    dtype = TensorProto.FLOAT if wanted == TensorProto.BFLOAT16 and like.graph.opset < 20 else wanted
    content: Value = like.graph.op.ConstantOfShape(shape, value=helper.make_tensor("value", dtype, [1], [0]))
    return content if dtype == wanted else content.cast(wanted)


def scatter_nd(data: Value, indices: Value, updates: Value, reduction: str) -> Value:
    """``data`` with the slices ``updates`` put at, or combined with what is at, the positions ``indices``."""
    if indices.dtype == TensorProto.INT32:
        indices = indices.cast(TensorProto.INT64)
    if reduction == "none":
        return with_shape_of(data.graph.op.ScatterND(data, indices, updates), data)
    op = data.graph.op
    known = None if indices.shape is None else indices.shape[-1]
    depth = [known] if isinstance(known, int) else op.Slice(op.Shape(indices), [-1], [2**62])
    shape, count = shape_of(data), op.ReduceProd(op.Shape(indices, end=-1), keepdims=1)
    width = op.ReduceProd(op.Slice(shape, depth, [2**62]), keepdims=1)
    place, rows = indices, data
    if known != 1:
        outer = op.Slice(shape, [0], depth)
        place = op.GatherND(op.Reshape(op.Range(0, op.ReduceProd(outer, keepdims=0), 1), outer, allowzero=1), indices)
    if known != 1 or data.rank != 2:
        number = op.ReduceProd(op.Slice(shape, [0], depth), keepdims=1)
        rows = op.Reshape(data, op.Concat(number, width, axis=0), allowzero=1)
    size = op.Concat(count, width, axis=0)
    places = op.Expand(op.Reshape(place, op.Concat(count, [1], axis=0), allowzero=1), size)
    total = scatter_elements(rows, places, op.Reshape(updates, size, allowzero=1), 0, reduction)
    return reshape_like(total, data)


def scatter_elements(data: Value, indices: Value, updates: Value, axis: int, reduction: str) -> Value:
    """``data`` with the elements ``updates`` put at, or combined with what is at, ``indices`` along ``axis``."""
    if reduction == "none" or data.dtype not in HALVES:
        op = data.graph.op
        return with_shape_of(op.ScatterElements(data, indices, updates, axis=axis, reduction=reduction), data)
    wide = scatter_elements(data.cast(TensorProto.FLOAT), indices, updates.cast(TensorProto.FLOAT), axis, reduction)
    return wide.cast(data.dtype)


def scatter_along(x: Value, indices: Value, d: Value, axis: int, reduction: str = "add") -> Value:
    """The adjoint of ``Gather(x, indices, axis)``: ``d`` added into zeros of the shape of ``x``.

    ``indices`` has any rank, and may be negative; with ``reduction="none"`` they must be distinct.

    1. One index that is known while building: padding.  2. Axis 0: whole rows are added.  3. Any other axis: as three
    axes (before, picked, after), of which the middle one goes to the front for the addition.  Indices that are known to
    be distinct are put there.
    """
    op, graph = x.graph.op, x.graph
    axis = axis if x.rank is None else axis % x.rank
    known = graph.constant_value(indices)
    if known is not None and known.size == 1 and known.ndim <= 1:
        return _pad_around(x, int(known.reshape(())), d.unsqueeze(axis) if known.ndim == 0 else d, axis)
    if known is not None and _are_distinct(x, known, axis):
        reduction = "none"
    if axis == 0:
        return scatter_nd(_late_zeros(x, d), indices.unsqueeze(-1), d, reduction)
    before, size, after = around(x, axis)
    count = op.Reshape(size_of(indices), [1])
    picked = op.Reshape(d, op.Concat(before, count, after, axis=0), allowzero=1)
    target = zeros(op.Concat(size, before, after, axis=0), d)
    total = scatter_nd(target, op.Reshape(indices, [-1, 1]), op.Transpose(picked, perm=[1, 0, 2]), reduction)
    return reshape_like(op.Transpose(total, perm=[1, 0, 2]), x)


def _late_zeros(x: Value, d: Value) -> Value:
    """Zeros of the shape of ``x`` in the element type of ``d``, made once ``d`` is there.

    A runtime would otherwise make large zeros when it loads the model, and keep them for as long as it has the model.
    """
    shape = x.shape
    if shape is None or not x.is_static or np.prod([int(n or 0) for n in shape]) < LARGE:
        return zeros(shape_of(x), d)
    return Arrival([d]).zeros(x, d.dtype or TensorProto.FLOAT)


def _are_distinct(x: Value, indices: npt.NDArray[Any], axis: int) -> bool:
    size = None if x.shape is None else x.shape[axis]
    if isinstance(size, int):
        indices = indices % max(size, 1)
    return len(np.unique(indices)) == indices.size and (isinstance(size, int) or bool(np.all(indices >= 0)))


def scatter_flat(x: Value, positions: Value, d: Value, reduction: str = "none") -> Value:
    """Zeros of the shape of ``x``, with the vector ``d`` at ``positions`` counted in row-major order.

    The positions are distinct, or ``reduction`` is ``"add"``.
    """
    op = x.graph.op
    flat = zeros(op.Reshape(size_of(x), [1]), d)
    return reshape_like(scatter_nd(flat, op.Reshape(positions, [-1, 1]), d, reduction), x)


def move_back(x: Value, d: Value, move: Callable[[Value], Value], reduction: str = "none") -> Value:
    """The adjoint of an operator that only moves elements: ``d`` is what came of ``x``.

    ``move`` applies the operator to the positions of the elements, int64 in the shape of ``x``, so the adjoint follows
    whatever it does.  Where it copies elements, ``reduction`` must be ``"add"``.
    """
    op = x.graph.op
    positions = op.Reshape(op.Range(0, size_of(x), 1), shape_of(x), allowzero=1)
    return scatter_flat(x, move(positions), op.Reshape(d, [-1]), reduction)


def _pad_around(x: Value, index: int, d: Value, axis: int) -> Value:
    op = x.graph.op
    last = op.Slice(shape_of(x), [axis], [axis + 1] if axis != -1 else [2**62]) - 1
    before, after = ([index], last - index) if index >= 0 else (last + (index + 1), [-1 - index])
    pads = op.Concat(before, after, axis=0)
    return with_shape_of(op.Pad(d, pads, None, np.array([axis], np.int64)), x)
