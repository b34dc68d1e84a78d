"""What exporters, optimizers and quantizers write, at every opset, from files and from memory."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import artifacts
import onnxblock
from onnxblock.graph.schemas import NEWEST_OPSET
from tests.runtime import newest_opset

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
MICROSOFT = "com.microsoft"


# -- operators of optimizers


def fused(op_type, inputs, domain=MICROSOFT, outputs=("y",), **attributes):
    return NODE(op_type, list(inputs), list(outputs), name="fused", domain=domain, **attributes)


def rms(x, scale, epsilon):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + epsilon) * scale


def rotary(x, t):
    cosine, sine = t.cosine[:3], t.sine[:3]
    a, b = x[:, :4], x[:, 4:]
    return torch.cat([a * cosine - b * sine, b * cosine + a * sine], -1)


def self_attention(t):
    h = t.x @ t.W
    q, k, v = (part.reshape(3, 2, 4).transpose(0, 1) for part in (h @ t.projection + t.bias).chunk(3, -1))
    y = torch.softmax(q @ k.transpose(1, 2) / 2, -1) @ v
    return y.transpose(0, 1).reshape(1, 3, 8)


SCALE, SHIFT = normal(8), normal(8, seed=1)
FUSED = {
    "SimplifiedLayerNormalization": (
        fused("SimplifiedLayerNormalization", ["h", "scale"], "", axis=-1, epsilon=1e-5),
        {"scale": SCALE},
        lambda t: rms(t.x @ t.W, t.scale, 1e-5),
    ),
    "SkipSimplifiedLayerNormalization": (
        fused("SkipSimplifiedLayerNormalization", ["h", "h", "scale"], epsilon=1e-5),
        {"scale": SCALE},
        lambda t: rms(2 * t.x @ t.W, t.scale, 1e-5),
    ),
    "SkipLayerNormalization": (
        fused("SkipLayerNormalization", ["h", "h", "scale", "shift"], epsilon=1e-5),
        {"scale": SCALE, "shift": SHIFT},
        lambda t: F.layer_norm(2 * t.x @ t.W, (8,), t.scale, t.shift),
    ),
    "BiasGelu": (fused("BiasGelu", ["h", "shift"]), {"shift": SHIFT}, lambda t: F.gelu(t.x @ t.W + t.shift)),
    "Gelu": (fused("Gelu", ["h"]), {}, lambda t: F.gelu(t.x @ t.W)),
    "FastGelu": (
        fused("FastGelu", ["h", "shift"]),
        {"shift": SHIFT},
        lambda t: F.gelu(t.x @ t.W + t.shift, approximate="tanh"),
    ),
    "QuickGelu": (fused("QuickGelu", ["h"]), {}, lambda t: t.x @ t.W * torch.sigmoid(1.702 * (t.x @ t.W))),
    "FusedMatMul": (
        fused("FusedMatMul", ["h", "V"], alpha=0.5, transB=1),
        {"V": normal(4, 8)},
        lambda t: 0.5 * (t.x @ t.W) @ t.V.T,
    ),
    "FusedGemm": (
        fused("FusedGemm", ["h", "V", "b"], activation="Relu", transB=1),
        {"V": normal(4, 8), "b": normal(4)},
        lambda t: torch.relu((t.x @ t.W) @ t.V.T + t.b),
    ),
    "RotaryEmbedding": (
        fused("RotaryEmbedding", ["h3", "positions", "cosine", "sine"]),
        {"positions": np.array([[0, 1, 2]]), "cosine": normal(6, 4), "sine": normal(6, 4, seed=1)},
        lambda t: rotary(t.x @ t.W, t)[None],
    ),
    "Attention": (
        fused("Attention", ["h3", "projection", "bias"], num_heads=2),
        {"projection": normal(8, 24), "bias": normal(24)},
        self_attention,
    ),
}


@pytest.mark.parametrize("name", FUSED)
def test_fused_operators_train_and_stay_in_the_other_models(tmp_path, name):
    node, weights, forward = FUSED[name]
    model = behind_weight(node, weights=weights, shape=(3, 8), opset=17, domains=[MICROSOFT])
    if "h3" in node.input:
        model.graph.node.insert(2, NODE("Unsqueeze", ["h", "first"], ["h3"]))
        model.graph.initializer.append(numpy_helper.from_array(np.array([0]), "first"))
    training = compare_with_torch(model, tmp_path, forward, tolerance=3e-5)
    frozen = {"cosine", "sine"} if name == "RotaryEmbedding" else set()
    floats = {n for n, w in weights.items() if w.dtype == np.float32}
    assert set(training.gradients()) == {"W"} | floats - frozen
    assert name not in [k for k in kinds(tmp_path / "training_model.onnx") if k != "Gelu"]
    assert {n.domain for n in onnx.load(tmp_path / "training_model.onnx").graph.node} == {"", MICROSOFT}
    assert name in kinds(tmp_path / "eval_model.onnx")
    training.apply()
    exported = export(training, tmp_path / "inference.onnx")
    assert name in kinds(exported)
    t = {n: torch.tensor(numpy_helper.to_array(w)) for n, w in ((w.name, w) for w in exported.graph.initializer)}
    expected = forward(type("t", (), {**t, "x": torch.tensor(normal(3, 5))}))
    np.testing.assert_allclose(outputs_of(tmp_path / "inference.onnx", {"x": normal(3, 5)})[0], expected, atol=2e-5)


def quantize(weight: np.ndarray, block: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The columns of ``weight`` [K, N] in 4 bits: packed [N, K / block, block / 2], scales, and what they stand for."""
    blocks = weight.T.reshape(weight.shape[1], -1, block)
    scales = np.abs(blocks).max(2, keepdims=True) / np.float32(7)
    levels = np.clip(np.round(blocks / scales) + 8, 0, 15).astype(np.uint8)
    packed = levels[..., 0::2] | (levels[..., 1::2] << 4)
    meant = ((levels.astype(np.float32) - 8) * scales).reshape(weight.shape[1], -1).T
    return packed, scales.reshape(-1), meant


