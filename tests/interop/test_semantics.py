"""Both runtimes do the same with the same files, call by call, but for the differences in ``DIFFERENT``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import artifacts
from artifacts import api
from tests.interop.conftest import run_job
from tests.interop.networks import NETWORKS

SCRIPT = Path(__file__).parent / "semantics.py"
WARMUP, TOTAL = 2, 6
DIFFERENT = {
    "refused: an integer of 65 bits": (True, False),  # it loses digits there
    "a float32": ("float", "int"),
}
"""What is seen here, and there; the porting guide lists it."""


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """A job for each runtime."""
    folder = tmp_path_factory.mktemp("semantics")
    network, random = NETWORKS["mlp"](), np.random.default_rng(0)
    batches = [network.batch(random, 8) for _ in range(6)]
    np.savez(folder / "data.npz", **{f"input{k}": np.stack(arrays) for k, arrays in enumerate(zip(*batches))})
    settings: dict[str, Any] = {
        "requires_grad": ["w0", "b1", "w1"],
        "frozen_params": ["b0"],
        "loss": artifacts.LossType.CrossEntropyLoss,
        "optimizer": artifacts.OptimType.AdamW,
        "artifact_directory": folder,
        "runtime": "onnxruntime-training",
    }
    files = artifacts.generate_artifacts(network.model, nominal_checkpoint=True, **settings)
    job = {
        "training_model": files.training_model,
        "eval_model": files.eval_model,
        "optimizer_model": files.optimizer_model,
        "checkpoint": files.checkpoint,
        "nominal": files.nominal_checkpoint,
        "data": folder / "data.npz",
        "frozen": "b0",
        "value": "h",
    }
    # the original swaps these two
    schedules = {"here": (WARMUP, TOTAL), "there": (TOTAL, WARMUP)}
    return {
        where: {k: str(v) for k, v in job.items()}
        | {"saved": str(folder / f"{where}.saved"), "exported": str(folder / f"{where}.onnx"), "schedule": schedule}
        for where, schedule in schedules.items()
    }


@pytest.fixture(scope="module")
def seen(jobs: dict[str, dict[str, Any]], original_python: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What each runtime does."""
    sys.path.insert(0, str(SCRIPT.parent))
    try:
        from semantics import Observer, plain
    finally:
        sys.path.remove(str(SCRIPT.parent))
    path = tmp_path_factory.mktemp("there") / "job.json"
    run_job(original_python, SCRIPT, path, jobs["there"])
    there = json.loads(path.with_suffix(".seen").read_text(encoding="utf-8"))
    here = json.loads(json.dumps(plain(Observer(api, jobs["here"]).everything())))
    return here, there


def alike(ours: Any, theirs: Any) -> bool:
    """Equal, but for the rounding of numbers."""
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(alike, ours, theirs))
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(alike(item, theirs[name]) for name, item in ours.items())
    if isinstance(ours, float) and isinstance(theirs, float):
        return abs(ours - theirs) <= 1e-5
    return type(ours) is type(theirs) and ours == theirs


@pytest.mark.parametrize(
    ("ours", "theirs"), [([1.0], [1.1]), (1, True), ([1], [1, 2]), ({"a": 1}, {"a": 2}), ({"a": 1}, {})]
)
def test_what_differs_is_noticed(ours, theirs):
    assert not alike(ours, theirs)
    assert alike(ours, ours)


def test_every_call_does_the_same(seen):
    here, there = seen
    assert here.keys() == there.keys()
    assert len(here) > 45
    different = {what: (ours, there[what]) for what, ours in here.items() if not alike(ours, there[what])}
    assert different == DIFFERENT


def test_the_facts_behind_it(seen):
    """What the porting guide and the docstrings say of both."""
    here, _ = seen
    first, both, still, kept, replaced, added, after = map(np.array, here["gradients"])
    assert not np.any(here["gradients at first"])
    assert np.abs(both - first).max() > 0.01
    np.testing.assert_array_equal(still, both)
    np.testing.assert_array_equal(kept, both)
    np.testing.assert_array_equal(after, added)
    assert here["losses"][2] == here["losses"][3]  # in evaluation and then in training
    assert np.abs(added - replaced).max() > 0.01
    for what in ("too few", "too many", "another type", "another size", "no such parameter"):
        assert here[what]
    assert all(here["nominal: refused"])
    np.testing.assert_allclose(here["schedule"][:6], [0, 0, 0.1, 0.2, 0.15, 0.1], atol=1e-6)
    assert here["sizes"] == [277, 293, 277]


@pytest.mark.usefixtures("seen")
def test_the_exported_models_give_the_same(jobs):
    x = np.random.default_rng(9).standard_normal((3, 12)).astype(np.float32)
    found = []
    for job in jobs.values():
        session = onnxruntime.InferenceSession(job["exported"], providers=["CPUExecutionProvider"])
        assert [i.name for i in session.get_inputs()] == ["x"]
        assert [o.name for o in session.get_outputs()] == ["h"]
        found.append(session.run(None, {"x": x})[0])
    np.testing.assert_allclose(found[0], found[1], rtol=0, atol=1e-6)


def test_evaluation_without_a_model_ends_the_process_there(jobs, original_python, tmp_path):
    """Here it is an exception: tests/artifacts/test_original_semantics.py."""
    program = f"""
import sys
import numpy as np
sys.path.insert(0, {str(SCRIPT.parent)!r})
from loop import original_api
api = original_api()
state = api.CheckpointState.load_checkpoint({jobs["there"]["checkpoint"]!r})
module = api.Module({jobs["there"]["training_model"]!r}, state)
module.eval()
print("begun", flush=True)
module(np.zeros((8, 12), np.float32), np.zeros(8, np.int64))
"""
    command = [original_python, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "begun\n"
    assert done.returncode < 0, done.stderr


def test_an_input_called_like_a_gradient_is_taken_for_one_there(original_python, tmp_path):
    """So such files are for stock onnxruntime only: tests/artifacts/test_runtimes.py."""
    model = NETWORKS["mlp"]().model
    model.graph.node[0].input[0] = model.graph.input[0].name = "x_grad"
    files = artifacts.generate_artifacts(model, loss=artifacts.LossType.CrossEntropyLoss, artifact_directory=tmp_path)
    assert files.runtimes == ("onnxruntime",)
    module = api.Module(files.training_model, api.CheckpointState.load_checkpoint(files.checkpoint))
    assert module.input_names() == ["x_grad", "labels"]
    program = f"""
import sys
sys.path.insert(0, {str(SCRIPT.parent)!r})
from loop import original_api
api = original_api()
state = api.CheckpointState.load_checkpoint({str(files.checkpoint)!r})
print(api.Module({str(files.training_model)!r}, state).input_names())
"""
    done = subprocess.run([original_python, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "['labels']\n", done.stderr
