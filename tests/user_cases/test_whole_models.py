"""Whole models that people tried, small and with random weights, each in the way in which they trained it."""

from __future__ import annotations

import warnings

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import artifacts
import onnxblock
from artifacts.api import CheckpointState, Module

torch = pytest.importorskip("torch", reason="the comparison with PyTorch needs the extra 'torch'")
transformers = pytest.importorskip("transformers", reason="the models need the extra 'torch'")

from tests.models import Example, example, oracle, randomize  # noqa: E402
from tests.models.compare import Case, compare  # noqa: E402
from tests.models.export import export as export_module  # noqa: E402

from . import NODE, begin, export, generate, make_model, normal, outputs_of, train  # noqa: E402

F = torch.nn.functional
LossType = artifacts.LossType


def made(module, inputs, loss, target) -> Example:
    generator = torch.Generator().manual_seed(0)
    randomize(module, generator)
    return Example(module, inputs, loss, target)


def compare_step(training, given, theirs, tolerance=1e-4) -> None:
    """One step of the artifacts against PyTorch's, for what is trained."""
    found = training.accumulate(*(x.numpy() for x in given.inputs), given.target.numpy())
    np.testing.assert_allclose(found, theirs.loss, rtol=tolerance)
    trained = training.gradients()
    compared = {name: theirs.gradients[name] for name in trained if name in theirs.gradients}
    assert compared
    worst = oracle.errors({name: trained[name] for name in compared}, compared)
    assert max(worst.values()) <= tolerance, worst


class FirstOutput(torch.nn.Module):
    """The first output of a model of ``transformers``, alone."""

    def __init__(self, model) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask):
        return self.model(input_ids=input_ids, attention_mask=attention_mask, return_dict=False)[0]


def tokens(batch: int, length: int = 7):
    generator = torch.Generator().manual_seed(1)
    lengths = torch.arange(batch) % (length - 2) + 3
    mask = (torch.arange(length) < lengths[:, None]).long()
    # 0 is the padding, whose row PyTorch does not train.
    return torch.randint(1, 30, (batch, length), generator=generator), mask


def test_distilbert_with_every_initializer(tmp_path):
    config = transformers.DistilBertConfig(
        vocab_size=30,
        max_position_embeddings=16,
        n_layers=2,
        n_heads=2,
        dim=16,
        hidden_dim=24,
        dropout=0.0,
        attention_dropout=0.0,
        attn_implementation="eager",
    )
    inputs = tokens(3)
    given = made(FirstOutput(transformers.DistilBertModel(config)), inputs, "mse", torch.tensor(normal(3, 7, 16)))
    model = export_module(given.module, given.inputs, mode="eval")
    every = [t.name for t in model.graph.initializer if t.data_type == onnx.TensorProto.FLOAT]
    theirs = oracle.expected(model, given, "eval")
    training = train(model, tmp_path, requires_grad=every)
    assert set(theirs.gradients) <= set(training.gradients())
    compare_step(training, given, theirs)


def test_vision_transformer_with_the_gradient_of_the_image(tmp_path):
    given = example("vit")
    model = export_module(given.module, given.inputs, mode="eval", dynamic=True)
    files = generate(model, tmp_path, loss=LossType.CrossEntropyLoss, requires_grad=["input0"], optimizer=None)
    assert files.optimizer_model is None
    state = CheckpointState.load_checkpoint(files.checkpoint)
    module = Module(files.training_model, state, files.eval_model)
    image = given.inputs[0].clone().requires_grad_(True)
    expected = F.cross_entropy(given.module.eval()(image), given.target)
    expected.backward()
    loss, gradient = module(image.detach().numpy(), given.target.numpy())
    np.testing.assert_allclose(loss, expected.item(), rtol=1e-4)
    np.testing.assert_allclose(gradient, image.grad, rtol=1e-3, atol=1e-6)