def test_a_four_bit_base_passes_the_gradient_through(tmp_path):
    packed, scales, meant = quantize(normal(32, 8), 32)
    node = fused("MatMulNBits", ["h", "packed", "scales"], K=32, N=8, bits=4, block_size=32)
    model = behind_weight(
        node, weights={"packed": packed, "scales": scales}, shape=(3, 32), opset=17, domains=[MICROSOFT]
    )
    training = compare_with_torch(model, tmp_path, lambda t: t.x @ t.W @ torch.tensor(meant), tolerance=3e-5)
    assert set(training.gradients()) == {"W"}
    for name in ("training_model.onnx", "eval_model.onnx"):
        made = onnx.load(tmp_path / name)
        assert "MatMulNBits" in kinds(made)
        assert {"packed", "scales"} <= {t.name for t in made.graph.initializer}
    training.apply()
    assert "MatMulNBits" in kinds(export(training, tmp_path / "inference.onnx"))


@pytest.mark.parametrize(("domain", "kind"), [("", np.int8), (MICROSOFT, np.int8), (MICROSOFT, np.int16)])
def test_quantize_and_dequantize_pass_straight_through(tmp_path, domain, kind):
    nodes = [
        NODE("QuantizeLinear", ["h", "scale", "zero"], ["q"], domain=domain),
        NODE("DequantizeLinear", ["q", "scale", "zero"], ["y"], domain=domain),
    ]
    weights = {"scale": np.array(0.1, np.float32), "zero": np.array(3, kind)}
    model = behind_weight(*nodes, weights=weights, shape=(3, 6), domains=[domain] if domain else [])
    training = train(model, tmp_path)
    x, target = normal(3, 5), normal(3, 6, seed=1)
    h = x @ normal(5, 6) * np.float32(0.5)
    y = np.round(h / np.float32(0.1)) * np.float32(0.1)
    np.testing.assert_allclose(training.accumulate(x, target), np.mean((y - target) ** 2), rtol=1e-4)
    assert set(training.gradients()) == {"W"}
    np.testing.assert_allclose(training.gradients()["W"], x.T @ (2 * (y - target) / y.size), rtol=1e-3, atol=1e-5)


# -- opsets


def perceptron(opset: int, ir_version: int) -> onnx.ModelProto:
    nodes = [
        NODE("Gemm", ["x", "W", "b"], ["h"], transB=1),
        NODE("Relu", ["h"], ["a"]),
        NODE("Gemm", ["a", "V", "c"], ["y"]),
    ]
    weights = {"W": normal(8, 5), "b": normal(8), "V": normal(8, 4), "c": normal(4)}
    return make_model(nodes, {"x": ["n", 5]}, weights, opset=opset, ir_version=ir_version)


def dense(t):
    return torch.relu(t.x @ t.W.T + t.b) @ t.V + t.c


@pytest.mark.parametrize("opset", [9, 10, 11, 13, 17])
def test_an_old_opset_is_raised_and_said(tmp_path, opset):
    files = generate(perceptron(opset, 4 if opset < 11 else 8), tmp_path)
    assert f"raised from opset {opset} to 18" in str(files)
    training = compare_with_torch(perceptron(opset, 8), tmp_path, dense)
    training.apply()
    onnxblock.export_for_inference(perceptron(opset, 8), training.data(), tmp_path / "own.onnx")
    assert [o.version for o in onnx.load(tmp_path / "own.onnx").opset_import] == [opset]
    export(training, tmp_path / "raised.onnx")
    own, raised = (outputs_of(tmp_path / name, {"x": normal(3, 5)}) for name in ("own.onnx", "raised.onnx"))
    np.testing.assert_allclose(own[0], raised[0], rtol=1e-6)


