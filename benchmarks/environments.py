"""Environments for engines that cannot share the benchmarks' own, made when first needed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tools.run import create, install

from .engines import HERE

ROOT = Path(__file__).resolve().parent.parent
ORIGINAL_PYTHON = "ONNXBLOCK_ORT_TRAINING_PYTHON"
"""Names the interpreter of an environment that ``tools/original.py`` made, as for the tests."""

# The arguments of each installation, in order.  onnx2torch asks for torchvision, of which it needs two functions that
# no workload reaches, and which fits one build of PyTorch only; the engine puts a stand-in in its place.
REQUIREMENTS: dict[str, tuple[tuple[str, ...], ...]] = {
    "onnxsim": (("onnxsim==0.8.1", "onnxruntime==1.32.0"),),
    "onnx2torch": (("torch==2.13.0",), ("numpy==2.4.6", "onnx==1.19.1"), ("--no-deps", "onnx2torch==1.5.15")),
}


class EnvironmentUnavailableError(Exception):
    """An environment cannot be made."""


def python_of(environment: str, folder: Path) -> Path:
    """The interpreter of an environment; it is made in ``folder`` unless it is there."""
    if environment == HERE:
        return Path(sys.executable)
    given = os.environ.get(ORIGINAL_PYTHON)
    if environment == "original" and given:
        return Path(given)
    directory = folder / environment
    done = directory / "installed.txt"
    wanted = str(REQUIREMENTS.get(environment, (ROOT / "tools" / "original.py").read_text(encoding="utf-8")))
    python = directory / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if done.exists() and done.read_text(encoding="utf-8") == wanted:
        return python
    directory.parent.mkdir(parents=True, exist_ok=True)
    try:
        if environment == "original":
            subprocess.run([sys.executable, ROOT / "tools" / "original.py", directory], check=True)
        else:
            create(directory)
            for packages in REQUIREMENTS[environment]:
                install(python, *packages)
    except subprocess.CalledProcessError as error:
        raise EnvironmentUnavailableError(f"the environment {environment!r} cannot be made: {error}") from error
    done.write_text(wanted, encoding="utf-8")
    return python
