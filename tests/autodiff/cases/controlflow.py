"""Rows for If, Loop and Scan."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import parser

from . import Case, model_case, normal

EXCEPTIONS = {
    "loop11:newest": "the body is written in operators of opset 11",
    "scan_sum:newest": "the node is of opset 8, where its inputs are others",
}

X, W, B = normal(3) * 0.7, normal(3, seed=1) * 0.7, normal(3, seed=2) * 0.7


def row(op_type: str, name: str, inputs: str, outputs: str, nodes: str, opset: int = 21, **feeds: Any) -> Case:
    header = f'<ir_version: 10, opset_import: ["": {opset}]>'
    model = parser.parse_model(f"{header} row ({inputs}) => ({outputs}) {{ {nodes} }}")
    return model_case(op_type, model, feeds, name)


def if_row(name: str, then: str, other: str, **feeds: Any) -> list[Case]:
    inputs = "bool condition, float[3] x, float[3] w"
    nodes = f"""
        s = Mul (x, x)
        t = If (condition) <then_branch = then () => (float[3] a) {{ {then} }},
                            else_branch = other () => (float[3] b) {{ {other} }}>
        y = Mul (t, w)
    """
    return [
        row("If", f"if_{name}_{taken}", inputs, "float[3] y", nodes, condition=np.array(taken), x=X, w=W, **feeds)
        for taken in (True, False)
    ]


NESTED = """
    m = Mul (s, w)
    positive = Constant <value = bool[1] {1}> ()
    scalar = Squeeze (positive)
    i = If (scalar) <then_branch = inner_then () => (float[3] u) { mm = Mul (m, w) u = Tanh (mm) },
                     else_branch = inner_other () => (float[3] v) { v = Mul (m, x) }>
    a = Mul (i, m)
"""

IFS = [
    *if_row("of_products", "m = Mul (s, w) a = Tanh (m)", "q = Mul (s, x) q2 = Tanh (q) b = Mul (q2, q)"),
    *if_row("without_dependence", "a = Mul (s, w)", "b = Constant <value = float[3] {1, 2, 3}> ()"),
    *if_row("passing_through", "a = Identity (x)", "b = Identity (s)"),
    *if_row("nested", NESTED, "b = Tanh (s)"),
]

STEP = """
    m = Mul (s, w)
    e = Tanh (m)
    so = Add (e, b)
    c = Mul (so, so)
    continue = Identity (condition)
"""
COUNTED = f"""
    y, ys = Loop (count, , x) <body = body (int64 k, bool condition, float[3] s)
        => (bool continue, float[3] so, float[3] c) {{ {STEP} }}>
"""
WHILE = """
    start = Constant <value = bool {1}> ()
    y = Loop (, start, x) <body = body (int64 k, bool condition, float[3] s) => (bool continue, float[3] so) {
        so = Mul (s, w)
        q = Mul (so, so)
        size = ReduceSum <keepdims = 0> (q)
        least = Constant <value_float = 0.1> ()
        continue = Greater (size, least)
    }>
"""
GROWING = """
    axis = Constant <value_ints = [0]> ()
    y = Loop (count, , x) <body = body (int64 k, bool condition, s) => (bool continue, so) {
        q = Mul (s, s)
        r = ReduceSum <keepdims = 1> (q, axis)
        rw = Mul (r, w)
        so = Concat <axis = 0> (s, rw)
        continue = Identity (condition)
    }>
"""
EXCHANGED = """
    y, z = Loop (count, , x, x) <body = body (int64 k, bool condition, float[3] s, float[3] t)
        => (bool continue, float[3] so, float[3] to) {
        so = Mul (t, w)
        to = Identity (s)
        continue = Identity (condition)
    }>
"""
COUNTING = """
    first = Constant <value = int64 {2}> ()
    y, last = Loop (count, , x, first) <body = body (int64 k, bool condition, float[3] s, int64 n)
        => (bool continue, float[3] so, int64 no) {
        kf = CastLike (k, s)
        nf = CastLike (n, s)
        m = Mul (s, kf)
        a = Add (m, w)
        so = Mul (a, nf)
        one = Constant <value = int64 {1}> ()
        no = Add (n, one)
        continue = Identity (condition)
    }>
"""
# As PyTorch writes it: the number of trips, and so that of the iteration, with an axis.
WITH_AXES = """
    on = Constant <value = bool[1] {1}> ()
    y = Loop (trips, on, x) <body = body (int64[1] k, bool[1] condition, float[3] s)
        => (bool[1] continue, float[3] so) {
        end = Add (k, k)
        end1 = Add (end, trips)
        part = Slice (w, k, end1)
        m = ReduceSum <keepdims = 0> (part)
        so = Mul (s, m)
        continue = Identity (condition)
    }>
