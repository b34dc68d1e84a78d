"""Rows of :mod:`contrib` for attention: B 2 examples, S 5 queries, 3 heads of 4, or 4 heads of 16 on 2 of keys."""

from __future__ import annotations

from typing import Any

import numpy as np

from .contrib import Row, int32, integers, normal, row

B, S, L, HEADS, SIZE = 2, 5, 4, 3, 4
WIDTH = HEADS * SIZE
X, WEIGHTS, BIASES = normal(B, S, WIDTH), normal(WIDTH, 3 * WIDTH) * np.float32(0.3), normal(3 * WIDTH)
RAW = int32([1, 1, 1, 1, 0], [1, 1, 0, 0, 0])
PER_QUERY = (integers(10, B, S, S) > 2).astype(np.int32)
PAST = normal(2, B, HEADS, 3, SIZE)


def self_attention(*inputs: Any, **attributes: Any) -> Row:
    settings = {"outputs": 2, "compared": (0, 1)} if len(inputs) > 4 and inputs[4] is not None else {}
    return row("Attention", *inputs, num_heads=HEADS, settings=settings, **attributes)


ATTENTION = [
    *(
        self_attention(X, WEIGHTS, BIASES, mask, unidirectional=causal, mask_filter_value=far)
        for mask in (None, RAW, int32(4, 2), int32(4, 3, 1, 0), PER_QUERY)
        for causal in (0, 1)
        for far in (-10000.0, -3.0)
    ),
    self_attention(X, WEIGHTS, BIASES, None, None, normal(B, HEADS, S, S), scale=0.3),
    self_attention(X, WEIGHTS, None, RAW, None, normal(1, HEADS, S, S), unidirectional=1),
    self_attention(X, normal(WIDTH, 27), normal(27), qkv_hidden_sizes=[6, 6, 15]),
    self_attention(X, WEIGHTS, BIASES, None, PAST, unidirectional=1),
    self_attention(X, WEIGHTS, BIASES, np.ones((B, S + 3), np.int32), PAST),
]

QUERY, KEY, VALUE = normal(B, S, WIDTH), normal(B, L, WIDTH, seed=1), normal(B, L, WIDTH, seed=2)
OWN_KEY, OWN_VALUE = normal(B, S, WIDTH, seed=3), normal(B, S, WIDTH, seed=4)
IN_HEADS = normal(B, HEADS, L, SIZE), normal(B, HEADS, L, SIZE, seed=1)
PADDING = int32([1, 1, 1, 0], [1, 0, 0, 0])


def multi_head(*inputs: Any, **attributes: Any) -> Row:
    settings = {"outputs": 3, "compared": (0, 1, 2)} if len(inputs) > 7 else {}
    return row("MultiHeadAttention", *inputs, num_heads=HEADS, settings=settings, **attributes)


MULTI_HEAD = [
    multi_head(QUERY, KEY, VALUE),
    multi_head(QUERY, KEY, VALUE, BIASES),
    multi_head(QUERY, *IN_HEADS),
    multi_head(QUERY, *IN_HEADS, BIASES),
    multi_head(QUERY, KEY, normal(B, L, 15), normal(2 * WIDTH + 15)),
    *(multi_head(QUERY, KEY, VALUE, None, mask) for mask in (PADDING, int32(3, 1), PER_QUERY[:, :, :L])),
    multi_head(QUERY, KEY, VALUE, None, PADDING, normal(B, HEADS, S, L)),
    multi_head(QUERY, KEY, VALUE, BIASES, None, normal(1, HEADS, S, L), scale=0.2),
    multi_head(QUERY, OWN_KEY, OWN_VALUE, None, RAW, unidirectional=1, mask_filter_value=-3.0),
    multi_head(QUERY, OWN_KEY, OWN_VALUE, BIASES, None, None, PAST[0], PAST[1]),
    multi_head(QUERY, OWN_KEY, OWN_VALUE, None, None, None, PAST[0], PAST[1], unidirectional=1),
]

COSINE, SINE = normal(16, 4), normal(16, 4, seed=1)
PARTLY = {"num_heads": HEADS, "rotary_embedding_dim": 4}
POSITIONS, ORIGIN, SECOND = integers(16, B, S), np.array([0]), np.array([2])

ROTARY = [
    row("RotaryEmbedding", *inputs, interleaved=interleaved, **attributes)
    for interleaved in (0, 1)
    for inputs, attributes in (
        ((normal(B, HEADS, S, 8), SECOND, COSINE, SINE), {}),
        ((normal(B, S, HEADS * 8), POSITIONS, COSINE, SINE), {}),
        ((normal(B, S, HEADS * 8), ORIGIN, COSINE, SINE), {"num_heads": HEADS}),
        ((normal(B, HEADS, S, 8), POSITIONS, COSINE, SINE), {"scale": 0.5}),
        ((normal(B, S, HEADS * 8), POSITIONS, normal(16, 2), normal(16, 2, seed=1)), PARTLY),
        ((normal(B, HEADS, S, 8), POSITIONS, normal(16, 2), normal(16, 2, seed=1)), PARTLY),
    )
]

