"""Windows that ONNX's inference miscounts before opset 22: the graphs that are built do not depend on it."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import onnxblock
from onnxblock.autodiff.check import onnxruntime_evaluator
from onnxblock.graph.context import open_graph
from onnxblock.graph.explicit_windows import make_windows_explicit
from tests.autodiff.cases import normal


def _model(
    node_type: str, shape: list[int | str], weight: tuple[int, ...] | None, opset: int, **given: object
) -> ModelProto:
    """relu, the node, and elementwise nodes behind it, which onnxruntime plans to write over each other's results."""
    inputs = ["a"] if weight is None else ["a", "w"]
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node(node_type, inputs, ["y"], **given),
        helper.make_node("Sin", ["y"], ["s"]),
        helper.make_node("Mul", ["s", "s"], ["q"]),
        helper.make_node("Add", ["q", "y"], ["z"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)],
        [] if weight is None else [helper.make_tensor("w", TensorProto.FLOAT, weight, normal(*weight).ravel())],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def _same_values_and_gradients(model: ModelProto, x: np.ndarray) -> None:
    graph = open_graph(model)
    sizes = graph.value("z").shape
    make_windows_explicit(graph)
    y = onnxruntime_evaluator(model)({"x": x})[0]
    found = onnxruntime_evaluator(graph.to_model_proto())({"x": x})[0]
    np.testing.assert_array_equal(found, y)
    assert sizes is not None
    assert all(n == m or not isinstance(n, int) for n, m in zip(sizes, y.shape, strict=True))
    assert onnxblock.check_gradients(model, {"x": x.astype(np.float64)}).comparisons
    d = onnxruntime_evaluator(onnxblock.gradients(model, ["x"]))({"x": x})[0]
    assert d.shape == x.shape


POOLS = [
    {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    {"kernel_shape": [2, 3], "strides": [2, 2], "pads": [1, 0, 1, 0]},
    {"kernel_shape": [2, 2], "strides": [4, 2], "pads": [1, 0, 1, 0]},
    {"kernel_shape": [3, 2], "strides": [3, 3], "pads": [0, 1, 2, 1]},
]


@pytest.mark.parametrize("opset", [19, 21, 22])
@pytest.mark.parametrize("given", POOLS, ids=str)
@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool", "counted", "LpPool"])
def test_pools_whose_last_window_starts_in_the_padding(kind, given, opset):
    for shape in ([1, 2, 5, 5], [1, 2, 6, 6], [1, 2, 7, 5], [1, 2, 6, "width"]):
        sizes = [n if isinstance(n, int) else 7 for n in shape]
        model = _model(
            "AveragePool" if kind == "counted" else kind,
            shape,
            None,
            opset,
            ceil_mode=1,
            **given,
            **({"count_include_pad": 1} if kind == "counted" else {}),
        )
        _same_values_and_gradients(model, normal(*sizes) + np.float32(0.01))


@pytest.mark.parametrize("opset", [19, 21, 22])
@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize(
    ("shape", "given"),
    [
        ([2, 3, 6, 7], {"kernel_shape": [2, 2], "strides": [4, 2], "pads": [1, 0, 1, 0]}),
        ([2, 3, 7, 6], {"kernel_shape": [2, 2], "strides": [2, 4], "pads": [0, 1, 0, 1]}),
        ([2, "channels", 6, 6], {"kernel_shape": [2, 1], "strides": [4, 4], "pads": [1, 0, 1, 0]}),
        ([2, 3, 6, "width"], {"kernel_shape": [2, 2], "strides": [4, 2], "pads": [1, 0, 1, 0]}),
        ([1, 2, 6, 3, 6], {"kernel_shape": [2, 2, 2], "strides": [4, 1, 4], "pads": [1, 0, 1, 1, 0, 1]}),
    ],
    ids=str,
)
def test_indices_that_are_read_count_the_whole_image(shape, given, order, opset):
    """Windows further apart than they are long: the end of the image, which none reads, is left out, not its count."""
    model = _model("MaxPool", shape, None, opset, ceil_mode=1, storage_order=order, **given)
    model.graph.node[1].output.append("indices")
    model.graph.output.append(helper.make_tensor_value_info("indices", TensorProto.INT64, None))
    x = normal(*(n if isinstance(n, int) else 7 for n in shape)) + np.float32(0.01)
    graph = open_graph(model)
    make_windows_explicit(graph)
    y, indices = onnxruntime_evaluator(model)({"x": x})
    found = onnxruntime_evaluator(graph.to_model_proto())({"x": x})
    np.testing.assert_array_equal(found[0], y)
    np.testing.assert_array_equal(found[1], indices)
    assert onnxblock.check_gradients(model, {"x": x.astype(np.float64)}, outputs=["z"]).comparisons
    d = onnxruntime_evaluator(onnxblock.gradients(model, ["x"], outputs=["z"]))({"x": x})[0]
    assert d.shape == x.shape


@pytest.mark.parametrize("opset", [18, 21, 22])
@pytest.mark.parametrize("side", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize(("stride", "added", "dilation"), [(3, 1, 1), (2, 1, 1), (3, 2, 2), (4, 3, 1), (2, 1, 3)])
def test_transposed_convolutions_with_same_padding_and_more(stride, added, dilation, side, opset):
    for length in (5, "n"):
        model = _model(
            "ConvTranspose",
            [1, 2, length],
            (2, 3, 2),
            opset,
            strides=[stride],
            output_padding=[added],
            dilations=[dilation],
            auto_pad=side,
        )
        _same_values_and_gradients(model, normal(1, 2, 5))


def test_in_a_branch_too():
    """onnxruntime cannot even run this one as it is given."""
    inner = _model("MaxPool", [1, 2, 5, 5], None, 18, ceil_mode=1, **POOLS[0]).graph
    other = helper.make_graph(
        [helper.make_node("ReduceMean", ["x"], ["m"])],
        "other",
        [],
        [helper.make_tensor_value_info("m", TensorProto.FLOAT, None)],
    )
    x = inner.input.pop()
    graph = helper.make_graph(
        [helper.make_node("If", ["flag"], ["z"], then_branch=inner, else_branch=other)],
        "g",
        [x, helper.make_tensor_value_info("flag", TensorProto.BOOL, [])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    feeds = {"x": normal(1, 2, 5, 5), "flag": np.array(True)}
    cotangent = np.ones((1, 2, 3, 3), np.float32)
    backward = onnxblock.gradients(model, ["x"], cotangents="inputs")
    d = onnxruntime_evaluator(backward)({**feeds, "z_cotangent": cotangent})[0]
    plain = _model("MaxPool", [1, 2, 5, 5], None, 22, ceil_mode=1, **POOLS[0])
    np.testing.assert_allclose(
        d, onnxruntime_evaluator(onnxblock.gradients(plain, ["x"]))({"x": feeds["x"]})[0], rtol=1e-5
    )