def test_mobilebert_masked_language_model(tmp_path):
    config = transformers.MobileBertConfig(
        vocab_size=30,
        hidden_size=16,
        embedding_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        intra_bottleneck_size=8,
        max_position_embeddings=16,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        tie_word_embeddings=False,  # the exporter writes a tied weight twice
        attn_implementation="eager",
    )
    module = FirstOutput(transformers.MobileBertForMaskedLM(config))
    randomize(module, torch.Generator().manual_seed(0))
    module = module.eval()
    inputs = tokens(3)
    labels = torch.where(torch.arange(7) % 3 == 0, inputs[0], -100)
    model = export_module(module, inputs, mode="eval")
    loss = onnxblock.loss.CrossEntropyLoss(ignore_index=-100, class_axis=-1)
    training = train(model, tmp_path, loss=loss)
    expected = F.cross_entropy(module(*inputs).flatten(0, 1), labels.flatten())
    expected.backward()
    batch = [x.numpy() for x in (*inputs, labels)]
    np.testing.assert_allclose(training.accumulate(*batch), expected.item(), rtol=1e-4)
    theirs = {name: p.grad.numpy() for name, p in module.named_parameters() if p.grad is not None}
    ours = training.gradients()
    common = [name for name in ours if name in theirs and theirs[name].shape == ours[name].shape]
    assert len(common) > 50
    worst = oracle.errors({n: ours[n] for n in common}, {n: theirs[n] for n in common})
    assert max(worst.values()) <= 1e-3, worst


def test_unet_with_resize(tmp_path):
    compare(Case("unet-resize", "dynamo", 18, "train", dynamic=True), tmp_path)


def test_mobilenet_with_a_new_head_only(tmp_path):
    given = example("mobilenet")
    model = export_module(given.module, given.inputs, mode="eval")
    head = [t.name for t in model.graph.initializer if "classifier" in t.name]
    training = train(model, tmp_path, loss=LossType.CrossEntropyLoss, requires_grad=head)
    assert set(training.data()) == set(head)
    compare_step(training, given, oracle.expected(model, given, "eval"))
    losses = [training.step(given.inputs[0].numpy(), given.target.numpy()) for _ in range(5)]
    assert losses[-1] < losses[0]
    exported = export(training, tmp_path / "inference.onnx", ["output"])
    assert len(exported.graph.initializer) >= len(model.graph.initializer) - 2


