"""Scripts written for onnxruntime.training run unchanged after ``import onnxblock.compat``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import onnx

from tests.test_training import mlp

SCRIPT = """
import onnxblock.compat

import numpy as np
import onnx
import onnxruntime
import onnxruntime.training.onnxblock as onnxblock
from onnxruntime.training import artifacts
from onnxruntime.training.api import CheckpointState, LinearLRScheduler, Module, Optimizer


class Loss(onnxblock.blocks.Block):
    def __init__(self):
        super().__init__()
        self.mse = onnxblock.loss.MSELoss()
        self.add = onnxblock.blocks.Add()

    def build(self, output):
        return self.add(self.mse(output), onnxblock.blocks.Constant(1.0)())


artifacts.generate_artifacts(
    onnx.load("model.onnx"),
    requires_grad=["w0", "b0", "w1"],
    frozen_params=["b1"],
    loss=Loss(),
    optimizer=artifacts.OptimType.AdamW,
    artifact_directory="made",
)
state = CheckpointState.load_checkpoint("made/checkpoint")
module = Module("made/training_model.onnx", state, "made/eval_model.onnx")
optimizer = Optimizer("made/optimizer_model.onnx", module)
scheduler = LinearLRScheduler(optimizer, 2, 20, 0.05)
assert onnxruntime.training.api.Module is Module
rng = np.random.default_rng(0)
x, target = (rng.standard_normal((8, 4)).astype(np.float32) for _ in range(2))
losses = []
for _ in range(20):
    module.train()
    losses.append(float(module(x, target)))
    optimizer.step()
    module.lazy_reset_grad()
    scheduler.step()
assert losses[-1] < losses[0], losses
module.eval()
module.export_model_for_inferencing("made/inference.onnx", ["y"])
CheckpointState.save_checkpoint(state, "made/again", include_optimizer_state=True)
"""


def test_a_script_for_the_original_runs_unchanged(tmp_path: Path) -> None:
    onnx.save(mlp(), tmp_path / "model.onnx")
    (tmp_path / "script.py").write_text(SCRIPT)
    root = Path(__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-W", "error", "script.py"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(root), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
