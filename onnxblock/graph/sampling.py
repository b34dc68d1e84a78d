"""Reading an image between its elements, and spreading values back: what GridSample and DeformConv have in common.

A point on one axis reads a few neighbouring elements (taps), each with a weight that depends on the point.  A point of
an image reads every combination of the taps of its axes, with the product of their weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from onnx import TensorProto

from .arithmetic import cast_like, mask
from .scatter import scatter_nd, zeros
from .value import Value
from .windows import flat_images, positions, spatial_shape

_CUBIC = -0.75
"""The free coefficient of the cubic kernel (Keys 1981), as PyTorch and onnxruntime set it."""


@dataclass(frozen=True)
class Tap:
    """One element that points read on one axis: where, with what weight, and the weight's derivative in the point.

    All have the shape of the points.  The place (a whole float) lies in the image; where it stands for something
    outside that counts as zero, the weight is 0.  The slope is None where it is 0 everywhere.
    """

    place: Value
    weight: Value
    slope: Value | None


@dataclass(frozen=True)
class Padding:
    """What lies beyond an axis of ``size`` elements (a float scalar of the graph): zeros, border or reflection.

    Reflection is about the centres of the outermost elements with ``align_corners``, else about their outer edges.
    """

    mode: str
    size: Value
    align_corners: bool

    def point(self, x: Value) -> tuple[Value, Value | None]:
        """Where points are taken to lie, and the derivative of that in the point, None for 1 everywhere."""
        if self.mode == "zeros":
            return x, None
        x, sign = self._reflect(x) if self.mode == "reflection" else (x, None)
        op = x.graph.op
        # On the outermost elements, where an identity grid with align_corners has points, it is 0 as in PyTorch.
        inside = mask(op.And(op.Greater(x, self.size * 0.0), op.Less(x, self.size - 1.0)), x)
        return self._inside(x), inside if sign is None else inside * sign

    def place(self, k: Value) -> tuple[Value, Value | None]:
        """The element that stands at the whole number ``k``, and 1 where there is one, None for everywhere."""
        if self.mode == "reflection":
            return self._inside(k.graph.op.Round(self._reflect(k)[0])), None
        inside = self._inside(k)
        return inside, mask(k.graph.op.Equal(inside, k), k) if self.mode == "zeros" else None

    def _bounds(self) -> tuple[Value, Value]:
        beyond = 0.0 if self.align_corners else 0.5
        return self.size * 0.0 - beyond, self.size - (1.0 - beyond)

    def _inside(self, x: Value) -> Value:
        op = x.graph.op
        return op.Min(op.Max(x, self.size * 0.0), self.size - 1.0)

    def _reflect(self, x: Value) -> tuple[Value, Value]:
        """A triangle wave between the bounds, and its slope, 1 or -1."""
        op = x.graph.op
        low, high = self._bounds()
        length = op.Max(high - low, self.size * 0.0 + 0.5)
        period = length * 2.0
        phase = x - low
        phase = phase - period * op.Floor(phase / period)
        back = mask(op.Greater(phase, length), x)
        sign = 1.0 - back * 2.0
        return low + (phase * sign + period * back), sign


def taps(x: Value, mode: str, padding: Padding) -> list[Tap]:
    """What points at ``x`` read, by interpolation ``mode``: nearest, linear or cubic.

    Only linear interpolation moves points into the image first; otherwise padding stands for each tap by itself.
    """
    op = x.graph.op
    if mode == "nearest":
        place, valid = padding.place(op.Round(x))
        return [Tap(place, x * 0.0 + 1.0 if valid is None else valid, None)]
    x, turn = padding.point(x) if mode == "linear" else (x, None)
    first = op.Floor(x)
    rest = x - first
    found = []
    for offset, polynomial in _kernel(mode):
        place, valid = padding.place(first + float(offset))
        weight, slope = _evaluate(polynomial, rest), _evaluate(polynomial.deriv(), rest)
        if valid is not None:
            weight, slope = weight * valid, slope * valid
        found.append(Tap(place, weight, slope if turn is None else slope * turn))
    return found


def _kernel(mode: str) -> list[tuple[int, np.poly1d]]:
    """The weight of each neighbour as a polynomial in the distance from the element before the point."""
    t = np.poly1d([1.0, 0.0])
    if mode == "linear":
        return [(0, 1 - t), (1, t)]
    near = np.poly1d([_CUBIC + 2, -(_CUBIC + 3), 0, 1])
    far = np.poly1d([_CUBIC, -5 * _CUBIC, 8 * _CUBIC, -4 * _CUBIC])
    return [(-1, far(t + 1)), (0, near(t)), (1, near(1 - t)), (2, far(2 - t))]


def _evaluate(polynomial: np.poly1d, x: Value) -> Value:
    first, *rest = (float(c) for c in polynomial.coefficients)
    y = x * 0.0 + first
    for c in rest:
        y = y * x + c
    return y


@dataclass(frozen=True)
class Corners:
    """What points of an image read: ``[N, points, corners]`` each.

    ``rows`` are places in the flattened batch of images, ``slopes`` the derivatives of the weights in each coordinate.
    """

    rows: Value
    weights: Value
    slopes: list[Value | None]


def corners(axes: Sequence[Sequence[Tap]], spatial: Value) -> Corners:
    """Every combination of the taps of all axes of images whose sizes are ``spatial`` (an int64 vector)."""
    op, rank = spatial.graph.op, len(axes)
    rows, weights = [], []
    slopes: list[list[Value | None]] = [[] for _ in range(rank)]
    for combination in product(*axes):
        row: Value | None = None
        for axis, tap in enumerate(combination):
            step = op.ReduceProd(op.Slice(spatial, [axis + 1], [rank]), keepdims=0)
            here = op.Mul(op.Cast(tap.place, to=TensorProto.INT64), step)
            row = here if row is None else op.Add(row, here)
        assert row is not None
        rows.append(row)
        weights.append(_product([tap.weight for tap in combination]))
        for axis, tap in enumerate(combination):
            others = [t.weight for k, t in enumerate(combination) if k != axis]
            slopes[axis].append(None if tap.slope is None else _product([tap.slope, *others]))
    images = op.Range(0, op.Gather(op.Shape(rows[0]), 0), 1)
    offsets = op.Mul(op.Reshape(images, [-1, 1, 1]), op.ReduceProd(spatial, keepdims=0))
    return Corners(op.Add(_stack(rows), offsets), _stack(weights), [_stack_known(s) for s in slopes])


def _product(values: Sequence[Value]) -> Value:
    total = values[0]
    for value in values[1:]:
        total = total * value
    return total


def _stack(values: Sequence[Value]) -> Value:
    op = values[0].graph.op
    parts = [op.Unsqueeze(v, [2]) for v in values]
    return op.Concat(*parts, axis=2) if len(parts) > 1 else parts[0]


def _stack_known(values: Sequence[Value | None]) -> Value | None:
    known = [v for v in values if v is not None]
    return _stack(known) if known else None


def image_rows(x: Value) -> Value:
    """``[N, C, ...]`` as one row of channels for each element: ``[N · elements, C]``."""
    op = x.graph.op
    flat = op.Transpose(flat_images(x), perm=[0, 2, 1])
    rows = op.Mul(op.Shape(flat, end=1), op.Shape(flat, start=1, end=2))
    return op.Reshape(flat, op.Concat(rows, op.Shape(flat, start=2), axis=0), allowzero=1)


def read(rows: Value, at: Corners) -> Value:
    """The rows at each corner: ``[N, points, corners, C]``."""
    return rows.graph.op.Gather(rows, at.rows)


def interpolate(rows: Value, at: Corners) -> Value:
    """The weighted sum of the corners: ``[N, points, C]``."""
    return (read(rows, at) * _column(cast_like(at.weights, rows))).sum(2)


def spread(d: Value, at: Corners, image: Value) -> Value:
    """Adjoint of :func:`interpolate` in the image: cotangents ``[N, points, C]`` added up in the shape of ``image``."""
    op = d.graph.op
    updates = op.Unsqueeze(d, [2]) * _column(cast_like(at.weights, d))
    batch, channels = op.Shape(image, end=1), op.Shape(image, start=1, end=2)
    elements = op.Mul(batch, op.ReduceProd(op.Shape(image, start=2), keepdims=1))
    base = zeros(op.Concat(elements, channels, axis=0), d)
    total = scatter_nd(base, op.Unsqueeze(at.rows, [3]), updates, "add")
    batched = op.Reshape(total, op.Concat(batch, positions(spatial_shape(image)), channels, axis=0), allowzero=1)
    return op.Reshape(op.Transpose(batched, perm=[0, 2, 1]), op.Shape(image), allowzero=1)


def point_gradients(d: Value, rows: Value, at: Corners) -> list[Value | None]:
    """Adjoint of :func:`interpolate` in each coordinate of the points: ``[N, points]`` each."""
    products = (read(rows, at) * rows.graph.op.Unsqueeze(d, [2])).sum(3)
    return [None if slope is None else (products * cast_like(slope, products)).sum(2) for slope in at.slopes]


def _column(v: Value) -> Value:
    return v.graph.op.Unsqueeze(v, [3])
