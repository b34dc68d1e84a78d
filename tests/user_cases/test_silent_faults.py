"""Faults that nobody had reported: wrong gradients without a word, overflows, needless refusals."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import artifacts
import onnxblock

from . import (
    NODE,
    behind_weight,
    compare_with_torch,
    export,
    generate,
    kinds,
    make_model,
    normal,
    outputs_of,
    train,
)

torch = pytest.importorskip("torch", reason="the comparison with PyTorch needs the extra 'torch'")
F = torch.nn.functional
LossType = artifacts.LossType


def two_outputs() -> onnx.ModelProto:
    nodes = [NODE("MatMul", ["x", "W"], ["y1"]), NODE("MatMul", ["x", "V"], ["y2"])]
    return make_model(nodes, {"x": [3, 5]}, {"W": normal(5, 4), "V": normal(5, 4, seed=1)}, ["y1", "y2"])


# -- losses


def test_one_loss_on_two_outputs_must_say_which(tmp_path):
    with pytest.raises(onnxblock.OnnxBlockError, match=r"2 outputs: 'y1', 'y2'(.|\n)*loss_input_names"):
        generate(two_outputs(), tmp_path)
    training = train(two_outputs(), tmp_path, loss_input_names=["y2"])
    x, target = normal(3, 5), normal(3, 4, seed=2)
    np.testing.assert_allclose(
        training.accumulate(x, target), np.mean((x @ normal(5, 4, seed=1) - target) ** 2), rtol=1e-5
    )
    assert set(training.gradients()) == {"V"}


class TwoCrossEntropies(onnxblock.blocks.Block):
    def __init__(self, *names: str) -> None:
        self.names = names
        self.losses = [onnxblock.loss.CrossEntropyLoss(), onnxblock.loss.CrossEntropyLoss()]

    def build(self, first, second):
        if not self.names:
            return self.losses[0](first) + self.losses[1](second)
        return self.losses[0](first, self.names[0]) + self.losses[1](second, self.names[1])


def test_two_cross_entropies_do_not_share_labels(tmp_path):
    with pytest.raises(onnxblock.OnnxBlockError, match=r"'labels'(.|\n)*labels_name"):
        generate(two_outputs(), tmp_path, loss=TwoCrossEntropies())
    training = train(two_outputs(), tmp_path, loss=TwoCrossEntropies("left", "right"))
    assert training.module.input_names() == ["x", "left", "right"]
    x, left, right = normal(3, 5), np.array([0, 1, 2]), np.array([3, 3, 0])
    expected = sum(
        F.cross_entropy(torch.tensor(x @ normal(5, 4, seed=k)), torch.tensor(labels)).item()
        for k, labels in enumerate((left, right))
    )
    np.testing.assert_allclose(training.accumulate(x, left, right), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("shape", "labels"), [([2, 4, 8, 8], (2, 8, 8)), ([2, 7, 10], (2, 10)), (["n", 7, "length"], (2, 10))]
)
def test_labels_of_pixels_and_sequences(tmp_path, shape, labels):
    channels = shape[1]
    kernel = normal(channels, channels, *[1] * (len(shape) - 2))
    model = make_model([NODE("Conv", ["x", "W"], ["y"])], {"x": shape}, {"W": kernel})
    training = train(model, tmp_path, loss=LossType.CrossEntropyLoss)
    x = normal(*(d if isinstance(d, int) else {"n": 2, "length": 10}[d] for d in shape))
    target = np.random.default_rng(0).integers(0, channels, labels)
    weight = torch.tensor(kernel, requires_grad=True)
    convolution = F.conv2d if len(shape) == 4 else F.conv1d
    expected = F.cross_entropy(convolution(torch.tensor(x), weight), torch.tensor(target))
    expected.backward()
    np.testing.assert_allclose(training.accumulate(x, target), expected.item(), rtol=1e-5)
    np.testing.assert_allclose(training.gradients()["W"], weight.grad, rtol=1e-3, atol=1e-6)


def test_classes_may_be_last(tmp_path):
    model = make_model([NODE("MatMul", ["x", "W"], ["y"])], {"x": ["n", "length", 5]}, {"W": normal(5, 7)})
    training = train(model, tmp_path, loss=onnxblock.loss.CrossEntropyLoss(class_axis=-1))
    x, labels = normal(2, 3, 5), np.array([[0, 6, 2], [1, 1, 5]])
    scores = torch.tensor(x @ normal(5, 7)).reshape(6, 7)
    expected = F.cross_entropy(scores, torch.tensor(labels).reshape(-1)).item()
    np.testing.assert_allclose(training.accumulate(x, labels), expected, rtol=1e-5)


def test_large_logits_stay_finite(tmp_path):
    model = make_model([NODE("MatMul", ["x", "W"], ["y"])], {"x": [2, 2]}, {"W": np.eye(2, dtype=np.float32)})
    training = train(model, tmp_path, loss=LossType.BCEWithLogitsLoss)
    x, target = np.array([[100, -100], [-100, 100]], np.float32), np.array([[1, 0], [1, 0]], np.float32)
    weight = torch.eye(2, requires_grad=True)
    expected = F.binary_cross_entropy_with_logits(torch.tensor(x) @ weight, torch.tensor(target))
    expected.backward()
    np.testing.assert_allclose(training.accumulate(x, target), expected.item(), rtol=1e-6)
    np.testing.assert_allclose(training.gradients()["W"], weight.grad, rtol=1e-6)


class OrZero(onnxblock.blocks.Block):
    """The mean over the labels that count, 0 where there are none."""

    def __init__(self) -> None:
        self.loss = onnxblock.loss.CrossEntropyLoss(ignore_index=-100, reduction="sum")

    def build(self, scores):
        total = self.loss(scores)
        counted = self.graph.op.Not(self.graph.op.Equal("labels", -100)).cast(TensorProto.FLOAT).sum()
        return total / counted.clip(1.0)


@pytest.mark.parametrize("zero", [False, True])
def test_nothing_to_learn_from(tmp_path, zero):
    model = make_model([NODE("MatMul", ["x", "W"], ["y"])], {"x": [3, 5]}, {"W": normal(5, 4)})
    loss = OrZero() if zero else onnxblock.loss.CrossEntropyLoss(ignore_index=-100)
    training = train(model, tmp_path, loss=loss)
    value = training.accumulate(normal(3, 5), np.full(3, -100))
    if zero:
        assert value == 0
        assert not training.gradients()["W"].any()
    else:
        assert np.isnan(value)
        assert np.isnan(F.cross_entropy(torch.zeros(3, 4), torch.full((3,), -100)).item())


def test_class_weights(tmp_path):
    weights = np.array([0.5, 1, 2, 0], np.float32)
    model = make_model([NODE("MatMul", ["x", "W"], ["y"])], {"x": [3, 5]}, {"W": normal(5, 4)})
    training = train(model, tmp_path, loss=onnxblock.loss.CrossEntropyLoss(weight=weights))
    x, labels = normal(3, 5), np.array([0, 2, 3])
    weight = torch.tensor(normal(5, 4), requires_grad=True)
    expected = F.cross_entropy(torch.tensor(x) @ weight, torch.tensor(labels), torch.tensor(weights))
    expected.backward()
    np.testing.assert_allclose(training.accumulate(x, labels), expected.item(), rtol=1e-5)
    np.testing.assert_allclose(training.gradients()["W"], weight.grad, rtol=1e-4, atol=1e-6)


class Unreduced(onnxblock.blocks.Block):
    """The mean of what a loss gives for each element, weighted by an input of the model."""

    def __init__(self, name: str) -> None:
        self.loss = getattr(onnxblock.loss, name)(reduction="none")

    def build(self, y):
        importance = self.graph.input("importance", np.float32, [3, 4])
        return (self.loss(y) * importance).mean()


@pytest.mark.parametrize("name", ["MSELoss", "L1Loss", "BCEWithLogitsLoss"])
def test_a_loss_for_each_element(tmp_path, name):
    model = make_model([NODE("MatMul", ["x", "W"], ["y"])], {"x": [3, 5]}, {"W": normal(5, 4)})
    training = train(model, tmp_path, loss=Unreduced(name))
    assert training.module.input_names() == ["x", "importance", "target"]
    x, importance, target = normal(3, 5), np.abs(normal(3, 4)), np.abs(normal(3, 4, seed=1)) / 4
    theirs = {"MSELoss": F.mse_loss, "L1Loss": F.l1_loss, "BCEWithLogitsLoss": F.binary_cross_entropy_with_logits}
    weight = torch.tensor(normal(5, 4), requires_grad=True)
    each = theirs[name](torch.tensor(x) @ weight, torch.tensor(target), reduction="none")
    expected = (each * torch.tensor(importance)).mean()
    expected.backward()
    np.testing.assert_allclose(training.accumulate(x, importance, target), expected.item(), rtol=1e-5)
    np.testing.assert_allclose(training.gradients()["W"], weight.grad, rtol=1e-4, atol=1e-6)


# -- element types


def perceptron(dtype: type) -> onnx.ModelProto:
    nodes = [NODE("Gemm", ["x", "W", "b"], ["h"]), NODE("Relu", ["h"], ["a"]), NODE("MatMul", ["a", "V"], ["y"])]
    weights = {"W": normal(5, 8), "b": normal(8), "V": normal(8, 4)}
    return make_model(nodes, {"x": (dtype, ["n", 5])}, {name: w.astype(dtype) for name, w in weights.items()})


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float16, 5e-3), (np.float64, 1e-10)])
def test_half_and_double_precision(tmp_path, dtype, tolerance):
    def forward(t):
        return torch.relu(t.x @ t.W + t.b) @ t.V

    feeds = {"x": normal(3, 5).astype(dtype)}
    training = compare_with_torch(perceptron(dtype), tmp_path, forward, feeds, tolerance=tolerance)
    before = training.data()
    assert {w.dtype for w in before.values()} == {np.dtype(dtype)}
    training.apply()
    assert all((training.data()[name] != before[name]).any() for name in before)


class InSinglePrecision(onnxblock.blocks.Block):
    def __init__(self) -> None:
        self.cast, self.loss = onnxblock.blocks.Cast(TensorProto.FLOAT), onnxblock.loss.MSELoss()

    def build(self, y):
        return self.loss(self.cast(y))


def test_the_loss_of_a_half_precision_model_in_single_precision(tmp_path):
    x = 100 * np.ones((3, 5), np.float16)
    plain = train(perceptron(np.float16), tmp_path / "plain")
    assert not np.isfinite(plain.accumulate(x, np.zeros((3, 4), np.float16)))
    training = train(perceptron(np.float16), tmp_path / "single", loss=InSinglePrecision())
    loss = training.accumulate(x, np.zeros((3, 4), np.float32))
    assert np.isfinite(loss)
    assert loss > 65504
    assert all(d.dtype == np.float16 and np.isfinite(d).all() for d in training.gradients().values())


# -- images


IMAGES = {"x": normal(2, 2, 7, 7)}


@pytest.mark.parametrize("ceil_mode", [0, 1])
def test_average_pooling(tmp_path, ceil_mode):
    size = 3 if ceil_mode else 2
    nodes = [
        NODE("Conv", ["x", "W"], ["h"], pads=[1, 1, 1, 1]),
        NODE("AveragePool", ["h"], ["y"], kernel_shape=[size] * 2, strides=[2, 2], ceil_mode=ceil_mode),
    ]
    model = make_model(nodes, {"x": ["n", 2, 8, 8]}, {"W": normal(3, 2, 3, 3)})
    compare_with_torch(
        model,
        tmp_path,
        lambda t: F.avg_pool2d(F.conv2d(t.x, t.W, padding=1), size, 2, ceil_mode=bool(ceil_mode)),
        {"x": normal(2, 2, 8, 8)},
    )


PADS = {
    "reflect": ([0, 0, 1, 2, 0, 0, 2, 1], lambda h: F.pad(h, (2, 1, 1, 2), "reflect")),
    "edge": ([0, 0, 1, 2, 0, 0, 2, 1], lambda h: F.pad(h, (2, 1, 1, 2), "replicate")),
    "wrap": ([0, 0, 1, 2, 0, 0, 2, 1], lambda h: F.pad(h, (2, 1, 1, 2), "circular")),
    "constant": ([0, 0, -1, 1, 0, 0, 2, -2], lambda h: F.pad(h, (1, -2, -1, 2))),
}


@pytest.mark.parametrize("mode", PADS)
def test_padding(tmp_path, mode):
    pads, forward = PADS[mode]
    nodes = [NODE("Conv", ["x", "W"], ["h"]), NODE("Pad", ["h", "pads"], ["y"], mode=mode)]
    weights = {"W": normal(3, 2, 3, 3), "pads": np.array(pads)}
    model = make_model(nodes, {"x": [2, 2, 7, 7]}, weights, opset=19 if mode == "wrap" else 18)
    compare_with_torch(model, tmp_path, lambda t: forward(F.conv2d(t.x, t.W)), IMAGES)


def test_padding_to_the_same_size(tmp_path):
    model = make_model(
        [
            NODE("Conv", ["x", "W"], ["h"], auto_pad="SAME_UPPER"),
            NODE("Conv", ["h", "V"], ["y"], auto_pad="SAME_UPPER"),
        ],
        {"x": ["n", 2, 7, 7]},
        {"W": normal(3, 2, 4, 4), "V": normal(2, 3, 3, 3)},
    )

    def forward(t):
        return F.conv2d(F.conv2d(F.pad(t.x, (1, 2, 1, 2)), t.W), t.V, padding=1)

    compare_with_torch(model, tmp_path, forward, IMAGES, tolerance=3e-5)


def test_flips(tmp_path):
    limits = {"starts": np.array([-1, 4]), "ends": np.array([np.iinfo(np.int64).min, 0]), "steps": np.array([-1, -2])}
    node = NODE("Slice", ["h", "starts", "ends", "axes", "steps"], ["y"])
    model = behind_weight(node, weights={**limits, "axes": np.array([0, 1])}, shape=(3, 6))
    compare_with_torch(model, tmp_path, lambda t: (t.x @ t.W).flip(0)[:, [4, 2]])


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_in_both_forms(tmp_path, approximate):
    model = behind_weight(NODE("Gelu", ["h"], ["y"], approximate=approximate), shape=(3, 6), opset=20)
    compare_with_torch(model, tmp_path, lambda t: F.gelu(t.x @ t.W, approximate=approximate))


# -- models and files


@pytest.mark.parametrize("known", ["nothing", "type", "dynamic"])
def test_an_output_without_a_shape(tmp_path, known):
    model = behind_weight(NODE("Relu", ["h"], ["y"]), shape=(3, 6))
    if known != "nothing":
        model.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    if known == "dynamic":
        model.graph.input[0].type.tensor_type.ClearField("shape")
    compare_with_torch(model, tmp_path, lambda t: torch.relu(t.x @ t.W))


def test_only_the_domains_in_use_are_imported(tmp_path):
    files = generate(behind_weight(NODE("Relu", ["h"], ["y"]), shape=(3, 6), opset=15, ir_version=7), tmp_path)
    loaded = {path: onnx.load(path) for path in (files.training_model, files.eval_model, files.optimizer_model)}
    domains = [{o.domain for o in model.opset_import} for model in loaded.values()]
    assert domains == [{"", "com.microsoft"}, {""}, {""}]
    assert len({model.ir_version for model in loaded.values()}) == 1
    assert len({o.version for model in loaded.values() for o in model.opset_import if not o.domain}) == 1


SCRIPT = """
import sys
import onnx
import artifacts
from artifacts.api import CheckpointState, Module, Optimizer
import numpy as np
folder = sys.argv[1]
artifacts.generate_artifacts(onnx.load(folder + "/model.onnx"), loss=artifacts.LossType.MSELoss,
    optimizer=artifacts.OptimType.AdamW, artifact_directory=folder, ort_format=True)
