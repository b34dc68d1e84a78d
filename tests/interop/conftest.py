"""The original, onnxruntime-training 1.19.2, in its own environment; an environment variable names its interpreter."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PYTHON = "ONNXBLOCK_ORT_TRAINING_PYTHON"
LOOP = Path(__file__).parent / "loop.py"

Original = Callable[..., "dict[str, np.ndarray]"]


@pytest.fixture(scope="session")
def original_python() -> str:
    python = os.environ.get(PYTHON)
    if not python:
        pytest.skip(f"{PYTHON} does not name a Python that has onnxruntime-training; tools/original.py makes one")
    return python


@pytest.fixture
def original(original_python: str, tmp_path: Path) -> Original:
    """Runs a job of ``loop.py`` in the original and gives its outcome."""
    numbers = count()

    def run(**job: Any) -> dict[str, np.ndarray]:
        path = tmp_path / f"job{next(numbers)}.json"
        run_job(original_python, LOOP, path, job)
        with np.load(path.with_suffix(".npz")) as result:
            return dict(result)

    return run


def run_job(python: str, script: Path, path: Path, job: dict[str, Any]) -> None:
    """Write a job to ``path`` and run ``script`` with it; what it says goes beside it."""
    path.write_text(json.dumps(job, default=str), encoding="utf-8")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        [python, str(script), str(path)], cwd=path.parent, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"the original failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
