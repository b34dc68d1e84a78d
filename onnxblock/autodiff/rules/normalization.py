"""Gradients of the normalisations whose statistics are those of one example.

They share one formula.  A row is what is normalised together, x̂ = (x - mean) / √(variance + ε), u the cotangent of x̂:
dx = (u - mean(u) - x̂ mean(u x̂)) / √(variance + ε).  Without the mean (root mean square), mean(u) falls away.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from onnx import TensorProto

from ...graph.arithmetic import cast_like, element_count, mask, reshape_like, shape_of, widened
from ...graph.value import Value
from ...graph.windows import flat_images, positions, spatial_shape
from ..registry import RuleResult, gradient
from ..rule import RuleContext

Axes: TypeAlias = "list[int] | Value"
"""The axes of a row, a value of the graph where even the rank is unknown."""


@gradient("LayerNormalization")
def layer_normalization(g: RuleContext) -> RuleResult:
    """For y = scale x̂ + bias over the axes from ``axis`` on: dscale = Σ dy x̂, dbias = Σ dy  (Ba, Kiros, Hinton 2016).

    The node's own Mean and InvStdDev serve float32; they are float32 whatever x is, so float64 computes them again.
    """
    x, axes = widened(g.x), _axes_from(g)
    if x.dtype == TensorProto.FLOAT and g.attr("stash_type") == TensorProto.FLOAT:
        mean, inverse = g.output(1), g.output(2)
    else:
        mean = _mean(x, axes)
        inverse = _inverse_root(_mean_square(x - mean, axes), g.attr("epsilon"))
    normalised = (x - mean) * inverse
    dx, dscale = _scaled_rows(g, normalised, inverse, axes)
    return _through_statistics(g, dx, normalised, inverse, axes), dscale, g.dy


def _through_statistics(
    g: RuleContext, dx: Value | None, normalised: Value, inverse: Value, axes: Axes
) -> Value | None:
    """What reaches x through the outputs Mean and InvStdDev: dmean / n - dinverse inverse² x̂ / n."""
    dmean, dinverse = g.grad(1), g.grad(2)
    if dx is None or (dmean is None and dinverse is None):
        return dx
    count = element_count(normalised, axes, like=normalised)
    if dmean is not None:
        dx = dx + cast_like(dmean, dx) / count
    if dinverse is not None:
        dx = dx - cast_like(dinverse, dx) * inverse * inverse / count * normalised
    return dx


@gradient("RMSNormalization")
def rms_normalization(g: RuleContext) -> RuleResult:
    """For y = scale x / √(mean(x²) + ε) over the axes from ``axis`` on: dscale = Σ dy x̂  (Zhang, Sennrich 2019)."""
    x, axes = widened(g.x), _axes_from(g)
    inverse = _inverse_root(_mean_square(x, axes), g.attr("epsilon", 1e-5))
    return _scaled_rows(g, x * inverse, inverse, axes, centred=False)


def _scaled_rows(
    g: RuleContext, normalised: Value, inverse: Value, axes: Axes, centred: bool = True
) -> tuple[Value | None, Value]:
    """The cotangents of x and of scale, the latter for the engine to sum, of y = scale x̂ + bias.

    Where scale is one known row, the means of products with it are matrix products with scale / n.
    """
    dy, scale = cast_like(g.dy, normalised), cast_like(g.inputs[1], normalised)
    product = dy * normalised
    if not g.wants(0):
        return None, product
    size = scale.shape[0] if scale.shape is not None and len(scale.shape) == 1 else None
    if axes == [-1] and isinstance(size, int) and normalised.shape is not None and normalised.shape[-1] == size:
        column = g.op.Einsum(scale, [1 / size], equation="i,j->ij")
        slope, shift = product @ column, dy @ column if centred else None
    else:
        slope, shift = _mean(product * scale, axes), _mean(dy * scale, axes) if centred else None
    return _combine(dy * scale, normalised, inverse, slope, shift), product


def _combine(u: Value, normalised: Value, inverse: Value, slope: Value, shift: Value | None) -> Value:
    """The common formula, with slope = mean(u x̂) and shift = mean(u)."""
    rest = normalised * slope
    return (u - (rest if shift is None else rest + shift)) * inverse


# -- groups of channels


@gradient("GroupNormalization")
def group_normalization(g: RuleContext) -> RuleResult:
    """For y = scale x̂ + bias, each group of channels a row; scale belongs to a channel (to a group at opset 18)."""
    op, groups = g.op, g.attr("num_groups")
    channels = op.Div(op.Shape(g.x, start=1, end=2), np.array([groups]))
    parted = op.Concat([0, groups], channels, positions(spatial_shape(g.x)), axis=0)
    per_group = g.graph.opset < 21
    return _grouped(g, parted, [groups, 1, 1] if per_group else [groups, -1, 1], [0, 2] if per_group else [0])


@gradient("InstanceNormalization")
def instance_normalization(g: RuleContext) -> RuleResult:
    """For y = scale x̂ + bias, each channel of each example a row (Ulyanov, Vedaldi, Lempitsky 2016)."""
    parted = g.op.Concat([0, 0, 1], positions(spatial_shape(g.x)), axis=0)
    return _grouped(g, parted, [-1, 1, 1], [0])


def _grouped(g: RuleContext, parted: Value, scale_shape: list[int], summed: list[int]) -> RuleResult:
    """Rows are the last two axes of x in the shape ``parted``, ``[N, groups, channels, positions]``.

    Everything is made of two sums over the positions, of dy and of dy (x - mean), so that few passes go over the whole
    of x; ``summed`` are the axes over which scale and bias have one element.
    """
    op = g.op
    x, dy = (widened(op.Reshape(v, parted)) for v in (g.x, g.dy))
    centred = x - _mean(x, [2, 3])
    count = element_count(x, [2, 3], like=x)
    inverse = _inverse_root(op.ReduceSumSquare(centred, [2, 3]) / count, g.attr("epsilon"))
    total, product = dy.sum(3, keepdims=True), (dy * centred).sum(3, keepdims=True) * inverse
    dx = None
    if g.wants(0):
        scale = op.Reshape(cast_like(g.inputs[1], x), scale_shape)
        slope = (product * scale).sum(2, keepdims=True) / count
        shift = (total * scale).sum(2, keepdims=True) / count
        dx = reshape_like(dy * (scale * inverse) - (centred * (slope * inverse * inverse) + shift * inverse), g.x)
    return (
        dx,
        op.Reshape(op.ReduceSum(product, summed), [-1]) if g.wants(1) else None,
        op.Reshape(op.ReduceSum(total, summed), [-1]) if g.wants(2) else None,
    )


# -- without scale and bias


@gradient("MeanVarianceNormalization")
def mean_variance_normalization(g: RuleContext) -> RuleResult:
    """For y = (x - mean) / √variance over ``axes``; the formula of all, with x̂ = y."""
    axes = list(g.attr("axes", [0, 2, 3]))
    x, y, dy = widened(g.x), widened(g.y), widened(g.dy)
    inverse = _inverse_root(_mean_square(x - _mean(x, axes), axes), 1e-18)
    return _combine(dy, y, inverse, _mean(dy * y, axes), _mean(dy, axes))


@gradient("LpNormalization")
def lp_normalization(g: RuleContext) -> RuleResult:
    """For y = x / ‖x‖ₚ along ``axis``: dx = (dy - c Σ dy y) / ‖x‖ₚ, c = sign(x) for p = 1 and y for p = 2.

    Where the norm is 0, y is 0 by definition, and so is dx.
    """
    op, axes = g.op, [g.attr("axis")]
    norm = (op.ReduceL1 if g.attr("p") == 1 else op.ReduceL2)(g.x, axes, keepdims=1)
    zero = mask(op.Equal(norm, 0.0), g.x)
    direction = op.Sign(g.x) if g.attr("p") == 1 else g.y
    inner = (g.dy * g.y).sum(axes, keepdims=True)
    kept: Value = (1.0 - zero) / (norm + zero)
    return (g.dy - direction * inner) * kept


@gradient("LRN")
def lrn(g: RuleContext) -> RuleResult:
    """For y = x s^-β with s = bias + α m(x²), m the mean over ``size`` neighbouring channels  (Krizhevsky et al. 2012).

    dx = dy s^-β - 2 α β x m'(dy y / s), m' the adjoint of m: the same mean with its padding the other way round.
    """
    op, size = g.op, g.attr("size")
    alpha: float = g.attr("alpha")
    beta: float = g.attr("beta")
    before, after = (size - 1) // 2, size - 1 - (size - 1) // 2

    def mean(v: Value, first: int, last: int) -> Value:
        # Padded apart: releases of onnxruntime up to 1.23 miscount padding under windows that are not square.
        channels = op.Pad(flat_images(v).unsqueeze(1), np.array([0, 0, first, 0, 0, 0, last, 0]))
        return reshape_like(op.AveragePool(channels, kernel_shape=[size, 1]), v)

    base: Value = mean(g.x * g.x, before, after) * alpha + g.attr("bias")
    spread = mean(g.dy * g.y / base, after, before)
    return g.dy * base**-beta - g.x * spread * (2 * alpha * beta)


# -- statistics


def _axes_from(g: RuleContext) -> Axes:
    """The axes from the attribute ``axis`` on, counted from the end where that is possible."""
    axis = g.attr("axis")
    if axis < 0:
        return list(range(axis, 0))
    if g.x.rank is not None:
        return list(range(axis - g.x.rank, 0))
    rank: Value = g.op.Size(shape_of(g.x))
    return g.op.Range(axis, rank, 1)


def _mean(x: Value, axes: Axes) -> Value:
    return x.graph.op.ReduceMean(x, axes, keepdims=1)


def _mean_square(x: Value, axes: Axes) -> Value:
    return _mean(x * x, axes)


def _inverse_root(x: Value, epsilon: float) -> Value:
    return 1.0 / (x + epsilon).sqrt()
