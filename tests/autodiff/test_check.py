from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, parser
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

import onnxblock
from onnxblock.autodiff import registry
from onnxblock.autodiff.check import check_gradients, check_rule
from onnxblock.errors import FeedError, GradientMismatchError, OnnxBlockError, RuntimeUnavailableError
from onnxblock.graph import decomposition

MODEL = """
<ir_version: 10, opset_import: ["" : 21]>
mlp (float[3,4] x) => (float[3,2] y)
<float[4,2] w = {0.3, -0.2, 0.5, 0.1, -0.4, 0.2, 0.6, -0.1}, float[2] b = {0.1, -0.1}>
{
  h = MatMul(x, w)
  a = Sin(h)
  y = Add(a, b)
}
"""


def test_a_model_with_right_gradients_passes_and_says_how() -> None:
    result = check_gradients(parser.parse_model(MODEL))
    assert (result.dtype, result.evaluator, result.reason) == ("float64", "onnxruntime", None)
    assert {c.value for c in result.comparisons} == {"x", "w", "b"}
    assert result.error < 1e-9
    assert result.passed
    assert "float64 on onnxruntime" in str(result)


def test_the_reference_is_used_where_onnxruntime_has_no_kernel_and_the_result_says_so() -> None:
    result = check_rule("Erf", np.linspace(-2, 2, 6))
    assert result.evaluator == "onnx.reference"
    assert result.reason is not None
    assert "Erf" in result.reason
    assert result.error < 1e-8
    assert "Erf" in str(result)


def test_an_evaluator_that_was_asked_for_is_used_or_refused() -> None:
    assert check_rule("Exp", [0.5], evaluator="onnx.reference").evaluator == "onnx.reference"
    with pytest.raises(RuntimeUnavailableError, match="Erf"):
        check_rule("Erf", [0.5], evaluator="onnxruntime")
    with pytest.raises(OnnxBlockError, match=r"evaluator 'onnxruntme'.*Did you mean 'onnxruntime'"):
        check_rule("Erf", [0.5], evaluator="onnxruntme")


def test_a_function_can_be_the_evaluator() -> None:
    from onnxblock.autodiff.check import reference_evaluator

    def mine(model: Any) -> Any:
        return reference_evaluator(model)

    assert check_rule("Exp", [0.5], evaluator=mine).evaluator == "mine"


def test_float32() -> None:
    result = check_gradients(parser.parse_model(MODEL), dtype="float32")
    assert (result.dtype, result.evaluator) == ("float32", "onnxruntime")
    with pytest.raises(OnnxBlockError, match="float16"):
        check_gradients(parser.parse_model(MODEL), dtype="float16")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_wrong_rule_is_an_error_that_says_where(monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    rule = registry.find("Sin")
    assert isinstance(rule, registry.Rule)
    factor = 1.0001 if dtype == "float64" else 1.2
    wrong = dataclasses.replace(rule, function=lambda g: g.dy * g.op.Cos(g.x) * factor)
    monkeypatch.setitem(registry._entries, ("", "Sin"), wrong)
    with pytest.raises(GradientMismatchError, match="MISMATCH") as caught:
        check_gradients(parser.parse_model(MODEL), dtype=dtype)
    assert isinstance(caught.value, AssertionError)
    result = caught.value.result
    assert not result.passed
    wrong_values = {c.value for c in result.comparisons if c.error > result.tolerance}
    assert wrong_values == {"x", "w"}


def test_a_kink_is_named() -> None:
    with pytest.raises(GradientMismatchError, match="at a kink"):
        check_rule("Relu", [0.0, 0.0, 0.0])


def test_outputs_and_values_can_be_chosen() -> None:
    result = check_gradients(parser.parse_model(MODEL), outputs=["h"], wrt=["w"])
    assert {c.value for c in result.comparisons} == {"w"}


def test_inputs_that_do_not_fit_are_all_listed() -> None:
    model = parser.parse_model(MODEL.replace("float[3,4] x", "float[N,4] x, int64[2] i"))
    with pytest.raises(FeedError, match=r"no input 'x2'.* Did you mean 'x'.*'x' .*'i' "):
        check_gradients(model, {"x2": np.zeros((3, 4))})


def test_many_numbers_and_integers_among_the_inputs() -> None:
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("Gather", ["table", "i"], ["y"])],
            "g",
            [helper.make_tensor_value_info("i", TensorProto.INT64, [3])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 2])],
            [numpy_helper.from_array(np.ones((500, 2), np.float32), "table")],
        ),
        opset_imports=[helper.make_opsetid("", 21)],
        ir_version=10,
    )
    assert check_gradients(model, {"i": np.array([0, 7, 7])}).passed


