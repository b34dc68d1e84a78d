"""Normalisations with what surrounds them fused in: residual sums, embeddings and gates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from onnx import TensorProto

from ...errors import UnsupportedOperatorError
from ..arithmetic import cast_like, reshape_like, shape_of, widened, with_shape_of
from ..decomposition import MICROSOFT, decomposition
from ..node import NodeContext
from ..value import Value
from .activation import silu, with_bias

Axes: TypeAlias = "list[int] | Value"

_EPSILON = 1e-12
"""The default of the fused layer normalisations, smaller than that of the standard operator."""


@decomposition("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_normalization(n: NodeContext) -> Sequence[Value | None]:
    """Layer normalisation of s = input + skip + bias; the fourth output is s."""
    total = with_bias(n.inputs[0] + n.inputs[1], n.input(4))
    return _layer_normalization(n, total, n.input(2), n.input(3)), None, None, total


@decomposition("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
@decomposition("SkipSimplifiedLayerNormalization", domain="")
def skip_simplified_layer_normalization(n: NodeContext) -> Sequence[Value | None]:
    """x / √(mean(x²) + ε) of s = input + skip + bias, times gamma; the fourth output is s."""
    total = with_bias(n.inputs[0] + n.inputs[1], n.input(3))
    return root_mean_square(total, n.inputs[2], n.attr("epsilon", _EPSILON), [-1]), None, None, total


@decomposition("SimplifiedLayerNormalization", domain="")
@decomposition("SimplifiedLayerNormalization", domain=MICROSOFT)
def simplified_layer_normalization(n: NodeContext) -> Sequence[Value | None]:
    """y = scale x / √(mean(x²) + ε) over the axes from ``axis`` on  (Zhang, Sennrich 2019)."""
    axis = n.attr("axis", -1)
    if axis < 0:
        axes: Axes = list(range(axis, 0))
    elif n.x.rank is not None:
        axes = list(range(axis - n.x.rank, 0))
    else:
        axes = n.op.Range(axis, n.op.Size(shape_of(n.x)), 1)
    return root_mean_square(n.x, n.inputs[1], n.attr("epsilon", 1e-5), axes), None


@decomposition("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_normalization(n: NodeContext) -> Sequence[Value | None]:
    """Layer normalisation of word, position and segment embeddings added up; the third output is the sum.

    The second, how many positions the mask lets through, does not depend on the embeddings.
    """
    op, ids, segment_ids, positions = n.op, n.x, n.input(1), n.input(8)
    word, position, segment = n.inputs[2], n.inputs[3], n.input(4)
    length = op.Shape(ids, start=1, end=2)
    where = op.Slice(position, [0], length, [0]) if positions is None else op.Gather(position, positions)
    total: Value = op.Gather(word, ids) + where
    if segment is not None and segment_ids is not None:
        total = total + op.Gather(segment, segment_ids)
    return _layer_normalization(n, total, n.input(5), n.input(6)), _mask_index(n), total


def _mask_index(n: NodeContext) -> Value:
    mask, op = n.input(7), n.op
    if mask is None:
        return op.Expand(n.graph.constant(np.array([0], np.int32)), op.Shape(n.x, end=1))
    return op.Cast(op.ReduceSum(op.Cast(mask, to=TensorProto.INT64), [1], keepdims=0), to=TensorProto.INT32)


@decomposition("GatedRMSNorm", domain=MICROSOFT)
def gated_rms_norm(n: NodeContext) -> Value:
    """y = scale x / √(mean(x²) + ε) · a(gate), a the SiLU or the sigmoid."""
    gate = n.inputs[2]
    opened = gate.sigmoid() if n.attr("activation", "silu") == "sigmoid" else silu(gate)
    y: Value = root_mean_square(n.x, n.inputs[1], n.attr("epsilon", 1e-5), [-1]) * opened
    return y


@decomposition("BranchwiseRMSNorm", domain=MICROSOFT)
def branchwise_rms_norm(n: NodeContext) -> Value:
    """y = scale x / √(mean(x²) + ε) in each branch; ``num_branches`` lie side by side on the last axis, if given."""
    op, branches, epsilon = n.op, n.attr("num_branches", 0), n.attr("epsilon", 1e-5)
    x, scale = n.x, n.input(1)
    if branches == 0:
        return root_mean_square(x, scale, epsilon, [-1])
    parted = op.Reshape(x, op.Concat(op.Shape(x, end=-1), [branches, -1], axis=0))
    if scale is not None:
        width = op.Shape(parted, start=-1)
        scale = op.Reshape(scale, op.Concat([-1], width, axis=0))
    return reshape_like(root_mean_square(parted, scale, epsilon, [-1]), x)


@decomposition("GatedAdd", domain=MICROSOFT)
def gated_add(n: NodeContext) -> Value:
    """output = X + Y gate."""
    if n.input(3) is not None:
        raise UnsupportedOperatorError("gate_weight is for inference only")
    x, y, gate = n.inputs[:3]
    total: Value = x + y * gate
    return total


def _layer_normalization(n: NodeContext, x: Value, gamma: Value | None, beta: Value | None) -> Value:
    return n.op.LayerNormalization(x, gamma, beta, axis=-1, epsilon=n.attr("epsilon", _EPSILON))


def root_mean_square(x: Value, scale: Value | None, epsilon: float, axes: Axes) -> Value:
    """x / √(mean(x²) + ε) over ``axes``, times ``scale`` and of its type; half-precision x is squared in float32."""
    wide = widened(x)
    normalised = wide / (x.graph.op.ReduceMean(wide * wide, axes, keepdims=1) + epsilon).sqrt()
    y: Value = cast_like(normalised, x) if scale is None else cast_like(normalised, scale) * scale
    return with_shape_of(y, x)
