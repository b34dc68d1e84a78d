"""A device trains from generated artifacts with NumPy and onnxruntime alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from onnxblock import optim
from tests.training import begin, convolutional, generate, perceptron, random_batch

ROOT = Path(__file__).resolve().parent.parent

ON_THE_DEVICE = """
import json, pathlib, sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"onnx", "ml_dtypes", "google", "torch", "sklearn"}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Block())

import numpy as np
import onnxruntime
from artifacts.api import CheckpointState, LinearLRScheduler, Module, Optimizer
from onnxblock.errors import RuntimeUnavailableError

folder = pathlib.Path(sys.argv[1])
x, labels = (np.load(folder / f"{name}.npy") for name in ("x", "labels"))
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1

def open_(checkpoint, **settings):
    state = CheckpointState.load_checkpoint(checkpoint)
    paths = [folder / "training_model.onnx", state, folder / "eval_model.onnx"]
    module = Module(*paths, session_options=options, **settings)
    return state, module, Optimizer(folder / "optimizer_model.onnx", module)

def train(module, optimizer, steps):
    losses = []
    for k in steps:
        losses.append(float(module(x[k], labels[k])))
        optimizer.step()
        module.lazy_reset_grad()
    return losses

state, module, optimizer = open_(folder / "checkpoint", seed=7)
LinearLRScheduler(optimizer, 0, 100, 0.01)
losses = train(module, optimizer, range(4))
state.properties["epoch"] = 3
CheckpointState.save_checkpoint(state, folder / "saved", include_optimizer_state=True)
losses += train(module, optimizer, range(4, 8))
module.eval()
evaluated = [float(module(x[k], labels[k])) for k in (0, 0, 1)]
CheckpointState.save_checkpoint(state, folder / "straight", include_optimizer_state=True)

state, module, optimizer = open_(folder / "saved")
assert state.properties["epoch"] == 3
assert optimizer.completed_steps == 4
resumed = train(module, optimizer, range(4, 8))
CheckpointState.save_checkpoint(state, folder / "resumed", include_optimizer_state=True)
try:
    module.export_model_for_inferencing(folder / "exported.onnx", ["scores"])
except RuntimeUnavailableError as error:
    exporting = str(error)
assert not {"onnx", "google", "ml_dtypes"} & {name.split(".")[0] for name in sys.modules}
print(json.dumps({"losses": losses, "resumed": resumed, "evaluated": evaluated, "exporting": exporting}))
"""


@pytest.mark.parametrize(
    ("model", "optimizer"),
    [
        (perceptron(), optim.SGD()),
        (perceptron(dropout=0.5), optim.AdamW(clip_grad=optim.ClipGradNorm(1.0))),
        (convolutional(), optim.AdamW(weight_decay=0.01, variant="torch")),
    ],
    ids=["perceptron", "dropout", "batch norm"],
)
def test_training_saving_and_resuming(model, optimizer, tmp_path):
    made = generate(model, tmp_path, optimizer=optimizer)
    size = [d.dim_value or 6 for d in model.graph.input[0].type.tensor_type.shape.dim]
    batches = [random_batch(6, seed=k) for k in range(8)]
    x, labels = np.stack([x.reshape(size) for x, _ in batches]), np.stack([labels for _, labels in batches])
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "labels.npy", labels)
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", ON_THE_DEVICE, tmp_path],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    found = json.loads(ran.stdout)
    assert found["resumed"] == found["losses"][4:]
    assert (tmp_path / "resumed").read_bytes() == (tmp_path / "straight").read_bytes()
    assert "needs the package onnx" in found["exporting"]
    assert not (tmp_path / "exported.onnx").exists()

    here = begin(made, seed=7)
    here.optimizer.set_learning_rate(0.01)
    assert here.accumulate(x[0], labels[0]) == found["losses"][0]
    here = begin(made, tmp_path / "straight")
    here.module.eval()
    again = [here.accumulate(x[k], labels[k]) for k in (0, 0, 1)]
    assert found["evaluated"] == again
    assert again[0] == again[1] < found["losses"][0]


@pytest.mark.parametrize("command", [["inspect", "m.onnx"], ["describe", "eval_model.onnx"]])
def test_commands_that_need_onnx_say_so(command, tmp_path):
    generate(perceptron(), tmp_path)
    (tmp_path / "m.onnx").write_bytes((tmp_path / "eval_model.onnx").read_bytes())
    code = "import sys; sys.modules['onnx'] = None; from artifacts.cli import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", code, command[0], str(tmp_path / command[1])],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "this command needs the package onnx, which is not installed.\n  pip install onnx\n"
