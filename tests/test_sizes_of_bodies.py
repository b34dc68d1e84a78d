"""Values of bodies whose sizes nobody knows while building: they train where they run forward."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from onnxblock import loss
from onnxblock.errors import ArgumentError
from tests.running import normal
from tests.training import begin, generate

X, TARGET = normal(3, 4), normal(3, 4, seed=1)
WEIGHT = normal(4, 4, seed=2) / 2

LOOP_BEFORE_SCAN = """
    <ir_version: 9, opset_import: ["": 21]> g (float[N, 4] x, int64 trips) => (float[N, 4] y)
    {
        looped = Loop (trips, , x) <body = l (int64 i, bool c, float[4] a) => (bool d, float[4] b) {
            b = Tanh (a)
            d = Identity (c)
        }>
        h = MatMul (looped, w)
        s = Scan (h, w) <num_scan_inputs = 1, body = s (float[4] state, float[4] row) => (float[4] next) {
            scaled = Mul (state, row)
            product = Gemm (scaled, w)
            next = Tanh (product)
        }>
        y = Tanh (s)
    }
"""


def model() -> onnx.ModelProto:
    made = parser.parse_model(LOOP_BEFORE_SCAN)
    for body in (a.g for node in made.graph.node for a in node.attribute if a.name == "body"):
        for value in (*body.input, *body.output):
            if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
                value.type.tensor_type.ClearField("shape")
    made.graph.initializer.append(numpy_helper.from_array(WEIGHT, "w"))
    return made


def value_of(weight: np.ndarray) -> float:
    h = np.tanh(np.tanh(X)).astype(np.float64) @ weight
    for row in weight:
        h = np.tanh((h * row) @ weight)
    return float(((np.tanh(h) - TARGET) ** 2).mean())


def test_a_state_of_a_scan_has_the_shape_that_it_has_after_an_iteration(tmp_path: Path) -> None:
    training = begin(generate(model(), tmp_path, loss=loss.MSELoss(), requires_grad=["w"]))
    found = training.accumulate(X, np.array(2), TARGET)
    assert found == pytest.approx(value_of(WEIGHT.astype(np.float64)), rel=1e-5)
    step, numeric = 1e-6, np.zeros((4, 4))
    for place in np.ndindex(4, 4):
        shift = np.zeros((4, 4))
        shift[place] = step
        numeric[place] = (value_of(WEIGHT + shift) - value_of(WEIGHT - shift)) / (2 * step)
    np.testing.assert_allclose(training.gradients()["w"], numeric, rtol=1e-3, atol=1e-5)


def test_a_budget_of_memory_needs_sizes_that_can_be_said(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"dimension_sizes=\{'N': \.\.\., 'unk__0': \.\.\.\}"):
        generate(model(), tmp_path, loss=loss.MSELoss(), recompute=100)
    with pytest.raises(ArgumentError, match=r"dimension_sizes=\{'unk__0': \.\.\.\}"):
        generate(model(), tmp_path, loss=loss.MSELoss(), recompute=100, dimension_sizes={"N": 3})
    sizes = {"N": 3, "unk__0": 3}
    with pytest.raises(ArgumentError, match=r"bodies of control flow .* pass recompute=True"):
        generate(model(), tmp_path, loss=loss.MSELoss(), recompute=100, dimension_sizes=sizes)


def test_what_a_branch_gives_has_a_size_where_its_condition_is_known(tmp_path: Path) -> None:
    made = parser.parse_model("""
    <ir_version: 9, opset_import: ["": 21]> g (float[N, 4] x) => (float[N, 4] y)
    <bool yes = {1}> {
        h = MatMul (x, w)
        z = If (yes) <
            then_branch = then () => (float[N, 4] b) { a = MatMul (h, w) s = Sigmoid (a) b = Mul (a, s) },
            else_branch = other () => (float[N, 4] c) { c = Identity (h) }>
        y = Tanh (z)
    }""")
    made.graph.initializer.append(numpy_helper.from_array(WEIGHT, "w"))
    settings = {"loss": loss.MSELoss(), "dimension_sizes": {"N": 3}}
    assert generate(made, tmp_path, recompute=10**6, **settings).recomputation is None
    with pytest.raises(ArgumentError, match="at least 288"):
        generate(made, tmp_path, recompute=100, **settings)
