"""Rows for matrix products, Einsum and determinants."""

from __future__ import annotations

import numpy as np

from . import REFERENCE, case, normal

EVALUATORS = {"Det": REFERENCE}  # onnxruntime has a float32 kernel only


_GEMM = [
    case(
        "Gemm",
        normal(*((3, 2) if ta else (2, 3))),
        normal(*((4, 3) if tb else (3, 4))),
        normal(4),
        transA=ta,
        transB=tb,
    )
    for ta in (0, 1)
    for tb in (0, 1)
]

ROWS = [
    # -- MatMul: vectors, batches, broadcasting, nothing
    case("MatMul", normal(3), normal(3)),
    case("MatMul", normal(3), normal(3, 4)),
    case("MatMul", normal(2, 3), normal(3)),
    case("MatMul", normal(3), normal(2, 3, 4)),
    case("MatMul", normal(2, 4, 3), normal(3)),
    case("MatMul", normal(2, 4, 3), normal(3, 5)),
    case("MatMul", normal(5, 1, 4, 3), normal(2, 3, 2)),
    case("MatMul", normal(4, 3), normal(2, 3, 2)),
    case("MatMul", normal(0, 3), normal(3, 4)),
    case("MatMul", normal(2, 0), normal(0, 4)),
    case("MatMul", normal(0, 4, 3), normal(3, 5)),
    # -- Gemm
    *_GEMM,
    case("Gemm", normal(2, 3), normal(3, 4), alpha=0.5),
    case("Gemm", normal(2, 3), normal(3, 4), 1.5, alpha=0.5, beta=2.0),
    case("Gemm", normal(2, 3), normal(3, 4), normal(2, 1), beta=0.0),
    case("Gemm", normal(0, 3), normal(3, 4), normal(1, 4)),
    # -- Einsum
    *(
        case("Einsum", *operands, equation=equation)
        for equation, operands in (
            ("ij,jk->ik", (normal(2, 3), normal(3, 4))),
            ("ij,jk", (normal(2, 3), normal(3, 4))),
            ("bqhd,bkhd->bhqk", (normal(2, 3, 2, 4), normal(2, 5, 2, 4))),
            ("ij->", (normal(2, 3),)),
            ("ij->j", (normal(2, 3),)),
            ("ij,k->j", (normal(2, 3), normal(4))),
            ("ij,k->", (normal(2, 3), normal(4))),
            ("i,j->ij", (normal(2), normal(3))),
            ("ii->i", (normal(3, 3),)),
            ("ii", (normal(3, 3),)),
            ("iij->j", (normal(3, 3, 2),)),
            ("i...->...", (normal(2, 3, 4),)),
            ("i...j->...", (normal(2, 3, 4, 2),)),
            ("iii->i", (normal(2, 2, 2),)),
            ("ii,ij->j", (normal(3, 3), normal(3, 2))),
            ("ij,ij,ij->i", (normal(2, 3), normal(2, 3, seed=1), normal(2, 3, seed=2))),
            ("...ij,...jk->...ik", (normal(2, 3, 4), normal(2, 4, 5))),
            ("...ij,jk->...ik", (normal(2, 3, 4), normal(4, 5))),
            ("i...j->...", (normal(2, 3, 4),)),
            ("...ii->...i", (normal(2, 3, 3),)),
            ("...i,...i", (normal(2, 3), normal(2, 3, seed=1))),
            (" i j , j -> i ", (normal(2, 3), normal(3))),
            ("ij,ij->j", (normal(2, 3), normal(1, 3))),
            ("ij,->j", (normal(2, 3), np.float32(1.5))),
            (",i,->i", (np.float32(0.5), normal(3), np.float32(1.5))),
            (",->", (np.float32(0.5), np.float32(1.5))),
            ("ij,jk->ik", (normal(0, 3), normal(3, 4))),
        )
    ),
    # -- determinants, of singular matrices too
    case("Det", normal(3, 3), name="det_3x3"),
    case("Det", normal(2, 4, 4), name="det_2x4x4"),
    case("Det", normal(1, 1), name="det_1x1"),
    case("Det", normal(2, 0, 3, 3), name="det_of_no_matrices"),
    case("Det", [[1.0, 2.0], [2.0, 4.0]], gradient=[[4, -2], [-2, 1]], name="det_singular_2x2"),
    case("Det", [[0.0, 0.0], [0.0, 0.0]], gradient=[[0, 0], [0, 0]], name="det_zero_2x2"),
]
