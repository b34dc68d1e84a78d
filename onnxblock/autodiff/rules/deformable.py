"""The gradient of DeformConv."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...graph.arithmetic import cast_like, reshape_like, sum_over
from ...graph.sampling import Corners, Padding, corners, image_rows, interpolate, point_gradients, spread, taps
from ...graph.value import Value
from ...graph.windows import spatial_shape, sum_over_batch
from ..registry import RuleResult, gradient
from ..rule import RuleContext


@gradient("DeformConv")
def deform_conv(g: RuleContext) -> RuleResult:
    """A convolution whose windows read the image beside their places, each value times a mask  (Zhu et al. 2019).

    y = w columns, columns = mask · image(place + offset): dw = dy columns', and with d = w' dy, dmask = Σ d image(·),
    dimage spreads d mask to where it was read, doffset = Σ d mask image'(·) over the channels.

    Points are laid out as ``[N · offset groups, kernel · positions, channels of a group]``.
    """
    op, size = g.op, _Sizes.of(g)
    x, w, mask, group = g.inputs[0], g.inputs[1], g.input(4), g.attr("group")
    image = op.Reshape(x, op.Concat(size.images, size.share, spatial_shape(x), axis=0), allowzero=1)
    at, rows = _corners(g, size), image_rows(image)
    masks = None if mask is None else op.Unsqueeze(op.Reshape(mask, size.points, allowzero=1), [2])
    values = interpolate(rows, at)
    shares = [op.Div(op.Shape(v, start=axis, end=axis + 1), np.array([group])) for v, axis in ((g.dy, 1), (x, 1))]
    dy = op.Reshape(g.dy, op.Concat(size.batch, [group], shares[0], size.positions, axis=0), allowzero=1)
    columns = op.Transpose(values if masks is None else values * masks, perm=[0, 2, 1])
    reads = op.Mul(shares[1], size.places)
    by_group = op.Reshape(columns, op.Concat(size.batch, [group], reads, size.positions, axis=0), allowzero=1)
    dw = reshape_like(sum_over_batch(dy @ op.Transpose(by_group, perm=[0, 1, 3, 2])), w) if g.wants(1) else None
    db = sum_over(g.dy, [0, *range(2, 2 + size.rank)]) if g.wants(3) else None
    if not any(g.wants(k) for k in (0, 2, 4)):
        return None, dw, None, db

    per_group = op.Concat([group], op.Div(op.Shape(w, end=1), np.array([group])), [-1], axis=0)
    spent = op.Transpose(op.Reshape(w, per_group), perm=[0, 2, 1]) @ dy
    d = op.Transpose(
        op.Reshape(spent, op.Concat(size.images, size.share, size.reads, axis=0), allowzero=1), perm=[0, 2, 1]
    )
    dmask = None if mask is None else reshape_like((d * values).sum(2), mask)
    d = d if masks is None else d * masks
    dx = reshape_like(spread(d, at, image), x) if g.wants(0) else None
    return dx, dw, _offset_gradient(g, d, rows, at, size) if g.wants(2) else None, db, dmask


@dataclass(frozen=True)
class _Sizes:
    """Int64 vectors of one element unless said otherwise: what reshapes need."""

    rank: int
    kernel: Value
    """The sizes of the kernel, one for each axis."""
    count: Value
    """The sizes of the output, one for each axis."""
    batch: Value
    images: Value
    """The number of images times the groups that share their offsets."""
    share: Value
    """The channels of the image that share their offsets."""
    places: Value
    """The number of elements of the kernel."""
    positions: Value
    """The number of elements of the output."""
    reads: Value
    """places · positions"""
    points: Value
    """The shape [N · offset groups, reads]."""

    @staticmethod
    def of(g: RuleContext) -> _Sizes:
        op, (x, w), parts = g.op, g.inputs[:2], np.array([g.attr("offset_group")])
        known = [v.rank - 2 for v in (x, w, g.inputs[2], g.y) if v.rank is not None]
        given = [len(v) for v in (g.attr("kernel_shape"), g.attr("strides"), g.attr("dilations")) if v]
        kernel, count = spatial_shape(w), spatial_shape(g.dy)
        places, positions = (op.ReduceProd(v, keepdims=1) for v in (kernel, count))
        batch, reads = op.Shape(x, end=1), op.Mul(places, positions)
        share = op.Div(op.Shape(x, start=1, end=2), parts)
        images = op.Mul(batch, parts)
        points = op.Concat(images, reads, axis=0)
        # Two axes where nothing says how many: the only case that runtimes run.
        rank = [*known, *given, 2][0]
        return _Sizes(rank, kernel, count, batch, images, share, places, positions, reads, points)


def _corners(g: RuleContext, size: _Sizes) -> Corners:
    """What every place of every window reads, by linear interpolation with zeros around the image."""
    op, x, offset, rank = g.op, g.inputs[0], g.inputs[2], size.rank
    strides, dilations = g.attr("strides") or [1] * rank, g.attr("dilations") or [1] * rank
    pads = g.attr("pads") or [0] * 2 * rank
    moved = op.Reshape(offset, op.Concat(size.images, size.places, [rank], size.positions, axis=0), allowzero=1)
    axes = []
    for axis in range(rank):
        starts = _grid(size.count, axis, rank, x) * float(strides[axis]) - float(pads[axis])
        base = op.Transpose(_grid(size.kernel, axis, rank, x) * float(dilations[axis]), perm=[1, 0]) + starts
        points = op.Reshape(cast_like(op.Gather(moved, axis, axis=2), x) + base, size.points, allowzero=1)
        length = cast_like(op.Gather(op.Shape(x), 2 + axis), x)
        axes.append(taps(points, "linear", Padding("zeros", length, align_corners=True)))
    return corners(axes, spatial_shape(x))


def _grid(lengths: Value, axis: int, rank: int, like: Value) -> Value:
    """The coordinate along ``axis`` of every element of an array of these lengths: ``[1, elements]``."""
    op = lengths.graph.op
    along = op.Reshape(op.Range(0, op.Gather(lengths, axis), 1), [-1 if k == axis else 1 for k in range(rank)])
    return cast_like(op.Reshape(op.Expand(along, lengths), [1, -1]), like)


def _offset_gradient(g: RuleContext, d: Value, rows: Value, at: Corners, size: _Sizes) -> Value:
    op = g.op
    shape = op.Concat(size.images, size.places, [1], size.positions, axis=0)
    found = [op.Reshape(v, shape, allowzero=1) for v in point_gradients(d, rows, at) if v is not None]
    return reshape_like(op.Concat(*found, axis=2), g.inputs[2])
