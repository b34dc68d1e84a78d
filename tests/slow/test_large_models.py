"""Models of 3 GB: made here as sparse files, generated from by path, trained, saved and exported.

What the library writes are sparse files too (``sparse.py``), so that neither disk nor time is spent on zeros.
A table of embeddings of more than 2 GiB, or many matrices of 64 MiB.  All weights are zeros but a few rows, so that
what a step computes is known: with the residual blocks at zero, the scores are ``table[tokens] @ head``.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from artifacts.api import CheckpointState, Module, Optimizer
from onnxblock import files
from onnxblock.checkpoint import read_checkpoint
from tests.slow import sparse

ROOT = Path(__file__).resolve().parents[2]
WIDTH, CLASSES = 4096, 5
TWO_GIB, GB = 2**31, 10**9
ALLOWED_MIB = 300
TOKENS, LABELS = np.array([3, 7, 7]), np.array([1, 2, 4])
RATE = 0.005
LOSS = "CrossEntropyLoss"
LOSSES = ["MSELoss", "L1Loss", "BCEWithLogitsLoss", LOSS, "SmoothL1Loss"]

GENERATE = """
import json, resource, sys
from pathlib import Path
import onnx, onnxruntime
import artifacts, onnxblock
from artifacts import LossType, OptimType, generate_artifacts
from onnxblock import autodiff, blocks, checkpoint, loss, optim, training
from tests.slow import sparse

sparse.install()

def peak():
    status = Path("/proc/self/status")  # what getrusage says starts from what the parent process had
    if status.exists():
        return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (1024 if sys.platform == "darwin" else 1)

before = peak()
path, folder, settings = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
for kind in settings.pop("losses"):
    made = LossType[kind] if hasattr(LossType, kind) else getattr(loss, kind)()
    generate_artifacts(path, loss=made, optimizer=OptimType.SGD, artifact_directory=folder, prefix=kind, **settings)
print(json.dumps((peak() - before) / 1024))
"""


def write_model(folder: Path, rows: int, blocks: int) -> Path:
    """scores = h @ head with h = table[tokens], then h = h + h @ w<i> for each block; the data is a sparse file."""
    shapes = {"table": (rows, WIDTH), **{f"w{i}": (WIDTH, WIDTH) for i in range(blocks)}, "head": (WIDTH, CLASSES)}
    tensors, starts, end = [], {}, 0
    for name, shape in shapes.items():
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape, data_location=TensorProto.EXTERNAL)
        nbytes = 4 * math.prod(shape)
        for key, value in (("location", "weights.bin"), ("offset", end), ("length", nbytes)):
            tensor.external_data.add(key=key, value=str(value))
        tensors.append(tensor)
        starts[name], end = end, end + nbytes
    nodes = [helper.make_node("Gather", ["table", "tokens"], ["h0"])]
    for i in range(blocks):
        nodes.append(helper.make_node("MatMul", [f"h{i}", f"w{i}"], [f"change{i}"]))
        nodes.append(helper.make_node("Add", [f"h{i}", f"change{i}"], [f"h{i + 1}"]))
    nodes.append(helper.make_node("MatMul", [f"h{blocks}", "head"], ["scores"]))
    graph = helper.make_graph(
        nodes,
        "large",
        [helper.make_tensor_value_info("tokens", TensorProto.INT64, ["n"])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", CLASSES])],
        tensors,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    folder.mkdir(exist_ok=True)
    with (folder / "weights.bin").open("wb") as file:
        file.truncate(end)
        for row, token in enumerate(np.unique(TOKENS)):
            file.seek(starts["table"] + 4 * WIDTH * int(token))
            file.write(embeddings()[row].tobytes())
        file.seek(starts["head"])
        file.write(head().tobytes())
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return folder / "model.onnx"


def embeddings() -> np.ndarray:
    """The rows of the table for the tokens that occur."""
    return np.random.default_rng(1).standard_normal((2, WIDTH)).astype(np.float32) / 64


def head() -> np.ndarray:
    return np.random.default_rng(2).standard_normal((WIDTH, CLASSES)).astype(np.float32)


@pytest.fixture(autouse=True)
def _little_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Sparse files here as in the processes that are started; and folders of tests, which are kept for a while, go."""
    monkeypatch.setattr(files, "_open_temporary", files._open_temporary)  # puts back what follows
    sparse.install()
    yield
    shutil.rmtree(tmp_path, ignore_errors=True)


def require(disk: float, folder: Path) -> None:
    """Skip unless ``disk`` bytes are free, of which sparse files need less."""
    disk = 1.0 * GB if sparse.are_supported(folder) else disk
    free = shutil.disk_usage(folder).free
    if free < disk:
        pytest.skip(f"{disk / GB:.0f} GB of disk are needed in {folder}, {free / GB:.0f} GB are free")


