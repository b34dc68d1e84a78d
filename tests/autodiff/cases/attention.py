"""Rows for RotaryEmbedding, and what is to be said of attention.

RotaryEmbedding takes no float64, so its values are computed from their definition, in exact fractions.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from . import DEFINITIONS, PARTS, Case, case, normal

NO_DIFFERENCES = ("RotaryEmbedding",)

EVALUATORS = {"Attention": DEFINITIONS, **dict.fromkeys(("LinearAttention", "CausalConvWithState", "SwiGLU"), PARTS)}

EXCEPTIONS = {
    "rotary_embedding*:float64": "it is in float32 even there, too coarse for differences",
    "attention_4d_with_past_and_present_qk_matmul_bias_*_causal:float64": "its scores of what is hidden are -inf",
    "attention_24_qk_matmul_output_mode3_softmax_precision:float64": "it rounds to float16 on the way",
    **{
        f"{name}:{form}": "ONNX builds the body of the operator for known shapes only"
        for name, forms in (("causal_conv_*", ("symbolic", "unranked")), ("linear_attention_*", ("unranked",)))
        for form in forms
    },
    **{
        f"{name}:float64": "it is in float32 even there, too coarse for differences"
        for name in ("causal_conv_*", "linear_attention_*")
    },
    **{
        f"swiglu*:{step}": "onnxruntime has no kernel of opset 28"
        for step in ("float32", "symbolic", "unranked", "newest", "float16")
    },
}


def fractions(*shape: int, seed: int = 0) -> np.ndarray:
    return np.round(normal(*shape, seed=seed) * 8) / 8


def expected(x: Any, c: Any, s: Any, positions: Any, turned: int, interleaved: bool) -> tuple[Any, Any, Any]:
    """The gradients of x [B, N, S, H] and of the tables, for cotangents of one."""
    cosine, sine = (t[:, None] if positions is None else t[positions][:, None] for t in (c, s))
    first = np.arange(0, turned, 2) if interleaved else np.arange(turned // 2)
    second = first + 1 if interleaved else first + turned // 2
    dx = np.ones(x.shape)
    dx[..., first], dx[..., second] = cosine + sine, cosine - sine
    d_cosine, d_sine = (x[..., first] + x[..., second]).sum(1), (x[..., first] - x[..., second]).sum(1)
    if positions is None:
        return dx, d_cosine, d_sine
    tables = np.zeros((2, *c.shape))
    np.add.at(tables, (slice(None), positions), np.stack([d_cosine, d_sine]))
    return dx, *tables


def row(name: str, *, rank: int = 4, turned: int = 0, interleaved: int = 0, positions: bool = True) -> Case:
    batch, heads, length, width = 2, 3, 4, 6
    x, pairs = fractions(batch, heads, length, width), (turned or width) // 2
    where = np.array([[0, 2, 2, 5], [1, 0, 3, 4]]) if positions else None
    shape = (7, pairs) if positions else (batch, length, pairs)
    # ONNX turns (a, b) into (a c - b s, b c + a s).
    tables = fractions(*shape, seed=1), fractions(*shape, seed=2)
    gradients = expected(x.astype(float), *tables, where, turned or width, bool(interleaved))
    attributes = {"rotary_embedding_dim": turned, "interleaved": interleaved}
    if rank == 3:
        x, *rest = (v.transpose(0, 2, 1, 3).reshape(batch, length, -1) for v in (x, gradients[0]))
        gradients = (rest[0], *gradients[1:])
        attributes["num_heads"] = heads
    made = case("RotaryEmbedding", x, *tables, where, opset=23, name=f"turned_{name}", **attributes)
    return dataclasses.replace(made, gradients=dict(zip(("input0", "input1", "input2"), gradients, strict=True)))


ROWS = [
    row("halves"),
    row("neighbours", interleaved=1),
    row("part", turned=4),
    row("part_of_neighbours", turned=4, interleaved=1),
    row("merged_heads", rank=3),
    row("merged_heads_part", rank=3, turned=4, interleaved=1, positions=False),
    row("without_positions", positions=False),
]
