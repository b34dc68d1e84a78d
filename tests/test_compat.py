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


def run(script: str, folder: Path) -> None:
    (folder / "script.py").write_text(script)
    root = Path(__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-W", "error", "script.py"],
        cwd=folder,
        env={"PYTHONPATH": str(root), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_script_for_the_original_runs_unchanged(tmp_path: Path) -> None:
    onnx.save(mlp(), tmp_path / "model.onnx")
    run(SCRIPT, tmp_path)


FORMS = {
    "from onnxruntime.training import artifacts": "artifacts.LossType",
    "from onnxruntime.training import api, artifacts, onnxblock": "api.Module, artifacts.OptimType, onnxblock.loss",
    "from onnxruntime.training.artifacts import LossType, OptimType, generate_artifacts": "generate_artifacts",
    "import onnxruntime.training.artifacts as artifacts": "artifacts.generate_artifacts",
    "import onnxruntime.training.onnxblock as onnxblock": "onnxblock.TrainingBlock",
    "import onnxruntime.training.onnxblock": "onnxruntime.training.onnxblock.ForwardBlock",
    "from onnxruntime.training import onnxblock": "onnxblock.blocks.Block, onnxblock.optim.AdamW",
    "from onnxruntime.training.onnxblock import TrainingBlock, base, blocks, loss, optim": "loss.MSELoss, optim.SGD",
    "from onnxruntime.training.onnxblock import load_checkpoint_to_model, save_checkpoint": "save_checkpoint",
    "import onnxruntime.training.onnxblock.blocks as blocks": "blocks.Linear",
    "from onnxruntime.training.onnxblock.blocks import Block, InputLike": "InputLike",
    "import onnxruntime.training.onnxblock.loss as loss": "loss.CrossEntropyLoss",
    "from onnxruntime.training.onnxblock.loss import MSELoss": "MSELoss",
    "import onnxruntime.training.onnxblock.optim as optim": "optim.ClipGradNorm",
    "from onnxruntime.training.onnxblock.optim import AdamW": "AdamW",
    "from onnxruntime.training.api import CheckpointState, LinearLRScheduler, Module, Optimizer": "Optimizer",
    "import onnxruntime.training.api as orttraining": "orttraining.CheckpointState",
    "from onnxruntime.training import api as orttraining": "orttraining.LinearLRScheduler",
    "import onnxruntime.training.api": "onnxruntime.training.api.Module",
    "import onnxruntime.training": "onnxruntime.training.api, onnxruntime.training.artifacts",
    "import onnxruntime.training as training": "training.onnxblock.blocks.Constant",
    "from onnxruntime import training": "training.api.Module",
    "import importlib.util": 'importlib.util.find_spec("onnxruntime.training").name',
}


def test_every_form_of_import(tmp_path: Path) -> None:
    lines = ["import onnxblock.compat"]
    for statement, expression in FORMS.items():
        lines += ["names = {}", f"exec({statement!r}, names)", f"assert eval({expression!r}, names)"]
    lines += ["try:", "    from onnxruntime.training import ORTModule", "except ImportError as error:"]
    lines += ["    assert 'ORTModule' in str(error)", "else:", "    raise AssertionError"]
    run("\n".join(lines), tmp_path)
