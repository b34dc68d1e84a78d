"""Gradients of the operators that pick elements by index, and of those that put them in place.

Picking and adding into zeros are adjoint to each other; where an index occurs twice, the cotangents add up.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import TensorProto

from ...graph.arithmetic import cast_like, full_like, mask, shape_of, widened, with_shape_of, zeros_like
from ...graph.scatter import scatter_along, scatter_elements, scatter_flat, scatter_nd, zeros
from ...graph.value import Value
from ..registry import RuleResult, gradient, no_gradient
from ..rule import RuleContext


@gradient("Gather")
def gather(g: RuleContext) -> RuleResult:
    """Y = x[..., i, ...]: dy is added into zeros at i."""
    return scatter_along(g.x, g.inputs[1], g.dy, g.attr("axis"))


@gradient("GatherElements")
def gather_elements(g: RuleContext) -> RuleResult:
    """y[i, j] = x[index[i, j], j]: dy is added into zeros at the same places."""
    return scatter_elements(zeros(shape_of(g.x), g.x), g.inputs[1], g.dy, g.attr("axis"), "add")


@gradient("GatherND")
def gather_nd(g: RuleContext) -> RuleResult:
    """y[i] = x[index[i]]: dy is added into zeros at the same places.

    Batch axes become one, whose position is written before the others in every index.
    """
    x, index, batch_dims = g.x, g.inputs[1], g.attr("batch_dims")
    if batch_dims == 0:
        return scatter_nd(zeros(shape_of(x), x), index, g.dy, "add")
    op, end = g.op, [2**62]
    shape, index_shape = shape_of(x), shape_of(index)
    inner, depth = op.Slice(shape, [batch_dims], end), op.Slice(index_shape, [-1], end)
    batch = op.ReduceProd(op.Slice(shape, [0], [batch_dims]), keepdims=1)
    picks = op.ReduceProd(op.Slice(index_shape, [batch_dims], [-1]), keepdims=1)
    rows = op.Reshape(op.Range(0, op.Squeeze(batch, [0]), 1), [-1, 1, 1])
    rows = op.Expand(cast_like(rows, index), op.Concat(batch, picks, [1], axis=0))
    full = op.Concat(rows, op.Reshape(index, op.Concat(batch, picks, depth, axis=0), allowzero=1), axis=2)
    # An index of k entries leaves the axes behind the k-th whole.
    d = op.Reshape(g.dy, op.Concat(batch, picks, op.Slice(inner, depth, end), axis=0), allowzero=1)
    total = scatter_nd(zeros(op.Concat(batch, inner, axis=0), x), full, d, "add")
    return with_shape_of(op.Reshape(total, shape, allowzero=1), x)


@gradient("ScatterElements")
def scatter_elements_gradient(g: RuleContext) -> RuleResult:
    """See :func:`_scatter_gradient`; the places are ``index`` along one axis."""
    index, axis = g.inputs[1], g.attr("axis")
    return _scatter_gradient(
        g,
        lambda d: g.op.GatherElements(d, index, axis=axis),
        lambda data, updates, reduction: scatter_elements(data, index, updates, axis, reduction),
    )


@gradient("ScatterND")
def scatter_nd_gradient(g: RuleContext) -> RuleResult:
    """See :func:`_scatter_gradient`; the places are slices."""
    index = g.inputs[1]
    return _scatter_gradient(
        g,
        lambda d: g.op.GatherND(d, index),
        lambda data, updates, reduction: scatter_nd(data, index, updates, reduction),
    )


def _scatter_gradient(
    g: RuleContext, pick: Callable[[Value], Value], put: Callable[[Value, Value, str], Value]
) -> RuleResult:
    """The gradient of putting updates u at places of x.

    1. ``none``: dx = dy except at the places, du = dy there.  2. ``add``: dx = dy, du = dy at the places.
    3. ``mul``: y = x ∏u, so dx = dy ∏u and du_k = dy x ∏_{j≠k} u_j; zeros among u are counted, never divided by.
    4. ``max``, ``min``: dy is shared evenly among x and the updates that equal y, as in PyTorch.
    """
    x, updates, dy, reduction = g.x, g.inputs[2], g.dy, g.attr("reduction", "none")
    if reduction == "none":
        return (
            put(dy, zeros_like(updates), "none") if g.wants(0) else None,
            None,
            pick(dy) if g.wants(2) else None,
        )
    if reduction == "add":
        return dy, None, pick(dy) if g.wants(2) else None
    if reduction == "mul":
        dx = dy * put(full_like(x, 1.0), updates, "mul") if g.wants(0) else None
        if not g.wants(2):
            return dx, None, None
        is_zero = mask(g.op.Equal(updates, 0.0), updates)
        factors = updates + is_zero
        product = pick(dy * x * put(full_like(x, 1.0), factors, "mul"))
        other_zeros = pick(put(zeros_like(x), is_zero, "add")) - is_zero
        return dx, None, product / factors * mask(g.op.Less(other_zeros, 0.5), updates)
    x, updates = widened(x), widened(updates)
    y = g.y if x == g.x else put(x, updates, reduction)
    from_x, from_updates = mask(g.op.Equal(x, y), x), mask(g.op.Equal(updates, pick(y)), updates)
    share = widened(dy) / put(from_x, from_updates, "add")
    return share * from_x, None, pick(share) * from_updates if g.wants(2) else None


@gradient("TensorScatter")
def tensor_scatter(g: RuleContext) -> RuleResult:
    """Y is the cache with rows from ``write_indices`` on replaced: zeros are written there, dy is read from there."""
    update, start, axis = g.inputs[1], g.input(2), g.attr("axis")
    circular = g.attr("mode") == "circular"
    attributes = {"axis": axis, "mode": g.attr("mode")}
    cache = g.op.TensorScatter(g.dy, zeros_like(update), start, **attributes) if g.wants(0) else None
    if not g.wants(1):
        return cache, None
    op = g.op
    length = op.Squeeze(_size_at(update, axis), [0])
    positions = op.Reshape(op.Range(0, length, 1), _shape_along(update, axis))
    if start is not None:
        positions = positions + op.Reshape(start.cast(TensorProto.INT64), _shape_along(update, 0))
    if circular:
        positions = op.Mod(positions, _size_at(g.x, axis))
    return cache, op.GatherElements(g.dy, op.Expand(positions, shape_of(update)), axis=axis)


def _size_at(x: Value, axis: int) -> Value:
    size: Value = x.graph.op.Gather(shape_of(x), np.array([axis], np.int64))
    return size


def _shape_along(x: Value, axis: int) -> Value:
    """The shape that has the size of ``x`` at ``axis`` and 1 everywhere else."""
    op, size = x.graph.op, _size_at(x, axis)
    shape: Value
    if x.rank is not None:
        before = axis % x.rank
        shape = op.Concat([1] * before, size, [1] * (x.rank - 1 - before), axis=0) if x.rank > 1 else size
        return shape
    ones = op.Expand(np.array([1], np.int64), op.Shape(shape_of(x)))
    shape = op.ScatterElements(ones, np.array([axis], np.int64), size, axis=0)
    return shape


@gradient("OneHot")
def one_hot(g: RuleContext) -> RuleResult:
    """Y = off + (on - off) h with h the 0/1 encoding: the cotangent of on is Σ dy h, that of off is Σ dy (1 - h)."""
    encoding = g.op.OneHot(g.x, g.inputs[1], np.array([0, 1], np.float32), axis=g.attr("axis"))
    on = g.dy * cast_like(encoding, g.dy)
    return None, None, g.op.Concat((g.dy - on).sum().reshape(1), on.sum().reshape(1), axis=0)


@gradient("Compress")
def compress(g: RuleContext) -> RuleResult:
    """Y keeps the slices whose condition holds: dy goes back to them."""
    positions, axis = g.op.Reshape(g.op.NonZero(g.inputs[1]), [-1]), g.attr("axis")
    return scatter_flat(g.x, positions, g.dy) if axis is None else scatter_along(g.x, positions, g.dy, axis, "none")


@gradient("Unique")
def unique(g: RuleContext) -> RuleResult:
    """Every element of y is one element, or slice, of x: dy goes back to where it occurs first."""
    first, axis = g.output(1), g.attr("axis")
    return scatter_flat(g.x, first, g.dy) if axis is None else scatter_along(g.x, first, g.dy, axis, "none")


no_gradient("NonZero", reason="its output is positions, which are integers")
