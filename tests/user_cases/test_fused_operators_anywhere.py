"""Operators of optimizers where the graph is not a plain chain."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import onnxblock

from . import NODE, begin, behind_weight, compare_with_torch, generate, kinds, normal, train

torch = pytest.importorskip("torch", reason="the comparison with PyTorch needs the extra 'torch'")
F = torch.nn.functional
MICROSOFT = "com.microsoft"


def test_inside_a_branch(tmp_path):
    def branch(name: str, node: onnx.NodeProto) -> onnx.GraphProto:
        return helper.make_graph([node], name, [], [helper.make_tensor_value_info(node.output[0], 1, [3, 6])])

    node = NODE(
        *("If", ["condition"], ["y"]),
        then_branch=branch("then", NODE("BiasGelu", ["h", "b"], ["bent"], domain=MICROSOFT)),
        else_branch=branch("else", NODE("Add", ["h", "b"], ["straight"])),
    )
    model = behind_weight(node, weights={"b": normal(6)}, shape=(3, 6), domains=[MICROSOFT])
    model.graph.input.append(helper.make_tensor_value_info("condition", onnx.TensorProto.BOOL, []))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, [3, 6]))
    training = train(model, tmp_path)
    x, target = normal(3, 5), normal(3, 6, seed=1)
    for condition in (True, False):
        weight, bias = (torch.tensor(w, requires_grad=True) for w in (normal(5, 6) * np.float32(0.5), normal(6)))
        h = torch.tensor(x) @ weight + bias
        expected = F.mse_loss(F.gelu(h) if condition else h, torch.tensor(target))
        expected.backward()
        np.testing.assert_allclose(training.accumulate(x, np.array(condition), target), expected.item(), rtol=1e-5)
        np.testing.assert_allclose(training.gradients()["W"], weight.grad, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(training.gradients()["b"], bias.grad, rtol=1e-4, atol=1e-6)
        training.module.lazy_reset_grad()


def test_over_the_steps_of_a_scan(tmp_path):
    body = helper.make_graph(
        [NODE("Add", ["state", "row"], ["sum"]), NODE("QuickGelu", ["sum"], ["next"], domain=MICROSOFT)],
        "body",
        [helper.make_tensor_value_info(name, 1, [6]) for name in ("state", "row")],
        [helper.make_tensor_value_info("next", 1, [6])],
    )
    node = NODE("Scan", ["start", "h"], ["y"], body=body, num_scan_inputs=1)
    model = behind_weight(node, weights={"start": normal(6)}, shape=(3, 6), domains=[MICROSOFT])

    def forward(t):
        state = t.start
        for row in t.x @ t.W:
            state = (state + row) * torch.sigmoid(1.702 * (state + row))
        return state

    compare_with_torch(model, tmp_path, forward, tolerance=3e-5)


def test_a_fused_value_is_also_an_output(tmp_path):
    nodes = [NODE("FastGelu", ["h"], ["g"], domain=MICROSOFT), NODE("Mul", ["g", "h"], ["y"])]
    model = behind_weight(*nodes, shape=(3, 6), domains=[MICROSOFT])
    training = begin(generate(model, tmp_path, additional_output_names=["g"]))
    x, target = normal(3, 5), normal(3, 6, seed=1)
    h = torch.tensor(x @ normal(5, 6) * np.float32(0.5))
    for mode in (True, False):
        training.module.train(mode)
        _, g = training.module(x, target)
        np.testing.assert_allclose(g, F.gelu(h, approximate="tanh"), rtol=1e-4, atol=1e-6)
    assert "FastGelu" in kinds(tmp_path / "eval_model.onnx")
    assert "FastGelu" not in kinds(tmp_path / "training_model.onnx")


class Penalty(onnxblock.blocks.Block):
    """The mean square of y and of its gradient with respect to h."""

    def build(self, y):
        slope = onnxblock.gradients(y, "h")
        return (y * y).mean() + (slope * slope).mean()


def test_a_gradient_in_the_loss(tmp_path):
    node = NODE("BiasGelu", ["h", "b"], ["y"], domain=MICROSOFT)
    model = behind_weight(node, weights={"b": normal(6)}, shape=(3, 6), domains=[MICROSOFT])
    training = train(model, tmp_path, loss=Penalty())
    weight, bias = (torch.tensor(w, requires_grad=True) for w in (normal(5, 6) * np.float32(0.5), normal(6)))
    h = torch.tensor(normal(3, 5)) @ weight
    y = F.gelu(h + bias)
    (slope,) = torch.autograd.grad(y.sum(), h, create_graph=True)
    expected = (y**2).mean() + (slope**2).mean()
    expected.backward()
    np.testing.assert_allclose(training.accumulate(normal(3, 5)), expected.item(), rtol=1e-5)
    np.testing.assert_allclose(training.gradients()["W"], weight.grad, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(training.gradients()["b"], bias.grad, rtol=1e-3, atol=1e-6)


def test_in_half_precision(tmp_path):
    node = NODE("SkipLayerNormalization", ["h", "h", "s", "b"], ["y"], domain=MICROSOFT, epsilon=1e-5)
    model = behind_weight(node, weights={"s": normal(6), "b": normal(6, seed=1)}, shape=(3, 6), domains=[MICROSOFT])
    half = onnx.ModelProto()
    half.CopyFrom(model)
    for tensor in half.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            array = onnx.numpy_helper.to_array(tensor).astype(np.float16)
            tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    half.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    compare_with_torch(
        half,
        tmp_path,
        lambda t: F.layer_norm(2 * (t.x @ t.W), (6,), t.s, t.b),
        {"x": normal(3, 5).astype(np.float16)},
        tolerance=5e-3,
    )
