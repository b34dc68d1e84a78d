"""Gradients of recurrent operators inside bodies, and of their gradients."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, parser

import onnxblock
from tests.autodiff.definitions import definitions_evaluator

LSTM = "s, h2 = LSTM <hidden_size=3> (x, w, r, , , h)"
INPUTS = "double[3,2,2] x, double[1,12,2] w, double[1,12,3] r, double[1,2,3] h0"


def model(outputs: str, initializers: str, nodes: str) -> ModelProto:
    header = '<ir_version: 9, opset_import: ["" : 18]>'
    return parser.parse_model(f"{header} g ({INPUTS}) => ({outputs}) <{initializers}> {{ {nodes} }}")


IN_LOOP = model(
    "double[1,2,3] y, double[2,3,1,2,3] ys",
    "int64 n = {2}, bool yes = {1}",
    f"""y, ys = Loop (n, yes, h0) <body = b (int64 i, bool c, double[1,2,3] h)
        => (bool c2, double[1,2,3] h2, double[3,1,2,3] s) {{ c2 = Identity (c) {LSTM} }}>""",
)
IN_IF = model(
    "double[3,1,2,3] y",
    "bool yes = {1}",
    f"""y = If (yes) <then_branch = b () => (double[3,1,2,3] s) {{ {LSTM.replace("h)", "h0)")} }},
        else_branch = e () => (double[3,1,2,3] z) {{ z, h3 = LSTM <hidden_size=3> (x, w, r) }}>""",
)
PLAIN = model("double[3,1,2,3] s", "bool yes = {1}", LSTM.replace("h)", "h0)"))


def feeds() -> dict[str, np.ndarray]:
    shapes = {"x": (3, 2, 2), "w": (1, 12, 2), "r": (1, 12, 3), "h0": (1, 2, 3)}
    return {name: np.random.default_rng(k).standard_normal(s) * 0.5 for k, (name, s) in enumerate(shapes.items())}


@pytest.mark.parametrize("made", [IN_LOOP, IN_IF], ids=["loop", "if"])
def test_inside_a_body(made: ModelProto) -> None:
    onnxblock.check_gradients(made, feeds(), evaluator=definitions_evaluator)


def test_a_gradient_of_the_gradient() -> None:
    made = onnxblock.gradients(PLAIN, ["x", "r"])
    assert "LSTM" not in {node.op_type for node in made.graph.node}, "a Scan takes the place of the node"
    onnxblock.check_gradients(made, feeds(), evaluator=definitions_evaluator)
