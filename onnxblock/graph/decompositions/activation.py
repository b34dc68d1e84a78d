"""Activations of ``com.microsoft``: Gelu and its approximations, SiLU and SwiGLU."""

from __future__ import annotations

import math

from ..decomposition import MICROSOFT, decomposition
from ..node import NodeContext
from ..value import Value


@decomposition("Gelu", domain=MICROSOFT)
def gelu(n: NodeContext) -> Value:
    """y = x (1 + erf(x / √2)) / 2."""
    return exact_gelu(n.x)


@decomposition("BiasGelu", domain=MICROSOFT)
def bias_gelu(n: NodeContext) -> Value:
    """y = z (1 + erf(z / √2)) / 2 with z = x + bias."""
    return exact_gelu(n.inputs[0] + n.inputs[1])


@decomposition("FastGelu", domain=MICROSOFT)
def fast_gelu(n: NodeContext) -> Value:
    """The approximation of Gelu by tanh, of x + bias."""
    return tanh_gelu(with_bias(n.x, n.input(1)))


@decomposition("QuickGelu", domain=MICROSOFT)
def quick_gelu(n: NodeContext) -> Value:
    """y = x σ(alpha x); SiLU for alpha = 1."""
    y: Value = n.x * (n.x * n.attr("alpha", 1.702)).sigmoid()
    return y


@decomposition("ScaledSiLU", domain=MICROSOFT)
def scaled_silu(n: NodeContext) -> Value:
    """y = z σ(z) with z = scale x, scale an input or ``alpha``."""
    scale = n.input(1)
    z: Value = n.x * (n.attr("alpha", 1.0) if scale is None else scale)
    return silu(z)


def exact_gelu(x: Value) -> Value:
    """x Φ(x), Φ the distribution function of the normal distribution  (Hendrycks, Gimpel 2016)."""
    if x.graph.opset >= 20:
        return x.graph.op.Gelu(x)
    y: Value = x * (x.graph.op.Erf(x * math.sqrt(0.5)) + 1.0) * 0.5
    return y


def tanh_gelu(x: Value) -> Value:
    """x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2  (Hendrycks, Gimpel 2016)."""
    if x.graph.opset >= 20:
        return x.graph.op.Gelu(x, approximate="tanh")
    inner = x * (x * x * 0.044715 + 1.0) * math.sqrt(2 / math.pi)
    y: Value = x * (inner.tanh() + 1.0) * 0.5
    return y


def silu(x: Value) -> Value:
    """x σ(x)  (Elfwing, Uchibe, Doya 2018)."""
    y: Value = x * x.sigmoid()
    return y


def with_bias(x: Value, bias: Value | None) -> Value:
    """``x + bias``, ``x`` where there is none."""
    total: Value = x if bias is None else x + bias
    return total