def test_the_facade_offers_both() -> None:
    assert onnxblock.check_gradients is check_gradients
    assert onnxblock.check_rule is check_rule


def test_a_loop_around_an_operator_that_onnxruntime_has_in_float32_only() -> None:
    model = parser.parse_model("""
        <ir_version: 10, opset_import: ["": 21]>
        g (double[1, 1, 4] x, double[1, 1, 3] w, int64 n) => (double[1, 1, 4] y, double[m, 1, 1, 4] ys) {
            y, ys = Loop (n, , x) <body = b (int64 k, bool on, double[1, 1, 4] s)
                => (bool go, double[1, 1, 4] t, double[1, 1, 4] u) {
                z = Conv <pads = [1, 1]> (s, w)
                t = Tanh (z)
                u = Mul (t, s)
                go = Identity (on)
            }>
        }
    """)
    rng = np.random.default_rng(0)
    feeds = {"x": rng.standard_normal((1, 1, 4)), "w": rng.standard_normal((1, 1, 3))}
    for count in (1, 3):
        found = check_gradients(model, {**feeds, "n": np.array(count)}, wrt=["x", "w"])
        assert {c.value for c in found.comparisons} == {"x", "w"}


def test_a_model_with_sizes_in_float_is_checked_without_them() -> None:
    model = parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        upsampled (float[1,1,3,4] x) => (float[2,1,1,1] y)
        <float[4] scales = {1, 1, 2, 2}, float[4] shift = {1, 2, 3, 4}, float[2,4] rois = {0, 1, 3, 4, 1, 1, 2, 2},
         int64[2] images = {0, 0}>
        {
          z = Mul(x, shift)
          r = Resize <mode = "linear"> (z, , scales)
          y = RoiAlign <sampling_ratio = 2> (r, rois, images)
        }
    """)
    assert {c.value for c in check_gradients(model).comparisons} == {"x", "shift"}


def test_a_kernel_that_first_refuses_float64_when_it_runs() -> None:
    """onnxruntime loads an LSTM in float64 and says no in the run."""
    rng = np.random.default_rng(0)
    result = check_rule("LSTM", *(rng.standard_normal(s) for s in ((3, 1, 2), (1, 8, 2), (1, 8, 2))), hidden_size=2)
    assert result.evaluator == "onnx.reference"
    assert "onnxruntime does not run the model" in (result.reason or "")


@pytest.mark.parametrize("opset", [9, 13, 15])
def test_batch_normalization_of_every_opset_is_that_of_inference(opset: int) -> None:
    model = parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : {opset}]>
        normalized (float[2,3,2] x, float[3] scale, float[3] b) => (float[2,3,2] y)
        <float[3] mean = {{0.1, 0.2, 0.3}}, float[3] var = {{1, 2, 3}}>
        {{
          y = BatchNormalization(x, scale, b, mean, var)
        }}
    """)
    assert check_gradients(model, evaluator="onnx.reference").error < 1e-6


def test_what_no_evaluator_runs_is_one_of_our_errors() -> None:
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("OneHot", ["i", "depth", "values"], ["y"]), helper.make_node("Erf", ["y"], ["z"])],
            "one_hot",
            [helper.make_tensor_value_info("values", TensorProto.FLOAT, [2])],
            [helper.make_tensor_value_info("z", TensorProto.FLOAT, [2, 3])],
            [numpy_helper.from_array(np.array(x), n) for n, x in (("i", [0, 2]), ("depth", [3]))],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
    )
    with pytest.raises(RuntimeUnavailableError, match=r"onnx\.reference does not run the model"):
        check_gradients(model)


