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
    assert any(note.startswith("w, s, b: used at several places") for note in files.notes)


def notes_of_sharing(made: onnx.ModelProto, folder: Path, **options: object) -> list[str]:
    """Those of ``generate_artifacts``, which ``inspect`` says too unless options choose the weights."""
    files, _, _ = trained(made, folder, **options)
    said = [note for note in files.notes if "used at several places" in note or "the transpose of" in note]
    lines = [line.removeprefix("note: ") for line in str(onnxblock.inspect(made)).splitlines()]
    assert options or [line for line in lines if "used at several places" in line or "the transpose of" in line] == said
    return said


@pytest.mark.parametrize(
    "second",
    [
        "d = MatMul(c, v) y = Add(d, b)",
        "d = MatMul(c, v) y = Add(b, d)",
        "y = Gemm(c, v, b)",
        "i = Identity(b) y = Gemm(c, v, i)",
        "two = Constant<value_float=2.0>() i = Mul(b, two) y = Gemm(c, v, i)",
    ],
)
def test_a_bias_of_several_layers_is_said(tmp_path: Path, second: str) -> None:
    """Equal biases of an untrained model are one tensor after an exporter's optimization."""
    nodes = f"a = MatMul(x, w) c = Add(a, b) {second}"
    made = model(f"(float[N,3] x) => (float[N,3] y) {{ {nodes} }}", w=np.eye(3), b=np.zeros(3), v=np.eye(3))
    (said,) = notes_of_sharing(made, tmp_path)
    assert said.startswith("b: used at several places")
    assert "optimize=False" in said
    assert not notes_of_sharing(made, tmp_path, frozen_params=["b"])


def test_of_many_shared_weights_a_few_are_named(tmp_path: Path) -> None:
    weights = {f"b{k}": np.zeros(3) for k in range(8)}
    sums = " ".join(f"s{k} = Add(h{k}, {name}) h{k + 1} = Add(s{k}, {name})" for k, name in enumerate(weights))
    made = model(f"(float[N,3] x) => (float[N,3] h8) {{ h0 = MatMul(x, w) {sums} }}", w=np.eye(3), **weights)
    (said,) = notes_of_sharing(made, tmp_path)
    assert said.startswith("b0, b1, b2, b3, b4 and 3 more: used")


@pytest.mark.parametrize(
    "nodes",
    [
        # Weight normalization: the weight is used once, by what several nodes make of it.
        "n = ReduceL2<keepdims=0>(w) u = Div(w, n) y = MatMul(x, u)",
        "s = Shape(w) one = Constant<value_ints=[-1, 3]>() r = Reshape(x, one) y = MatMul(r, w) z = Expand(y, s)",
        # One branch of the two runs.
        """y = If(c) <then_branch = t () => (float[3,3] o) { o = MatMul(x, w) },
                      else_branch = e () => (float[3,3] p) { p = Gemm(x, w) }>""",
    ],
)
def test_a_weight_that_several_nodes_read_for_one_layer_is_not_said(tmp_path: Path, nodes: str) -> None:
    made = model(f"(float[3,3] x, bool c) => (float[3,3] y) {{ {nodes} }}", w=np.eye(3))
    assert not notes_of_sharing(made, tmp_path)


def test_a_weight_that_a_body_reads_too_is_said(tmp_path: Path) -> None:
    made = model(
        """(float[3,3] x, bool c) => (float[3,3] y) { h = MatMul(x, w)
        y = If(c) <then_branch = t () => (float[3,3] o) { o = MatMul(h, w) },
                   else_branch = e () => (float[3,3] p) { p = Identity(h) }> }""",
        w=np.eye(3),
    )
    (said,) = notes_of_sharing(made, tmp_path)
    assert said.startswith("w: used at several places")


TABLE = np.random.default_rng(0).normal(size=(20, 5))


@pytest.mark.parametrize(
    ("matrix", "noted"),
    [(TABLE.T, True), (-TABLE.T, False), (np.zeros((5, 20)), False), (np.zeros((5, 21)), False)],
)
def test_an_embedding_and_its_copy_in_the_output_layer_are_said(
    tmp_path: Path, matrix: np.ndarray, noted: bool
) -> None:
    """As PyTorch's exporter writes a tied embedding when it folds the transpose away."""
    size = matrix.shape[1]
    made = model(
        f"(int64[N] x) => (float[N,{size}] y) {{ h = Gather(table, x) y = MatMul(h, out) }}", table=TABLE, out=matrix
    )
    said = notes_of_sharing(made, tmp_path)
    assert [note.partition(":")[0] for note in said] == ["table and out"] * noted
    assert not notes_of_sharing(made, tmp_path, frozen_params=["table"])


def test_an_embedding_that_is_the_output_layer_is_not_said(tmp_path: Path) -> None:
    made = model(
        "(int64[N] x) => (float[N,20] y) { h = Gather(table, x) t = Transpose(table) y = MatMul(h, t) }", table=TABLE
    )
    assert not notes_of_sharing(made, tmp_path)


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
