from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, parser

import onnxblock
from onnxblock.autodiff.gradients import gradients
from onnxblock.errors import BlockBuildError, UnknownNameError, UnsupportedOperatorError

MODEL = parser.parse_model("""
<ir_version: 10, opset_import: ["" : 21]>
g (float[N,2] x, int64[1] i) => (float[N,3] y, float[N,2] z, int64[2] s)
<float[2,3] w = {1, 2, 3, 4, 5, 6}, float unused = {1}>
{
  y = MatMul(x, w)
  z = Mul(x, x)
  s = Shape(y)
}
""")
X = np.array([[1, -2], [3, 0.5]], np.float32)
W = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
FEEDS = {"x": X, "i": np.zeros(1, np.int64)}


def run(model: ModelProto, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(None, feeds), strict=True))


# -- models


def test_a_model_of_gradients_has_the_inputs_of_the_model_and_one_output_for_each_value() -> None:
    model = gradients(MODEL, ["x", "w", "unused"])
    onnx.checker.check_model(model, full_check=True)
    assert [v.name for v in model.graph.input] == ["x", "i"]
    assert [v.name for v in model.graph.output] == ["x_grad", "w_grad", "unused_grad"]
    found = run(model, FEEDS)
    np.testing.assert_allclose(found["x_grad"], W.sum(1) + 2 * X)
    np.testing.assert_allclose(found["w_grad"], np.repeat(X.sum(0)[:, None], 3, 1))
    assert found["unused_grad"] == 0
    assert found["unused_grad"].shape == ()


def test_the_model_that_was_given_is_not_changed() -> None:
    before = MODEL.SerializeToString(deterministic=True)
    first = gradients(MODEL, ["x"]).SerializeToString(deterministic=True)
    assert MODEL.SerializeToString(deterministic=True) == before
    assert gradients(MODEL, ["x"]).SerializeToString(deterministic=True) == first


def test_outputs_may_be_chosen_and_cotangents_fed() -> None:
    model = gradients(MODEL, ["x"], outputs=["z"], cotangents="inputs")
    assert [v.name for v in model.graph.input] == ["x", "i", "z_cotangent"]
    assert "MatMul" not in {n.op_type for n in model.graph.node}
    dz = np.array([[1, 10], [100, 1000]], np.float32)
    np.testing.assert_allclose(run(model, {**FEEDS, "z_cotangent": dz})["x_grad"], 2 * X * dz)


def test_inner_values_are_values_like_others() -> None:
    model = gradients(MODEL, ["y"], outputs=["y"])
    np.testing.assert_array_equal(run(model, FEEDS)["y_grad"], np.ones((2, 3)))


def test_a_path_is_a_model(tmp_path: Any) -> None:
    onnx.save(MODEL, tmp_path / "model.onnx")
    assert gradients(tmp_path / "model.onnx", ["x"]) == gradients(MODEL, ["x"])
    assert gradients(str(tmp_path / "model.onnx"), ["x"]) == gradients(MODEL, ["x"])


def test_gradients_of_gradients_of_models() -> None:
    cube = parser.parse_model("""
    <ir_version: 10, opset_import: ["" : 21]>
    g (double[3] x) => (double[3] y) { a = Mul(x, x)  b = Sin(a)  y = Mul(b, x) }
    """)
    first = gradients(cube, ["x"])
    second = gradients(first, ["x"])
    third = gradients(second, ["x"])
    x = np.array([0.3, -0.7, 1.1])
    sin, cos = np.sin(x * x), np.cos(x * x)
    [d1], [d2], [d3] = (list(run(m, {"x": x}).values()) for m in (first, second, third))
    np.testing.assert_allclose(d1, sin + 2 * x**2 * cos, rtol=1e-12)
    np.testing.assert_allclose(d2, 6 * x * cos - 4 * x**3 * sin, rtol=1e-12)
    np.testing.assert_allclose(d3, 6 * cos - 24 * x**2 * sin - 8 * x**4 * cos, rtol=1e-11)


def test_a_model_below_opset_18_is_raised() -> None:
    old = parser.parse_model("""
    <ir_version: 7, opset_import: ["" : 11]>
    g (float[2,3] x) => (float[2] y) { y = ReduceSum<axes = [1], keepdims = 0>(x) }
    """)
    model = gradients(old, ["x"])
    assert model.opset_import[0].version == 18
    np.testing.assert_array_equal(run(model, {"x": np.zeros((2, 3), np.float32)})["x_grad"], np.ones((2, 3)))


# -- inside a graph


def test_values_give_values() -> None:
    with onnxblock.base(MODEL) as graph:
        x, y = graph.value("x"), graph.value("y")
        dx = gradients(y, x)
        [dw, dx2] = gradients([y, graph.value("z")], ["w", "x"])
        assert isinstance(dx, onnxblock.Value)
        assert dx.shape == ("N", 2)
        assert dw.shape == (2, 3)
        assert dx2.dtype == TensorProto.FLOAT


