"""Operators whose gradient goes through what they are made of."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, parser

import onnxblock
from onnxblock.autodiff.functions import expand
from onnxblock.graph.graph import Graph
from onnxblock.graph.precision import to_float64
from tests.runtime import require_opset

from . import harness
from .definitions import definitions_evaluator


def parts(model: ModelProto) -> ModelProto:
    """The model with what operators without a rule are made of in their place."""
    copy = ModelProto()
    copy.CopyFrom(model)
    graph = Graph(copy)
    expand(graph, [v.name for v in model.graph.input], [v.name for v in model.graph.output])
    return graph.to_model_proto()


def _ids(case: harness.Case) -> str:
    return case.name


ATTENTION = [c for c in harness.backend_cases() if c.op_type == "Attention" and "bf16" not in c.name]
RECURRENT = [c for c in harness.backend_cases() if c.op_type in {"LinearAttention", "CausalConvWithState"}]
FLOAT32 = [c for c in RECURRENT if all(x.dtype != np.float16 for x in c.feeds.values())]


@pytest.mark.parametrize("case", ATTENTION, ids=_ids)
def test_attention_is_what_it_is_made_of(case: harness.Case) -> None:
    require_opset(harness.opset(case.model))
    made = parts(case.model)
    assert not {node.op_type for node in made.graph.node} & {"Attention"}
    exact = definitions_evaluator(case.model)(case.feeds)
    found = harness.run_onnxruntime(made, case.feeds, optimized=True)
    tolerance = 5e-3 if any(x.dtype == np.float16 for x in case.feeds.values()) else 1e-5
    for y, z in zip(exact, found, strict=True):
        assert (y.shape, y.dtype) == (z.shape, z.dtype)
        np.testing.assert_allclose(z, y, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("case", FLOAT32, ids=_ids)
def test_differences_of_the_parts(case: harness.Case) -> None:
    """These operators take no float64; what they are made of does."""
    made = to_float64(parts(case.model))
    onnxblock.check_gradients(made, case.feeds, wrt=harness.wrt(case), evaluator=definitions_evaluator)


def test_a_query_that_sees_nothing_has_no_gradient() -> None:
    q, k, v = (np.random.default_rng(s).standard_normal((1, 1, 2, 4)).astype(np.float32) for s in range(3))
    mask = np.array([[True, False], [False, False]])
    node = helper.make_node("Attention", ["q", "k", "v", "mask"], ["y"])
    model = onnxblock.autodiff.check.model_of_node(node, {"q": q, "k": k, "v": v, "mask": mask}, 23)
    made = onnxblock.gradients(model, wrt=["q", "k", "v"])
    dq, dk, dv = harness.run_onnxruntime(made, {"q": q, "k": k, "v": v, "mask": mask}, optimized=True)
    # One visible key has all the weight, whatever the scores are.
    np.testing.assert_array_equal(dq, 0)
    np.testing.assert_array_equal(dk, 0)
    np.testing.assert_array_equal(dv[0, 0], [[1] * 4, [0] * 4])


FUNCTIONS = """
<ir_version: 10, opset_import: ["": 21, "own": 1]>
g (float[3] x, float[3] w, bool c) => (float[3] y) {
    a = own.Twice (x, w)
    y = If (c) <then_branch = then () => (float[3] p) { p = own.Twice (a, x) },
                else_branch = other () => (float[3] q) { q = own.Squashed <gain = 0.5> (a) }>
}
<domain: "own", opset_import: ["": 21, "own": 1]>
Twice (x, w) => (y) {
    s = own.Squashed <gain = 2.0> (x)
    y = Mul (s, w)
}
<domain: "own", opset_import: ["": 21]>
Squashed <gain> (x) => (y) {
    g = Constant <value_float: float = @gain> ()
    t = Tanh (x)
    y = Mul (t, g)
}
"""


@pytest.mark.parametrize("taken", [True, False])
def test_functions_that_call_functions(taken: bool) -> None:
    model = parser.parse_model(FUNCTIONS)
    x, w = np.array([0.3, -0.2, 0.9], np.float32), np.array([1.5, 0.4, -0.7], np.float32)
    onnxblock.check_gradients(model, {"x": x, "w": w, "c": np.array(taken)}, wrt=["x", "w"])


def test_a_body_inside_a_body() -> None:
    model = parser.parse_model("""
        <ir_version: 10, opset_import: ["": 23]>
        g (float[1, 2, 3, 4] x, float[4] w) => (float[1, 2, 3, 4] y) {
            n = Constant <value = int64 {2}> ()
            y = Loop (n, , x) <body = body (int64 k, bool on, float[1, 2, 3, 4] s) => (bool go, float[1, 2, 3, 4] t) {
                m = Mul (s, w)
                t = Attention <is_causal = 1> (m, s, m)
                go = Identity (on)
            }>
        }
    """)
    rng = np.random.default_rng(0)
    feeds = {"x": rng.standard_normal((1, 2, 3, 4)), "w": rng.standard_normal(4)}
    onnxblock.check_gradients(model, feeds, evaluator=definitions_evaluator)


def test_sequence_map() -> None:
    model = parser.parse_model("""
        <ir_version: 10, opset_import: ["": 21]>
        g (float[3] x, float[3] w) => (float[6] y) {
            xx = Mul (x, x)
            s = SequenceConstruct (x, xx)
            t = SequenceMap (s, w) <body = body (float[3] e, float[3] v) => (float[3] r) {
                p = Mul (e, v)
                r = Tanh (p)
            }>
            y = ConcatFromSequence <axis = 0> (t)
        }
    """)
    x, w = np.array([0.3, -0.2, 0.9], np.float32), np.array([1.5, 0.4, -0.7], np.float32)
    onnxblock.check_gradients(model, {"x": x, "w": w}, wrt=["x", "w"])


def test_names_are_the_same_every_time() -> None:
    model = parser.parse_model(FUNCTIONS)
    first, second = (onnxblock.gradients(model, wrt=["x", "w"]) for _ in range(2))
    assert first.SerializeToString(deterministic=True) == second.SerializeToString(deterministic=True)
    assert all(output.type.tensor_type.elem_type == TensorProto.FLOAT for output in first.graph.output)
