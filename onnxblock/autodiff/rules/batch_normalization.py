"""The gradient of BatchNormalization, with given statistics and with those of the batch."""

from __future__ import annotations

from ...graph.arithmetic import cast_like, element_count, reshape_like, sum_over
from ...graph.value import Value
from ...graph.windows import flat_images
from ..registry import RuleResult, gradient
from ..rule import RuleContext


@gradient("BatchNormalization")
def batch_normalization(g: RuleContext) -> RuleResult:
    """For y = a (x - mean) + bias with a = scale / √(variance + ε), for each channel; x̂ = (x - mean) / √(variance + ε).

    With s = Σ dy and t = Σ dy x̂ over a channel: dscale = t and dbias = s.  In inference mean and variance are inputs:
    dx = a dy, dmean = -a s, dvariance = -t scale / 2 (variance + ε).  In training they are the batch's own, of n
    elements: dx = a (dy - s / n - x̂ t / n)  (Ioffe and Szegedy 2015, section 3).
    """
    x = g.x if g.x.rank is not None else flat_images(g.x)
    dy = reshape_like(g.dy, x)
    scale, mean, variance = (cast_like(v, x) for v in (g.inputs[1], g.inputs[3], g.inputs[4]))
    training = bool(g.attr("training_mode"))
    if training:
        mean, variance = _batch_statistics(g, x)
    inverse = 1.0 / (variance + g.attr("epsilon")).sqrt()
    factor = scale * inverse
    if not training and not any(g.wants(k) for k in (1, 2, 3, 4)):
        return reshape_like(dy * _per_channel(factor, x), g.x)
    centred = x - _per_channel(mean, x)
    total, product = _channel_sum(dy), inverse * _channel_sum(dy * centred)
    if training:
        dx = _input_in_training(g, x, dy, centred, factor, inverse * product, total) if g.wants(0) else None
        rest = _running_statistics(g)
    else:
        dx = dy * _per_channel(factor, x) if g.wants(0) else None
        rest = (-(factor * total), factor * inverse * product * -0.5)
    return None if dx is None else reshape_like(dx, g.x), product, total, *rest


def _batch_statistics(g: RuleContext, x: Value) -> tuple[Value, Value]:
    """Mean and biased variance of each channel: the node's own outputs where momentum 0 makes them just that."""
    if g.attr("momentum") == 0:
        return cast_like(g.output(1), x), cast_like(g.output(2), x)
    mean = _channel_mean(x)
    centred = x - _per_channel(mean, x)
    return mean, _channel_mean(centred * centred)


def _input_in_training(
    g: RuleContext, x: Value, dy: Value, centred: Value, factor: Value, product: Value, total: Value
) -> Value:
    """The gradient of x as a dy + (b (x - mean) + c) with a, b, c for each channel: few passes over the whole of x.

    The running mean and variance are outputs too: (1 - momentum) of the batch's mean and biased variance.
    """
    count = element_count(x, [0, *range(2, x.rank or 3)], like=x)
    slope, shift = factor * product / count * -1.0, factor * total / count * -1.0
    fresh = 1 - g.attr("momentum")
    mean, variance = g.grad(1), g.grad(2)
    if mean is not None:
        shift = shift + cast_like(mean, x) * fresh / count
    if variance is not None:
        slope = slope + cast_like(variance, x) * (2 * fresh) / count
    return dy * _per_channel(factor, x) + (centred * _per_channel(slope, x) + _per_channel(shift, x))


def _running_statistics(g: RuleContext) -> tuple[Value | None, Value | None]:
    """The cotangents of the old running statistics, of which the new ones keep ``momentum``."""
    momentum = g.attr("momentum")
    mean, variance = (None if d is None else d * momentum for d in (g.grad(1), g.grad(2)))
    return mean, variance


def _per_channel(v: Value, x: Value) -> Value:
    """A vector over the channels, laid along axis 1 of ``x``."""
    return v.unsqueeze(*range(1, x.rank - 1)) if x.rank is not None and x.rank > 2 else v


def _channel_sum(d: Value) -> Value:
    return sum_over(d, [0, *range(2, d.rank or 3)])


def _channel_mean(x: Value) -> Value:
    """The mean of each channel, over the inner axes first."""
    inner = x.mean(range(2, x.rank)) if x.rank is not None and x.rank > 2 else x
    return inner.mean(0)
