"""The oldest versions that the project says it works with, in an environment of their own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTS = [
    "tests/test_language.py",
    "tests/test_training.py",
    "tests/graph/test_omitted_inputs.py",
    "tests/artifacts",
    "tests/interop/test_training.py",
]
NEWEST_PYTHON = (3, 12)


def oldest() -> list[str]:
    """The lower bound of each core dependency in pyproject.toml, pinned."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return [f"{name}=={version}.*" for name, version in re.findall(r'"(onnx|numpy|onnxruntime)>=([\d.]+)"', text)]


@pytest.mark.skipif(sys.version_info[:2] > NEWEST_PYTHON, reason="the oldest versions have no wheels for this Python")
def test_the_oldest_versions_train(tmp_path: Path) -> None:
    assert len(oldest()) == 3
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    python = next(p for p in (tmp_path / "venv").glob("*/python*") if p.stem == "python")
    install = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*install, *oldest(), "pytest"], check=True)
    done = subprocess.run(
        [str(python), "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *TESTS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout
