"""Gradients of the activations.  Slopes at kinks are PyTorch's."""

from __future__ import annotations

import math

from onnx import TensorProto

from ...graph.arithmetic import cast_like, mask
from ...graph.value import Value
from ..registry import RuleResult, gradient, no_gradient
from ..rule import RuleContext

no_gradient("Hardmax", reason="constant between its jumps")


# -- saturating functions


@gradient("Sigmoid")
def sigmoid(g: RuleContext) -> RuleResult:
    """dσ(x) = y (1 - y) dx."""
    return g.dy * (g.y * (1 - g.y))


@gradient("Tanh")
def tanh(g: RuleContext) -> RuleResult:
    """d tanh(x) = (1 - y²) dx."""
    return g.dy * (1 - g.y * g.y)


@gradient("Softsign")
def softsign(g: RuleContext) -> RuleResult:
    """d(x / (1 + |x|)) = dx / (1 + |x|)²."""
    d = 1 + g.x.abs()
    return g.dy / d / d


@gradient("HardSigmoid")
def hard_sigmoid(g: RuleContext) -> RuleResult:
    """y = clip(α x + β, 0, 1): slope α where 0 < y < 1."""
    op = g.op
    alpha: float = g.attr("alpha")
    return g.dy * (mask(op.And(op.Greater(g.y, 0), op.Less(g.y, 1)), g.dy) * alpha)


# -- piecewise functions


@gradient("Relu")
def relu(g: RuleContext) -> RuleResult:
    """y = max(x, 0): slope 1 where y > 0; 0 at 0."""
    return g.dy * mask(g.op.Greater(g.y, 0), g.dy)


@gradient("LeakyRelu")
def leaky_relu(g: RuleContext) -> RuleResult:
    """y = x or α x: slope 1 where x > 0, else α."""
    alpha: float = g.attr("alpha")
    return g.dy * (_positive(g) * (1 - alpha) + alpha)


@gradient("PRelu")
def prelu(g: RuleContext) -> RuleResult:
    """y = x or s x: slope 1 where x > 0, else s; ds = min(x, 0) dy."""
    s = g.inputs[1]
    dx = g.dy * (_positive(g) * (1 - s) + s) if g.wants(0) else None
    return dx, g.dy * g.op.Min(g.x, 0) if g.wants(1) else None


@gradient("ThresholdedRelu")
def thresholded_relu(g: RuleContext) -> RuleResult:
    """y = x where x > α, else 0: slope 1 or 0."""
    return g.dy * mask(g.op.Greater(g.x, g.attr("alpha")), g.dy)


@gradient("Shrink")
def shrink(g: RuleContext) -> RuleResult:
    """y = x ± bias where |x| > λ, else 0: slope 1 or 0."""
    return g.dy * mask(g.op.Greater(g.x.abs(), g.attr("lambd")), g.dy)


@gradient("Elu")
def elu(g: RuleContext) -> RuleResult:
    """y = x or α (e^x - 1): slope 1 where x > 0, else α e^x."""
    return g.dy * _exponential_slope(g, g.attr("alpha"))


@gradient("Selu")
def selu(g: RuleContext) -> RuleResult:
    """y = γ x or γ α (e^x - 1): slope γ where x > 0, else γ α e^x."""
    gamma: float = g.attr("gamma")
    return g.dy * (_exponential_slope(g, g.attr("alpha")) * gamma)


@gradient("Celu")
def celu(g: RuleContext) -> RuleResult:
    """y = x or α (e^(x/α) - 1): slope 1 where x > 0, else e^(x/α)."""
    scaled: Value = g.op.Min(g.x, 0) / g.attr("alpha")
    return g.dy * scaled.exp()


def _exponential_slope(g: RuleContext, alpha: float) -> Value:
    """1 where x > 0, else α e^x; from x, since y + α would lose digits where y comes near -α."""
    slope = g.op.Min(g.x, 0).exp()
    return slope if alpha == 1 else slope * alpha + _positive(g) * (1 - alpha)


def _positive(g: RuleContext) -> Value:
    return mask(g.op.Greater(g.x, 0), g.dy)


# -- smooth functions


