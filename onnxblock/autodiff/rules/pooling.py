"""Gradients of the poolings, of any rank, with every form of padding."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ...graph.arithmetic import cast_like, expand_like, mask, reshape_like, shape_of, size_of
from ...graph.convolutions import transposed_convolution
from ...graph.scatter import scatter_elements, zeros
from ...graph.separable import along_axes, identity
from ...graph.types import FLOATS
from ...graph.value import Value
from ...graph.windows import fitted_windows, flat_images, spatial_shape
from ..registry import RuleResult, gradient
from ..rule import RuleContext
from .convolution import same_padding


@gradient("MaxPool")
def max_pool(g: RuleContext) -> RuleResult:
    """The cotangent goes to the element that won its window, the first of equals: a scatter by the kernel's Indices.

    Indices count the elements of the whole tensor; with storage_order 1 each image is counted column by column.
    """
    op, rank = g.op, len(g.attr("kernel_shape"))
    kernel, strides = g.attr("kernel_shape"), g.attr("strides") or [1] * rank
    dilations = g.attr("dilations") or [1] * rank
    overlap = any((k - 1) * d + 1 > s for k, s, d in zip(kernel, strides, dilations, strict=True))
    flat = scatter_elements(
        zeros(op.Reshape(size_of(g.x), [1]), g.x),
        op.Reshape(g.output(1), [-1]),
        op.Reshape(g.dy, [-1]),
        axis=0,
        reduction="add" if overlap else "none",
    )
    if not g.attr("storage_order"):
        return reshape_like(flat, g.x)
    columns_first = op.Gather(shape_of(g.x), np.array([0, 1, *range(rank + 1, 1, -1)]))
    return op.Transpose(op.Reshape(flat, columns_first), perm=[0, 1, *range(rank + 1, 1, -1)])


@gradient("MaxUnpool")
def max_unpool(g: RuleContext) -> RuleResult:
    """Each input was written to one place of the output: dx takes the cotangent from there."""
    return g.op.Gather(g.op.Reshape(g.dy, [-1]), g.inputs[1])


@gradient("GlobalAveragePool")
def global_average_pool(g: RuleContext) -> RuleResult:
    """The cotangent in equal shares, dx = dy / n, for each of the n elements of an image."""
    return expand_like(g.dy / _image_size(g), g.x)


def _image_size(g: RuleContext) -> Any:
    """The number of spatial elements: a number where it is known, else a scalar."""
    sizes = g.graph.constant_value(spatial_shape(g.x))
    if sizes is not None:
        return float(prod(int(n) for n in sizes))
    return cast_like(g.op.ReduceProd(spatial_shape(g.x), keepdims=0), g.dy)


@gradient("GlobalMaxPool")
def global_max_pool(g: RuleContext) -> RuleResult:
    """The cotangent goes to the largest element of each image, the first of equals, as in MaxPool."""
    op = g.op
    images = flat_images(g.x)
    winners = op.ArgMax(images, axis=2, keepdims=1)
    cotangents = op.Reshape(g.dy, [0, 0, 1])
    return reshape_like(scatter_elements(zeros(op.Shape(images), g.x), winners, cotangents, 2, "none"), g.x)


@gradient("AveragePool")
def average_pool(g: RuleContext) -> RuleResult:
    """Every element of a window gets the same share of its cotangent.

    1. Where all windows have the same number of elements: a transposed convolution with a constant kernel.
    2. Otherwise (windows cut at the border count fewer): pooling is a matrix along each axis; dx is the product with
    each of them transposed.
    """
    kernel = g.attr("kernel_shape")
    rank = len(kernel)
    padded = any(g.attr("pads") or []) or str(g.attr("auto_pad")).startswith("SAME")
    if g.attr("ceil_mode") or (padded and not g.attr("count_include_pad")) or g.x.dtype not in FLOATS:
        return _by_axis(g, g.dy, count_include_pad=g.attr("count_include_pad"))
    strides, dilations = g.attr("strides") or [1] * rank, g.attr("dilations") or [1] * rank
    size = g.graph.constant(np.array(kernel))
    begin = same_padding(g, rank, size, spatial_shape(g.x), strides, dilations)
    windows = fitted_windows(strides, dilations, size, spatial_shape(g.y), spatial_shape(g.x), begin)
    weight = g.graph.constant(np.full([1, 1, *kernel], 1 / prod(kernel)), g.x.dtype)
    images = g.op.Reshape(g.dy, g.op.Concat([-1, 1], windows.count, axis=0))
    return reshape_like(transposed_convolution(images, weight, windows, 1), g.x)


def _by_axis(g: RuleContext, d: Value, **options: int) -> Value:
    """The adjoint of a pooling that is linear and acts along each spatial axis by itself.

    The matrix of an axis is what the operator makes of the rows of an identity matrix.
    """
    op, kernel = g.op, g.attr("kernel_shape")
    rank = len(kernel)
    pads = g.attr("pads") or [0] * 2 * rank
    shared = {"auto_pad": g.attr("auto_pad"), "ceil_mode": g.attr("ceil_mode"), **options}
    matrices = []
    for axis in range(rank):
        rows = op.Unsqueeze(identity(op.Shape(g.x, start=2 + axis, end=3 + axis), g.x.dtype), [1])
        mine = {"kernel_shape": [kernel[axis]], "strides": [(g.attr("strides") or [1] * rank)[axis]]}
        if g.attr("dilations"):
            mine["dilations"] = [g.attr("dilations")[axis]]
        if g.attr("auto_pad") == "NOTSET":
            mine["pads"] = [pads[axis], pads[rank + axis]]
        matrices.append(op.Squeeze(getattr(op, g.node.op_type)(rows, **mine, **shared), [1]))
    return along_axes(d, matrices, range(2, 2 + rank), 2 + rank)


@gradient("LpPool")
def lp_pool(g: RuleContext) -> RuleResult:
    """For y = (Σ |x|^p)^(1/p): dx = sign(x) |x|^(p-1) Σ dy y^(1-p) over the windows that x is in; 0 where y is 0."""
    p = g.attr("p")
    if p == 1:
        return _by_axis(g, g.dy, p=1) * g.op.Sign(g.x)
    spread = _by_axis(g, g.dy * _safe(g.y) ** (1 - p), p=1)
    return spread * _signed_power(g.x, p - 1)


@gradient("GlobalLpPool")
def global_lp_pool(g: RuleContext) -> RuleResult:
    """For y = (Σ |x|^p)^(1/p): dx = dy sign(x) (|x| / y)^(p-1); 0 where y is 0."""
    p = g.attr("p")
    if p == 1:
        return g.dy * g.op.Sign(g.x)
    return g.dy * _signed_power(g.x / _safe(g.y), p - 1)


def _safe(y: Value) -> Value:
    """A norm with 1 in place of 0, so that it can be divided by: its elements are all 0 then."""
    return y + mask(y.graph.op.Equal(y, 0.0), y)


def _signed_power(x: Value, exponent: int) -> Value:
    """The power of the size with the sign of x: sign(x) |x|^exponent."""
    if exponent == 1:
        return x
    return x.graph.op.Sign(x) * x.abs() ** exponent
