"""Gradients of the poolings over regions of interest.  The regions themselves get none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import TensorProto

from ...graph.arithmetic import cast_like, mask, shape_of
from ...graph.scatter import scatter_elements, scatter_nd, zeros
from ...graph.separable import identity
from ...graph.value import Value
from ..registry import RuleResult, gradient
from ..rule import RuleContext

_INT64 = int(TensorProto.INT64)


# -- averages


@gradient("RoiAlign")
def roi_align(g: RuleContext) -> RuleResult:
    """The average of samples of a region is separable: y = U x V', so dx = Σ U' dy V over the regions of an image.

    The matrices are read off RoiAlign itself, run on images that are 1 in one row or in one column: those give U Σv and
    V Σu, the sums being over what a sample reads, and their product is U ⊗ V times Σu Σv, the result for ones.
    Maxima: see :func:`_maxima`  (He et al. 2017, Mask R-CNN).
    """
    op, batch = g.op, g.inputs[2]
    if g.attr("mode") == "max":
        rows, columns = (_samples(g, axis) for axis in (0, 1))
        return _maxima(g, batch, rows, columns)
    height = op.Shape(g.x, start=2, end=3)
    images = _indicators(g)
    found = op.RoiAlign(images, g.inputs[1], op.Mul(batch, 0), **_attributes(g))
    lines, ones = op.Slice(found, [0], [-1], [1]), op.Slice(found, [-1], [2**62], [1])
    u = op.Slice(lines, [0], height, [1]).sum(3)
    v = op.Slice(lines, height, [2**62], [1]).sum(2)
    total = ones.sum([1, 2, 3], keepdims=True)
    spent = g.dy / (total + mask(op.Equal(total, 0.0), total))
    spread = op.MatMul(spent, op.Transpose(op.Unsqueeze(v, [1]), perm=[0, 1, 3, 2]))
    return _rows_of_images(g, batch, u, spread)


def _attributes(g: RuleContext) -> dict[str, Any]:
    names = (
        "coordinate_transformation_mode",
        "mode",
        "output_height",
        "output_width",
        "sampling_ratio",
        "spatial_scale",
    )
    return {name: g.attr(name) for name in names if g.attr(name) is not None}


def _indicators(g: RuleContext) -> Value:
    """Images ``[1, H + W + 1, H, W]``: 1 in one row each, in one column each, everywhere."""
    op = g.op
    height, width = op.Shape(g.x, start=2, end=3), op.Shape(g.x, start=3, end=4)
    size = op.Concat(height, width, axis=0)
    rows, columns = (identity(n, g.x.dtype) for n in (height, width))
    lines = [
        op.Expand(op.Unsqueeze(rows, [2]), op.Concat(height, size, axis=0)),
        op.Expand(op.Unsqueeze(columns, [1]), op.Concat(width, size, axis=0)),
        op.Expand(cast_like(g.graph.constant(np.ones(1, np.float32)), g.x), op.Concat([1], size, axis=0)),
    ]
    return cast_like(op.Unsqueeze(op.Concat(*lines, axis=0), [0]), g.x)


def _rows_of_images(g: RuleContext, batch: Value, u: Value, spread: Value) -> Value:
    """dx[n, c, h, :] = Σ u[r, h, i] spread[r, c, i, :] over the regions r of image n, as one matrix product."""
    op = g.op
    images = op.Unsqueeze(op.Range(0, op.Gather(op.Shape(g.x), 0), 1), [1])
    chosen = mask(op.Equal(images, op.Unsqueeze(batch, [0])), g.dy)
    by_image = op.Unsqueeze(chosen, [1, 3]) * op.Unsqueeze(op.Transpose(u, perm=[1, 0, 2]), [0])
    right = op.Transpose(spread, perm=[0, 2, 1, 3])
    inner = op.Mul(op.Shape(right, end=1), op.Shape(right, start=1, end=2))
    outer = op.Mul(op.Shape(right, start=2, end=3), op.Shape(right, start=3))
    left_rows = op.Mul(op.Shape(g.x, end=1), op.Shape(g.x, start=2, end=3))
    left = op.Reshape(by_image, op.Concat(left_rows, inner, axis=0), allowzero=1)
    product = op.MatMul(left, op.Reshape(right, op.Concat(inner, outer, axis=0), allowzero=1))
    shape = op.Gather(op.Shape(g.x), np.array([0, 2, 1, 3]))
    return op.Transpose(op.Reshape(product, shape, allowzero=1), perm=[0, 2, 1, 3])


# -- maxima


@dataclass(frozen=True)
class Candidates:
    """What each bin of an axis chooses from: ``[regions, bins, candidates]`` places, weights, and 0 or -inf to add."""

    places: Value
    weights: Value
    penalties: Value


@gradient("MaxRoiPool")
def max_roi_pool(g: RuleContext) -> RuleResult:
    """The cotangent of a bin goes to its largest element, the first of equals  (Girshick 2015, Fast R-CNN)."""
    regions = g.inputs[1]
    batch = g.op.Cast(g.op.Gather(regions, 0, axis=1), to=_INT64)
    rows, columns = (_bins(g, axis) for axis in (0, 1))
    return _maxima(g, batch, rows, columns)


def _maxima(g: RuleContext, batch: Value, rows: Candidates, columns: Candidates) -> Value:
    """The largest of a bin is the largest over its rows of the largest in each row: go back the same two steps."""
    op = g.op
    images = op.Gather(g.x, batch)
    within, row_place, row_weight = _choose(images, columns)
    turned = op.Transpose(within, perm=[0, 1, 3, 2])
    _, place, weight = _choose(turned, rows)
    dy = op.Transpose(g.dy, perm=[0, 1, 3, 2])
    back = op.Transpose(_scatter(turned, place, dy * weight), perm=[0, 1, 3, 2])
    regions = _scatter(images, row_place, back * row_weight)
    return scatter_nd(zeros(shape_of(g.x), g.x), op.Unsqueeze(batch, [1]), regions, "add")


def _choose(x: Value, among: Candidates) -> tuple[Value, Value, Value]:
    """The largest weighted candidate of each bin of the last axis, where it is, and its weight: ``[R, C, A, bins]``."""
    op = x.graph.op
    bins = op.Shape(among.places, start=1)

    def laid_out(v: Value) -> Value:
        count = op.ReduceProd(bins, keepdims=1)
        flat = op.Reshape(v, op.Concat(op.Shape(v, end=1), [1, 1], count, axis=0), allowzero=1)
        return op.Expand(flat, op.Concat(op.Shape(x, end=3), op.Shape(flat, start=3), axis=0))

    places, weights = laid_out(among.places), laid_out(among.weights)
    values = op.GatherElements(x, places, axis=3) * weights + laid_out(among.penalties)
    by_bin = op.Concat(op.Shape(x, end=3), bins, axis=0)
    grouped = op.Reshape(values, by_bin, allowzero=1)
    best = op.ArgMax(grouped, axis=4, keepdims=1)
    taken = [
        op.Squeeze(op.GatherElements(op.Reshape(v, by_bin, allowzero=1), best, axis=4), [4])
        for v in (values, places, weights)
    ]
    nothing = op.IsInf(taken[0], detect_positive=0)
    kept = mask(op.Not(nothing), x)
    return taken[0], taken[1], taken[2] * kept


def _scatter(like: Value, places: Value, d: Value) -> Value:
    return scatter_elements(zeros(shape_of(like), like), places, d, 3, "add")


def _bins(g: RuleContext, axis: int) -> Candidates:
    """MaxRoiPool: every element of the axis is a candidate of every bin, those outside of the bin at -inf."""
    op, regions, count = g.op, g.inputs[1], g.attr("pooled_shape")[axis]
    scale: float = g.attr("spatial_scale")
    first, last = (op.Floor(op.Gather(regions, [k - axis], axis=1) * scale + 0.5) for k in (2, 4))
    step = op.Max(last - first + 1.0, first * 0.0 + 1.0) / float(count)
    index = cast_like(g.graph.constant(np.arange(count, dtype=np.float32)), g.x)
    starts, ends = (op.Unsqueeze(first + edge, [2]) for edge in (op.Floor(step * index), op.Ceil(step * (index + 1.0))))
    places = op.Range(0, op.Gather(op.Shape(g.x), 2 + axis), 1)
    at = cast_like(places, g.x)
    valid = op.And(op.GreaterOrEqual(at, starts), op.Less(at, ends))
    shape = op.Shape(valid)
    return Candidates(op.Expand(places, shape), op.Expand(_number(g, 1.0), shape), _penalty(g, valid))


def _samples(g: RuleContext, axis: int) -> Candidates:
    """RoiAlign: the two neighbours of every sample of a bin, with their weights; outside of the image those are 0."""
    op, regions, count = g.op, g.inputs[1], g.attr("output_width" if axis else "output_height")
    scale: float = g.attr("spatial_scale")
    half = 0.5 if g.attr("coordinate_transformation_mode") == "half_pixel" else 0.0
    first, last = (op.Unsqueeze(op.Gather(regions, [k - axis], axis=1) * scale - half, [2]) for k in (1, 3))
    length = last - first if half else op.Max(last - first, first * 0.0 + 1.0)
    step = length / float(count)
    per_bin = first * 0.0 + float(g.attr("sampling_ratio")) if g.attr("sampling_ratio") else op.Ceil(step)
    most = op.Cast(op.ReduceMax(per_bin, keepdims=0), to=_INT64)
    sample = cast_like(op.Range(0, most, 1), g.x)
    bins = cast_like(g.graph.constant(np.arange(count, dtype=np.float32)[:, None]), g.x)
    points = first + (bins + (sample + 0.5) / per_bin) * step
    size = cast_like(op.Gather(op.Shape(g.x), 2 + axis), g.x)
    inside = mask(op.And(op.GreaterOrEqual(points, -1.0), op.LessOrEqual(points, size)), g.x)
    clipped = op.Min(op.Max(points, _number(g, 0.0)), size - 1.0)
    low = op.Floor(clipped)
    rest = clipped - low
    places = _side_by_side(op.Cast(low, to=_INT64), op.Cast(op.Min(low + 1.0, size - 1.0), to=_INT64))
    penalty = _penalty(g, op.Less(sample + points * 0.0, per_bin))
    return Candidates(places, _side_by_side((1.0 - rest) * inside, rest * inside), _side_by_side(penalty, penalty))


def _side_by_side(a: Value, b: Value) -> Value:
    return a.graph.op.Concat(a, b, axis=2)


def _penalty(g: RuleContext, valid: Value) -> Value:
    return g.op.Where(valid, _number(g, 0.0), _number(g, -np.inf))


def _number(g: RuleContext, number: float) -> Value:
    return cast_like(g.graph.constant(np.array([number], np.float32)), g.x)
