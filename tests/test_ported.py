"""Losses and optimizers as they were written for the original: only their import lines are new."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import artifacts
import onnxblock
from artifacts.api import CheckpointState, Module, Optimizer
from tests.optim import reference
from tests.training import begin, generate, perceptron, random_batch

# -- the loss of issue 2, word for word


class WeightedAverageLoss(onnxblock.Block):
    def __init__(self):
        self._loss1 = onnxblock.loss.MSELoss()
        self._loss2 = onnxblock.loss.MSELoss()
        self._w1 = onnxblock.blocks.Constant(0.4)
        self._w2 = onnxblock.blocks.Constant(0.6)
        self._add = onnxblock.blocks.Add()
        self._mul = onnxblock.blocks.Mul()

    def build(self, loss_input_name1, loss_input_name2):
        return self._add(
            self._mul(self._w1(), self._loss1(loss_input_name1, target_name="target1")),
            self._mul(self._w2(), self._loss2(loss_input_name2, target_name="target2")),
        )


def two_headed() -> onnx.ModelProto:
    """x → relu(x w + b) → two linear heads, one of them frozen."""
    random = np.random.default_rng(0)
    weights = {name: random.normal(size=(4, 3)) for name in ("w", "head1", "head2")} | {"b": random.normal(size=3)}
    weights |= {name: random.normal(size=(3, 2)) for name in ("head1", "head2")}
    graph = helper.make_graph(
        [
            helper.make_node("Gemm", ["x", "w", "b"], ["h"]),
            helper.make_node("Relu", ["h"], ["a"]),
            helper.make_node("MatMul", ["a", "head1"], ["y1"]),
            helper.make_node("MatMul", ["a", "head2"], ["y2"]),
        ],
        "two_headed",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 2]) for name in ("y1", "y2")],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)


def test_a_weighted_average_of_two_losses(tmp_path, monkeypatch):
    """No ``super().__init__()``, no folder given, two outputs."""
    monkeypatch.chdir(tmp_path)
    model = two_headed()
    requires_grad, frozen_params = ["w", "b", "head1"], ["head2"]
    artifacts.generate_artifacts(
        model,
        requires_grad=requires_grad,
        frozen_params=frozen_params,
        loss=WeightedAverageLoss(),
        optimizer=artifacts.OptimType.AdamW,
    )
    files = ["checkpoint", "eval_model.onnx", "optimizer_model.onnx", "training_model.onnx"]
    assert sorted(path.name for path in tmp_path.iterdir()) == files

    state = CheckpointState.load_checkpoint("checkpoint")
    module = Module("training_model.onnx", state, "eval_model.onnx")
    optimizer = Optimizer("optimizer_model.onnx", module)
    assert module.input_names() == ["x", "target1", "target2"]
    random = np.random.default_rng(1)
    x, target1, target2 = (random.normal(size=(8, n)).astype(np.float32) for n in (4, 2, 2))
    w = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    hidden = np.maximum(x @ w["w"] + w["b"], 0)
    expected = 0.4 * np.mean((hidden @ w["head1"] - target1) ** 2) + 0.6 * np.mean((hidden @ w["head2"] - target2) ** 2)
    optimizer.set_learning_rate(0.05)
    losses = []
    for _ in range(30):
        losses.append(float(module(x, target1, target2)))
        optimizer.step()
        module.lazy_reset_grad()
    assert losses[0] == pytest.approx(expected, rel=1e-6)
    assert losses[-1] < 0.7 * losses[0]
    np.testing.assert_array_equal(state.parameters["head2"].data, w["head2"])
    module.eval()
    assert float(module(x, target1, target2)) < losses[-1]
    module.export_model_for_inferencing("inference.onnx", ["y1", "y2"])
    assert [o.name for o in onnx.load("inference.onnx").graph.output] == ["y1", "y2"]


# -- an optimizer that makes its own inputs and outputs


class ClippedAdamW(onnxblock.ForwardBlock):
    def __init__(self, max_norm):
        super().__init__()
        self.clip = onnxblock.optim.ClipGradNorm(max_norm)
        self.adamw = onnxblock.optim.AdamWOptimizer(weight_decay=0.1)

    def build(self, parameters):
        trainable_parameters, _ = parameters
        onnx_model = self.base
        onnx_model.graph.input.extend(
            [
                onnx.helper.make_tensor_value_info("learning_rate", onnx.TensorProto.FLOAT, [1]),
                onnx.helper.make_tensor_value_info("step", onnx.TensorProto.INT64, [1]),
            ]
        )
        for name in ("params", "gradients", "first_order_moments", "second_order_moments"):
            onnx_model.graph.input.append(
                onnx.helper.make_tensor_sequence_value_info(name, trainable_parameters[0].data_type, None)
            )
        output_name = self.adamw(
            "learning_rate",
            "step",
            "params",
            self.clip("gradients"),
            "first_order_moments",
            "second_order_moments",
        )
        onnx_model.graph.output.append(onnx.helper.make_tensor_value_info(output_name, onnx.TensorProto.BOOL, [1]))
        return output_name


class DescentOnTenfoldGradients(onnxblock.blocks.Block):
    """Standard operators between the inputs and the optimizer node; a plain block, which the original refused."""

    def build(self, parameters):
        trainable_parameters, frozen = parameters
        assert [p.name for p in frozen] == ["Perceptron/Linear/bias"]
        self.base.graph.input.append(onnx.helper.make_tensor_value_info("learning_rate", onnx.TensorProto.FLOAT, [1]))
        for name in ("params", "gradients", "first_order_moments"):
            self.base.graph.input.append(
                onnx.helper.make_tensor_sequence_value_info(name, onnx.TensorProto.FLOAT, None)
            )
        scaled = [
            onnxblock.blocks.SequenceAt()("gradients", onnxblock.blocks.Constant(k)().cast(onnx.TensorProto.INT64)) * 10
            for k in range(len(trainable_parameters))
        ]
        return onnxblock.optim.SGDOptimizer()("learning_rate", onnxblock.blocks.SequenceConstruct()(*scaled), "params")


@pytest.mark.parametrize("name", ["ClippedAdamW", "DescentOnTenfoldGradients"])
def test_custom_optimizers_on_stock_onnxruntime(name, tmp_path):
    optimizer = ClippedAdamW(0.05) if name == "ClippedAdamW" else DescentOnTenfoldGradients()
    frozen = ["Perceptron/Linear/bias"]
    files = generate(perceptron(), tmp_path, optimizer=optimizer, frozen_params=frozen)
    training = begin(files)
    expected = {p: x for p, x in training.data().items() if p not in frozen}
    moments = {p: [np.zeros_like(x)] * 2 for p, x in expected.items()}
    training.optimizer.set_learning_rate(0.01)
    for t in range(1, 11):
        training.accumulate(*random_batch(8, seed=t))
        given = training.gradients()
        for p, x in expected.items():
            if name == "ClippedAdamW":
                clipped = dict(zip(given, reference.clip_norm(list(given.values()), 0.05), strict=True))
                update = reference.adamw_original(x, clipped[p], *moments[p], lr=np.float32(0.01), t=t, decay=0.1)
                expected[p], *moments[p] = update
            else:
                expected[p] = x - np.float32(0.1) * given[p]
        training.apply()
    for p, x in expected.items():
        np.testing.assert_allclose(training.state.parameters[p].data, x, rtol=0, atol=1e-6)
    CheckpointState.save_checkpoint(training.state, tmp_path / "saved", include_optimizer_state=True)
    resumed = begin(files, tmp_path / "saved")
    batch = random_batch(8)
    assert resumed.step(*batch) == training.step(*batch)
    np.testing.assert_equal(resumed.data(), training.data())