@gradient("Softplus")
def softplus(g: RuleContext) -> RuleResult:
    """d log(1 + e^x) = σ(x) dx."""
    return g.dy * g.x.sigmoid()


@gradient("Swish")
def swish(g: RuleContext) -> RuleResult:
    """y = x s with s = σ(α x): slope s + α y (1 - s)."""
    alpha = g.attr("alpha")
    s = (g.x if alpha == 1 else g.x * alpha).sigmoid()
    tail = g.y - g.y * s
    return g.dy * (s + (tail if alpha == 1 else tail * alpha))


@gradient("HardSwish")
def hard_swish(g: RuleContext) -> RuleResult:
    """y = x h with h = clip(x/6 + 1/2, 0, 1): slope h + x/6 where |x| ≤ 3, else h."""
    sixth = g.x * (1 / 6)
    inside = mask(g.op.LessOrEqual(g.x.abs(), 3), g.dy)
    return g.dy * ((sixth + 0.5).clip(0.0, 1.0) + sixth * inside)


@gradient("Mish")
def mish(g: RuleContext) -> RuleResult:
    """y = x t with t = tanh(log(1 + e^x)): slope t + x σ(x) (1 - t²)."""
    x = g.x
    # log(1 + e^x) without overflow, and from operators that exist in float64.
    t = (x.relu() + (1 + (-x.abs()).exp()).log()).tanh()
    return g.dy * (t + x * x.sigmoid() * (1 - t * t))


@gradient("Gelu")
def gelu(g: RuleContext) -> RuleResult:
    """y = x Φ(x): slope Φ(x) + x φ(x), or that of the tanh approximation (Hendrycks & Gimpel, arXiv 1606.08415)."""
    x = g.x
    if g.attr("approximate") == "tanh":
        return g.dy * _gelu_tanh_slope(x, g.y)
    u = x * math.sqrt(0.5)
    erf = g.op.Erf(u)
    # From -1 to 1 HardSigmoid is that straight line, in one pass; onnxruntime has it for float32 alone.
    cdf = g.op.HardSigmoid(erf, alpha=0.5, beta=0.5) if x.dtype == TensorProto.FLOAT else erf * 0.5 + 0.5
    return g.dy * (cdf + u * (-0.5 * math.log(math.pi) - u * u).exp())


def _gelu_tanh_slope(x: Value, y: Value) -> Value:
    """y = x s with s = σ(2z), z = √(2/π) (x + 0.044715 x³): slope s + (y - y s) 2z'."""
    scale, cubic = 2 * math.sqrt(2 / math.pi), 0.044715
    square = x * x
    s = (x * (square * (scale * cubic) + scale)).sigmoid()
    return s + (y - y * s) * (square * (3 * scale * cubic) + scale)


# -- along an axis


@gradient("Softmax")
def softmax(g: RuleContext) -> RuleResult:
    """dx = y (dy - Σ y dy) along the axis."""
    return g.y * (g.dy - (g.dy * g.y).sum(g.attr("axis"), keepdims=True))


@gradient("LogSoftmax")
def log_softmax(g: RuleContext) -> RuleResult:
    """dx = dy - e^y Σ dy along the axis."""
    return g.dy - g.y.exp() * g.dy.sum(g.attr("axis"), keepdims=True)


# -- random


@gradient("Dropout")
def dropout(g: RuleContext) -> RuleResult:
    """Training: y = x mask / (1 - ratio), with the mask that the forward node drew; else y = x.

    The mask becomes an output of the forward node, so that nothing random runs twice.
    """
    training, mode = g.input(2), g.constant(2)
    if training is None or (mode is not None and not mode):
        return g.dy
    scale = _dropout_scale(g)
    if mode is None:
        scale = g.op.Where(training, scale, 1.0)
    return g.dy * mask(g.output(1), g.dy) * scale


def _dropout_scale(g: RuleContext) -> Value:
    """1 / (1 - ratio), a scalar; 0 ≤ ratio < 1."""
    ratio, known = g.input(1), g.constant(1)
    if ratio is not None and known is None:
        return cast_like(1 / (1 - ratio), g.dy)
    return cast_like(g.graph.constant(2.0 if known is None else 1 / (1 - float(known)), g.dy.dtype), g.dy)
