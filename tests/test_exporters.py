"""What exporters do to models: merged tensors, statistics that are computed, sizes without names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import artifacts
import onnxblock
from artifacts.api import CheckpointState, Module, Optimizer
from onnxblock.errors import BlockBuildError, FeedError, ParameterError

HEADER = '<ir_version: 9, opset_import: ["" : 18]>'


def model(text: str, **weights: np.ndarray) -> onnx.ModelProto:
    made = parser.parse_model(f"{HEADER} g {text}")
    made.graph.initializer.extend(numpy_helper.from_array(np.asarray(w, np.float32), n) for n, w in weights.items())
    return made


def trained(made: onnx.ModelProto, folder: Path, **options: object) -> tuple[artifacts.Artifacts, Module, Optimizer]:
    files = artifacts.generate_artifacts(
        made,
        loss=artifacts.LossType.MSELoss,
        optimizer=artifacts.OptimType.AdamW,
        artifact_directory=folder,
        **options,  # type: ignore[arg-type]
    )
    state = CheckpointState.load_checkpoint(files.checkpoint)
    module = Module(files.training_model, state, files.eval_model)
    return files, module, Optimizer(files.optimizer_model, module)


NORM = """(float[N,3] x) => (float[N,2] y) {{ {statistics} h = MatMul(x, w)
    r = BatchNormalization(h, s, b, {mean}, {variance}) y = MatMul(r, v) }}"""
WEIGHTS = {"w": np.eye(3), "s": np.ones(3), "b": np.zeros(3), "v": np.ones((3, 2))}


@pytest.mark.parametrize(
    ("statistics", "mean", "variance"),
    [
        ("rm = Identity(b) rv = Identity(s)", "rm", "rv"),
        ("rm = Constant<value=float[3] {0, 0, 0}>() rv = Constant<value=float[3] {1, 1, 1}>()", "rm", "rv"),
        ("", "b", "s"),
        ("", "b", "b"),
    ],
)
def test_running_statistics_that_the_exporter_merged_move_apart(
    statistics: str, mean: str, variance: str, tmp_path: Path
) -> None:
    made = model(NORM.format(statistics=statistics, mean=mean, variance=variance), **WEIGHTS)
    files, module, _ = trained(made, tmp_path, batch_norm="train")
    assert sorted(p.name for p in files.trainable) == ["b", "s", "v", "w"]
    moved = [p.name for p in files.statistics]
    assert len(moved) == 2
    x = np.random.default_rng(0).normal(5, 2, (64, 3)).astype(np.float32)
    for _ in range(60):
        module(x, np.zeros((64, 2), np.float32))
    module.eval()
    state = {name: module(x, np.zeros((64, 2), np.float32)) for name in ("eval",)}
    module.train()
    assert state["eval"] == pytest.approx(float(module(x, np.zeros((64, 2), np.float32))), rel=0.05)


@pytest.mark.parametrize(
    ("normalized", "batch_norm", "note"),
    [
        (True, "as exported", "batch_norm='train' uses those of each batch"),
        (True, "train", None),
        (True, "frozen", None),
        (False, "as exported", None),
        (False, "train", "PyTorch's keeps it with optimize=False"),
    ],
)
def test_what_batch_norm_does_is_said_where_it_may_not_be_meant(
    tmp_path: Path, normalized: bool, batch_norm: str, note: str | None
) -> None:
    node = "y = BatchNormalization(h, s, b, m, q)" if normalized else "y = Mul(h, s)"
    weights = {"s": np.ones(3), "b": np.zeros(3), "m": np.zeros(3), "q": np.ones(3)}
    used = weights if normalized else {"s": weights["s"]}
    made = model(f"(float[N,3] x) => (float[N,3] y) {{ h = MatMul(x, w) {node} }}", w=np.eye(3), **used)
    files, _, _ = trained(made, tmp_path, batch_norm=batch_norm)
    said = [each for each in files.notes if "BatchNormalization" in each]
    assert len(said) == (note is not None)
    assert note is None or note in said[0]


def test_one_layer_used_twice_keeps_its_statistics(tmp_path: Path) -> None:
    made = model(
        """(float[N,3] x) => (float[N,3] y) { a = MatMul(x, w) c = BatchNormalization(a, s, b, m, q)
        d = MatMul(c, w) y = BatchNormalization(d, s, b, m, q) }""",
        w=np.eye(3),
        s=np.ones(3),
        b=np.zeros(3),
        m=np.zeros(3),
        q=np.ones(3),
    )
    files, _, _ = trained(made, tmp_path, batch_norm="train")
    assert [p.name for p in files.statistics] == ["m", "q"]
    assert any("read by several layers" in note for note in files.notes)


@pytest.mark.parametrize("weight", ["v", "w"])
@pytest.mark.parametrize(
    "second",
    [
        "d = MatMul(c, {}) y = Add(d, b)",
        "d = MatMul(c, {}) y = Add(b, d)",
        "y = Gemm(c, {}, b)",
        "i = Identity(b) y = Gemm(c, {}, i)",
    ],
)
def test_a_bias_of_several_layers_is_said(tmp_path: Path, second: str, weight: str) -> None:
    """Equal biases of an untrained model are one tensor after an exporter's optimization."""
    nodes = f"a = MatMul(x, w) c = Add(a, b) {second.format(weight)}"
    given = {"w": np.eye(3), "b": np.zeros(3), weight: np.eye(3)}
    files, _, _ = trained(model(f"(float[N,3] x) => (float[N,3] y) {{ {nodes} }}", **given), tmp_path)
    said = [note.partition(",")[0] for note in files.notes if "exporters merge equal tensors" in note]
    assert said == ["b: read by several layers"] * (weight == "v")
    files, _, _ = trained(
        model(f"(float[N,3] x) => (float[N,3] y) {{ {nodes} }}", **given), tmp_path, frozen_params=["b"]
    )
    assert not any("exporters merge equal tensors" in note for note in files.notes)