def generate(model: Path, folder: Path, *losses: str, **settings: Any) -> float:
    """Generate in a process of its own, started in an empty folder; its peak memory above the imports, in MiB.

    The name of the loss stands before the names of the files.
    """
    elsewhere = folder / "working directory"
    elsewhere.mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, "-c", GENERATE, str(model), str(folder), json.dumps({"losses": losses, **settings})],
        cwd=elsewhere,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert not list(elsewhere.iterdir())
    elsewhere.rmdir()
    return float(json.loads(done.stdout))


def options() -> onnxruntime.SessionOptions:
    """A memory pool would keep what one step needs for the next; this machine may have little."""
    made = onnxruntime.SessionOptions()
    made.enable_cpu_mem_arena = False
    made.intra_op_num_threads = 1
    return made


def open_module(folder: Path, checkpoint: str = f"{LOSS}checkpoint") -> tuple[CheckpointState, Module, Optimizer]:
    state = CheckpointState.load_checkpoint(folder / checkpoint)
    paths = [folder / f"{LOSS}{name}_model.onnx" for name in ("training", "eval", "optimizer")]
    module = Module(paths[0], state, paths[1], session_options=options())
    return state, module, Optimizer(paths[2], module)


def sizes(folder: Path) -> dict[str, int]:
    """The bytes of each file, by its name without that of the loss."""
    return {path.name.removeprefix(LOSS): path.stat().st_size for path in folder.iterdir()}


def expected() -> tuple[float, np.ndarray, np.ndarray]:
    """The loss, and its derivatives in what is looked up and in ``head``."""
    h = embeddings()[np.unique(TOKENS, return_inverse=True)[1]].astype(np.float64)
    scores = h @ head().astype(np.float64)
    p = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    d = (p - np.eye(CLASSES)[LABELS]) / len(LABELS)
    return float(-np.log(p[np.arange(len(LABELS)), LABELS]).mean()), d @ head().T.astype(np.float64), h.T @ d


def close(actual: np.ndarray, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-6)


def test_a_huge_frozen_weight_and_trained_matrices(tmp_path):
    """All the way: generation, a step, the checkpoint saved and loaded, the model for inference."""
    require(14 * GB, tmp_path)
    model = write_model(tmp_path / "model", 137_000, 12)
    assert (tmp_path / "model" / "weights.bin").stat().st_size > 3.0 * GB
    made = tmp_path / "made"
    assert generate(model, made, LOSS, frozen_params=["table"]) < ALLOWED_MIB
    written = sizes(made)
    assert set(written) == {
        "training_model.onnx",
        "eval_model.onnx",
        "optimizer_model.onnx",
        "checkpoint",
        "checkpoint.data",
    }
    assert written["checkpoint.data"] > 3.0 * GB
    assert sum(written.values()) - written["checkpoint.data"] < 1e6

    state, module, optimizer = open_module(made)
    assert not state.parameters["table"].requires_grad
    assert state.parameters["table"].data.nbytes > TWO_GIB
    loss, _, d_head = expected()
    assert float(module(TOKENS, LABELS)) == pytest.approx(loss, rel=1e-5)
    close(state.parameters["head"].grad, d_head)
    optimizer.set_learning_rate(RATE)
    optimizer.step()
    close(state.parameters["head"].data, head() - RATE * d_head)
    improved = float(module.eval()(TOKENS, LABELS))
    assert improved < loss

    CheckpointState.save_checkpoint(state, made / "trained", include_optimizer_state=True)
    assert sizes(made)["trained.data"] == written["checkpoint.data"]
    module.export_model_for_inferencing(made / "inference.onnx", ["scores"])
    exported = onnx.load(made / "inference.onnx", load_external_data=False)
    assert [o.version for o in exported.opset_import] == [17]
    del state, module, optimizer
    _, module, _ = open_module(made, "trained")
    assert float(module.eval()(TOKENS, LABELS)) == improved
    session = onnxruntime.InferenceSession(made / "inference.onnx", options(), providers=["CPUExecutionProvider"])
    (scores,) = session.run(None, {"tokens": TOKENS})
    assert -np.log(softmax(scores)[np.arange(3), LABELS]).mean() == pytest.approx(improved, rel=1e-5)


def softmax(scores: np.ndarray) -> np.ndarray:
    exponential = np.exp(scores - scores.max(1, keepdims=True))
    return exponential / exponential.sum(1, keepdims=True)


