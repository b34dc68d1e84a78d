"""The driver's side of a worker process."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

from .engines import EngineInfo

ROOT = Path(__file__).resolve().parent.parent
LONGEST_ERROR = 400


class WorkerError(Exception):
    """A worker could not do what it was told."""


class WorkerProcess:
    """An engine in a process of its own; use it in a ``with`` statement."""

    def __init__(self, python: Path, engine: EngineInfo, folder: Path, threads: int, log: Path) -> None:
        job = {
            "module": engine.module,
            "folder": str(folder),
            "threads": threads,
            "settings": dict(engine.settings),
        }
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": str(threads),
            "MKL_NUM_THREADS": str(threads),
            "PYTHONPATH": str(ROOT),
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        }
        self._log_path = log
        self._log = log.open("wb")
        self._process = subprocess.Popen(
            [python, "-m", "benchmarks.worker", json.dumps(job)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=folder,
            env=environment,
            text=True,
            encoding="utf-8",
        )

    def tell(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; raises :class:`WorkerError`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise WorkerError(f"{do}: the process ended with status {self._process.wait()}. {self._last_words()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise WorkerError(f"{do}: {answer['error'][:LONGEST_ERROR]}")
        return answer

    def _last_words(self) -> str:
        return self._log_path.read_text(encoding="utf-8", errors="replace")[-LONGEST_ERROR:].strip()

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        self._log.close()

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is not None:
            self._process.kill()
        self.close()