@pytest.mark.parametrize("opset", [18, 20, 21, *range(22, min(newest_opset(), 26) + 1)])
def test_a_new_opset_works_as_it_is(tmp_path, opset):
    model = perceptron(opset, 10 if opset < 23 else 11)
    compare_with_torch(model, tmp_path, dense)
    for name in ("training_model.onnx", "eval_model.onnx", "optimizer_model.onnx"):
        made = onnx.load(tmp_path / name)
        assert [o.version for o in made.opset_import if not o.domain] == [opset]
    assert "raised" not in str(generate(model, tmp_path))


@pytest.mark.parametrize("opset", [18, 21, min(newest_opset(), 26)])
def test_the_ir_version_that_the_installed_onnx_writes_does_not_matter(tmp_path, opset):
    compare_with_torch(perceptron(opset, onnx.IR_VERSION), tmp_path, dense)


def test_an_opset_that_onnx_does_not_know_yet_is_refused(tmp_path):
    with pytest.raises(onnxblock.OnnxBlockError, match="newer onnx"):
        generate(perceptron(NEWEST_OPSET + 1, 10), tmp_path)


# -- files


@pytest.mark.parametrize("loss", list(artifacts.LossType))
def test_external_data_leaves_nothing_behind(tmp_path, loss, monkeypatch):
    weight = normal(512, 512) / np.float32(20)
    model = make_model([NODE("MatMul", ["x", "W"], ["y"])], {"x": ["n", 512]}, {"W": weight})
    (tmp_path / "model").mkdir()
    onnx.save(model, tmp_path / "model" / "model.onnx", save_as_external_data=True, location="model.onnx.data")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    training = train(str(tmp_path / "model" / "model.onnx"), tmp_path / "made", loss=loss)
    x = normal(2, 512)
    y = torch.tensor(x) @ torch.tensor(weight)
    classes = loss is artifacts.LossType.CrossEntropyLoss
    target = np.array([1, 500]) if classes else np.abs(normal(2, 512, seed=1)) / 4
    compare = {
        artifacts.LossType.MSELoss: F.mse_loss,
        artifacts.LossType.CrossEntropyLoss: F.cross_entropy,
        artifacts.LossType.BCEWithLogitsLoss: F.binary_cross_entropy_with_logits,
        artifacts.LossType.L1Loss: F.l1_loss,
    }[loss]
    np.testing.assert_allclose(training.accumulate(x, target), compare(y, torch.tensor(target)).item(), rtol=1e-4)
    training.apply()
    assert not list((tmp_path / "elsewhere").iterdir())
    assert sorted(p.name for p in (tmp_path / "model").iterdir()) == ["model.onnx", "model.onnx.data"]
    allowed = {"training_model.onnx", "eval_model.onnx", "optimizer_model.onnx", "checkpoint", "checkpoint.data"}
    assert {p.name for p in (tmp_path / "made").iterdir()} <= allowed


# -- what does not fit


class ThreeValues(onnxblock.blocks.Block):
    def build(self, a, b, c):
        return (a * b - c).mean()


def test_a_loss_with_another_number_of_arguments(tmp_path):
    model = make_model(
        [NODE("MatMul", ["x", "W"], ["first"]), NODE("Relu", ["first"], ["second"])],
        {"x": [3, 5]},
        {"W": normal(5, 4)},
        ["first", "second"],
    )
    with pytest.raises(onnxblock.OnnxBlockError) as caught:
        generate(model, tmp_path, loss=ThreeValues())
    for text in ("2 outputs", "first", "second", "wants 3", "a, b, c", "loss_input_names"):
        assert text in str(caught.value)


def test_every_node_without_a_gradient_is_named_at_once(tmp_path):
    model = behind_weight(
        NODE("NGramRepeatBlock", ["h"], ["a"], name="first", domain=MICROSOFT),
        NODE("CDist", ["a", "a"], ["y"], name="second", domain=MICROSOFT, metric="cosine"),
        shape=(3, 6),
        domains=[MICROSOFT],
    )
    with pytest.raises(onnxblock.OnnxBlockError) as caught:
        generate(model, tmp_path)
    for text in ("2 nodes", "first", "second", "its metric 'cosine' is not known", "'W'"):
        assert text in str(caught.value)
