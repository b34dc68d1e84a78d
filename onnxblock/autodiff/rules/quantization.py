"""Gradients of quantization, straight through: rounding counts as the identity  (Bengio, Léonard, Courville 2013).

The cotangent of a quantized tensor is a float tensor, with respect to its levels as numbers.  Together, quantizing and
dequantizing pass a cotangent on unchanged where nothing is saturated, and give the scale the gradient of learned step
sizes  (Esser, McKinstry, Bablani, Appuswamy, Modha 2020).  Zero points are integers, so they have none.
"""

from __future__ import annotations

import dataclasses

from onnx import NodeProto, TensorProto

from ...graph.arithmetic import cast_like, mask, shape_of, sum_to, with_shape_of
from ...graph.decomposition import MICROSOFT
from ...graph.value import Value
from ..registry import RuleResult, gradient, no_gradient
from ..rule import RuleContext
from .convolution import conv
from .matmul import matmul

_LEVELS: dict[int, tuple[int, int]] = {
    TensorProto.INT4: (-8, 7),
    TensorProto.UINT4: (0, 15),
    TensorProto.INT8: (-128, 127),
    TensorProto.UINT8: (0, 255),
    TensorProto.INT16: (-32768, 32767),
    TensorProto.UINT16: (0, 65535),
}
_LARGEST: dict[int, float] = {
    TensorProto.FLOAT8E4M3FN: 448.0,
    TensorProto.FLOAT8E4M3FNUZ: 240.0,
    TensorProto.FLOAT8E5M2: 57344.0,
    TensorProto.FLOAT8E5M2FNUZ: 57344.0,
}
_END = 2**62


@gradient("QuantizeLinear")
@gradient("QuantizeLinear", domain=MICROSOFT)
def quantize_linear(g: RuleContext) -> RuleResult:
    """q = round(x / s) + z, saturated: dx = dq / s and ds = -dq x / s² where it is not saturated."""
    scale = _spread(g, g.inputs[1])
    scaled = g.x / cast_like(scale, g.x)
    inside = mask(_is_inside(g, scaled), g.x)
    dx = g.dy / cast_like(scale, g.dy) * cast_like(inside, g.dy)
    return dx, _gather(g, -(dx * cast_like(scaled, dx)), g.inputs[1], scale) if g.wants(1) else None, None


def _is_inside(g: RuleContext, scaled: Value) -> Value:
    op, dtype, zero = g.op, g.y.dtype or TensorProto.UINT8, g.input(2)
    inside: Value
    if dtype in _LARGEST:
        inside = op.LessOrEqual(scaled.abs(), _LARGEST[dtype])
        return inside
    level = op.Round(scaled)
    if zero is not None:
        level = level + _spread(g, cast_like(zero, level))
    lowest, highest = _LEVELS.get(dtype, (-(2**31), 2**31 - 1))
    inside = op.And(op.GreaterOrEqual(level, float(lowest)), op.LessOrEqual(level, float(highest)))
    return inside


@gradient("DequantizeLinear")
@gradient("DequantizeLinear", domain=MICROSOFT)
def dequantize_linear(g: RuleContext) -> RuleResult:
    """y = (q - z) s: dq = dy s and ds = Σ dy (q - z)."""
    scale = _spread(g, g.inputs[1])
    dq = ds = None
    if g.wants(0):
        dq = g.dy * cast_like(scale, g.dy)
    if g.wants(1):
        level, zero = cast_like(g.x, g.dy), g.input(2)
        if zero is not None:
            level = level - _spread(g, cast_like(zero, level))
        ds = _gather(g, g.dy * level, g.inputs[1], scale)
    return dq, ds, None


@gradient("DynamicQuantizeLinear")
def dynamic_quantize_linear(g: RuleContext) -> RuleResult:
    """q = round(x / s) + z with s and z taken for constants: dx = dq / s.  Nothing is saturated."""
    return None if g.grads[0] is None else g.dy / cast_like(g.outputs[1], g.dy)


