"""Matrix products and convolutions with what stands around them fused in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...errors import UnsupportedOperatorError
from ..arithmetic import narrowed, widened
from ..decomposition import MICROSOFT, decomposition
from ..node import NodeContext
from ..value import Value
from .activation import silu, with_bias

_STANDARD_ACTIVATIONS = {
    "Relu": (),
    "Sigmoid": (),
    "Tanh": (),
    "Softsign": (),
    "Softplus": (),
    "HardSwish": (),
    "LeakyRelu": ("alpha",),
    "Elu": ("alpha",),
    "Celu": ("alpha",),
    "ThresholdedRelu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "Selu": ("alpha", "gamma"),
}
"""Activations that are operators of their own, and their attributes in the order of ``activation_params``."""

_OTHER_ACTIVATIONS = {
    "Clip": ("min", "max"),
    "ScaledTanh": ("alpha", "beta"),
    "ParametricSoftplus": ("alpha", "beta"),
}


@decomposition("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def fused_matmul(n: NodeContext) -> Value:
    """Y = alpha op(A) op(B), op a transposition of the last two axes, of the first with the others, or both."""
    a, b = (_transposed(n, k, n.attr(f"trans{s}", 0), n.attr(f"transBatch{s}", 0)) for k, s in enumerate("AB"))
    alpha: float = n.attr("alpha", 1.0)
    y: Value = a @ b
    return y if alpha == 1.0 else y * alpha


def _transposed(n: NodeContext, k: int, last_two: int, batch: int) -> Value:
    """Input k; ``batch`` moves its first axis to the place before the last, ``last_two`` exchanges the last two."""
    x = n.inputs[k]
    if not last_two and not batch:
        return x
    if x.rank is None:
        raise UnsupportedOperatorError(f"the rank of its input {str(x)!r} is not known")
    axes = list(range(x.rank))
    if batch:
        axes = [*axes[1:-1], 0, axes[-1]]
    if last_two and x.rank > 1:
        axes = [*axes[:-2], axes[-1], axes[-2]]
    return x.transpose(*axes)


@decomposition("FusedGemm", domain=MICROSOFT)
def fused_gemm(n: NodeContext) -> Value:
    """Y = activation(Gemm(A, B, C))."""
    attributes = {name: n.attr(name) for name in ("alpha", "beta", "transA", "transB")}
    y = n.op.Gemm(*n.inputs, **attributes)
    given = {name: n.attr(f"activation_{name}") for name in ("alpha", "beta", "gamma")}
    return _activated(n, y, given)


@decomposition("FusedConv", domain=MICROSOFT)
def fused_conv(n: NodeContext) -> Value:
    """Y = activation(Conv(X, W, B) + Z)."""
    names = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    y = n.op.Conv(n.inputs[0], n.inputs[1], n.input(2), **{name: n.attr(name) for name in names})
    activation = n.attr("activation", "")
    wanted = _STANDARD_ACTIVATIONS.get(activation) or _OTHER_ACTIVATIONS.get(activation) or ()
    return _activated(n, with_bias(y, n.input(3)), dict(zip(wanted, n.attr("activation_params", []))))


def _activated(n: NodeContext, x: Value, given: Mapping[str, float | None]) -> Value:
    """The activation that the node names, of ``x``."""
    name = n.attr("activation", "")
    if not name:
        return x
    if name in _STANDARD_ACTIVATIONS:
        settings = {k: given.get(k) for k in _STANDARD_ACTIVATIONS[name]}
        return narrowed(getattr(n.op, name)(widened(x), **settings), x)
    if name not in _OTHER_ACTIVATIONS:
        raise UnsupportedOperatorError(f"its activation {name!r} is not known")
    first, second = (given.get(k) for k in _OTHER_ACTIVATIONS[name])
    if name == "Clip":
        return x.clip(first, second)
    inner: Value = x * (1.0 if second is None else second)
    y: Value = inner.tanh() if name == "ScaledTanh" else narrowed(n.op.Softplus(widened(inner)), inner)
    return y * (1.0 if first is None else first)


@decomposition("ConvTransposeWithDynamicPads", domain=MICROSOFT)
def conv_transpose_with_dynamic_pads(n: NodeContext) -> Value:
    """ConvTranspose whose pads are an input, which must be known before it runs."""
    names = ("auto_pad", "dilations", "group", "kernel_shape", "output_padding", "strides")
    pads = n.constant(2)
    if n.input(2) is not None and pads is None:
        raise UnsupportedOperatorError("its pads are computed when it runs")
    settings = {name: n.attr(name) for name in names}
    known = None if pads is None else [int(p) for p in pads.reshape(-1)]
    return n.op.ConvTranspose(n.inputs[0], n.inputs[1], n.input(3), pads=known, **settings)


@decomposition("CausalConvWithState", domain=MICROSOFT)
def causal_conv_with_state(n: NodeContext) -> Sequence[Value | None]:
    """Each channel convolved with what came before, x [B, C, L] behind a state of the last inputs; the state after."""
    op, x, weight = n.op, n.x, n.inputs[1]
    others = ("channels_last", "state_window", "state_update_capacity", "state_length")
    sliced = ("input_channels", "input_channel_offset")
    extended = {"ndim": 1, "state_channels_last": -1, **dict.fromkeys((*others, *sliced), 0)}
    taps = weight.shape[-1] if weight.shape is not None and len(weight.shape) == 3 else None
    if any(n.attr(name, default) != default for name, default in extended.items()) or not isinstance(taps, int):
        raise UnsupportedOperatorError("it has more than one axis, another layout, or a weight of unknown shape")
    channels, dilation = weight.shape[0] if weight.shape is not None else None, n.attr("dilation", 1)
    if not isinstance(channels, int):
        raise UnsupportedOperatorError("the number of its channels is not known")
    before, past = (taps - 1) * dilation, n.input(3)
    known = op.Pad(x, [0, 0, before, 0, 0, 0]) if past is None else op.Concat(past, x, axis=2)
    y = op.Conv(known, weight, n.input(2), group=channels, dilations=[dilation])
    if n.attr("activation", "none") != "none":
        y = silu(y)
    return y, op.Slice(known, [-before] if before else [np.iinfo(np.int64).max], [np.iinfo(np.int64).max], [2]), None


@decomposition("CDist", domain=MICROSOFT)
def cdist(n: NodeContext) -> Value:
    """The distances, or their squares, between every row of A and every row of B."""
    a, b = n.inputs[0].unsqueeze(-2), n.inputs[1].unsqueeze(-3)
    metric = n.attr("metric", "sqeuclidean")
    if metric == "sqeuclidean":
        return n.op.ReduceSumSquare(a - b, [-1], keepdims=0)
    if metric == "euclidean":
        return n.op.ReduceL2(a - b, [-1], keepdims=0)
    raise UnsupportedOperatorError(f"its metric {metric!r} is not known")
