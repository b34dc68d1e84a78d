"""Weights kept in a few bits: MatMulNBits, MatMulBnb4 and GatherBlockQuantized, by what their weights stand for."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from ...errors import UnsupportedOperatorError
from ..arithmetic import cast_like
from ..decomposition import MICROSOFT, decomposition
from ..node import NodeContext
from ..types import FLOATS, dtype_name
from ..value import Value
from .activation import with_bias

_NF4 = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)
"""The sixteen levels of 4-bit NormalFloat  (Dettmers, Pagnoni, Holtzman, Zettlemoyer 2023)."""

_FP4 = (
    *(0.0, 5.208333333e-03, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25),
    *(-0.0, -5.208333333e-03, -0.66666667, -1.0, -0.33333333, -0.5, -0.16666667, -0.25),
)
"""The sixteen levels of the 4-bit float of the same authors' library: a sign, two exponent bits, one mantissa bit."""


_LEVELS = {
    int(TensorProto.INT8): (-128.0, 127.0),
    int(TensorProto.UINT8): (0.0, 255.0),
    int(TensorProto.INT16): (-32768.0, 32767.0),
    int(TensorProto.UINT16): (0.0, 65535.0),
}
"""The lowest and the highest level of a quantized type."""


@decomposition("MatMulNBits", domain=MICROSOFT)
def matmul_nbits(n: NodeContext) -> Value:
    """Y = A Wᵀ + bias, W [N, K] kept in 2, 4 or 8 bits."""
    y: Value = n.x @ n_bits_weight(n).transpose(1, 0)
    return with_bias(y, n.input(5))


def n_bits_weight(n: NodeContext) -> Value:
    """The weight of a MatMulNBits, [N, K]: (q - zero point) · scale in each block."""
    levels = n_bits_levels(n)
    scale = n.op.Reshape(n.inputs[2], [n.attr("N"), -1, 1])
    return without_padding(n, levels * scale)


