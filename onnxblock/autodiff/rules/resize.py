"""The gradient of Resize, in every mode."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from onnx import TensorProto

from ...graph.arithmetic import cast_like, reshape_like, shape_of
from ...graph.separable import along_axes, identity
from ...graph.value import Value
from ..ranks import by_rank
from ..registry import RuleResult, gradient
from ..rule import RuleContext

_SHARED = ("antialias", "coordinate_transformation_mode", "cubic_coeff_a", "exclude_outside", "mode", "nearest_mode")

_RANKS = (4, 3, 5, 2, 1)
"""What the rank may be where neither a shape nor an input tells it, the usual one first."""


@gradient("Resize")
def resize(g: RuleContext) -> RuleResult:
    """Resizing is a matrix along each axis, so dx is dy taken through each of them transposed.

    1. Nearest by a whole factor repeats every element: dx is the sum over the copies.  2. Otherwise the matrix of an
    axis is what Resize itself makes, with the same attributes, of the rows of an identity matrix.
    """
    rank = _rank(g)
    if rank is None:
        ranks = {n: dict.fromkeys(map(str, (g.x, g.y, g.dy)), n) for n in _RANKS}
        return by_rank(g, resize, g.op.Size(shape_of(g.x)), ranks)
    axes = [axis % rank for axis in g.attr("axes") or range(rank)]
    moved = [axis for place, axis in enumerate(axes) if not _is_unchanged(g, axis, place)]
    factors = _copies(g, moved, axes)
    if factors is not None:
        return _sum_of_copies(g, moved, factors, rank)
    matrices = [cast_like(_matrix(g, axis, axes), g.dy) for axis in moved]
    return along_axes(g.dy, matrices, moved, rank)


def _rank(g: RuleContext) -> int | None:
    for value in (g.x, g.y):
        if value.rank is not None:
            return value.rank
    for per_axis in (_scales(g), _sizes(g)):
        if not g.attr("axes") and per_axis is not None and per_axis.shape and isinstance(per_axis.shape[0], int):
            return per_axis.shape[0]
    return None


def _scales(g: RuleContext) -> Value | None:
    """The input ``scales``; an empty one counts as absent, as it does for the operator."""
    scales = g.input(2)
    return None if scales is None or scales.shape == (0,) else scales


def _sizes(g: RuleContext) -> Value | None:
    return g.input(3) if _scales(g) is None else None


def _is_unchanged(g: RuleContext, axis: int, place: int) -> bool:
    """Whether it is certain that an axis is only copied; a crop never is."""
    if g.attr("coordinate_transformation_mode") == "tf_crop_and_resize":
        return axis < 2 and _same_size(g, axis) and not _cropped(g, place)
    scales = g.constant(2)
    if scales is not None and scales.size:
        return float(scales[place]) == 1
    return _scales(g) is None and _same_size(g, axis)


def _same_size(g: RuleContext, axis: int) -> bool:
    before, after = g.x.shape, g.y.shape
    return before is not None and after is not None and before[axis] is not None and before[axis] == after[axis]


def _cropped(g: RuleContext, place: int) -> bool:
    roi = g.constant(1)
    return roi is None or (roi[place], roi[len(roi) // 2 + place]) != (0, 1)


# -- repeated elements


def _copies(g: RuleContext, moved: Sequence[int], axes: Sequence[int]) -> list[int] | None:
    """How often each of the ``moved`` axes repeats every element, or None where it does something else."""
    pixel, rounding = g.attr("coordinate_transformation_mode"), g.attr("nearest_mode")
    whole = (pixel == "asymmetric" and rounding == "floor") or (
        pixel in ("half_pixel", "pytorch_half_pixel") and rounding.startswith("round_prefer")
    )
    if g.attr("mode") != "nearest" or not whole or not moved or g.x.shape is None or g.y.shape is None:
        return None
    scales = g.constant(2)
    factors = []
    for axis in moved:
        before, after = g.x.shape[axis], g.y.shape[axis]
        if scales is not None and scales.size:
            factor = float(scales[axes.index(axis)])
        elif isinstance(before, int) and isinstance(after, int) and before:
            factor = after / before
        else:
            return None
        if factor < 1 or factor % 1:
            return None
        factors.append(int(factor))
    return factors


def _sum_of_copies(g: RuleContext, moved: Sequence[int], factors: Sequence[int], rank: int) -> Value:
    """The sum of the copies of every element: an average pooling where all spatial axes are repeated."""
    op = g.op
    if list(moved) == list(range(2, rank)) and rank in (3, 4, 5) and g.dy.dtype == TensorProto.FLOAT:
        return op.AveragePool(g.dy, kernel_shape=factors, strides=factors) * float(prod(factors))
    parts: list[Value] = []
    summed = []
    for axis in range(rank):
        parts.append(op.Shape(g.x, start=axis, end=axis + 1))
        if axis in moved:
            parts.append(g.graph.constant(np.array([factors[list(moved).index(axis)]])))
            summed.append(len(parts) - 1)
    split = op.Reshape(g.dy, op.Concat(*parts, axis=0))
    return reshape_like(op.ReduceSum(split, summed, keepdims=0), g.x)


# -- the matrix of an axis


def _matrix(g: RuleContext, axis: int, axes: Sequence[int]) -> Value:
    """The matrix ``[input size, output size]`` of one axis.

    It is Resize on images ``[n, 1, h, n]``, image i being 1 at column i.  h is 1, unless the aspect ratio is kept: then
    the height is the axis that decides the scale of all.
    """
    op, place = g.op, axes.index(axis)
    unit = identity(op.Shape(g.x, start=axis, end=axis + 1), g.x.dtype)
    images = op.Unsqueeze(unit, np.array([1, 2]))
    attributes: dict[str, Any] = {name: g.attr(name) for name in _SHARED if g.attr(name) is not None}
    scales, sizes = _scales(g), _sizes(g)
    roi = _roi_of(g, place)
    if scales is not None:
        own = op.Concat(np.ones(3, np.float32), _entry(scales, place), axis=0)
        resized = op.Resize(images, roi, own, **attributes)
    elif g.attr("keep_aspect_ratio_policy", "stretch") == "stretch":
        own = op.Concat(op.Gather(op.Shape(images), np.arange(3)), _entry(op.Shape(g.y), axis), axis=0)
        resized = op.Resize(images, roi, None, own, **attributes)
    else:
        assert sizes is not None
        resized = _resized_beside_the_deciding_axis(g, images, place, axes, sizes, attributes)
    size = op.Concat(op.Shape(unit, end=1), op.Shape(resized, start=3), axis=0)
    return op.Reshape(op.Slice(resized, [0], [1], [2]), size, allowzero=1)


def _entry(vector: Value, place: int) -> Value:
    """One entry, as a vector of length 1, which Resize must see; cut off by Slice, it would have none it can see."""
    entry = vector.graph.op.Gather(vector, np.array([place]))
    return entry if vector.rank == 1 else vector.graph.op.Reshape(entry, [1])


def _roi_of(g: RuleContext, place: int) -> Value | None:
    """The part of the image that tf_crop_and_resize keeps of one axis: the whole of the others."""
    roi = g.input(1)
    if g.attr("coordinate_transformation_mode") != "tf_crop_and_resize" or roi is None:
        return None
    op = g.op
    ends = op.Slice(roi, op.Div(op.Shape(roi), np.array([2])), np.array([2**62]))
    whole = [cast_like(g.graph.constant(np.full(3, bound, np.float32)), roi) for bound in (0, 1)]
    return op.Concat(whole[0], _entry(roi, place), whole[1], _entry(ends, place), axis=0)


def _resized_beside_the_deciding_axis(
    g: RuleContext, images: Value, place: int, axes: Sequence[int], sizes: Value, attributes: dict[str, Any]
) -> Value:
    """Images as high as the axis whose scale all others take, so that Resize finds the same scale again."""
    op, policy = g.op, g.attr("keep_aspect_ratio_policy")
    dims = op.Gather(op.Shape(g.x), np.array(list(axes)))
    ratios = op.Div(op.Cast(sizes, to=TensorProto.FLOAT), op.Cast(dims, to=TensorProto.FLOAT))
    choose = op.ArgMin if policy == "not_larger" else op.ArgMax
    deciding = choose(ratios, axis=0, keepdims=1)
    height = op.Gather(dims, deciding)
    tall = op.Expand(images, op.Concat([1, 1], height, [1], axis=0))
    own = op.Concat(op.Gather(sizes, deciding), _entry(sizes, place), axis=0)
    return op.Resize(tall, None, None, own, axes=[2, 3], keep_aspect_ratio_policy=policy, **attributes)
