"""What is timed in a fresh process: ``python -m benchmarks.once JOB`` prints the figures as JSON."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def fresh(do: str, **arguments: Any) -> dict[str, float]:
    """Call one of the functions below in a new process."""
    job = json.dumps({"do": do, **arguments})
    done = subprocess.run([sys.executable, "-m", __name__, job], cwd=ROOT, check=True, capture_output=True, text=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def generate(model: str, folder: str, *, trained: list[str] | None = None, warm_up: str = "") -> dict[str, float]:
    """``generate_artifacts`` of a file with AdamW, after the imports: seconds, and those of ``writing`` the weights.

    ``trained`` names the weights to train, all by default.  With ``warm_up``, another model comes first: what is
    loaded on demand is loaded then.
    """
    import artifacts
    from onnxblock.optim import AdamW

    generation: Any = importlib.import_module("artifacts.generate")
    write_parameters, writing = generation.write_parameters, []

    def write(*arguments: Any, **settings: Any) -> Any:
        started = time.perf_counter()
        written = write_parameters(*arguments, **settings)
        writing.append(time.perf_counter() - started)
        return written

    def call(path: str, names: list[str] | None) -> float:
        started = time.perf_counter()
        artifacts.generate_artifacts(
            path,
            requires_grad=names,
            loss=artifacts.LossType.CrossEntropyLoss,
            optimizer=AdamW(),
            artifact_directory=folder,
        )
        return time.perf_counter() - started

    generation.write_parameters = write
    if warm_up:
        call(warm_up, None)
    return {"seconds": call(model, trained), "writing": writing[-1]}


def imports() -> dict[str, float]:
    """``import onnxruntime``, then all that ``artifacts.api`` offers."""
    started = time.perf_counter()
    importlib.import_module("onnxruntime")
    between = time.perf_counter()
    _touch("artifacts.api")
    return {"onnxruntime": between - started, "api": time.perf_counter() - between}


def import_onnxblock() -> dict[str, float]:
    """All that ``onnxblock`` offers, which it imports on demand."""
    started = time.perf_counter()
    _touch("onnxblock")
    return {"onnxblock": time.perf_counter() - started}


def _touch(package: str) -> None:
    module = importlib.import_module(package)
    for name in module.__all__:
        getattr(module, name)


JOBS = {call.__name__: call for call in (generate, imports, import_onnxblock)}


def main() -> None:
    arguments = json.loads(sys.argv[1])
    print(json.dumps(JOBS[arguments.pop("do")](**arguments)))


if __name__ == "__main__":
    main()
