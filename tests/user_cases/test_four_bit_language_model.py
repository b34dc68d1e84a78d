"""A language model as builders for devices write it, 4 bits a weight, trained through low-rank adapters."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import onnxblock

from . import NODE, begin, export, generate, kinds, make_model, normal, outputs_of

MICROSOFT = "com.microsoft"
VOCABULARY, WIDTH, HEADS, SHARED, SIZE, INNER, LAYERS = 20, 32, 4, 2, 16, 64, 2
BATCH, LENGTH = 2, 5
LOSS = onnxblock.loss.CrossEntropyLoss(class_axis=-1)


class Builder:
    """The nodes and weights of the model, one operator after the other."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}
        self.random = np.random.default_rng(0)

    def add(self, op_type, inputs, name, domain="", outputs=None, **attributes):
        self.nodes.append(NODE(op_type, inputs, outputs or [name], name=f"{name}/node", domain=domain, **attributes))
        return (outputs or [name])[0]

    def weight(self, name, array):
        self.weights[name] = array
        return name

    def product(self, x, columns, rows, name):
        """x times a weight of 4 bits in blocks of 16."""
        packed = self.random.integers(0, 256, (rows, columns // 16, 8)).astype(np.uint8)
        scales = self.random.uniform(0.01, 0.05, rows * columns // 16).astype(np.float32)
        inputs = [x, self.weight(f"{name}.weight_q4", packed), self.weight(f"{name}.scales", scales)]
        return self.add("MatMulNBits", inputs, name, MICROSOFT, K=columns, N=rows, bits=4, block_size=16)

    def adapted(self, x, columns, rows, name):
        down = self.weight(f"{name}.lora_a", normal(columns, 4) / 4)
        up = self.weight(f"{name}.lora_b", normal(4, rows) / 4)
        low = self.add("MatMul", [self.add("MatMul", [x, down], f"{name}.down"), up], f"{name}.up")
        return self.add("Add", [self.product(x, columns, rows, name), low], f"{name}.sum")

    def attention(self, x, layer):
        q = self.adapted(x, WIDTH, HEADS * SIZE, f"{layer}.q")
        k = self.product(x, WIDTH, SHARED * SIZE, f"{layer}.k")
        v = self.adapted(x, WIDTH, SHARED * SIZE, f"{layer}.v")
        past = [f"{layer}.past_key", f"{layer}.past_value"]
        present = [f"{layer}.attended", f"{layer}.present_key", f"{layer}.present_value"]
        inputs = [q, k, v, *past, "seqlens_k", "total_sequence_length", "cosine", "sine"]
        sizes = {"num_heads": HEADS, "kv_num_heads": SHARED, "do_rotary": 1}
        attended = self.add("GroupQueryAttention", inputs, layer, MICROSOFT, present, **sizes)
        return self.product(attended, HEADS * SIZE, WIDTH, f"{layer}.o")

    def feed_forward(self, x, layer):
        gate, up = (self.product(x, WIDTH, INNER, f"{layer}.{name}") for name in ("gate", "up"))
        silu = self.add("Mul", [gate, self.add("Sigmoid", [gate], f"{layer}.sigmoid")], f"{layer}.silu")
        return self.product(self.add("Mul", [silu, up], f"{layer}.opened"), INNER, WIDTH, f"{layer}.down")

    def model(self) -> onnx.ModelProto:
        packed = self.random.integers(0, 256, (VOCABULARY, WIDTH // 2)).astype(np.uint8)
        scales = self.random.uniform(0.1, 0.2, (VOCABULARY, WIDTH // 16)).astype(np.float32)
        table = [self.weight("embedding.q4", packed), "input_ids", self.weight("embedding.scales", scales)]
        total = self.add("GatherBlockQuantized", table, "embedded", MICROSOFT, bits=4, block_size=16)
        self.weight("cosine", normal(16, SIZE // 2)), self.weight("sine", normal(16, SIZE // 2, seed=1))
        scale = self.weight("norm0", 1 + normal(WIDTH) / 5)
        x = self.add("SimplifiedLayerNormalization", [total, scale], "normal0", axis=-1, epsilon=1e-5)
        for k in range(LAYERS):
            for part, made in (("attention", self.attention), ("inner", self.feed_forward)):
                name = f"layer{k}.{part}"
                scale = self.weight(f"{name}.norm", 1 + normal(WIDTH, seed=k) / 5)
                outputs = [f"{name}.normal", "", "", f"{name}.total"]
                inputs = [total, made(x, f"layer{k}"), scale]
                x = self.add("SkipSimplifiedLayerNormalization", inputs, name, MICROSOFT, outputs, epsilon=1e-5)
                total = outputs[3]
        self.product(x, WIDTH, VOCABULARY, "logits")
        past = {
            f"layer{k}.past_{part}": ["batch", SHARED, "past", SIZE] for k in range(LAYERS) for part in ("key", "value")
        }
        inputs = {
            "input_ids": (np.int64, ["batch", "length"]),
            "seqlens_k": (np.int32, ["batch"]),
            "total_sequence_length": (np.int32, [1]),
            **past,
        }
        weights = {name: w if w.dtype == np.uint8 else w.astype(np.float32) for name, w in self.weights.items()}
        return make_model(self.nodes, inputs, weights, ["logits"], domains=[MICROSOFT])


def feeds() -> dict[str, np.ndarray]:
    nothing = np.zeros((BATCH, SHARED, 0, SIZE), np.float32)
    return {
        "input_ids": np.random.default_rng(1).integers(0, VOCABULARY, (BATCH, LENGTH)),
        "seqlens_k": np.full(BATCH, LENGTH - 1, np.int32),
        "total_sequence_length": np.array([LENGTH], np.int32),
        **{f"layer{k}.past_{part}": nothing for k in range(LAYERS) for part in ("key", "value")},
    }


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    return Builder().model()


LABELS = np.random.default_rng(2).integers(0, VOCABULARY, (BATCH, LENGTH))


def test_norms_and_adapters_are_what_can_be_trained(tmp_path, model):
    files = generate(model, tmp_path, loss=LOSS)
    trained = {p.name for p in files.trainable}
    assert all("lora" in name or "norm" in name for name in trained)
    assert len(trained) == 4 * LAYERS + 2 * LAYERS + 1
    training = onnx.load(files.training_model)
    assert {n.op_type for n in training.graph.node if n.domain} == {
        *("MatMulNBits", "GatherBlockQuantized", "InPlaceAccumulatorV2")
    }
    assert "SimplifiedLayerNormalization" not in kinds(training)
    assert kinds(files.eval_model)[: len(model.graph.node)] == kinds(model)


def test_the_gradients_of_the_adapters(tmp_path, model):
    """Against differences of the loss that the evaluation model, with all kernels as they are, computes."""
    adapters = [t.name for t in model.graph.initializer if "lora" in t.name]
    training = begin(generate(model, tmp_path, loss=LOSS, requires_grad=adapters))
    batch = *feeds().values(), LABELS
    assert set(training.data()) == set(adapters)
    training.accumulate(*batch)
    gradients = training.gradients()
    training.module.eval()
    random = np.random.default_rng(3)
    for name in adapters:
        parameter = training.state.parameters[name]
        start, direction = parameter.data.copy(), random.standard_normal(parameter.data.shape).astype(np.float32)
        direction /= np.linalg.norm(direction)
        losses = {}
        for step in (-0.2, -0.1, 0.1, 0.2):
            parameter.data = start + np.float32(step) * direction
            losses[step] = float(training.module(*batch))
        parameter.data = start
        slope = (8 * (losses[0.1] - losses[-0.1]) - (losses[0.2] - losses[-0.2])) / 1.2
        size = np.linalg.norm(gradients[name])
        assert abs(slope - np.sum(gradients[name] * direction)) < 0.02 * size, name


def test_training_lowers_the_loss_and_the_export_keeps_the_base(tmp_path, model):
    adapters = [t.name for t in model.graph.initializer if "lora" in t.name]
    training = begin(generate(model, tmp_path, loss=LOSS, requires_grad=adapters))
    training.optimizer.set_learning_rate(0.02)
    batch = *feeds().values(), LABELS
    losses = [training.step(*batch) for _ in range(30)]
    assert losses[-1] < 0.8 * losses[0]
    exported = export(training, tmp_path / "inference.onnx", ["logits"])
    assert kinds(exported) == kinds(model)
    before = {t.name: t for t in model.graph.initializer}
    for tensor in exported.graph.initializer:
        same = tensor.raw_data == before[tensor.name].raw_data
        assert same == (tensor.name not in adapters)
    scores = outputs_of(tmp_path / "inference.onnx", feeds())[0].astype(np.float64)
    scores -= scores.max(-1, keepdims=True)
    likely = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
    loss = -np.take_along_axis(likely, LABELS[..., None], -1).mean()
    training.module.eval()
    np.testing.assert_allclose(training.module(*batch), loss, rtol=1e-4)
