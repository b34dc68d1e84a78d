"""The same files train alike on stock onnxruntime and on onnxruntime-training 1.19.2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import artifacts
from artifacts import api
from onnxblock import optim
from onnxblock.checkpoint import read_checkpoint
from onnxblock.graph import store
from tests.interop import loop, networks
from tests.interop.networks import NETWORKS, Network

STEPS, BATCH = 20, 8
LOSS_TOLERANCE = 1e-5


def generate(network: Network, folder: Path, **settings: Any) -> dict[str, Any]:
    """Artifacts for the original and the batches to train them with, as a job of the loop."""
    random = np.random.default_rng(0)
    batches = [network.batch(random, BATCH) for _ in range(STEPS)]
    np.savez(folder / "data.npz", **{f"input{k}": np.stack(arrays) for k, arrays in enumerate(zip(*batches))})
    chosen = {
        "loss": artifacts.LossType.CrossEntropyLoss,
        "optimizer": artifacts.OptimType.AdamW,
        "runtime": "onnxruntime-training",
    }
    files = artifacts.generate_artifacts(network.model, artifact_directory=folder, **{**chosen, **settings})
    return {
        "training_model": files.training_model,
        "eval_model": files.eval_model,
        "optimizer_model": files.optimizer_model,
        "checkpoint": files.checkpoint,
        "data": folder / "data.npz",
        "learning_rate": 0.01,
    }


def assert_alike(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray], tolerance: float = 1e-4) -> None:
    np.testing.assert_allclose(ours["losses"], theirs["losses"], rtol=0, atol=LOSS_TOLERANCE)
    np.testing.assert_allclose(ours["evaluation"], theirs["evaluation"], rtol=0, atol=LOSS_TOLERANCE)
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        np.testing.assert_allclose(array, theirs[name], rtol=0, atol=tolerance, err_msg=name)


OPTIMIZERS: dict[str, Any] = {
    "AdamW": artifacts.OptimType.AdamW,
    "SGD": artifacts.OptimType.SGD,
    "AdamW clipped": optim.AdamW(betas=(0.8, 0.95), eps=1e-3, weight_decay=0.1, clip_grad=optim.ClipGradNorm(0.05)),
    "SGD clipped": optim.SGD(clip_grad=optim.ClipGradNorm(0.05)),
    "AdamW clipped by value": optim.AdamW(clip_grad=optim.ClipGradValue(0.01)),
    "AdamW uncorrected": optim.AdamW(bias_correction=False, betas=(0.875, 0.984375)),
    "AdamW as PyTorch": optim.AdamW(eps=1e-8, weight_decay=0.1, variant="torch"),
}
CASES = [
    *((family, opset, "AdamW") for family in NETWORKS for opset in (17, 21)),
    *(("mlp", 17, optimizer) for optimizer in OPTIMIZERS if optimizer != "AdamW"),
    ("cnn", 17, "SGD"),
]


@pytest.mark.parametrize(("family", "opset", "optimizer"), CASES)
def test_twenty_steps_give_the_same_losses(family, opset, optimizer, original, tmp_path):
    every_weight = ["w", "b", "temperature"] if family == "scalar" else None
    rate = 0.1 if optimizer.startswith("SGD") else 0.01
    settings = {"optimizer": OPTIMIZERS[optimizer], "requires_grad": every_weight}
    job = {**generate(NETWORKS[family](opset), tmp_path, **settings), "learning_rate": rate}
    ours, theirs = loop.run(api, job), original(**job)
    assert_alike(ours, theirs)
    assert len(theirs["losses"]) == STEPS
    start = dict(api.CheckpointState.load_checkpoint(job["checkpoint"]).parameters)
    for name, parameter in start.items():  # running statistics among them
        assert not np.array_equal(theirs[f"parameter:{name}"], parameter.data), f"{name} did not move"


@pytest.mark.parametrize("optimizer", ["AdamW", "SGD"])
def test_gradients_accumulate_alike(optimizer, original, tmp_path):
    job = {**generate(NETWORKS["cnn"](), tmp_path, optimizer=OPTIMIZERS[optimizer]), "accumulate": 4}
    assert_alike(loop.run(api, job), original(**job))


def test_dropout_drops_in_training_on_both(original, tmp_path):
    job = generate(networks.dropout(ratio=0.5), tmp_path)
    job["learning_rate"] = 0.0
    with np.load(job["data"]) as data:
        np.savez(job["data"], **{name: np.repeat(data[name][:1], STEPS, 0) for name in data})
    ours, theirs = loop.run(api, job), original(**job)
    for result in (ours, theirs):
        assert len(np.unique(result["losses"])) > STEPS // 2
        assert np.isfinite(result["losses"]).all()
    np.testing.assert_allclose(ours["evaluation"], theirs["evaluation"], atol=LOSS_TOLERANCE)


@pytest.mark.parametrize("optimizer", ["AdamW", "SGD"])
@pytest.mark.parametrize("family", ["mlp", "cnn"])
def test_checkpoints_cross_over_and_continue(family, optimizer, original, tmp_path):
    job = generate(NETWORKS[family](), tmp_path, optimizer=OPTIMIZERS[optimizer])
    whole = loop.run(api, job)["losses"]
    start = {**job, "steps": (0, 12)}
    first_here = loop.run(api, {**start, "save": tmp_path / "here"})
    first_there = original(**start, save=tmp_path / "there")
    rest = {**job, "steps": (12, STEPS)}
    for saved in ("here", "there"):
        continued = {**rest, "checkpoint": tmp_path / saved}
        ours, theirs = loop.run(api, {**continued, "save": tmp_path / f"{saved}, here"}), original(**continued)
        assert_alike(ours, theirs)
        np.testing.assert_allclose(ours["losses"], whole[12:], rtol=0, atol=LOSS_TOLERANCE)
        state = api.CheckpointState.load_checkpoint(tmp_path / saved)
        assert state.properties["interop"] == 1
        ((group),) = read_checkpoint(tmp_path / saved).optimizer_groups
        assert group.step == 12
    np.testing.assert_allclose(first_here["losses"], first_there["losses"], rtol=0, atol=LOSS_TOLERANCE)


def test_a_checkpoint_saved_there_keeps_what_it_holds(original, tmp_path):
    """The same state saved by both gives files of equal content: names, moments, step, properties."""
    job = generate(NETWORKS["mlp"](), tmp_path)
    loop.run(api, {**job, "save": tmp_path / "here"})
    original(**job, save=tmp_path / "there")
    here, there = read_checkpoint(tmp_path / "here"), read_checkpoint(tmp_path / "there")
    assert [t.name for t in here.parameters] == [t.name for t in there.parameters]
    for ours, theirs in zip(here.parameters, there.parameters, strict=True):
        np.testing.assert_allclose(ours.array(), theirs.array(), rtol=0, atol=1e-5)
    (ours,), (theirs,) = here.optimizer_groups, there.optimizer_groups
    assert (ours.step, ours.moments.keys()) == (theirs.step, theirs.moments.keys())
    for name, tensors in ours.moments.items():
        for mine, other in zip(tensors, theirs.moments[name], strict=True):
            assert mine.name == other.name
            np.testing.assert_allclose(mine.array(), other.array(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", ["mlp", "cnn"])
@pytest.mark.parametrize("optimizer", ["AdamW", "SGD"])
def test_default_files_train_with_the_originals_optimizer(family, optimizer, original, tmp_path):
    """Only the optimizer model depends on ``runtime``: training, evaluation and checkpoint are the same bytes."""
    for name in ("stock", "training"):
        (tmp_path / name).mkdir()
    settings = {"optimizer": OPTIMIZERS[optimizer]}
    stock = generate(NETWORKS[family](), tmp_path / "stock", runtime="onnxruntime", **settings)
    other = generate(NETWORKS[family](), tmp_path / "training", **settings)
    assert stock["checkpoint"].read_bytes() == other["checkpoint"].read_bytes()
    for name in ("training_model", "eval_model"):
        assert onnx.load(stock[name]).graph == onnx.load(other[name]).graph
    mixed = {**stock, "optimizer_model": other["optimizer_model"]}
    assert_alike(loop.run(api, stock), original(**mixed))


def test_models_that_share_a_file_of_external_data(original, tmp_path, monkeypatch):
    """As those above 2 GB do: what is neither trained nor frozen stands in it once."""
    monkeypatch.setattr(store, "SINGLE_FILE_NBYTES", 2048)
    random = np.random.default_rng(7)
    text = f"""
    wide (float[n, 12] x) => (float[n, {networks.CLASSES}] scores) {{
        a = Gemm <transB = 1> (x, w0, b0)
        h = Tanh (a)
        scores = Gemm <transB = 1> (h, w1, b1)
    }}"""
    weights = {"w0": networks.weight(random, 64, 12), "b0": np.zeros(64), "w1": networks.weight(random, 5, 64)}
    wide = Network(networks.make(text, {**weights, "b1": np.zeros(5)}, 17), networks.vectors)
    folder = tmp_path / "not the working directory"
    folder.mkdir()
    job = {**generate(wide, folder, requires_grad=["w1", "b1"]), "outputs": ["scores"]}
    assert sorted(p.name for p in folder.glob("*.data")) == ["training_model.onnx.data"]
    assert (folder / "training_model.onnx.data").stat().st_size == 4 * 64 * 12
    ours = loop.run(api, {**job, "export": tmp_path / "here.onnx"})
    assert_alike(ours, original(**job))
    assert (tmp_path / "here.onnx.data").exists()


def test_inference_models_exported_on_both_agree(original, tmp_path):
    import onnxruntime

    network = NETWORKS["cnn"]()
    job = {**generate(network, tmp_path), "outputs": ["scores"]}
    loop.run(api, {**job, "export": tmp_path / "here.onnx"})
    original(**job, export=tmp_path / "there.onnx")
    x = network.batch(np.random.default_rng(9), 3)[0]
    scores = [
        onnxruntime.InferenceSession(tmp_path / f"{name}.onnx", providers=["CPUExecutionProvider"]).run(None, {"x": x})
        for name in ("here", "there")
    ]
    np.testing.assert_allclose(scores[0][0], scores[1][0], rtol=0, atol=1e-4)


@pytest.mark.parametrize("optimizer", ["AdamW", "SGD"])
def test_a_training_begun_with_default_files_continues_there_and_back(optimizer, original, tmp_path):
    for name in ("stock", "training"):
        (tmp_path / name).mkdir()
    settings = {"optimizer": OPTIMIZERS[optimizer]}
    stock = generate(NETWORKS["cnn"](), tmp_path / "stock", runtime="onnxruntime", **settings)
    other = generate(NETWORKS["cnn"](), tmp_path / "training", **settings)
    there = {**stock, "optimizer_model": other["optimizer_model"]}
    whole = loop.run(api, stock)
    loop.run(api, {**stock, "steps": (0, 8), "save": tmp_path / "first"})
    second = original(**{**there, "steps": (8, 14), "checkpoint": tmp_path / "first", "save": tmp_path / "second"})
    np.testing.assert_allclose(second["losses"], whole["losses"][8:14], rtol=0, atol=LOSS_TOLERANCE)
    third = loop.run(api, {**stock, "steps": (14, STEPS), "checkpoint": tmp_path / "second"})
    np.testing.assert_allclose(third["losses"], whole["losses"][14:], rtol=0, atol=LOSS_TOLERANCE)


def test_what_only_this_library_saves_does_not_disturb_the_original(original, tmp_path):
    """A schedule, what the moments are, and gradients between two batches of one step."""
    job = generate(NETWORKS["mlp"](), tmp_path)
    state = api.CheckpointState.load_checkpoint(job["checkpoint"])
    module = api.Module(job["training_model"], state)
    optimizer = api.Optimizer(job["optimizer_model"], module)
    api.WarmUp(api.CosineAnnealingLR(optimizer, 10), 2)
    with np.load(job["data"]) as arrays:
        first = [arrays[f"input{k}"][0] for k in range(len(arrays))]
    module(*first)
    optimizer.step()
    module(*first)
    for name, include_gradients in (("with", True), ("without", False)):
        api.CheckpointState.save_checkpoint(state, tmp_path / name, True, include_gradients=include_gradients)
    assert len(read_checkpoint(tmp_path / "with").optimizer_groups) == 2
    theirs = original(**{**job, "checkpoint": tmp_path / "with", "save": tmp_path / "there"})
    assert_alike(loop.run(api, {**job, "checkpoint": tmp_path / "without"}), theirs)
    back = api.CheckpointState.load_checkpoint(tmp_path / "there")
    assert not back.storage.gradients_pending  # the original kept them, and went on
    assert back.storage.extras.memory == optim.AdamW().memory