def test_a_zoo_residual_network_at_opset_7(tmp_path):
    """Weights are inputs of the graph too, as before IR 4; batch norm is in inference form; there is no softmax."""
    weights = {
        "conv": normal(4, 3, 3, 3) / 3,
        "gamma": 1 + normal(4) / 5,
        "beta": normal(4, seed=1),
        "mean": normal(4, seed=2) / 5,
        "var": 1 + np.abs(normal(4, seed=3)),
        "conv2": normal(4, 4, 3, 3) / 3,
        "dense_w": normal(5, 4),
        "dense_b": normal(5),
    }
    nodes = [
        NODE("Conv", ["data", "conv"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1]),
        NODE("BatchNormalization", ["c", "gamma", "beta", "mean", "var"], ["n"], epsilon=1e-5, momentum=0.9, spatial=1),
        NODE("Relu", ["n"], ["r"]),
        NODE("Conv", ["r", "conv2"], ["c2"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        NODE("Add", ["c2", "r"], ["s"]),
        NODE("GlobalAveragePool", ["s"], ["p"]),
        NODE("Flatten", ["p"], ["f"]),
        NODE("Gemm", ["f", "dense_w", "dense_b"], ["y"], transB=1),
    ]
    inputs = {"data": [2, 3, 8, 8], **{name: list(w.shape) for name, w in weights.items()}}
    model = make_model(nodes, inputs, {n: w.astype(np.float32) for n, w in weights.items()}, opset=7, ir_version=3)
    training = train(model, tmp_path, loss=LossType.CrossEntropyLoss)
    assert set(training.data()) == set(weights) - {"mean", "var"}
    assert training.module.input_names() == ["data", "labels"]
    t = {
        name: torch.tensor(w.astype(np.float32), requires_grad=name not in ("mean", "var"))
        for name, w in weights.items()
    }
    x, labels = normal(2, 3, 8, 8), np.array([1, 4])
    h = F.conv2d(torch.tensor(x), t["conv"], padding=1)
    r = torch.relu(F.batch_norm(h, t["mean"], t["var"], t["gamma"], t["beta"]))
    pooled = (F.conv2d(r, t["conv2"], padding=1) + r).mean((2, 3))
    expected = F.cross_entropy(pooled @ t["dense_w"].T + t["dense_b"], torch.tensor(labels))
    expected.backward()
    np.testing.assert_allclose(training.accumulate(x, labels), expected.item(), rtol=1e-4)
    for name, found in training.gradients().items():
        np.testing.assert_allclose(found, t[name].grad, rtol=1e-3, atol=1e-5, err_msg=name)


def test_mnist_12_of_the_zoo(tmp_path):
    """Convolutions padded to the same size, biases added apart, a weight behind a Reshape."""
    weights = {
        "kernel1": normal(4, 1, 5, 5) / 5,
        "bias1": normal(4, 1, 1),
        "kernel2": normal(6, 4, 5, 5) / 10,
        "bias2": normal(6, 1, 1),
        "matrix": normal(6, 4, 4, 10) / 10,
        "bias3": normal(1, 10),
    }
    shapes = {"rows": np.array([-1, 96]), "columns": np.array([96, 10])}
    nodes = [
        NODE("Reshape", ["matrix", "columns"], ["flat_matrix"]),
        NODE("Conv", ["Input3", "kernel1"], ["c1"], auto_pad="SAME_UPPER", kernel_shape=[5, 5], strides=[1, 1]),
        NODE("Add", ["c1", "bias1"], ["a1"]),
        NODE("Relu", ["a1"], ["r1"]),
        NODE("MaxPool", ["r1"], ["p1"], auto_pad="NOTSET", kernel_shape=[2, 2], strides=[2, 2]),
        NODE("Conv", ["p1", "kernel2"], ["c2"], auto_pad="SAME_UPPER", kernel_shape=[5, 5], strides=[1, 1]),
        NODE("Add", ["c2", "bias2"], ["a2"]),
        NODE("Relu", ["a2"], ["r2"]),
        NODE("MaxPool", ["r2"], ["p2"], auto_pad="NOTSET", kernel_shape=[3, 3], strides=[3, 3]),
        NODE("Reshape", ["p2", "rows"], ["flat"]),
        NODE("MatMul", ["flat", "flat_matrix"], ["m"]),
        NODE("Add", ["m", "bias3"], ["Plus214_Output_0"]),
    ]
    floats = {name: w.astype(np.float32) for name, w in weights.items()}
    model = make_model(
        nodes, {"Input3": [1, 1, 28, 28]}, {**floats, **shapes}, ["Plus214_Output_0"], opset=12, ir_version=7
    )
    training = train(model, tmp_path, loss=LossType.CrossEntropyLoss)
    assert set(training.data()) == set(weights)
    t = {name: torch.tensor(w, requires_grad=True) for name, w in floats.items()}
    x, labels = normal(1, 1, 28, 28), np.array([7])
    h = F.max_pool2d(torch.relu(F.conv2d(torch.tensor(x), t["kernel1"], padding=2) + t["bias1"]), 2)
    h = F.max_pool2d(torch.relu(F.conv2d(h, t["kernel2"], padding=2) + t["bias2"]), 3)
    expected = F.cross_entropy(h.reshape(1, 96) @ t["matrix"].reshape(96, 10) + t["bias3"], torch.tensor(labels))
    expected.backward()
    np.testing.assert_allclose(training.accumulate(x, labels), expected.item(), rtol=1e-4)
    for name, found in training.gradients().items():
        np.testing.assert_allclose(found, t[name].grad, rtol=1e-3, atol=1e-5, err_msg=name)


class Detection(onnxblock.blocks.Block):
    """Where, whether and what: boxes by their distance, objects and classes by cross-entropies, weighted and added."""

    def __init__(self) -> None:
        self.box = onnxblock.loss.L1Loss()
        self.present = onnxblock.loss.BCEWithLogitsLoss()
        self.kind = onnxblock.loss.CrossEntropyLoss(class_axis=1)

    def build(self, boxes, objects, classes):
        where = self.box(boxes, "true_boxes") * 5.0
        return where + self.present(objects, "true_objects") + self.kind(classes, "true_classes") * 0.5


class Detector(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Conv2d(3, 6, 3, 2, 1), torch.nn.SiLU(), torch.nn.Conv2d(6, 8, 3, 2, 1))
        self.heads = torch.nn.ModuleList([torch.nn.Conv2d(8, n, 1) for n in (4, 1, 5)])

    def forward(self, image):
        features = F.leaky_relu(self.body(image), 0.1)
        boxes, objects, classes = (head(features) for head in self.heads)
        return boxes.sigmoid(), objects, classes


def test_a_detector_with_a_loss_of_three_terms(tmp_path):
    module = Detector()
    randomize(module, torch.Generator().manual_seed(0))
    image = torch.tensor(normal(2, 3, 16, 16))
    path = tmp_path / "detector.onnx"
    names = {"input_names": ["image"], "output_names": ["boxes", "objects", "classes"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter warns about its own age
        torch.onnx.export(module, (image,), path, opset_version=17, dynamo=False, **names)
    training = train(path, tmp_path / "made", loss=Detection(), additional_output_names=["boxes"])
    targets = normal(2, 4, 4, 4), np.abs(normal(2, 1, 4, 4)) / 4, np.random.default_rng(0).integers(0, 5, (2, 4, 4))
    assert training.module.input_names() == ["image", "true_boxes", "true_objects", "true_classes"]
    boxes, objects, classes = module(image)
    true = [torch.tensor(t) for t in targets]
    expected = 5 * F.l1_loss(boxes, true[0]) + F.binary_cross_entropy_with_logits(objects, true[1])
    expected = expected + 0.5 * F.cross_entropy(classes, true[2])
    expected.backward()
    np.testing.assert_allclose(training.accumulate(image.numpy(), *targets), expected.item(), rtol=1e-4)
    theirs = {name: p.grad.numpy() for name, p in module.named_parameters()}
    worst = oracle.errors(training.gradients(), theirs)
    assert max(worst.values()) <= 1e-4, worst


class Speech(torch.nn.Module):
    """Convolutions over a waveform, a layer of attention, and a head: wav2vec 2.0 in small."""

    def __init__(self) -> None:
        super().__init__()
        self.features = torch.nn.Sequential(
            *(torch.nn.Conv1d(1, 8, 10, 5), torch.nn.GroupNorm(8, 8), torch.nn.GELU()),
            *(torch.nn.Conv1d(8, 8, 3, 2), torch.nn.GELU()),
        )
        self.norm = torch.nn.LayerNorm(8)
        self.attention = torch.nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
        self.head = torch.nn.Linear(8, 4)

    def forward(self, waveform):
        x = self.norm(self.features(waveform[:, None]).transpose(1, 2))
        return self.head(self.attention(x).mean(1))


def test_a_speech_head_is_trained_exported_and_trained_again(tmp_path):
    module = Speech().train()
    randomize(module, torch.Generator().manual_seed(0))
    waveform, labels = normal(3, 160), np.array([0, 2, 3])
    model = export_module(module, (torch.tensor(waveform),), mode="train")
    head = ["head.weight", "head.bias"]
    first = train(model, tmp_path / "first", loss=LossType.CrossEntropyLoss, requires_grad=head)
    losses = [first.step(waveform, labels) for _ in range(4)]
    exported = export(first, tmp_path / "once.onnx", ["output"])
    weights = {t.name: numpy_helper.to_array(t) for t in exported.graph.initializer}
    for name in head:
        np.testing.assert_array_equal(weights[name], first.data()[name])
    second = train(tmp_path / "once.onnx", tmp_path / "second", loss=LossType.CrossEntropyLoss, requires_grad=head)
    losses += [second.step(waveform, labels) for _ in range(4)]
    assert losses == sorted(losses, reverse=True)
    export(second, tmp_path / "twice.onnx", ["output"])
    scores = outputs_of(tmp_path / "twice.onnx", {"input0": waveform})[0]
    second.module.eval()
    after = F.cross_entropy(torch.tensor(scores), torch.tensor(labels)).item()
    np.testing.assert_allclose(after, second.module(waveform, labels), rtol=1e-4)
    assert after < losses[-1]


class Adapted(torch.nn.Module):
    """A frozen dense layer with a low-rank update beside it  (Hu et al. 2021)."""

    def __init__(self, layer: torch.nn.Linear, rank: int = 2) -> None:
        super().__init__()
        self.layer = layer
        self.lora_a = torch.nn.Parameter(torch.randn(rank, layer.in_features) / 4)
        self.lora_b = torch.nn.Parameter(torch.randn(layer.out_features, rank) / 4)

    def forward(self, x):
        return self.layer(x) + 2.0 * F.linear(F.linear(x, self.lora_a), self.lora_b)


def test_llama_with_low_rank_adapters_only(tmp_path):
    given = example("llama")
    torch.manual_seed(0)
    for layer in given.module.model.model.layers:
        attention = layer.self_attn
        attention.q_proj, attention.v_proj = Adapted(attention.q_proj), Adapted(attention.v_proj)
    model = export_module(given.module, given.inputs, mode="eval")
    theirs = oracle.expected(model, given, "eval")
    adapters = [name for name in theirs.gradients if name in adapter_names(model, given.module)]
    assert len(adapters) == 8
    training = begin(generate(model, tmp_path, loss=LossType.CrossEntropyLoss, requires_grad=adapters))
    assert set(training.data()) == set(adapters)
    compare_step(training, given, theirs, tolerance=5e-4)
    batch = given.inputs[0].numpy(), given.target.numpy()
    losses = [training.step(*batch) for _ in range(5)]
    assert losses[-1] < losses[0]


def adapter_names(model: onnx.ModelProto, module) -> set[str]:
    return {
        initializer
        for initializer, (names, _) in oracle.match(model, module).items()
        if all("lora" in name for name in names)
    }