SECTIONS = {"mrope_section": [1, 2, 1]}
THREE = integers(16, 3, B, S)
ROTARY += [
    *(
        row("MRotaryEmbedding", x, THREE, COSINE, SINE, mrope_layout=layout, **SECTIONS, **heads)
        for x, heads in ((normal(B, HEADS, S, 8), {"interleaved": 1}), (normal(B, S, HEADS * 8), {"num_heads": HEADS}))
        for layout in (0, 1)
    ),
    row("MRotaryEmbedding", normal(B, HEADS, S, 8), THREE, COSINE, SINE, scale=0.5, **SECTIONS),
    row("MRotaryEmbedding", normal(B, HEADS, S, 8), THREE, COSINE, SINE, is_packed_batching=1, **SECTIONS),
    row(
        *("MRotaryEmbedding", normal(B, S, HEADS * 8), THREE, normal(16, 2), normal(16, 2, seed=1)),
        mrope_section=[1, 1, 0],
        scale=0.5,
        **PARTLY,
    ),
    row("RotaryEmbedding", normal(B, S, HEADS * 8), POSITIONS, COSINE, SINE, is_packed_batching=1),
]

Q, K, V = normal(B, S, 4 * 16), normal(B, S, 2 * 16, seed=1), normal(B, S, 2 * 16, seed=2)
FULL, TOTAL = int32(S - 1, S - 1), int32(S)
TABLES = normal(16, 8), normal(16, 8, seed=1)
PLAIN = (Q, K, V, None, None, FULL, TOTAL)
SINK = normal(4)


def grouped(*inputs: Any, present: bool = False, **attributes: Any) -> Row:
    settings = {"outputs": 3, "compared": (0, 1, 2)} if present else {}
    return row("GroupQueryAttention", *inputs, num_heads=4, kv_num_heads=2, settings=settings, **attributes)


GROUPED = [
    grouped(*PLAIN, present=True),
    grouped(*PLAIN, *TABLES, do_rotary=1, present=True),
    grouped(*PLAIN, *TABLES, do_rotary=1, rotary_interleaved=1),
    grouped(*PLAIN, *TABLES, np.array([[2, 3, 4, 5, 6]] * B), do_rotary=1),
    grouped(*PLAIN, softcap=2.0),
    grouped(*PLAIN, scale=0.7, causal=0),
    *(grouped(*PLAIN, local_window_size=window) for window in (1, 3, 5)),
    grouped(*PLAIN, smooth_softmax=1),
    grouped(*PLAIN, *[None] * 4, SINK, softcap=1.2),
    grouped(*PLAIN, *[None] * 3, normal(B, 4, S, S), softcap=1.5),
    grouped(normal(B, S, 8 * 16), None, None, None, None, FULL, TOTAL),
    grouped(Q, K, V, None, None, int32(S - 1, 2), TOTAL),
    grouped(
        *(Q[:1], K[:1], V[:1], normal(1, 2, 3, 16), normal(1, 2, 3, 16, seed=1), int32(S + 2), int32(S + 3), *TABLES),
        do_rotary=1,
        present=True,
    ),
]

HEADS_APART = normal(B, 4, S, 8), normal(B, 2, 6, 8, seed=1), normal(B, 2, 6, 5, seed=2)
ONNX = {"domain": "", "opset": 23}

STANDARD = [
    row("Attention", *HEADS_APART, settings=ONNX),
    row("Attention", *HEADS_APART, scale=0.3, softcap=1.5, settings=ONNX),
    row("Attention", *HEADS_APART, normal(S, 6), settings=ONNX),
    row("Attention", *HEADS_APART, integers(2, B, 1, S, 6) > 0, settings=ONNX),
    row("Attention", Q, K, V, q_num_heads=4, kv_num_heads=2, is_causal=1, settings=ONNX),
]
"""ONNX's own operator."""

ROWS = [*ATTENTION, *MULTI_HEAD, *ROTARY, *GROUPED, *STANDARD]

REFUSED = [
    (row("Attention", QUERY, normal(QUERY.shape[-1], 18), num_heads=3, do_rotary=1), "rotates positions"),
    (grouped(*PLAIN, sliding_window_cache=1, local_window_size=3), "window of the sequence"),
    (grouped(*PLAIN, *[None] * 5, np.ones(1, np.float32), np.ones(1, np.float32)), "quantizes its past"),
    (grouped(*PLAIN, *[None] * 7, normal(16), normal(16)), "normalises queries"),
]
"""Nodes whose settings mean something that is written nowhere, and a part of the reason."""