@pytest.fixture
def own_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cube, with a rule only; ScaledTanh, with a decomposition only; Twice, with both."""
    registry.find("Relu")
    decomposition.find("FastGelu", "com.microsoft")
    monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    monkeypatch.setattr(decomposition, "_entries", dict(decomposition._entries))
    onnxblock.gradient("Cube", domain="my.domain")(lambda g: 3 * g.x * g.x * g.dy)
    onnxblock.gradient("Twice", domain="my.domain")(lambda g: 2.5 * g.dy)
    onnxblock.decomposition("Twice", domain="my.domain")(lambda n: n.x * 2.0)
    onnxblock.decomposition("ScaledTanh", domain="my.domain")(lambda n: n.x.tanh() * n.attr("alpha", 1.0))


def with_cube(model: Any) -> Any:
    class Cube(OpRun):
        op_domain = "my.domain"

        def _run(self, x: Any) -> tuple[Any]:
            return (x**3,)

    return functools.partial(ReferenceEvaluator(model, new_ops=[Cube]).run, None)


@pytest.mark.usefixtures("own_operators")
def test_a_decomposition_is_evaluated_where_nothing_else_runs_the_operator() -> None:
    result = check_rule("ScaledTanh", np.array([0.3]), domain="my.domain", alpha=2.0)
    assert result.evaluator == "onnx.reference"
    assert "ScaledTanh" in (result.reason or "")
    for c in result.comparisons:
        # The direction is 1 or -1, and the cotangent between 0.5 and 1 in size.
        slope = 2 * (1 - math.tanh(0.3) ** 2)
        assert 0.5 * slope <= abs(c.numeric) <= slope
        assert c.analytic == pytest.approx(c.numeric, rel=1e-9)


@pytest.mark.usefixtures("own_operators")
def test_a_rule_is_compared_with_the_decomposition() -> None:
    with pytest.raises(GradientMismatchError) as caught:
        check_rule("Twice", np.array([0.3]), domain="my.domain")
    for c in caught.value.result.comparisons:
        assert c.analytic / c.numeric == pytest.approx(1.25)


@pytest.mark.usefixtures("own_operators")
def test_an_operator_that_only_the_evaluator_knows() -> None:
    result = check_rule("Cube", np.array([2.0]), domain="my.domain", evaluator=with_cube)
    assert result.evaluator == "with_cube"
    for c in result.comparisons:
        assert 6 <= abs(c.numeric) <= 12
        assert c.analytic == pytest.approx(c.numeric, rel=1e-9)
    model = parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 18, "my.domain" : 1]>
        agraph (float[3] x) => (float[3] y) { t = my.domain.Cube(x)  y = Sin(t) }
    """)
    assert check_gradients(model, evaluator=with_cube).error < 1e-9


@pytest.mark.usefixtures("own_operators")
@pytest.mark.parametrize("evaluator", [None, "onnx.reference"])
def test_an_operator_that_nobody_runs_is_named_with_the_remedy(evaluator: str | None) -> None:
    model = parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 18, "my.domain" : 1]>
        agraph (float[3] x) => (float[3] y) { s = my.domain.ScaledTanh(x)  t = my.domain.Cube(s)  y = Sin(t) }
    """)
    says = r"does not know Cube \(domain 'my.domain'\), and no .*\n.*evaluator=.*new_ops=\[Cube\]"
    with pytest.raises(RuntimeUnavailableError, match=says):
        check_gradients(model, evaluator=evaluator)
    with pytest.raises(RuntimeUnavailableError, match=says):
        check_rule("Cube", [1.0, 2.0], domain="my.domain", evaluator=evaluator)


@pytest.mark.usefixtures("own_operators")
def test_decompositions_inside_bodies_and_functions_are_evaluated() -> None:
    model = parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 18, "my.domain" : 1, "local" : 1]>
        agraph (float[3] x, int64 n) => (float[3] y) {
            s = Loop (n, , x) <body = b (int64 k, bool on, float[3] before) => (bool go, float[3] after) {
                t = my.domain.ScaledTanh <alpha = 2.0> (before)
                after = Mul (t, before)
                go = Identity (on)
            }>
            y = local.Doubled (s)
        }
        <domain: "local", opset_import: ["" : 18, "my.domain" : 1]>
        Doubled (x) => (y) { t = my.domain.ScaledTanh(x)  y = Add(t, t) }
    """)
    result = check_gradients(model, {"n": np.array(2)})
    assert {c.value for c in result.comparisons} == {"x"}
    assert result.error < 1e-8
