"""Operators of ``com.microsoft`` straight from their definitions, in NumPy, for float64."""

from __future__ import annotations

import numpy as np
from onnx.reference.op_run import OpRun


def _numbers(packed: np.ndarray, bits: int) -> np.ndarray:
    """Bytes taken apart along the last axis, the low bits first."""
    shifts = np.arange(0, 8, bits)
    return ((packed[..., None] >> shifts) & (2**bits - 1)).reshape(*packed.shape[:-1], -1)


class MatMulNBits(OpRun):
    op_domain = "com.microsoft"

    def _run(self, a, b, scales, zero_points=None, g_idx=None, bias=None, *, K=None, N=None, bits=4, block_size=None):
        q = _numbers(b.reshape(N, -1), bits).reshape(N, -1, block_size)
        if zero_points is None:
            zero = 2 ** (bits - 1)
        elif zero_points.dtype == np.uint8:
            zero = _numbers(zero_points.reshape(N, -1), bits)[:, : q.shape[1], None]
        else:
            zero = zero_points.reshape(N, -1, 1)
        weight = ((q - zero) * scales.reshape(N, -1, 1)).reshape(N, -1)[:, :K]
        y = a @ weight.T
        return (y if bias is None else y + bias,)


class MatMulBnb4(OpRun):
    op_domain = "com.microsoft"
    levels = (
        np.array([-1, -0.6961928, -0.5250731, -0.3949175, -0.2844414, -0.1847734, -0.0910500, 0]),
        np.array([0.0795803, 0.1609302, 0.2461123, 0.3379152, 0.4407098, 0.5626170, 0.7229568, 1]),
    )

    def _run(self, a, b, absmax, *, K=None, N=None, block_size=None, quant_type=None):
        places = np.stack([b >> 4, b & 15], -1).reshape(-1, block_size)
        weight = np.concatenate(self.levels)[places] * absmax[:, None]
        return (a @ weight.reshape(N, K).T,)


class Inverse(OpRun):
    op_domain = "com.microsoft"

    def _run(self, x):
        return (np.linalg.inv(x),)


class QuantizeLinear(OpRun):
    op_domain = "com.microsoft"

    def _run(self, x, scale, zero, **_):
        limits = np.iinfo(zero.dtype)
        return (np.clip(np.round(x / scale) + zero, limits.min, limits.max).astype(zero.dtype),)


class DequantizeLinear(OpRun):
    op_domain = "com.microsoft"

    def _run(self, x, scale, zero, **_):
        return ((x.astype(scale.dtype) - zero) * scale,)


CONTRIB = [MatMulNBits, MatMulBnb4, Inverse, QuantizeLinear, DequantizeLinear]