state = CheckpointState.load_checkpoint(folder + "/checkpoint")
module = Module(folder + "/training_model.onnx", state, folder + "/eval_model.onnx")
optimizer = Optimizer(folder + "/optimizer_model.onnx", module)
module(np.ones((3, 5), np.float32), np.zeros((3, 6), np.float32))
optimizer.step()
module.lazy_reset_grad()
module.eval()
module(np.ones((3, 5), np.float32), np.zeros((3, 6), np.float32))
module.export_model_for_inferencing(folder + "/inference.onnx", ["y"])
CheckpointState.save_checkpoint(state, folder + "/later")
"""


def test_nothing_is_printed(tmp_path):
    onnx.save(behind_weight(NODE("Relu", ["h"], ["y"]), shape=(3, 6), opset=15), tmp_path / "model.onnx")
    done = subprocess.run([sys.executable, "-c", SCRIPT, tmp_path], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_a_misspelt_parameter_is_named_with_its_neighbours(tmp_path):
    model = behind_weight(NODE("Mul", ["h", "layer.scale"], ["y"]), weights={"layer.scale": normal(6)}, shape=(3, 6))
    with pytest.raises(onnxblock.OnnxBlockError, match=r"'layer.scal'(.|\n)*Did you mean 'layer\.scale'"):
        generate(model, tmp_path, requires_grad=["layer.scal"])


def test_the_trained_model_is_the_given_one(tmp_path):
    """What is exported has no loss, no target and no input of a parameter, and computes what training ended with."""
    training = train(behind_weight(NODE("Relu", ["h"], ["y"]), shape=(3, 6)), tmp_path)
    x = normal(3, 5)
    for _ in range(3):
        training.step(x, np.ones((3, 6), np.float32))
    exported = export(training, tmp_path / "inference.onnx")
    assert [v.name for v in exported.graph.input] == ["x"]
    assert kinds(exported) == ["MatMul", "Reshape", "Relu"]
    found = outputs_of(tmp_path / "inference.onnx", {"x": x})[0]
    np.testing.assert_allclose(found, np.maximum(x @ training.data()["W"], 0), rtol=1e-5, atol=1e-6)
