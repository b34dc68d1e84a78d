"""The script for other execution providers, tried with the one that is always there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def check(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "tools" / "device_check.py"), *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_provider_that_agrees():
    done = check("--provider", "CPUExecutionProvider", "--networks", "cnn")
    assert done.returncode == 0, done.stdout + done.stderr
    title, *lines = done.stdout.splitlines()
    assert "CPUExecutionProvider against the CPU" in title
    assert [line.split()[:5] for line in lines] == [
        ["same", "cnn", "opset", opset, optimizer] for opset in ("17", "21") for optimizer in ("AdamW", "SGD")
    ]


def test_a_provider_that_differs():
    done = check("--provider", "CPUExecutionProvider", "--networks", "mlp", "--tolerance", "-1")
    assert done.returncode == 1
    assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == ["DIFFERS"] * 4


def test_a_provider_that_is_not_there():
    done = check("--provider", "NoExecutionProvider")
    assert done.returncode == 2
    assert "This onnxruntime does not have NoExecutionProvider; it has" in done.stderr


@pytest.mark.parametrize("arguments", [[], ["--provider", "CPUExecutionProvider", "--networks", "nothing"]])
def test_arguments_that_do_not_fit(arguments):
    done = check(*arguments)
    assert done.returncode == 2
    assert "usage:" in done.stderr
