"""Dropout in training: the gradient sees the mask that the forward node drew, and nothing is drawn twice."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from onnxblock.autodiff.backward import backward
from onnxblock.graph.graph import Graph

X = np.arange(1, 41, dtype=np.float64).reshape(5, 8)


def with_gradient(ratio: float | None, training: bool | str, dtype: int, fed: bool = False) -> ModelProto:
    """y = Dropout(x), and dx for a cotangent of ones; ``fed`` makes ratio and mode inputs of the graph."""
    numpy_type = helper.tensor_dtype_to_np_dtype(dtype)
    settings = [] if ratio is None else [numpy_helper.from_array(np.array(ratio, numpy_type), "ratio")]
    settings.append(numpy_helper.from_array(np.array(training), "training"))
    node = helper.make_node("Dropout", ["x", "" if ratio is None else "ratio", "training"], ["y"])
    model = helper.make_model(
        helper.make_graph(
            [node],
            "g",
            [helper.make_tensor_value_info("x", dtype, X.shape)],
            [helper.make_tensor_value_info("y", dtype, X.shape)],
            settings,
        ),
        opset_imports=[helper.make_opsetid("", 21)],
        ir_version=10,
    )
    if fed:
        del model.graph.initializer[:]
        model.graph.input.extend(helper.make_tensor_value_info(t.name, t.data_type, []) for t in settings)
    graph = Graph(model)
    dx = backward(graph, {"y": graph.constant(np.ones(X.shape), dtype)}, ["x"])["x"]
    model.graph.output.append(helper.make_tensor_value_info(dx, dtype, X.shape))
    return model


def run(model: ModelProto, **feeds: object) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {name: np.asarray(x) for name, x in feeds.items()})


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16])
@pytest.mark.parametrize("ratio", [0.25, 0.75, None])
@pytest.mark.parametrize("fed", [False, True])
def test_the_gradient_uses_the_mask_of_the_forward_node(dtype: int, ratio: float | None, fed: bool) -> None:
    model = with_gradient(ratio, True, dtype, fed)
    assert [n.op_type for n in model.graph.node].count("Dropout") == 1
    numpy_type = helper.tensor_dtype_to_np_dtype(dtype)
    feeds = {"x": X.astype(numpy_type)}
    if fed:
        feeds["training"] = np.array(True)
        if ratio is not None:
            feeds["ratio"] = np.array(ratio, numpy_type)
    y, dx = run(model, **feeds)
    kept = 1 - (0.5 if ratio is None else ratio)
    assert 0 < np.count_nonzero(y) < X.size
    np.testing.assert_array_equal(dx != 0, y != 0)
    np.testing.assert_allclose(dx, (y != 0) / kept, rtol=2e-3 if dtype == TensorProto.FLOAT16 else 1e-6)
    assert dx.dtype == numpy_type


@pytest.mark.parametrize("fed", [False, True])
def test_outside_of_training_the_gradient_passes(fed: bool) -> None:
    model = with_gradient(0.5, False, TensorProto.FLOAT, fed)
    feeds = {"x": X.astype(np.float32)} | ({"training": np.array(False), "ratio": np.float32(0.5)} if fed else {})
    np.testing.assert_array_equal(run(model, **feeds)[1], np.ones(X.shape))
