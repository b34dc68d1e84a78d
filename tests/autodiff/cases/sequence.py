"""Rows for the operators on sequences and optional values."""

from __future__ import annotations

import re

from onnx import parser

from . import Case, model_case, normal

EXCEPTIONS = {
    "optional_get_element_tensor:all": "onnxruntime has no kernel of opset 28",
    "optional_sequence:newest": "onnxruntime has no kernel of opset 28",
}

MAKE = "aa = Mul (a, a) ab = Mul (a, b) s = SequenceConstruct (aa, ab, a) "


def row(op_type: str, name: str, nodes: str, y: str = "float[3] y", inputs: str = "float[3] a, float[3] b") -> Case:
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> row ({inputs}) => ({y}) {{ {nodes} }}')
    shapes = re.findall(r"\[([\d, ]+)\] (\w)", inputs)
    feeds = {name: normal(*map(int, shape.split(",")), seed=seed) for seed, (shape, name) in enumerate(shapes)}
    return model_case(op_type, model, feeds, name)


def at(position: int) -> str:
    return f"p = Constant <value = int64 {{{position}}}> () "


APPEND = """
    two = Constant <value = int64 {2}> ()
    empty = SequenceEmpty <dtype = 1> ()
    last, all = Loop (two, , a, empty) <body = body (int64 k, bool running, float[3] x, seq(float[3]) done)
        => (bool on, float[3] xo, seq(float[3]) more) {
        m = Mul (x, b)
        xo = Tanh (m)
        more = SequenceInsert (done, xo)
        on = Identity (running)
    }>
    y = ConcatFromSequence <axis = 0> (all)
"""
READ = """
    three = Constant <value = int64 {3}> ()
    y = Loop (three, , a) <body = body (int64 k, bool running, float[3] x) => (bool on, float[3] xo) {
        e = SequenceAt (s, k)
        m = Mul (e, x)
        xo = Tanh (m)
        on = Identity (running)
    }>
"""
BRANCHES = """
    zero = Constant <value_float = 0.0> ()
    sum = ReduceSum <keepdims = 0> (a)
    above = Greater (sum, zero)
    t = If (above) <then_branch = then () => (seq(float[3]) more) { more = SequenceInsert (s, b) },
                    else_branch = other () => (seq(float[3]) less) { less = SequenceErase (s) }>
    y = ConcatFromSequence <axis = 0> (t)
"""
# A piece of size 1 against one of size 4: what a piece is not known to be, it must not be taken to share with another.
BROADCAST = """
    bb = Mul (b, b)
    n = Constant <value = int64[2] {1, 4}> ()
    s = SplitToSequence <axis = 1> (bb, n)
    first = Constant <value = int64 {0}> ()
    u = SequenceAt (s, first)
    v = SequenceAt (s, p)
    scores = Softmax <axis = 0> (u)
    m = Mul (v, scores)
    axes = Constant <value_ints = [1]> ()
    y = ReduceSum (m, axes)
"""
MATRICES = "float[2, 3] a, float[2, 5] b"

ROWS = [
    row("SequenceConstruct", "construct", MAKE + "y = ConcatFromSequence <axis = 0> (s)", "float[9] y"),
    *(row("SequenceAt", f"at_{k}", MAKE + at(k) + "y = SequenceAt (s, p)") for k in (0, 1, 2, -1, -3)),
    row(
        "SequenceAt",
        "at_two_places",
        MAKE
        + at(-1)
        + "q = Constant <value = int32 {1}> () u = SequenceAt (s, p) v = SequenceAt (s, q) y = Mul (u, v)",
    ),
    *(
        row(
            "SequenceInsert",
            f"insert_{k}",
            MAKE + at(k or 0) + f"t = SequenceInsert (s, b{', p' if k is not None else ''}) "
            "y = ConcatFromSequence <axis = 0> (t)",
            "float[12] y",
        )
        for k in (None, 0, 3, -1, -3)
    ),
    *(
        row(
            "SequenceErase",
            f"erase_{k}",
            MAKE + at(k or 0) + f"t = SequenceErase (s{', p' if k is not None else ''}) "
            "y = ConcatFromSequence <axis = 0, new_axis = 1> (t)",
            "float[2, 3] y",
        )
        for k in (None, 0, 2, -1, -3)
    ),
    row(
        "ConcatFromSequence",
        "concat_of_different_sizes",
        "aa = Mul (a, a) s = SequenceConstruct (aa, b, a) y = ConcatFromSequence <axis = -1> (s)",
        "float[2, 11] y",
        MATRICES,
    ),
    *(
        row("ConcatFromSequence", f"stack_{k}", MAKE + f"y = ConcatFromSequence <axis = {k}, new_axis = 1> (s)", y)
        for k, y in ((0, "float[3, 3] y"), (-1, "float[3, 3] y"))
    ),
    *(
        row(
            "SplitToSequence",
            f"split_{k}",
            f"bb = Mul (b, b) n = Constant <value = {sizes}> () s = SplitToSequence <axis = {axis}> (bb, n) "
            + at(1)
            + "y = SequenceAt (s, p)",
            y,
            "float[2, 5] b",
        )
        for k, (sizes, axis, y) in enumerate(
            (
                ("int64 {2}", 1, "float[2, 2] y"),
                ("int64[2] {1, 4}", 1, "float[2, 4] y"),
                ("int64[2] {3, 2}", -1, "float[2, 2] y"),
            )
        )
    ),
    row("SplitToSequence", "split_and_broadcast", at(1) + BROADCAST, "float[2, 1] y", "float[2, 5] b"),
    *(
        row(
            "SplitToSequence",
            f"split_one_by_one_{keepdims}",
            f"bb = Mul (b, b) s = SplitToSequence <axis = 1, keepdims = {keepdims}> (bb) "
            + at(-1)
            + "y = SequenceAt (s, p)",
            y,
            "float[2, 5] b",
        )
        for keepdims, y in ((0, "float[2] y"), (1, "float[2, 1] y"))
    ),
    row("SequenceInsert", "insert_in_a_loop", APPEND, "float[6] y"),
    row("SequenceAt", "at_in_a_loop", MAKE + READ),
    row("SequenceInsert", "insert_in_a_branch", MAKE + BRANCHES, "float[n] y"),
    row("Optional", "optional_tensor", "m = Mul (a, b) o = Optional (m) y = OptionalGetElement (o)"),
    row(
        "OptionalGetElement",
        "optional_sequence",
        MAKE + at(1) + "o = Optional (s) t = OptionalGetElement (o) y = SequenceAt (t, p)",
    ),
]
