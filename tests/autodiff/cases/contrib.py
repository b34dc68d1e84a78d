"""Rows for the operators of ``com.microsoft`` that have a rule; the decompositions have their own test."""

from __future__ import annotations

import numpy as np

from . import DEFINITIONS, ORT, Case, case, normal

EVALUATORS = {"MatMulNBits": DEFINITIONS, "MatMulBnb4": DEFINITIONS, "Inverse": ORT}

EXCEPTIONS = {
    f"*_bits_*_bias=True:{form}": "onnxruntime wants to know the shape of the bias" for form in ("symbolic", "unranked")
}

MICROSOFT = "com.microsoft"
N = 6


def _bytes(*shape: int) -> np.ndarray:
    return np.random.default_rng([1, *shape]).integers(0, 256, shape).astype(np.uint8)


def n_bits(bits: int, columns: int, zero_points: str = "none", *, bias: bool = False) -> Case:
    blocks = -(-columns // 16)
    zeros = {
        "none": None,
        "packed": _bytes(N * -(-blocks * bits // 8)),
        "float": np.abs(normal(N, blocks)),
    }[zero_points]
    scales = 0.1 * np.abs(normal(N * blocks))
    return case(
        *("MatMulNBits", normal(2, 3, columns), _bytes(N, blocks, 2 * bits), scales, zeros, None),
        normal(N) if bias else None,
        domain=MICROSOFT,
        name=f"{bits}_bits_{columns}_columns_{zero_points}_bias={bias}",
        K=columns,
        N=N,
        block_size=16,
        bits=bits,
    )


ROWS = [
    n_bits(4, 32),
    n_bits(4, 40, "packed", bias=True),
    n_bits(4, 48, "float"),
    n_bits(2, 32, "packed"),
    n_bits(8, 24),
    case(
        *("MatMulBnb4", normal(2, 32), _bytes(32 * N // 2), np.abs(normal(N))),
        domain=MICROSOFT,
        constants=(2,),
        K=32,
        N=N,
        block_size=32,
        quant_type=1,
    ),
    case("Inverse", normal(2, 3, 3) + 3 * np.eye(3, dtype=np.float32), domain=MICROSOFT),
]
