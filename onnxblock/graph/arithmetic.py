"""Small pieces of graph that gradients and losses share.

Each picks a constant where the shape is known while building, and the general form where it is not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import TensorProto

from .types import HALVES, Shape, same_shape
from .value import Value


def shape_of(x: Value) -> Value:
    """The shape of ``x`` as int64: a constant where it is static."""
    return x.graph.op.Shape(x)


def size_of(x: Value, axes: Sequence[int] | None = None) -> Value:
    """The number of elements of ``x`` along ``axes`` (all by default) as an int64 scalar."""
    op = x.graph.op
    if axes is None:
        return op.Size(x)
    return op.ReduceProd(op.Gather(shape_of(x), np.array(axes, np.int64)), keepdims=0)


def element_count(x: Value, axes: Sequence[int] | Value, like: Value) -> Value | float:
    """The number of elements of ``x`` along ``axes``, to divide by: a number, or a scalar of the type of ``like``."""
    op = x.graph.op
    if not isinstance(axes, Value):
        if x.shape is not None:
            sizes = [x.shape[axis] for axis in axes]
            if all(isinstance(n, int) for n in sizes):
                return float(np.prod([n for n in sizes if isinstance(n, int)]))
        axes = x.graph.constant(np.array(axes, np.int64))
    return cast_like(op.ReduceProd(op.Gather(shape_of(x), axes), keepdims=0), like)


def reshape_like(d: Value, x: Value) -> Value:
    """``d`` in the shape of ``x`` (the same number of elements)."""
    if same_shape(d.shape, x.shape):
        return d
    target = _one_unknown(x.shape, d.shape)
    wanted = shape_of(x) if target is None else x.graph.constant(np.array(target, np.int64))
    y: Value = x.graph.op.Reshape(d, wanted, allowzero=int(target is None and _may_be_empty(x.shape)))
    return with_shape_of(y, x)


def _may_be_empty(shape: Shape) -> bool:
    return shape is None or not all(isinstance(d, int) and d > 0 for d in shape)


def _one_unknown(shape: Shape, source: Shape) -> list[int] | None:
    """The shape with -1 for its only unknown dimension, where that says enough."""
    if shape is None or 0 in shape or all(isinstance(d, int) for d in shape):
        return None
    if sum(not isinstance(d, int) for d in shape) > 1 or source is None or 0 in source:
        return None
    return [d if isinstance(d, int) else -1 for d in shape]


def with_shape_of(d: Value, x: Value) -> Value:
    """``d``, known to have the shape of ``x``."""
    if d.type is not None and x.type is not None and x.shape is not None:
        d.graph.set_type(d, type(x.type)(d.type.dtype, x.shape))
    return d


def expand_like(d: Value, x: Value) -> Value:
    """``d`` broadcast to the shape of ``x``."""
    if same_shape(d.shape, x.shape):
        return d
    if x.is_static and x.shape is not None and 0 in x.shape:
        # onnxruntime's optimizer drops an Expand to nothing.
        return d.graph.constant(np.zeros([int(n or 0) for n in x.shape]), d.dtype)
    return with_shape_of(x.graph.op.Expand(d, shape_of(x)), x)


def zeros_like(x: Value) -> Value:
    """Zeros of the type and shape of ``x``."""
    return full_like(x, 0.0)


def full_like(x: Value, number: float) -> Value:
    """A constant of the type and shape of ``x``; float32 where the type is not known."""
    graph = x.graph
    content = graph.constant(number, x.dtype or TensorProto.FLOAT)
    if x.rank == 0:
        return content
    return expand_like(content, x)


def scaled(x: Value, number: float) -> Value:
    """``number`` x; computed at once where ``x`` is a constant of few elements."""
    known = x.graph.constant_value(x)
    return x * number if known is None else x.graph.constant(known * known.dtype.type(number))


def cast_like(d: Value, x: Value) -> Value:
    """``d`` in the element type of ``x``."""
    if d.dtype == x.dtype and d.dtype is not None:
        return d
    if x.dtype is None:
        return with_shape_of(d.graph.op.CastLike(d, x), d)
    return d.cast(x.dtype)


def widened(x: Value) -> Value:
    """``x`` in float32 where its type is half as wide; else ``x`` itself.

    For what half precision cannot hold, such as sums over many elements, and for comparisons of a result with what it
    was computed from.  onnxruntime computes in float32 where it has no kernel, and hands on what it has not rounded to
    nodes that it does the same with: the operand that a kernel of float16 has rounded differs from the one that a
    comparison sees.  So the result is computed again, from the widened operand.
    """
    return x.cast(TensorProto.FLOAT) if x.dtype in HALVES else x


def narrowed(y: Value, x: Value) -> Value:
    """``y``, which was computed from ``widened(x)``, in the type of ``x``."""
    return cast_like(y, x) if x.dtype in HALVES else y


def mask(condition: Value, like: Value) -> Value:
    """1 where ``condition`` holds and 0 elsewhere, in the element type of ``like``.

    A gradient multiplies by a mask instead of selecting with Where: on the CPU provider a full-size Where costs ten
    times a multiplication.
    """
    return cast_like(condition, like)


def ones_row(count: Value | int, like: Value) -> Value:
    """A vector of ``count`` ones in the element type of ``like``."""
    graph = like.graph
    dtype = like.dtype or TensorProto.FLOAT
    if isinstance(count, int):
        return graph.constant(np.ones(count), dtype)
    known = graph.constant_value(count)
    if known is not None:
        return graph.constant(np.ones(int(known.reshape(()))), dtype)
    one = graph.constant(np.ones(1), dtype)
    return graph.op.Expand(one, graph.op.Reshape(count, [1]))


def sum_to(d: Value, x: Value) -> Value:
    """Undo broadcasting: sum ``d`` over the axes that were added to ``x`` or stretched in it.

    1. Equal shapes: nothing.  2. Shapes known well enough to name the axes: a sum over them, by the form that the CPU
    provider runs fastest.  3. Otherwise the graph finds the axes when it runs.
    """
    if same_shape(d.shape, x.shape):
        return d
    axes = _broadcast_axes(d.shape, x.shape)
    if axes is None:
        return _sum_to_dynamic(d, x)
    if not axes:
        return with_shape_of(d, x) if d.rank == x.rank else reshape_like(d, x)
    return reshape_like(sum_over(d, axes), x)


def _broadcast_axes(wide: Shape, narrow: Shape) -> list[int] | None:
    """The axes of ``wide`` over which ``narrow`` was broadcast, or None where that is not certain."""
    if wide is None or narrow is None or len(wide) < len(narrow):
        return None
    added = len(wide) - len(narrow)
    axes = list(range(added))
    for axis, (w, n) in enumerate(zip(wide[added:], narrow, strict=True), start=added):
        if n == 1:
            if w != 1:
                axes.append(axis)
        elif not (w == n and n is not None) and not isinstance(n, int):
            return None
    return axes


def sum_over(d: Value, axes: Sequence[int]) -> Value:
    """The sum over ``axes``, which are dropped.

    1. All leading axes but the last: one product of a row of ones with the matrix.  2. Everything but axis 1 (the
    channels): the trailing axes first, then axis 0.  3. Otherwise ReduceSum.
    """
    op, rank = d.graph.op, d.rank
    axes = sorted(axes)
    if rank is not None and rank >= 2 and axes == list(range(rank - 1)) and d.shape is not None:
        columns = d.shape[-1]
        if isinstance(columns, int) and columns > 0:
            matrix = op.Reshape(d, [-1, columns]) if rank > 2 else d
            rows = [n for n in d.shape[:-1] if isinstance(n, int)]
            count: Value | int = int(np.prod(rows)) if len(rows) == rank - 1 else op.Gather(op.Shape(matrix), 0)
            return op.MatMul(ones_row(count, d), matrix)
    if rank is not None and rank >= 3 and axes == [0, *range(2, rank)]:
        return op.ReduceSum(op.ReduceSum(d, axes[1:], keepdims=0), [0], keepdims=0)
    return op.ReduceSum(d, axes, keepdims=0)


def _sum_to_dynamic(d: Value, x: Value) -> Value:
    op = x.graph.op
    narrow, wide = shape_of(x), shape_of(d)
    added = op.Sub(op.Size(wide), op.Size(narrow))
    ones = op.Expand(x.graph.constant(np.array([1], np.int64)), op.Reshape(added, [1]))
    padded = op.Concat(ones, narrow, axis=0)
    stretched = op.And(op.Equal(padded, 1), op.Not(op.Equal(wide, 1)))
    axes = op.Reshape(op.NonZero(stretched), [-1])
    total = op.ReduceSum(d, axes, keepdims=1, noop_with_empty_axes=1)
    return with_shape_of(op.Reshape(total, narrow, allowzero=1), x)