"""
NESTED_LOOPS = """
    two = Constant <value = int64 {2}> ()
    y, ys = Loop (count, , x) <body = body (int64 k, bool condition, float[3] s)
        => (bool continue, float[3] so, float[3] c) {
        c = Loop (two, , s) <body = inner (int64 j, bool running, float[3] u) => (bool go_on, float[3] uo) {
            um = Mul (u, w)
            ue = Tanh (um)
            uo = Add (ue, s)
            go_on = Identity (running)
        }>
        rest = Mod (k, two)
        odd = Cast <to = 9> (rest)
        so = If (odd) <then_branch = then () => (float[3] p) { p = Mul (c, w) },
                       else_branch = other () => (float[3] q) { cs = Mul (c, s) q = Tanh (cs) }>
        continue = Identity (condition)
    }>
"""
INPUTS = "int64 count, float[3] x, float[3] w, float[3] b"


def loop_row(name: str, nodes: str, outputs: str = "float[3] y", count: int = 3, inputs: str = INPUTS) -> Case:
    feeds = {"count": np.array(count), "x": X, "w": W, "b": B}
    named = {text.split()[-1] for text in inputs.split(",")}
    return row("Loop", f"loop_{name}", inputs, outputs, nodes, **{k: x for k, x in feeds.items() if k in named})


LOOPS = [
    loop_row("counted", COUNTED, "float[3] y, float[n, 3] ys"),
    loop_row("once", COUNTED, "float[3] y, float[n, 3] ys", count=1),
    loop_row("never", COUNTED, count=0),
    loop_row("collected_only", COUNTED, "float[n, 3] ys"),
    loop_row("while", WHILE, inputs="float[3] x, float[3] w"),
    row("Loop", "loop_growing", "int64 count, float[2] x, float[1] w", "float[n] y", GROWING,
        count=np.array(2), x=X[:2], w=W[:1]),
    loop_row("exchanged_states", EXCHANGED, "float[3] y, float[3] z", inputs="int64 count, float[3] x, float[3] w"),
    loop_row("counting", COUNTING, inputs="int64 count, float[3] x, float[3] w"),
    row("Loop", "loop_with_axes", "int64[1] trips, float[3] x, float[3] w", "float[3] y", WITH_AXES,
        trips=np.array([2]), x=X, w=W),
    loop_row("nested", NESTED_LOOPS, "float[3] y, float[n, 3] ys", inputs="int64 count, float[3] x, float[3] w"),
]  # fmt: skip

RECURRENCE = """
    hw = MatMul (s, w)
    p = Add (hw, e)
    so = Tanh (p)
    c = Mul (so, e)
"""


def scan_row(name: str, elements: str, collected: str, outputs: str = "float[2, 3] y, ys", axis: int = 0) -> Case:
    nodes = f"""
        y, ys = Scan (h, x) <num_scan_inputs = 1, {elements} {collected}
            body = body (float[2, 3] s, float[2, 3] e) => (float[2, 3] so, float[2, 3] c) {{ {RECURRENCE} }}>
    """
    x = np.moveaxis(normal(4, 2, 3) * 0.7, 0, axis)
    inputs = f"float[2, 3] h, float[{', '.join(map(str, x.shape))}] x, float[3, 3] w"
    return row("Scan", f"scan_{name}", inputs, outputs, nodes, h=normal(2, 3) * 0.7, x=x, w=normal(3, 3, seed=1) * 0.7)


SCANS = [
    scan_row("forwards", "", "", "float[2, 3] y, float[4, 2, 3] ys"),
    scan_row("backwards", "scan_input_directions = [1],", "scan_output_directions = [1],", "float[4, 2, 3] ys"),
    scan_row(
        "other_axes", "scan_input_axes = [1],", "scan_output_axes = [-1],", "float[2, 3] y, float[2, 3, 4] ys", axis=1
    ),
    scan_row(
        "other_axes_backwards",
        "scan_input_axes = [2], scan_input_directions = [1],",
        "scan_output_axes = [1], scan_output_directions = [1],",
        "float[2, 4, 3] ys",
        axis=2,
    ),
    row(
        "Scan",
        "scan_without_states",
        "float[4, 3] x, float[4, 3] z, float[3] w",
        "float[4, 3] y",
        """
        y = Scan (x, z) <num_scan_inputs = 2, body = body (float[3] e, float[3] f) => (float[3] c) {
            ef = Mul (e, f)
            c = Mul (ef, w)
        }>
        """,
        x=normal(4, 3),
        z=normal(4, 3, seed=1),
        w=W,
    ),
]

ROWS = [*IFS, *LOOPS, *SCANS]
