from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
pytest.importorskip("sklearn", reason="the demo needs the extra 'demo'")


def test_every_example_is_run():
    """Each has a test here; those of a folder, such as node/, have one of their own."""
    assert {path.name for path in (ROOT / "examples").glob("*.py")} == {"digits.py"}


def test_digits_of_no_epoch(tmp_path):
    ran = subprocess.run(
        [sys.executable, ROOT / "examples" / "digits.py", "--epochs", "0", "--out", tmp_path / "out"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2
    assert "--epochs must be at least 1" in ran.stderr
    assert not list(tmp_path.iterdir())


def test_digits(tmp_path):
    """The demo reaches its accuracy, exports a model, draws a picture and writes nowhere else."""
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    elsewhere.mkdir()
    ran = subprocess.run(
        [sys.executable, "-W", "error", ROOT / "examples" / "digits.py", "--out", out],
        cwd=elsewhere,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "says a plain InferenceSession" in ran.stdout
    assert {"digits.onnx", "loss.png", "checkpoint"} <= {path.name for path in out.iterdir()}
    assert (out / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert not list(elsewhere.iterdir())
