"""Models as optimizers leave them: every node that they fuse trains, and stays fused in what is exported."""

from __future__ import annotations

import logging
import warnings
from collections import Counter

import numpy as np
import onnx
import onnxruntime
import pytest

import artifacts
from onnxblock.errors import InvalidModelError
from onnxblock.graph.graph import Graph
from onnxblock.graph.upgrade import raise_opset

torch = pytest.importorskip("torch", reason="the comparison with PyTorch needs the extra 'torch'")
transformers = pytest.importorskip("transformers", reason="the models need the extra 'torch'")

from tests.models import example, oracle, randomize  # noqa: E402
from tests.models.compare import LOSS_TYPES  # noqa: E402
from tests.models.export import export as export_module  # noqa: E402

from . import NODE, behind_weight, compare_with_torch, export, generate, kinds, outputs_of, train  # noqa: E402


def optimized(model: onnx.ModelProto, path) -> onnx.ModelProto:
    """The model as onnxruntime saves it at its extended level."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath, options.log_severity_level = str(path), 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return onnx.load(path)


FUSED = {
    "lenet": {"FusedConv": 2, "FusedGemm": 2},
    "distilbert": {"SkipLayerNormalization": 4, "FusedMatMul": 2, "Gelu": 2, "FusedGemm": 1},
    "gpt2": {"FusedMatMul": 2, "FastGelu": 2, "SkipLayerNormalization": 1},
    "llama": {"SimplifiedLayerNormalization": 5, "FusedMatMul": 2, "QuickGelu": 2},
}


@pytest.mark.parametrize("family", FUSED)
def test_what_onnxruntime_optimizes(tmp_path, family):
    made = example(family)
    plain = export_module(made.module, made.inputs, mode="eval")
    model = optimized(plain, tmp_path / "optimized.onnx")
    fused = Counter(node.op_type for node in model.graph.node if node.op_type in FUSED[family])
    if fused != FUSED[family]:
        pytest.fail(f"onnxruntime now fuses {fused}")
    theirs = oracle.expected(plain, made, "eval")
    training = train(model, tmp_path, loss=LOSS_TYPES[made.loss])
    batch = *(x.numpy() for x in made.inputs), made.target.numpy()
    np.testing.assert_allclose(training.accumulate(*batch), theirs.loss, rtol=1e-4)
    ours = training.gradients()
    common = [n for n in ours if n in theirs.gradients and ours[n].shape == theirs.gradients[n].shape]
    assert len(common) >= 0.85 * len(theirs.gradients)
    worst = oracle.errors({n: ours[n] for n in common}, {n: theirs.gradients[n] for n in common})
    assert max(worst.values()) <= 2e-4, worst
    assert not set(FUSED[family]) - {"Gelu"} & set(kinds(tmp_path / "training_model.onnx"))
    training.apply()
    exported = export(training, tmp_path / "inference.onnx", ["output"])
    assert Counter(k for k in kinds(exported) if k in FUSED[family]) == FUSED[family]
    training.module.eval()
    scores = outputs_of(tmp_path / "inference.onnx", {f"input{k}": x for k, x in enumerate(batch[:-1])})[0]
    after = oracle.LOSSES[made.loss](torch.tensor(scores), made.target).item()
    np.testing.assert_allclose(training.module(*batch), after, rtol=1e-4)


def test_shapes_are_known_behind_what_onnx_does_not_know(tmp_path):
    made = example("llama")
    model = optimized(export_module(made.module, made.inputs, mode="eval"), tmp_path / "optimized.onnx")
    known = Graph(raise_opset(model, 18))
    unknown = [n.op_type for n in known.proto.node if not known.value(n.output[0]).is_static]
    assert not unknown
    training = onnx.load(generate(model, tmp_path, loss=LOSS_TYPES["cross_entropy"]).training_model)
    assert "NonZero" not in kinds(training)


class Logits(torch.nn.Module):
    def __init__(self, model) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask, token_type_ids):
        given = {"input_ids": input_ids, "attention_mask": attention_mask, "token_type_ids": token_type_ids}
        return self.model(**given, return_dict=False)[0]


def bert():
    config = transformers.BertConfig(
        vocab_size=30,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=16,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        num_labels=5,
        attn_implementation="eager",
    )
    module = Logits(transformers.BertForSequenceClassification(config))
    randomize(module, torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(1, 30, (3, 7), generator=generator)
    mask = (torch.arange(7) < torch.tensor([3, 7, 5])[:, None]).long()
    return module.eval(), (ids, mask, (torch.arange(7) > 3).long().repeat(3, 1))


@pytest.mark.parametrize("attention", ["Attention", "MultiHeadAttention"])
def test_what_the_transformers_tool_optimizes(tmp_path, attention):
    module, inputs = bert()
    onnx.save(export_module(module, inputs, mode="eval", dynamic=True), tmp_path / "bert.onnx")
    logging.disable(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnxruntime.transformers.fusion_options import FusionOptions
        from onnxruntime.transformers.optimizer import optimize_model

        options = FusionOptions("bert")
        options.use_multi_head_attention = attention == "MultiHeadAttention"
        sizes = {"model_type": "bert", "num_heads": 2, "hidden_size": 16, "opt_level": 0}
        model = optimize_model(str(tmp_path / "bert.onnx"), optimization_options=options, **sizes).model
    logging.disable(logging.NOTSET)
    fused = {attention: 2, "BiasGelu": 2, "SkipLayerNormalization": 4, "EmbedLayerNormalization": 1}
    assert Counter(node.op_type for node in model.graph.node if node.domain) == fused
    training = train(model, tmp_path, loss=artifacts.LossType.CrossEntropyLoss)
    labels = np.array([0, 3, 1])
    expected = torch.nn.functional.cross_entropy(module(*inputs), torch.tensor(labels))
    expected.backward()
    given = [x.numpy() for x in inputs]
    assert training.module.input_names() == ["input0", "input1", "input2", "labels"]
    np.testing.assert_allclose(training.accumulate(*given, labels), expected.item(), rtol=1e-5)
    theirs = {name: p.grad.numpy() for name, p in module.named_parameters() if p.grad is not None}
    ours = training.gradients()
    common = [n for n in ours if n in theirs and theirs[n].shape == ours[n].shape]
    assert len(common) > 20
    worst = oracle.errors({n: ours[n] for n in common}, {n: theirs[n] for n in common})
    assert max(worst.values()) <= 1e-4, worst
    assert not set(fused) & set(kinds(tmp_path / "training_model.onnx"))
    assert set(fused) <= set(kinds(tmp_path / "eval_model.onnx"))


def test_a_missing_import_of_the_runtimes_operators_is_added(tmp_path):
    model = behind_weight(NODE("Gelu", ["h"], ["y"], domain="com.microsoft"), shape=(3, 6))
    compare_with_torch(model, tmp_path, lambda t: torch.nn.functional.gelu(t.x @ t.W))


def test_a_missing_import_of_other_operators_is_refused(tmp_path):
    model = behind_weight(NODE("Mystery", ["h"], ["y"], name="strange", domain="my.domain"), shape=(3, 6))
    with pytest.raises(InvalidModelError, match=r"'strange' \(Mystery(.|\n)*'my.domain'(.|\n)*make_opsetid"):
        generate(model, tmp_path)