def test_many_weights_that_stay_in_the_models(tmp_path):
    """What is neither trained nor frozen is external data that the training and the evaluation model share."""
    require(3 * GB, tmp_path)
    model = write_model(tmp_path / "model", 1000, 33)
    made = tmp_path / "made"
    assert generate(model, made, LOSS, requires_grad=["head"]) < ALLOWED_MIB
    written = sizes(made)
    assert TWO_GIB < written.pop("training_model.onnx.data") < 2.3 * GB
    assert sum(written.values()) < 1e6
    state, module, optimizer = open_module(made)
    assert [name for name, _ in state.parameters] == ["head"]
    loss, _, d_head = expected()
    assert float(module(TOKENS, LABELS)) == pytest.approx(loss, rel=1e-5)
    close(state.parameters["head"].grad, d_head)
    optimizer.set_learning_rate(RATE)
    optimizer.step()
    assert float(module.eval()(TOKENS, LABELS)) < loss


def test_one_huge_trained_weight(tmp_path):
    """A table of more than 2 GiB is trained: its gradient, and what a step does to it."""
    require(3 * GB, tmp_path)
    model = write_model(tmp_path / "model", 132_000, 0)
    made = tmp_path / "made"
    assert generate(model, made, LOSS) < ALLOWED_MIB
    state, module, optimizer = open_module(made)
    assert all(pair.in_place for pair in (*module.manifest.state, *optimizer.manifest.state))
    loss, d_h, _ = expected()
    assert float(module(TOKENS, LABELS)) == pytest.approx(loss, rel=1e-5)
    gradient = state.parameters["table"].grad
    assert gradient.nbytes > TWO_GIB
    close(gradient[[3, 7]], np.stack([d_h[0], d_h[1] + d_h[2]]))
    optimizer.set_learning_rate(RATE)
    optimizer.step()
    close(state.parameters["table"].data[3], embeddings()[0] - RATE * d_h[0])
    assert not state.parameters["table"].data[-1].any()


@pytest.mark.parametrize(("rows", "blocks"), [(137_000, 12), (1000, 46)], ids=["one huge weight", "many weights"])
def test_any_loss(rows, blocks, tmp_path):
    model = write_model(tmp_path / "model", rows, blocks)
    assert (tmp_path / "model" / "weights.bin").stat().st_size > 3.0 * GB
    assert generate(model, tmp_path / "made", *LOSSES, nominal_checkpoint=True) < ALLOWED_MIB
    for loss in LOSSES:
        for name in ("checkpoint", "nominal_checkpoint"):
            checkpoint = read_checkpoint(tmp_path / "made" / f"{loss}{name}")
            assert checkpoint.nominal == (name == "nominal_checkpoint")
            assert len(checkpoint.trainable) == blocks + 2
    written = sizes(tmp_path / "made")
    assert sum(size for name, size in written.items() if not name.endswith(".data")) < 1e6 * len(LOSSES)


def test_ort_format_is_refused_before_anything_is_written(tmp_path):
    model = write_model(tmp_path / "model", 137_000, 0)
    with pytest.raises(AssertionError) as caught:
        generate(model, tmp_path / "made", "MSELoss", requires_grad=["head"], ort_format=True)
    message = "InvalidModelError: training_model.onnx takes 2.24 GB with the weights that stay inside it"
    assert message in str(caught.value)
    assert [path.name for path in (tmp_path / "made").iterdir()] == ["working directory"]
    assert generate(model, tmp_path / "kept", "MSELoss", ort_format=True) < ALLOWED_MIB
    assert (tmp_path / "kept" / "MSELosstraining_model.ort").exists()


IN_MEMORY = """
import sys
import numpy as np
import artifacts, onnxblock
from tests.slow import sparse

sparse.install()

with onnxblock.base(sys.argv[1]) as graph:
    model = graph.to_model_proto()
assert len(model.graph.initializer[0].raw_data) > 2**31
files = artifacts.generate_artifacts(
    model, loss=artifacts.LossType.MSELoss, artifact_directory=sys.argv[2], nominal_checkpoint=True
)
onnxblock.save_checkpoint((list(model.graph.initializer), []), sys.argv[2] + "/saved")
print(*(parameter.name for parameter in files.trainable))
"""


def test_a_model_in_memory(tmp_path):
    """Above 2 GiB, where many releases of protobuf cannot serialize it."""
    require(3 * GB, tmp_path)
    model = write_model(tmp_path / "model", 132_000, 0)
    done = subprocess.run(
        [sys.executable, "-c", IN_MEMORY, str(model), str(tmp_path / "made")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.split()) == (0, ["table", "head"]), done.stderr[-4000:]
    saved = read_checkpoint(tmp_path / "made" / "saved")
    assert saved.external
    table, last = saved.trainable
    assert table.nbytes > TWO_GIB
    np.testing.assert_array_equal(table.array()[[3, 7]], embeddings())
    np.testing.assert_array_equal(last.array(), head())
