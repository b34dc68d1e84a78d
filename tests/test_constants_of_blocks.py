"""Numbers in the code of blocks are no weights: nothing trains them unless they are named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import artifacts
import onnxblock
from artifacts.api import CheckpointState, Module
from onnxblock import blocks, loss, optim
from tests.training import begin

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CLASSES = 5
SCALES = np.arange(1, CLASSES + 1, dtype=np.float32)
WEIGHTS = ["Network/Linear/weight", "Network/Linear/bias"]


class Network(onnxblock.ForwardBlock):
    """Standardizes its input with numbers from the code, as image models do."""

    def __init__(self) -> None:
        self.linear = blocks.Linear(4, CLASSES, seed=0)

    def build(self, x: onnxblock.Value) -> onnxblock.Value:
        return self.linear((x - np.arange(4, dtype=np.float32)) / blocks.Constant([1.0, 2.0, 3.0, 4.0])())


def network() -> onnx.ModelProto:
    with onnxblock.empty_base() as graph:
        block = Network()
        block(graph.input("x", np.float32, ["n", 4]))
        return block.to_model_proto()


class Scaled(onnxblock.Block):
    def __init__(self, scale: Callable[[onnxblock.Graph], object]) -> None:
        self.scale = scale

    def build(self, prediction: onnxblock.Value) -> onnxblock.Value:
        return (self.graph.op.Mul(prediction, self.scale(self.graph)) ** 2).mean()


@pytest.mark.parametrize(
    "block",
    [
        Scaled(lambda graph: SCALES),
        Scaled(lambda graph: SCALES.tolist()),
        Scaled(lambda graph: graph.constant(SCALES)),
        Scaled(lambda graph: blocks.Constant(SCALES)()),
        loss.CrossEntropyLoss(weight=SCALES),
        loss.NLLLoss(weight=SCALES),
        loss.BCEWithLogitsLoss(weight=SCALES, pos_weight=SCALES[::-1]),
    ],
)
def test_constants_of_a_loss_are_neither_trained_nor_listed(tmp_path: Path, block: onnxblock.Block) -> None:
    files = artifacts.generate_artifacts(network(), loss=block, artifact_directory=tmp_path)
    assert [p.name for p in files.trainable] == WEIGHTS
    # what the model itself was built of is listed; what the loss added is not
    assert {p.shape for p in files.untouched} == {(4,)}
    assert {p.reason for p in files.untouched} == {
        "a constant that a block wrote; name it in requires_grad to train it"
    }


def test_class_weights_stay_what_they_are(tmp_path: Path) -> None:
    files = artifacts.generate_artifacts(
        network(),
        loss=loss.CrossEntropyLoss(weight=SCALES),
        optimizer=artifacts.OptimType.AdamW,
        artifact_directory=tmp_path,
    )
    training = begin(files)
    generator = np.random.default_rng(0)
    x, labels = generator.standard_normal((8, 4), np.float32), generator.integers(0, CLASSES, 8)
    for _ in range(5):
        training.step(x, labels)
    path = tmp_path / "trained.onnx"
    training.module.export_model_for_inferencing(path, [network().graph.output[0].name])
    values = {t.name: numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}
    scores = (x - np.arange(4)) / np.arange(1, 5) @ values[WEIGHTS[0]] + values[WEIGHTS[1]]
    chances = np.log(np.exp(scores).sum(1)) - scores[np.arange(8), labels]
    expected = (chances * SCALES[labels]).sum() / SCALES[labels].sum()
    training.module.eval()
    np.testing.assert_allclose(training.module(x, labels), expected, rtol=1e-5)


def test_a_constant_is_trained_if_it_is_named(tmp_path: Path) -> None:
    model = network()
    name = next(t.name for t in model.graph.initializer if list(t.dims) == [4])
    files = artifacts.generate_artifacts(
        model, requires_grad=[*WEIGHTS, name], loss=artifacts.LossType.MSELoss, artifact_directory=tmp_path
    )
    assert {p.name for p in files.trainable} == {*WEIGHTS, name}


def test_the_note_goes_with_the_model_that_is_exported_and_with_no_other_file(tmp_path: Path) -> None:
    files = artifacts.generate_artifacts(network(), loss=artifacts.LossType.MSELoss, artifact_directory=tmp_path)
    for path in (files.training_model, files.eval_model):
        assert "onnxblock.constants" not in {entry.key for entry in onnx.load(path).metadata_props}
    module = Module(files.training_model, CheckpointState.load_checkpoint(files.checkpoint), files.eval_model)
    module.export_model_for_inferencing(tmp_path / "exported.onnx", [network().graph.output[0].name])
    for model in (tmp_path / "exported.onnx", network()):
        assert [p.name for p in onnxblock.inspect(model).trainable] == WEIGHTS


def test_models_on_top_of_others_keep_both_notes() -> None:
    class Head(onnxblock.ForwardBlock):
        def build(self, scores: onnxblock.Value) -> onnxblock.Value:
            return scores * SCALES

    below = network()
    with onnxblock.base(below):
        head = Head()
        head(below.graph.output[0].name)
        model = head.to_model_proto()
    assert [p.name for p in onnxblock.inspect(model).trainable] == WEIGHTS
    assert {p.shape for p in onnxblock.inspect(model).not_trained} == {(4,), (CLASSES,)}


def test_a_training_block_does_not_train_the_constants_of_either_part() -> None:
    class Loss(onnxblock.TrainingBlock):
        def build(self, scores: onnxblock.Value) -> onnxblock.Value:
            return (scores * SCALES).mean()

    with onnxblock.empty_base() as graph:
        block = Loss()
        block(Network()(graph.input("x", np.float32, ["n", 4])))
        trained, _ = block.parameters()
    assert [t.name for t in trained] == WEIGHTS


def test_a_list_of_every_weight_of_the_model_leaves_running_statistics_out_whatever_the_loss_adds(
    tmp_path: Path,
) -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[n, 5] x) => (float[n, 5] y)
        <float[5] s = {1, 2, 3, 4, 5}, float[5] b = {1, 2, 3, 4, 5},
         float[5] m = {0, 0, 0, 0, 0}, float[5] v = {1, 1, 1, 1, 1}>
        { y = BatchNormalization(x, s, b, m, v) }
    """)
    files = artifacts.generate_artifacts(
        model, requires_grad=["s", "b", "m", "v"], loss=Scaled(lambda graph: SCALES), artifact_directory=tmp_path
    )
    assert [p.name for p in files.trainable] == ["s", "b"]


def test_a_fused_step_of_a_model_with_constants(tmp_path: Path) -> None:
    files = artifacts.generate_artifacts(
        network(),
        loss=loss.CrossEntropyLoss(weight=SCALES),
        optimizer=optim.AdamW(clip_grad=optim.ClipGradNorm(1.0)),
        artifact_directory=tmp_path,
        fused_step=True,
    )
    for path in (files.training_model, files.eval_model, files.optimizer_model, files.step_model):
        keys = [entry.key for entry in onnx.load(path).metadata_props]
        assert "onnxblock.constants" not in keys
        assert len(keys) == len(set(keys))
