"""Gradients of operators of ``com.microsoft`` whose forward kernel stays in the training graph.

The others are differentiated through their decompositions (``onnxblock/graph/decompositions``).
"""

from __future__ import annotations

from ...graph.arithmetic import reshape_like
from ...graph.decomposition import MICROSOFT
from ...graph.decompositions.quantization import bnb4_weight, n_bits_levels, n_bits_weight
from ...graph.types import FLOATS
from ...graph.value import Value
from ..registry import RuleResult, gradient
from ..rule import RuleContext


@gradient("MatMulNBits", domain=MICROSOFT)
def matmul_nbits(g: RuleContext) -> RuleResult:
    """For Y = A Wᵀ + bias with W = (q - z) s in each block: dA = dY W, ds = Σ dW (q - z), dz = -s Σ dW, dW = dYᵀ A."""
    dscales = dzero = None
    zero_points = g.input(3)
    if g.wants(2) or g.wants(3):
        dblocks, scales = _block_cotangent(g), g.inputs[2]
        dscales = reshape_like((dblocks * n_bits_levels(g)).sum(2), scales)
        if zero_points is not None and zero_points.dtype in FLOATS:
            dzero = -reshape_like(dblocks.sum(2), scales) * scales
            dzero = reshape_like(dzero, zero_points)
    da = g.dy @ n_bits_weight(g) if g.wants(0) else None
    return da, None, dscales, dzero, None, g.dy


def _block_cotangent(g: RuleContext) -> Value:
    """The cotangent of the weight, [N, blocks, block size], zero in the padding of the last block."""
    op, rows, columns, block = g.op, g.attr("N"), g.attr("K"), g.attr("block_size")
    dweight: Value = op.Reshape(g.dy, [-1, rows]).transpose(1, 0) @ op.Reshape(g.x, [-1, columns])
    if columns % block:
        dweight = op.Pad(dweight, [0, 0, 0, block - columns % block])
    return op.Reshape(dweight, [rows, -1, block])


@gradient("MatMulBnb4", domain=MICROSOFT)
def matmul_bnb4(g: RuleContext) -> RuleResult:
    """For Y = A Wᵀ: dA = dY W; the weight has no gradient."""
    return g.dy @ bnb4_weight(g)


@gradient("Inverse", domain=MICROSOFT)
def inverse(g: RuleContext) -> RuleResult:
    """For Y = X⁻¹: dX = -Yᵀ dY Yᵀ  (Giles 2008)."""
    transposed = g.y.T if g.y.rank is not None else g.op.Einsum(g.y, equation="...ij->...ji")
    return -(transposed @ g.dy @ transposed)