def test_a_gradient_penalty_is_an_expression() -> None:
    with onnxblock.empty_base() as graph:
        x = graph.input("x", TensorProto.DOUBLE, [3])
        w = graph.input("w", TensorProto.DOUBLE, [3])
        score = (x * w).tanh().sum(keepdims=False)
        slope = gradients(score, x)
        penalty = (slope * slope).sum(keepdims=False)
        dw = gradients(penalty, w)
        graph.model.graph.output.append(onnx.helper.make_tensor_value_info(dw, TensorProto.DOUBLE, [3]))
        model = graph.to_model_proto()
    at = np.array([0.2, -0.4, 0.9]), np.array([1.5, 0.3, -0.8])

    def value(w: np.ndarray) -> float:
        return float(np.sum(((1 - np.tanh(at[0] * w) ** 2) * w) ** 2))

    numeric = [(value(at[1] + 1e-5 * e) - value(at[1] - 1e-5 * e)) / 2e-5 for e in np.eye(3)]
    [found] = run(model, {"x": at[0], "w": at[1]}).values()
    np.testing.assert_allclose(found, numeric, rtol=1e-7)


def test_cotangents_weight_the_outputs() -> None:
    with onnxblock.empty_base() as graph:
        x = graph.input("x", TensorProto.FLOAT, [2])
        c = graph.input("c", TensorProto.FLOAT, [2])
        y = x * x
        [dx] = gradients([y, x, x], [x], [c, None, None])
        graph.model.graph.output.append(onnx.helper.make_tensor_value_info(dx, TensorProto.FLOAT, [2]))
        model = graph.to_model_proto()
    [found] = run(model, {"x": np.float32([1, 2]), "c": np.float32([10, 100])}).values()
    np.testing.assert_array_equal(found, [22, 402])


def test_what_does_not_matter_has_a_zero_gradient() -> None:
    with onnxblock.empty_base() as graph:
        x, other = (graph.input(name, TensorProto.FLOAT, [2]) for name in ("x", "other"))
        assert gradients(x * x, other).shape == (2,)


# -- mistakes


def test_names_that_are_not_there() -> None:
    with pytest.raises(UnknownNameError, match=r"'xx'.*Did you mean"):
        gradients(MODEL, ["xx"])
    with pytest.raises(UnknownNameError, match="'q'"):
        gradients(MODEL, ["x"], outputs=["q"])


def test_values_without_gradients() -> None:
    with pytest.raises(BlockBuildError, match=r"'i' is int64\[1\]"):
        gradients(MODEL, ["i"])
    with pytest.raises(BlockBuildError, match=r"'s' is int64\[2\]"):
        gradients(MODEL, ["x"], outputs=["s"])


def test_cotangents_that_do_not_fit() -> None:
    with pytest.raises(BlockBuildError, match="inputs"):
        gradients(MODEL, ["x"], cotangents=["a"])  # type: ignore[call-overload]
    with onnxblock.empty_base() as graph:
        x = graph.input("x", TensorProto.FLOAT, [2])
        with pytest.raises(BlockBuildError, match="1 outputs have 2 cotangents"):
            gradients([x * x], [x], [x, x])
        with pytest.raises(BlockBuildError, match="belongs to a model"):
            gradients([x], [x], outputs=["y"])  # type: ignore[call-overload]


def test_an_operator_without_gradient() -> None:
    model = parser.parse_model("""
    <ir_version: 10, opset_import: ["" : 21, "mine" : 1]>
    g (float[2] x) => (float[2] y) { a = mine.Odd(x)  y = Neg(a) }
    """)
    with pytest.raises(UnsupportedOperatorError, match="Odd"):
        gradients(model, ["x"], outputs=["y"])


def test_the_rows_of_a_jacobian_come_from_one_run_over_a_batch() -> None:
    """Each row of the batch is the same point with another unit cotangent."""
    model = parser.parse_model("""
    <ir_version: 10, opset_import: ["" : 21]>
    g (float[N,2] x) => (float[N,3] y) <float[2,3] w = {1, 2, 3, 4, 5, 6}> { h = MatMul(x, w)  y = Tanh(h) }
    """)
    point = np.array([0.1, -0.05], np.float32)
    made = gradients(model, ["x"], "inputs")
    found = run(made, {"x": np.tile(point, (3, 1)), "y_cotangent": np.eye(3, dtype=np.float32)})["x_grad"]
    np.testing.assert_allclose(found, (1 - np.tanh(point @ W) ** 2)[:, None] * W.T, rtol=1e-5)


def test_sizes_beside_scales_that_are_computed_and_empty() -> None:
    """ONNX's shape inference knows nothing of such a result, not even its rank."""
    model = parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 18]>
        resized (float[1,2,5,6] x) => (float[1,2,4,9] z)
        <double[0] none = {}, float[8] roi = {0, 0, 0.1, 0.2, 1, 1, 0.8, 0.9}, int64[4] sizes = {1, 2, 4, 9}>
        {
          scales = Cast <to = 1> (none)
          y = Resize <mode = "linear", coordinate_transformation_mode = "tf_crop_and_resize"> (x, roi, scales, sizes)
          z = Sin(y)
        }
    """)
    assert onnxblock.check_gradients(model, wrt=["x"], dtype="float32").passed
