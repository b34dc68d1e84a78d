"""Adding values into places of an array: the adjoint of every operator that picks elements.

The CPU provider refuses to reduce float16 and bfloat16, so those pass through float32.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import TensorProto, helper

from .arithmetic import reshape_like, shape_of, size_of, with_shape_of
from .value import Operand, Value

_REFUSED = (TensorProto.FLOAT16, TensorProto.BFLOAT16)


def around(x: Value, axis: int) -> tuple[Value, Value, Value]:
    """How many elements ``x`` has before, along and behind an axis, each as a vector of one number."""
    op, shape, end = x.graph.op, shape_of(x), 2**62
    behind = axis + 1 if axis != -1 else end
    before, after = (op.ReduceProd(op.Slice(shape, [a], [b]), keepdims=1) for a, b in ((0, axis), (behind, end)))
    return before, op.Slice(shape, [axis], [behind]), after


def zeros(shape: Operand, like: Value) -> Value:
    """Zeros of this shape, in the element type of ``like``."""
    dtype = like.dtype or TensorProto.FLOAT
    content: Value = like.graph.op.ConstantOfShape(shape, value=helper.make_tensor("value", dtype, [1], [0]))
    return content


def scatter_nd(data: Value, indices: Value, updates: Value, reduction: str) -> Value:
    """``data`` with the slices ``updates`` put at, or combined with what is at, the positions ``indices``."""
    if indices.dtype == TensorProto.INT32:
        indices = indices.cast(TensorProto.INT64)
    if reduction == "none" or data.dtype not in _REFUSED:
        return with_shape_of(data.graph.op.ScatterND(data, indices, updates, reduction=reduction), data)
    wide = scatter_nd(data.cast(TensorProto.FLOAT), indices, updates.cast(TensorProto.FLOAT), reduction)
    return wide.cast(data.dtype)


def scatter_elements(data: Value, indices: Value, updates: Value, axis: int, reduction: str) -> Value:
    """``data`` with the elements ``updates`` put at, or combined with what is at, ``indices`` along ``axis``."""
    if reduction == "none" or data.dtype not in _REFUSED:
        op = data.graph.op
        return with_shape_of(op.ScatterElements(data, indices, updates, axis=axis, reduction=reduction), data)
    wide = scatter_elements(data.cast(TensorProto.FLOAT), indices, updates.cast(TensorProto.FLOAT), axis, reduction)
    return wide.cast(data.dtype)


def scatter_along(x: Value, indices: Value, d: Value, axis: int, reduction: str = "add") -> Value:
    """The adjoint of ``Gather(x, indices, axis)``: ``d`` added into zeros of the shape of ``x``.

    ``indices`` has any rank, and may be negative; with ``reduction="none"`` they must be distinct.

    1. One index that is known while building: padding.  2. Axis 0: whole rows are added.  3. Any other axis: as three
    axes (before, picked, after), of which the middle one goes to the front for the addition.
    """
    op, graph = x.graph.op, x.graph
    axis = axis if x.rank is None else axis % x.rank
    known = graph.constant_value(indices)
    if known is not None and known.size == 1 and known.ndim <= 1:
        return _pad_around(x, int(known.reshape(())), d.unsqueeze(axis) if known.ndim == 0 else d, axis)
    if axis == 0:
        return scatter_nd(zeros(shape_of(x), d), indices.unsqueeze(-1), d, reduction)
    before, size, after = around(x, axis)
    count = op.Reshape(size_of(indices), [1])
    picked = op.Reshape(d, op.Concat(before, count, after, axis=0), allowzero=1)
    target = zeros(op.Concat(size, before, after, axis=0), d)
    total = scatter_nd(target, op.Reshape(indices, [-1, 1]), op.Transpose(picked, perm=[1, 0, 2]), reduction)
    return reshape_like(op.Transpose(total, perm=[1, 0, 2]), x)


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
