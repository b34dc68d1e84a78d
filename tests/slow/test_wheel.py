"""The built wheel holds what it should, and trains from its own files alone."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import sys
from pathlib import Path
import numpy as np
import artifacts, onnxblock
from artifacts.api import CheckpointState, Module, Optimizer
for package in (artifacts, onnxblock):
    assert Path(package.__file__).is_relative_to(sys.argv[1]), package.__file__

class Line(onnxblock.ForwardBlock):
    def __init__(self):
        self.linear = onnxblock.blocks.Linear(3, 1)
    def build(self):
        return self.linear(self.graph.input("x", np.float32, ("batch", 3)))

with onnxblock.empty_base():
    line = Line()
    line()
    model = line.to_model_proto()
made = artifacts.generate_artifacts(
    model, loss=artifacts.LossType.MSELoss, optimizer=artifacts.OptimType.AdamW, artifact_directory="out"
)
module = Module(made.training_model, CheckpointState.load_checkpoint(made.checkpoint), made.eval_model)
optimizer = Optimizer(made.optimizer_model, module)
x = np.random.default_rng(0).standard_normal((8, 3)).astype(np.float32)
losses = []
for _ in range(20):
    losses.append(float(module(x, x.sum(1, keepdims=True))))
    optimizer.step()
    module.lazy_reset_grad()
assert losses[-1] < losses[0], losses
print(onnxblock.__version__)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q", "-w", folder, ROOT]
    subprocess.run(command, check=True)
    (built,) = folder.glob("*.whl")
    return built


def test_every_module_is_inside_and_nothing_else(wheel):
    wanted = {
        str(path.relative_to(ROOT))
        for package in ("onnxblock", "artifacts")
        for path in (ROOT / package).rglob("*")
        if path.suffix in {".py", ".pyi", ".typed", ".md"} and path.is_file()
    }
    assert {"onnxblock/py.typed", "artifacts/py.typed"} <= wanted
    found = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert found == wanted


def test_it_installs_the_command(wheel):
    archive = zipfile.ZipFile(wheel)
    (listed,) = [name for name in archive.namelist() if name.endswith("entry_points.txt")]
    assert archive.read(listed).decode().split("\n", 1)[0] == "[console_scripts]"
    assert "onnxblock-artifacts = artifacts.cli:main" in archive.read(listed).decode()


def test_it_trains(wheel, tmp_path):
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    command = [sys.executable, "-W", "error", "-c", f"import sys; sys.path.insert(0, sys.argv[1])\n{SCRIPT}", installed]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == wheel.name.split("-")[1]
