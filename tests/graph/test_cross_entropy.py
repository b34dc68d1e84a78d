"""The form in which the cross-entropy operators run does what onnxruntime does for them, for every setting."""

from __future__ import annotations

import itertools

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import onnxblock
from onnxblock.graph.dependencies import needed_nodes
from onnxblock.graph.passes.cross_entropy import expand_cross_entropy

SETTINGS = list(
    itertools.product(
        ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"),
        ("mean", "sum", "none"),
        (False, True),
        (None, 2, -1),
        ((), (2, 3)),
    )
)


def model_of(op_type, reduction, weighted, ignored, shape, labels_type=TensorProto.INT64):
    attributes = {"reduction": reduction} | ({} if ignored is None else {"ignore_index": ignored})
    inputs = {"x": (1, ["n", 4, *shape]), "t": (labels_type, ["n", *shape])} | ({"w": (1, [4])} if weighted else {})
    node = helper.make_node(op_type, list(inputs), ["y"], name="loss", **attributes)
    ports = [helper.make_tensor_value_info(name, *form) for name, form in inputs.items()]
    graph = helper.make_graph([node], "g", ports, [helper.make_tensor_value_info("y", 1, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def feeds_of(shape, weighted, ignored):
    random = np.random.default_rng(0)
    labels = random.integers(0, 4, (5, *shape))
    labels[0] = 1 if ignored is None else ignored
    feeds = {"x": random.normal(size=(5, 4, *shape)).astype(np.float32), "t": labels}
    return feeds | ({"w": np.array([0.5, 2, 3, 0.25], np.float32)} if weighted else {})


def run(model, feeds):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)[0]


@pytest.mark.parametrize(("op_type", "reduction", "weighted", "ignored", "shape"), SETTINGS)
def test_same_as_the_operator(op_type, reduction, weighted, ignored, shape):
    model = model_of(op_type, reduction, weighted, ignored, shape)
    feeds = feeds_of(shape, weighted, ignored)
    expected = run(model, feeds)
    assert expand_cross_entropy(model)
    assert op_type not in {node.op_type for node in model.graph.node}
    assert not expand_cross_entropy(model)
    np.testing.assert_allclose(run(model, feeds), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op_type", ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
@pytest.mark.parametrize("ignored", [None, -1])
@pytest.mark.parametrize("label", [-1, -4, -5, 4, 100])
def test_labels_that_are_no_class(op_type, ignored, label):
    model = model_of(op_type, "mean", False, ignored, ())
    expand_cross_entropy(model)
    feeds = feeds_of((), False, None)
    feeds["t"][3] = label
    if label == ignored:
        assert np.isfinite(run(model, feeds))
        return
    with pytest.raises(Exception, match="Out of range"):  # its class is another in other releases
        run(model, feeds)


def test_labels_of_32_bits():
    model = model_of("SoftmaxCrossEntropyLoss", "mean", True, None, (), TensorProto.INT32)
    feeds = feeds_of((), True, None)
    feeds["t"] = feeds["t"].astype(np.int32)
    expected = run(model, feeds)
    expand_cross_entropy(model)
    np.testing.assert_allclose(run(model, feeds), expected, rtol=1e-6)


@pytest.mark.parametrize(("classes", "waits"), [(10, False), (2**17, True)])
def test_the_gradient_of_many_scores_waits_for_the_loss(classes, waits):
    """The loss reads the logarithms of the softmax: computed last, it would have all of them kept until then."""
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("SoftmaxCrossEntropyLoss", ["x", "labels"], ["loss"])],
            "loss",
            [
                helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, classes]),
                helper.make_tensor_value_info("labels", TensorProto.INT64, [4]),
            ],
            [helper.make_tensor_value_info("loss", TensorProto.FLOAT, [])],
        ),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=9,
    )
    gradient = onnxblock.gradients(model, ["x"])
    inside = {name for node in needed_nodes(gradient.graph.node, ["x_grad"])[0] for name in node.output}
    assert ("loss" in inside) is waits
    x, labels = np.random.default_rng(0).normal(size=(4, classes)).astype(np.float32), np.arange(4)
    found = run(gradient, {"x": x, "labels": labels})
    expected = np.exp(x - x.max(1, keepdims=True))
    expected /= expected.sum(1, keepdims=True)
    expected[labels, labels] -= 1
    np.testing.assert_allclose(found, expected / 4, rtol=1e-4, atol=1e-8)
