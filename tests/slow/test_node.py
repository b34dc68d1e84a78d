"""Training without Python: the loop in ``examples/node`` reaches the losses of ``artifacts.api``."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import artifacts
from artifacts import api
from onnxblock import optim
from onnxblock.optim import slices
from tests.interop import loop
from tests.interop.networks import NETWORKS

EXAMPLE = Path(__file__).resolve().parent.parent.parent / "examples" / "node"
OLDEST_NODE = 18
STEPS, BATCH, RATE = 20, 8, 0.01


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"training without Python needs {name}")
    return found


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def example(tmp_path_factory) -> Path:
    """A copy of the example with its one dependency installed."""
    node, npm = program("node"), program("npm")
    folder = tmp_path_factory.mktemp("node")
    version = run([node, "--version"], folder).strip()
    if int(version.removeprefix("v").split(".")[0]) < OLDEST_NODE:
        pytest.skip(f"training without Python needs Node.js {OLDEST_NODE} or newer, this is {version}")
    for path in EXAMPLE.glob("*.js*"):
        shutil.copy(path, folder)
    run([npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", "--cache", str(folder / "cache")], folder)
    return folder


OPTIMIZERS = {
    "AdamW": artifacts.OptimType.AdamW,
    "SGD": artifacts.OptimType.SGD,
    "Adagrad": optim.Adagrad(initial_accumulator_value=0.1),
    "groups": optim.ParameterGroups(
        optim.AdamW(weight_decay=0.1), optim.Group(optim.vectors, weight_decay=0.0, learning_rate_scale=3.0)
    ),
    "EMA": optim.ExponentialMovingAverage(optim.SGD(momentum=0.9)),
}
SLICED = "EMA"
"""The optimizer that takes all but the smallest parameters in slices."""
CASES = [*((family, "AdamW") for family in NETWORKS), *(("mlp", name) for name in OPTIMIZERS if name != "AdamW")]
FORMS = {"two models": [], "fused": ["fused"]}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("family", "optimizer"), CASES)
def test_node_reaches_the_same_losses(family, optimizer, form, example, tmp_path, monkeypatch):
    if optimizer == SLICED:
        monkeypatch.setattr(slices, "_LONGEST", 64)
    network, random = NETWORKS[family](), np.random.default_rng(0)
    batches = [network.batch(random, BATCH) for _ in range(STEPS)]
    files = artifacts.generate_artifacts(
        network.model,
        loss=artifacts.LossType.CrossEntropyLoss,
        optimizer=OPTIMIZERS[optimizer],
        artifact_directory=tmp_path,
        fused_step=form == "fused",
    )
    names = [network.model.graph.input[0].name, "labels"]
    plain = [
        {name: {"dims": array.shape, "data": array.ravel().tolist()} for name, array in zip(names, batch, strict=True)}
        for batch in batches
    ]
    (tmp_path / "batches.json").write_text(json.dumps(plain))
    command = [program("node"), "train.js", str(tmp_path), str(tmp_path / "batches.json"), str(RATE), *FORMS[form]]
    there = json.loads(run(command, example))
    np.savez(tmp_path / "data.npz", **{f"input{k}": np.stack(arrays) for k, arrays in enumerate(zip(*batches))})
    here = loop.run(
        api,
        {
            "training_model": files.training_model,
            "eval_model": files.eval_model,
            "optimizer_model": files.optimizer_model,
            "checkpoint": files.checkpoint,
            "data": tmp_path / "data.npz",
            "learning_rate": RATE,
        },
    )
    assert len(there["losses"]) == STEPS
    np.testing.assert_allclose(there["losses"], here["losses"], rtol=0, atol=1e-5)
    np.testing.assert_allclose(there["evaluation"], here["evaluation"], rtol=0, atol=1e-5)
    assert len(set(there["losses"])) == STEPS
