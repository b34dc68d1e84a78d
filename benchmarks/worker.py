"""A process that runs one engine and does what it is told, one line of JSON at a time.

``python -m benchmarks.worker JOB`` with a job like ``{"module": …, "folder": …, "threads": …, "settings": {…}}``; then
lines such as ``{"do": "steps", "count": 5}`` on standard input.  The answers are lines on standard output; what
libraries print goes to standard error.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

Answer = dict[str, Any]
MEASURED_STEPS = 8


class Worker:
    """One engine, and the commands; every method that has no underscore is one."""

    def __init__(self, job: dict[str, Any]) -> None:
        module = importlib.import_module(f"benchmarks.engines.{job['module']}")
        self._engine = module.Engine(Path(job["folder"]), job["threads"], job.get("settings", {}))
        self._batch = 0

    def _step(self) -> float:
        loss: float = self._engine.step(self._batch)
        self._batch = (self._batch + 1) % len(self._engine.batches)
        return loss

    def imports(self) -> Answer:
        seconds, version = _timed(self._engine.imports)
        return {"seconds": seconds, "version": version}

    def generate(self) -> Answer:
        self._engine.own_folder.mkdir(exist_ok=True)
        seconds, made = _timed(self._engine.generate)
        return {"seconds": seconds if made else None}

    def load(self) -> Answer:
        """Load and do the first step, which compiles and allocates."""
        started = time.perf_counter()
        self._engine.load()
        loss = self._step()
        return {"seconds": time.perf_counter() - started, "losses": [loss]}

    def steps(self, count: int) -> Answer:
        started = time.perf_counter()
        losses = [self._step() for _ in range(count)]
        return {"seconds": (time.perf_counter() - started) / count, "losses": losses[:MEASURED_STEPS]}

    def updates(self, count: int) -> Answer:
        """The optimizer alone, on the gradients of the last step."""
        started = time.perf_counter()
        for _ in range(count):
            self._engine.update()
        return {"seconds": (time.perf_counter() - started) / count}

    def memory(self) -> Answer:
        """The peak of a training run, in MiB above what is resident now; nothing may be loaded yet."""
        gc.collect()
        _forget_peak()
        before = _status("VmRSS")
        for name in self._engine.late_imports:
            importlib.import_module(name)
        late = _status("VmRSS") - before
        self.load()
        self.steps(MEASURED_STEPS)
        return {"mebibytes": (_status("VmHWM") - before) / 1024, "late_imports": late / 1024}


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    result = call()
    return time.perf_counter() - started, result


def _forget_peak() -> None:
    """Let the peak of the resident memory start anew (Linux)."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _status(key: str) -> int:
    """A figure of this process in KiB, by its name in /proc (Linux)."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key + ":"))


def serve(worker: Callable[[], Worker], commands: TextIO, answers: TextIO) -> None:
    """Obey until the commands end; what fails is answered with the error's text."""
    made: Worker | None = None
    for line in commands:
        arguments = json.loads(line)
        try:
            made = made or worker()
            answer = getattr(made, arguments.pop("do"))(**arguments)
        except Exception as error:  # noqa: BLE001 - how an engine fails is a result
            answer = {"error": f"{type(error).__name__}: {error}".strip()}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def main() -> None:
    job = json.loads(sys.argv[1])
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    serve(lambda: Worker(job), sys.stdin, answers)


if __name__ == "__main__":
    main()