def test_running_statistics_inside_a_body_are_not_trained(tmp_path: Path) -> None:
    made = model(
        """(float[N,3] x, bool c) => (float[N,3] y) { h = MatMul(x, w)
        y = If(c) <then_branch = t () => (float[N,3] o) { o = BatchNormalization(h, s, b, m, q) },
                   else_branch = e () => (float[N,3] p) { p = Identity(h) }> }""",
        w=np.eye(3),
        s=np.ones(3),
        b=np.zeros(3),
        m=np.zeros(3),
        q=np.ones(3),
    )
    files, _, _ = trained(made, tmp_path)
    assert {p.name for p in files.trainable} == {"w", "s", "b"}
    with pytest.raises(ParameterError, match="'m' is a running statistic"):
        trained(made, tmp_path, requires_grad=["w", "m"])
    for asked, said in (("as exported", False), ("train", True), ("frozen", True)):
        files, _, _ = trained(made, tmp_path, batch_norm=asked)
        assert ("BatchNormalization inside control flow (1 nodes) stays as exported" in files.notes) == said


@pytest.mark.parametrize("shape", [(1, 2), (2,), (3, 1), (), (2, 2)])
def test_a_target_of_another_size_is_not_broadcast(shape: tuple[int, ...], tmp_path: Path) -> None:
    made = model("(float x) => (float y) { y = MatMul(x, w) }", w=np.ones((4, 2)))
    for value in (made.graph.input[0], made.graph.output[0]):
        value.type.tensor_type.ClearField("shape")
    _, module, _ = trained(made, tmp_path)
    x = np.ones((3, 4), np.float32)
    assert float(module(x, np.full((3, 2), 4, np.float32))) == 0
    with pytest.raises((FeedError, onnxblock.OnnxBlockError)):
        module(x, np.full(shape, 4, np.float32))


@pytest.mark.parametrize("count", [1, 2, 4])
def test_labels_of_another_count_are_refused_in_evaluation_too(count: int, tmp_path: Path) -> None:
    made = model("(float[?,4] x) => (float[?,5] y) { y = MatMul(x, w) }", w=np.ones((4, 5)))
    files = artifacts.generate_artifacts(made, loss=artifacts.LossType.CrossEntropyLoss, artifact_directory=tmp_path)
    state = CheckpointState.load_checkpoint(files.checkpoint)
    module = Module(files.training_model, state, files.eval_model)
    x = np.ones((3, 4), np.float32)
    for mode in (module.train, module.eval):
        mode()
        assert float(module(x, np.zeros(3, np.int64))) == pytest.approx(np.log(5))
        with pytest.raises(onnxblock.OnnxBlockError):
            module(x, np.zeros(count, np.int64))


def test_labels_with_fractions_are_refused(tmp_path: Path) -> None:
    made = model("(float[N,4] x) => (float[N,5] y) { y = MatMul(x, w) }", w=np.ones((4, 5)))
    files = artifacts.generate_artifacts(made, loss=artifacts.LossType.CrossEntropyLoss, artifact_directory=tmp_path)
    module = Module(files.training_model, CheckpointState.load_checkpoint(files.checkpoint))
    with pytest.raises(FeedError, match="fractions"):
        module(np.ones((1, 4), np.float32), [2.7])


@pytest.mark.parametrize(("outputs", "wrt"), [(["y", "y"], ["w"]), ([], ["w"]), (["y"], []), (["y"], ["w", "w"])])
def test_gradients_of_nothing_or_of_the_same_twice_are_refused(outputs: list[str], wrt: list[str]) -> None:
    made = model("(float[N,4] x) => (float[N,5] y) { y = MatMul(x, w) }", w=np.ones((4, 5)))
    with pytest.raises(BlockBuildError, match=r"names (nothing|a value twice)"):
        onnxblock.gradients(made, outputs=outputs, wrt=wrt)


def test_the_summary_names_input_gradients_and_a_missing_optimizer(tmp_path: Path) -> None:
    made = model("(float[N,4] x) => (float[N,5] y) { y = MatMul(x, w) }", w=np.ones((4, 5)))
    files = artifacts.generate_artifacts(
        made,
        requires_grad=["x"],
        loss=artifacts.LossType.MSELoss,
        optimizer=artifacts.OptimType.AdamW,
        artifact_directory=tmp_path,
    )
    assert files.optimizer_model is None
    assert "'x_grad'" in str(files)
    assert "no optimizer model" in str(files)
