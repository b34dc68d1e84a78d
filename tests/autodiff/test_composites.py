"""Groups of nodes that are one operator: which are found, that their gradients are right, and what they leave alone."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest
from onnx import ModelProto, NodeProto, parser

import onnxblock
from onnxblock.autodiff import composites as module
from onnxblock.autodiff.check import check_gradients
from onnxblock.graph.graph import Graph

ERF = "u = Div(x, root) e = Erf(u) a = Add(e, one)"
ERF_BY_PRODUCT = "u = Mul(root_inverse, x) e = Erf(u) a = Add(one, e)"
CUBE = "p = Pow(x, three) q = Mul(p, cubic) r = Add(x, q) z = Mul(r, beta) t = Tanh(z) a = Add(t, one)"
CUBE_BY_PRODUCTS = (
    "s = Mul(x, x) p = Mul(s, x) q = Mul(cubic, p) r = Add(q, x) z = Mul(beta, r) t = Tanh(z) a = Add(one, t)"
)
SQUARE = "k = Mul(cubic, x) s = Mul(k, x) r = Add(one, s) l = Mul(beta, x) z = Mul(l, r) t = Tanh(z) a = Add(one, t)"
HALVES = ("m = Mul(x, a) y = Mul(m, half)", "h = Mul(half, x) y = Mul(h, a)", "b = Mul(a, half) y = Mul(b, x)")
SWISH = "s = Sigmoid(x) y = Mul(x, s)"


def model_of(nodes: str, half: float = 0.5) -> ModelProto:
    model: ModelProto = parser.parse_model(f"""
    <ir_version: 8, opset_import: ["" : 18]>
    g (float[2,3] x0, float[2,3] x1) => (float[2,3] y)
    <float root = {{1.4142135}}, float root_inverse = {{0.70710677}}, float one = {{1}}, float half = {{{half}}},
     float none = {{0}}, float three = {{3}}, float cubic = {{0.044715}}, float beta = {{0.7978846}}>
    {{ x = Add(x0, x1) {nodes} }}
    """)
    return model


def found_in(model: ModelProto, live: set[str], visible: tuple[str, ...] = ()) -> list[NodeProto]:
    graph = Graph(model)
    return list(module.composites(graph, list(graph.proto.node), live, visible).values())


LIVE = {"x0", "x", "y", *"abehklmpqrstuz"}


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize(
    ("inner", "approximate"),
    [
        (ERF, b"none"),
        (ERF_BY_PRODUCT, b"none"),
        (CUBE, b"tanh"),
        (CUBE_BY_PRODUCTS, b"tanh"),
        (SQUARE, b"tanh"),
    ],
)
def test_gelu_is_found_in_every_form_that_is_written(inner: str, approximate: bytes, half: str) -> None:
    model = model_of(f"{inner} {half}")
    (node,) = found_in(model, LIVE)
    assert (node.op_type, list(node.input), list(node.output)) == ("Gelu", ["x"], ["y"])
    assert node.attribute[0].s == approximate
    assert check_gradients(model, wrt=["x0", "x1"], tolerance=1e-6).passed


@pytest.mark.parametrize("product", ["y = Mul(x, s)", "y = Mul(s, x)"])
def test_swish_is_found(product: str) -> None:
    model = model_of(f"s = Sigmoid(x) {product}")
    (node,) = found_in(model, LIVE)
    assert (node.op_type, list(node.input), list(node.output)) == ("Swish", ["x"], ["y"])
    assert check_gradients(model, wrt=["x0", "x1"]).passed


@pytest.mark.parametrize(
    "nodes",
    [
        "u = Div(x, root) e = Erf(u) a = Add(e, one) m = Mul(x0, a) y = Mul(m, half)",
        "u = Mul(x, root) e = Erf(u) a = Add(e, one) m = Mul(x, a) y = Mul(m, half)",
        "u = Div(x, root) e = Erf(u) a = Add(e, half) m = Mul(x, a) y = Mul(m, half)",
        "u = Div(x, root) e = Erf(u) a = Sub(e, one) m = Mul(x, a) y = Mul(m, half)",
        "u = Div(x, root) e = Erf(u) a = Add(e, one) m = Mul(x, a) h = Mul(m, half) y = Mul(h, a)",
        "u = Div(x, root) e = Erf(u) a = Add(e, one) m = Mul(x, a) y = Mul(m, three)",
        f"{CUBE.replace('cubic', 'half')} {HALVES[0]}",
        "s = Sigmoid(x) m = Mul(x, s) y = Mul(m, s)",
        "s = Sigmoid(x0) y = Mul(x, s)",
        "s = Sigmoid(x) h = Mul(x, s) y = Add(h, s)",
    ],
)
def test_what_only_looks_like_it_is_left_alone(nodes: str) -> None:
    model = model_of(nodes)
    assert found_in(model, LIVE) == []
    assert check_gradients(model, wrt=["x0", "x1"], tolerance=1e-6).passed


def test_values_that_are_asked_for_stay() -> None:
    model = model_of(f"{ERF} {HALVES[0]}")
    assert found_in(model, LIVE, ("e",)) == []
    assert found_in(model, LIVE | {"half"}) == []
    assert found_in(model, LIVE - {"y"}) == []
    inner = onnxblock.gradients(model, ["x0", "e"])
    assert {o.name for o in inner.graph.output} == {"x0_grad", "e_grad"}


def test_the_gradient_reads_nothing_that_was_computed_on_the_way() -> None:
    gradient = onnxblock.gradients(model_of(f"{ERF} {HALVES[0]}"), ["x0"])
    assert not {"u", "e", "a", "m"} & {name for node in gradient.graph.node for name in node.input}


def test_second_derivatives_of_a_group() -> None:
    first = onnxblock.gradients(model_of(f"{CUBE} {HALVES[1]}"), ["x0"])
    assert check_gradients(first, wrt=["x0", "x1"], tolerance=1e-5).passed


MASKED = "s = Softmax<axis=0>(x) t = IsNaN(s) y = Where(t, {zero}, s)"


def test_softmax_without_nan_is_found() -> None:
    model = model_of(MASKED.format(zero="none"))
    (node,) = found_in(model, LIVE)
    assert (node.op_type, list(node.input), list(node.output)) == ("Softmax", ["x"], ["y"])
    assert node.attribute[0].i == 0
    assert check_gradients(model, wrt=["x0", "x1"]).passed


@pytest.mark.parametrize(
    "nodes",
    [
        MASKED.format(zero="three"),
        "s = Softmax(x) t = IsNaN(x) y = Where(t, none, s)",
        "s = Softmax(x) t = IsNaN(s) y = Where(t, s, none)",
        "s = Softmax(x) t = IsNaN(s) y = Where(t, x0, s)",
        "s = Softmax(x) t = IsNaN(s) h = Where(t, none, s) y = Add(h, s)",
        "s = Tanh(x) t = IsNaN(s) y = Where(t, none, s)",
        "s = Softmax(x) n = IsInf(s) y = Where(n, none, s)",
    ],
)
def test_other_selections_are_left_alone(nodes: str) -> None:
    assert found_in(model_of(nodes), LIVE) == []


def test_a_row_that_is_masked_as_a_whole_passes_zeros_back() -> None:
    minus = -np.inf
    gradient = onnxblock.gradients(model_of(MASKED.format(zero="none")), ["x0"], cotangents="inputs")
    session = ort.InferenceSession(gradient.SerializeToString(), providers=["CPUExecutionProvider"])
    x = np.array([[1, minus, 2], [3, minus, minus]], np.float32)
    dy = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    (found,) = session.run(None, {"x0": x, "x1": np.zeros_like(x), "y_cotangent": dy})
    p = np.exp(1) / (np.exp(1) + np.exp(3))
    slope = p * (1 - p) * (1 - 4)
    np.testing.assert_allclose(found, [[slope, 0, 0], [-slope, 0, 0]], rtol=1e-5, atol=1e-7)


# What is the root of what, and what PyTorch says of it: a norm, a distance, a deviation, a magnitude, a cosine.
SCALE = "k = Shape(x) c = ReduceProd(k) n = Cast<to=1>(c)"
ROOTS = [
    "s = Mul(x, x) r = ReduceSum(s, last) y = Sqrt(r)",
    "s = Mul(x, x) r = ReduceSum(s, last) y = Pow(r, half)",
    "e = Sub(x, x1) s = Pow(e, two) r = ReduceSum<keepdims=0>(s, last) z = Unsqueeze(r, last) y = Sqrt(z)",
    "e = Abs(x) s = Pow(e, three) r = ReduceMean(s, last) y = Pow(r, third)",
    f"{SCALE} s = Mul(x, x) r = ReduceMean(s, last) m = Mul(r, n) q = Sub(n, one) v = Div(m, q) y = Sqrt(v)",
    "s = Mul(x, x) t = Pow(x1, two) a = Add(s, t) y = Sqrt(a)",
    "s = ReduceSumSquare(x, last) t = ReduceSumSquare(x1, last) m = Mul(s, t) y = Sqrt(m)",
]
OTHER_ROOTS = [
    "s = Mul(x, x1) r = ReduceSum(s, last) y = Sqrt(r)",
    "s = Pow(x, three) r = ReduceSum(s, last) y = Sqrt(r)",
    "s = Mul(x, x) t = Add(s, one) y = Sqrt(t)",
    "s = Mul(x, x) t = Sub(s, x1) y = Sqrt(t)",
    "s = Mul(x, x) t = Mul(s, x1) y = Sqrt(t)",
    "s = Mul(x, x) t = Div(one, s) y = Sqrt(t)",
    "s = Mul(x, x) y = Pow(s, three)",
    "s = Mul(x, x) y = Pow(s, x1)",
    "y = Sqrt(x)",
]


def root_model(nodes: str) -> ModelProto:
    model: ModelProto = parser.parse_model(f"""
    <ir_version: 8, opset_import: ["" : 18]>
    g (float[2,3] x0, float[2,3] x1) => (float[a,b] y)
    <float one = {{1}}, float half = {{0.5}}, float third = {{0.33333333}}, float two = {{2}}, float three = {{3}},
     int64[1] last = {{-1}}>
    {{ x = Identity(x0) {nodes} }}
    """)
    return model


ROOT_LIVE = {"x0", "x1", "x", "y", *"aemrstvz"}


@pytest.mark.parametrize("nodes", ROOTS)
def test_roots_of_sums_of_squares_are_found(nodes: str) -> None:
    model = root_model(nodes)
    (node,) = found_in(model, ROOT_LIVE)
    assert node.op_type == "RootOfSquares"
    assert list(node.input) == list(model.graph.node[-1].input[:1])
    assert check_gradients(model, wrt=["x0", "x1"], tolerance=1e-6).passed


@pytest.mark.parametrize("nodes", OTHER_ROOTS)
def test_other_roots_are_left_alone(nodes: str) -> None:
    assert found_in(root_model(nodes), ROOT_LIVE) == []


def test_a_sum_of_squares_that_is_asked_for_has_the_slope_of_the_root() -> None:
    model = root_model(ROOTS[0])
    assert found_in(model, ROOT_LIVE, ("s",)) == []
    assert found_in(model, ROOT_LIVE, ("r",)) == []


def gradients_at(model: ModelProto, x0: np.ndarray, x1: np.ndarray) -> list[np.ndarray]:
    gradient = onnxblock.gradients(model, ["x0", "x1"])
    session = ort.InferenceSession(gradient.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x0": x0, "x1": x1})


@pytest.mark.parametrize("nodes", ROOTS)
def test_at_zero_the_gradient_of_a_root_is_zero(nodes: str) -> None:
    zeros = np.zeros((2, 3), np.float32)
    for found in gradients_at(root_model(nodes), zeros, zeros):
        np.testing.assert_array_equal(found, zeros)


def test_a_row_of_zeros_leaves_the_others_as_they_are() -> None:
    x = np.array([[3, 0, 4], [0, 0, 0]], np.float32)
    found, _ = gradients_at(root_model(ROOTS[0]), x, x)
    np.testing.assert_allclose(found, [[0.6, 0, 0.8], [0, 0, 0]], rtol=1e-6)


ANGLE = "q = Div(x, x1) y = Atan(q)"


def test_the_angle_of_a_point_is_found() -> None:
    model = root_model(ANGLE)
    (node,) = found_in(model, {*ROOT_LIVE, "q"})
    assert (node.op_type, list(node.input)) == ("AtanOfQuotient", ["x", "x1"])
    assert check_gradients(model, wrt=["x0", "x1"], tolerance=1e-6).passed


@pytest.mark.parametrize("nodes", ["q = Div(x, two) y = Atan(q)", "y = Atan(x)", "q = Mul(x, x1) y = Atan(q)"])
def test_other_angles_are_left_alone(nodes: str) -> None:
    assert found_in(root_model(nodes), {*ROOT_LIVE, "q"}) == []
    assert found_in(root_model(ANGLE), {*ROOT_LIVE, "q"}, ("q",)) == []


def test_the_gradient_of_an_angle_is_pytorchs_on_the_axes() -> None:
    y = np.array([[0, 1, -2], [0, 0, 3]], np.float32)
    x = np.array([[0, 0, 0], [1, -4, 4]], np.float32)
    dy, dx = gradients_at(root_model(ANGLE), y, x)
    np.testing.assert_allclose(dy, [[0, 0, 0], [1, -0.25, 0.16]], rtol=1e-6)
    np.testing.assert_allclose(dx, [[0, -1, 0.5], [0, 0, -0.12]], rtol=1e-6)
