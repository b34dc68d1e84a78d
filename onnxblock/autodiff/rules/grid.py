"""Gradients of the operators that sample images at computed points."""

from __future__ import annotations

from onnx import TensorProto

from ...graph.arithmetic import cast_like, reshape_like, shape_of
from ...graph.sampling import Padding, corners, image_rows, point_gradients, spread, taps
from ...graph.windows import flat_images, positions, spatial_shape
from ..ranks import by_rank
from ..registry import RuleResult, gradient
from ..rule import RuleContext


@gradient("GridSample")
def grid_sample(g: RuleContext) -> RuleResult:
    """For y = Σ w(p) x over the corners that point p reads: dx spreads dy by the weights, dp = Σ dy x w'(p).

    The grid counts from -1 to 1 over the centres (``align_corners``) or the edges of the outermost elements, and its
    coordinates come in the opposite order of the axes (Jaderberg et al. 2015, spatial transformers).
    """
    op, rank = g.op, _spatial_rank(g)
    x, grid = g.inputs[:2]
    if rank is None:
        ranks = {n: {str(v): n + 2 for v in (x, grid, g.y, g.dy)} for n in (2, 3)}
        return by_rank(g, grid_sample, op.Sub(op.Size(shape_of(x)), 2), ranks)
    points = op.Reshape(
        grid, op.Concat(op.Shape(grid, end=1), positions(spatial_shape(g.dy)), [rank], axis=0), allowzero=1
    )
    align, mode = bool(g.attr("align_corners")), g.attr("mode").removeprefix("bi")
    axes, scales = [], []
    for axis in range(rank):
        size = cast_like(op.Gather(op.Shape(x), 2 + axis), grid)
        unit = op.Gather(points, rank - 1 - axis, axis=2) + 1.0
        scales.append((size - 1.0) * 0.5 if align else size * 0.5)
        place = unit * scales[-1] if align else unit * scales[-1] - 0.5
        axes.append(taps(place, mode, Padding(g.attr("padding_mode"), size, align)))
    at = corners(axes, spatial_shape(x))
    dy = op.Transpose(flat_images(g.dy), perm=[0, 2, 1])
    dx = spread(dy, at, x) if g.wants(0) else None
    if not g.wants(1) or mode == "nearest":
        return dx
    found = point_gradients(dy, image_rows(x), at)
    moved = [op.Unsqueeze(cast_like(d, grid) * s, [2]) for d, s in zip(found, scales, strict=True) if d is not None]
    return dx, reshape_like(op.Concat(*reversed(moved), axis=2), grid)


def _spatial_rank(g: RuleContext) -> int | None:
    """The number of spatial axes; None where it is 2 or 3, which opset 20 added."""
    for value in (g.inputs[0], g.inputs[1], g.y):
        if value.rank is not None:
            return value.rank - 2
    return 2 if g.graph.opset < 20 else None


@gradient("AffineGrid")
def affine_grid(g: RuleContext) -> RuleResult:
    """The grid is theta times fixed homogeneous coordinates: dtheta = dy' · coordinates.

    The coordinates are the grid of the identity, with a column of ones; no kernel makes it in float16.
    """
    op, theta, size = g.op, g.x, g.inputs[1]
    rank = op.Shape(theta, start=1, end=2)
    shape = op.ConstantOfShape(op.Concat(rank, op.Add(rank, 1), axis=0))
    dtype = TensorProto.DOUBLE if theta.dtype == TensorProto.DOUBLE else TensorProto.FLOAT
    identity = op.Unsqueeze(op.EyeLike(shape, dtype=dtype), [0])
    one = op.Concat([1], op.Slice(size, [1], [2**62]), axis=0)
    grid = op.AffineGrid(identity, one, align_corners=g.attr("align_corners"))
    coordinates = cast_like(op.Reshape(grid, op.Concat([-1], rank, axis=0)), g.dy)
    ones = op.Slice(coordinates, [0], [1], [1]) * 0.0 + 1.0
    cotangents = op.Reshape(g.dy, op.Concat([0, -1], rank, axis=0))
    return op.Transpose(cotangents, perm=[0, 2, 1]) @ op.Concat(coordinates, ones, axis=1)