def n_bits_levels(n: NodeContext) -> Value:
    """q - zero point of a MatMulNBits, [N, blocks, block size] in the type of A, the padding of the last block too."""
    op, rows, block = n.op, n.attr("N"), n.attr("block_size")
    bits, zero_points = n.attr("bits", 4), n.input(3)
    if n.input(4) is not None or n.attr("weight_prepacked", 0):
        raise UnsupportedOperatorError("its weight is reordered (g_idx or weight_prepacked)")
    q = op.Reshape(cast_like(unpacked(n.inputs[1], bits), n.x), [rows, -1, block])
    if zero_points is None:
        levels: Value = q - float(2 ** (bits - 1))
        return levels
    if zero_points.dtype in FLOATS:
        zero = op.Reshape(zero_points, [rows, -1, 1])
    else:
        blocks = -(-n.attr("K") // block)
        zero = op.Slice(unpacked(op.Reshape(zero_points, [rows, -1]), bits), [0], [blocks], [1]).unsqueeze(2)
    centred: Value = q - cast_like(zero, n.x)
    return centred


def without_padding(n: NodeContext, weight: Value) -> Value:
    """Blocks side by side, [N, K]."""
    rows, columns, block = n.attr("N"), n.attr("K"), n.attr("block_size")
    flat = n.op.Reshape(weight, [rows, -1])
    return flat if columns % block == 0 else n.op.Slice(flat, [0], [columns], [1])


def unpacked(x: Value, bits: int) -> Value:
    """Bytes that hold 8 / ``bits`` numbers each, along the last axis, the low bits first: one number an element."""
    op, graph = x.graph.op, x.graph
    if bits == 8:
        return x
    low, shifts = graph.constant(np.array(2**bits - 1, np.uint8)), np.arange(0, 8, bits).astype(np.uint8)
    parts = [op.BitwiseAnd(op.BitShift(x, graph.constant(shift), direction="RIGHT"), low) for shift in shifts]
    side_by_side = op.Concat(*(part.unsqueeze(-1) for part in parts), axis=-1)
    return op.Reshape(side_by_side, op.Concat(op.Shape(x, end=-1), [-1], axis=0))


@decomposition("MatMulBnb4", domain=MICROSOFT)
def matmul_bnb4(n: NodeContext) -> Value:
    """Y = A Wᵀ, W [N, K] made of sixteen levels times a scale for each block of the flat weight."""
    if not n.attr("transB", 1):
        raise UnsupportedOperatorError("its weight is not transposed")
    y: Value = n.x @ bnb4_weight(n).transpose(1, 0)
    return y


def bnb4_weight(n: NodeContext) -> Value:
    """The weight of a MatMulBnb4, [N, K]."""
    op, rows, columns, block = n.op, n.attr("N"), n.attr("K"), n.attr("block_size")
    levels = n.graph.constant(np.array(_NF4 if n.attr("quant_type") else _FP4), n.x.dtype or TensorProto.FLOAT)
    places = op.Reshape(unpacked(n.inputs[1], 4).cast(TensorProto.INT64), [-1, 2])
    high_first = op.Reshape(op.Gather(places, [1, 0], axis=1), [-1])
    if rows * columns % block:
        raise UnsupportedOperatorError("the last block of its weight is not full")
    scaled: Value = op.Reshape(op.Gather(levels, high_first), [-1, block]) * op.Reshape(n.inputs[2], [-1, 1])
    return op.Reshape(scaled, [rows, columns])


@decomposition("GatherBlockQuantized", domain=MICROSOFT)
def gather_block_quantized(n: NodeContext) -> Value:
    """Gather from a table kept in a few bits: (q - zero point) · scale in each block."""
    op, data, indices, scales = n.op, *n.inputs[:3]
    zero_points, bits, block = n.input(3), n.attr("bits", 4), n.attr("block_size", 128)
    axis = n.attr("gather_axis", 0)
    if data.dtype != TensorProto.UINT8:
        table = op.DequantizeLinear(data, scales, zero_points, axis=n.attr("quantize_axis", 1), block_size=block)
        return op.Gather(table, indices, axis=axis)
    q = cast_like(unpacked(op.Gather(data, indices, axis=axis), bits), scales).unsqueeze(-1)
    scale = op.Gather(scales, indices, axis=axis)
    blocks = op.Concat(op.Shape(scale), [-1], axis=0)
    if zero_points is None:
        zero: Value | float = float(2 ** (bits - 1))
    else:
        blocks_a_row = op.Shape(scale, start=-1)
        zero = cast_like(unpacked(op.Gather(zero_points, indices, axis=axis), bits), scales)
        zero = op.Slice(zero, [0], blocks_a_row, [-1]).unsqueeze(-1)
    y: Value = (op.Reshape(q, blocks) - zero) * scale.unsqueeze(-1)
    return op.Reshape(y, op.Concat(op.Shape(scale, end=-1), [-1], axis=0))


@decomposition("QuantizeLinear", domain=MICROSOFT)
def quantize_linear(n: NodeContext) -> Value:
    """round(x / scale) + zero point, saturated; 16 bits too, which ONNX has since opset 21 only."""
    op, x, zero = n.op, n.x, n.input(2)
    level = op.Round(x / cast_like(_along_axis(n, n.inputs[1]), x))
    if zero is None:
        return level.clip(0.0, 255.0).cast(TensorProto.UINT8)
    if zero.dtype not in _LEVELS:
        raise UnsupportedOperatorError(f"it quantizes to {dtype_name(zero.dtype)}")
    shifted: Value = level + cast_like(_along_axis(n, zero), x)
    return shifted.clip(*_LEVELS[zero.dtype]).cast(zero.dtype)


@decomposition("DequantizeLinear", domain=MICROSOFT)
def dequantize_linear(n: NodeContext) -> Value:
    """(x - zero point) · scale."""
    scale, zero = n.inputs[1], n.input(2)
    level = cast_like(n.x, scale)
    if zero is not None:
        level = level - cast_like(_along_axis(n, zero), scale)
    y: Value = level * _along_axis(n, scale)
    return y


def _along_axis(n: NodeContext, setting: Value) -> Value:
    """A scale or zero point as it broadcasts with x: one number, or one for each slice along ``axis``."""
    if setting.rank == 0 or setting.shape == (1,):
        return setting
    if n.x.rank is None:
        raise UnsupportedOperatorError("the rank of its input is not known")
    return n.op.Reshape(setting, [-1] + [1] * (n.x.rank - 1 - n.attr("axis", 1) % n.x.rank))