def _spread(g: RuleContext, setting: Value) -> Value:
    """A scale or zero point as it broadcasts with x: for all elements, for an axis, or for blocks along an axis."""
    op, x, axis, block = g.op, g.x, g.attr("axis", 1), g.attr("block_size", 0)
    spread: Value
    if block:
        axis = axis if x.rank is None else axis % x.rank
        after = axis + 1 if axis != -1 else _END
        shape = shape_of(setting)
        before, behind = op.Slice(shape, [0], [after]), op.Slice(shape, [after], [_END])
        wide = op.Expand(
            op.Unsqueeze(setting, [axis + 1 if axis >= 0 else axis]), op.Concat(before, [block], behind, axis=0)
        )
        size = op.Slice(shape_of(x), [axis], [after])
        merged = op.Concat(op.Slice(shape, [0], [axis]), [-1], behind, axis=0)
        spread = op.Slice(op.Reshape(wide, merged), [0], size, [axis])
        return with_shape_of(spread, x)
    if setting.rank == 0 or (setting.shape is not None and setting.shape == (1,)):
        return setting
    if axis < 0:
        ones = g.graph.constant([1] * (-1 - axis)) if axis < -1 else None
    else:
        ones = op.Expand(g.graph.constant([1]), op.Max(op.Sub(op.Size(shape_of(x)), axis + 1), 0).unsqueeze(0))
    spread = op.Reshape(setting, [-1] if ones is None else op.Concat([-1], ones, axis=0))
    return spread


def _gather(g: RuleContext, d: Value, scale: Value, spread: Value) -> Value:
    """The sum of ``d`` over the elements that each scale is for."""
    op, x, axis, block = g.op, g.x, g.attr("axis", 1), g.attr("block_size", 0)
    if not block:
        return op.Reshape(sum_to(d, spread), shape_of(scale))
    axis = axis if x.rank is None else axis % x.rank
    after = axis + 1 if axis != -1 else _END
    shape = shape_of(scale)
    count, size = op.Slice(shape, [axis], [after]), op.Slice(shape_of(x), [axis], [after])
    padded = op.Pad(d, op.Concat([0], op.Sub(op.Mul(count, block), size), axis=0), None, [axis])
    before, behind = op.Slice(shape, [0], [axis]), op.Slice(shape, [after], [_END])
    parts = op.Reshape(padded, op.Concat(before, count, [block], behind, axis=0))
    return op.ReduceSum(parts, [axis + 1 if axis >= 0 else axis], keepdims=0)


@gradient("MatMulInteger")
def matmul_integer(g: RuleContext) -> RuleResult:
    """Y = (A - a)(B - b) in integers: the gradient of MatMul of these differences, as numbers."""
    by_row = _is_vector(g.input(2)) and g.inputs[0].rank != 1
    return matmul(_of_levels(g, "MatMul", g.graph.constant([-1, 1]) if by_row else None, None))


@gradient("ConvInteger")
def conv_integer(g: RuleContext) -> RuleResult:
    """Conv of the levels without their zero points, as numbers; those of the weights may differ by output channel."""
    by_channel = None
    if _is_vector(g.input(3)):
        behind = g.op.Sub(g.op.Size(shape_of(g.inputs[1])), 1).unsqueeze(0)
        by_channel = g.op.Concat([-1], g.op.Expand(g.graph.constant([1]), behind), axis=0)
    return conv(_of_levels(g, "Conv", None, by_channel))


def _is_vector(zero: Value | None) -> bool:
    return zero is not None and zero.rank == 1


def _of_levels(g: RuleContext, op_type: str, *shapes: Value | None) -> RuleContext:
    """The product of both operands' levels without their zero points, which take these shapes, as the float operator.

    The integer operators have the first two inputs and the attributes of the float ones.
    """
    node = NodeProto()
    node.CopyFrom(g.node)
    node.op_type = op_type
    del node.input[:]
    for k, shape in enumerate(shapes):
        level, zero = cast_like(g.inputs[k], g.dy), g.input(2 + k)
        if zero is not None:
            zero = cast_like(zero, level)
            level = level - (zero if shape is None else g.op.Reshape(zero, shape))
        node.input.append(level)
    return dataclasses.replace(g, node=node, wanted=g.wanted[:2])


no_gradient(
    "QLinearConv",
    "QLinearMatMul",
    reason="it takes integers and gives integers; train the model before its operators are quantized",
)
