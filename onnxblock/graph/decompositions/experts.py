"""Mixtures of experts: for every token, a few dense networks out of many."""

from __future__ import annotations

import numpy as np

from ...errors import UnsupportedOperatorError
from ..arithmetic import reshape_like, zeros_like
from ..decomposition import MICROSOFT, decomposition
from ..node import NodeContext
from ..value import Value
from .activation import silu, tanh_gelu, with_bias


@decomposition("MoE", domain=MICROSOFT)
def mixture_of_experts(n: NodeContext) -> Value:
    """Σ gate(e) · expert(e) over the k likeliest experts of each token  (Shazeer et al. 2017).

    Every expert is computed for every token, and those that were not chosen have a gate of 0.
    """
    op, x, scores = n.op, n.x, n.inputs[1]
    first, second = n.inputs[2], n.inputs[4]
    if n.input(6) is not None or n.attr("use_sparse_mixer", 0) or first.rank != 3 or second.rank != 3:
        raise UnsupportedOperatorError("it has a third dense layer or a sparse mixer, or weights of unknown rank")
    width = x.shape[-1] if x.shape is not None else None
    if not isinstance(width, int):
        raise UnsupportedOperatorError("the width of its input is not known")
    tokens = op.Reshape(x, [-1, width]).unsqueeze(0)
    hidden = _activated(n, _dense(tokens, first, n.input(3)))
    results = _dense(hidden, second, n.input(5))
    gates = _gates(n, scores).transpose(1, 0).unsqueeze(2)
    return reshape_like((results * gates).sum(0), x)


def _dense(x: Value, weight: Value, bias: Value | None) -> Value:
    """x Wᵀ + b for each expert: [experts, tokens, outputs], of W [experts, outputs, inputs]."""
    product: Value = x @ weight.transpose(0, 2, 1)
    return with_bias(product, None if bias is None else bias.unsqueeze(1))


def _gates(n: NodeContext, scores: Value) -> Value:
    """The weight of every expert for every token, 0 where it is not among the k likeliest: [tokens, experts]."""
    op = n.op
    likely, places = op.TopK(scores.softmax(-1), np.array([n.attr("k", 1)]), outputs=2)
    if n.attr("normalize_routing_weights", 0):
        likely = likely / likely.sum(-1, keepdims=True)
    return op.ScatterElements(zeros_like(scores), places, likely, axis=1)


def _activated(n: NodeContext, x: Value) -> Value:
    name = n.attr("activation_type", "relu")
    if name == "relu":
        return x.relu()
    if name == "gelu":
        return tanh_gelu(x)
    if name == "silu":
        return silu(x)
    if name == "identity":
        return x
    if name == "swiglu" and n.attr("swiglu_fusion", 0) == 1 and not n.attr("swiglu_limit_after_activation", 0):
        return _swiglu(n, x)
    raise UnsupportedOperatorError(f"its activation {name!r} is not known in this form")


def _swiglu(n: NodeContext, x: Value) -> Value:
    """g σ(alpha g) (l + beta), g and l side by side on the last axis, both limited first  (Shazeer 2020)."""
    op, limit = n.op, n.attr("swiglu_limit")
    parted = op.Reshape(x, op.Concat(op.Shape(x, end=-1), [-1, 2], axis=0))
    gate, line = (op.Gather(parted, k, axis=-1) for k in (0, 1))
    if limit is not None:
        gate, line = gate.clip(None, limit), line.clip(-limit, limit)
    opened: Value = gate * (gate * n.attr("activation_alpha", 1.0)).sigmoid()
    y: Value = opened * (line + n.attr("activation_beta", 0.0))
    return y
