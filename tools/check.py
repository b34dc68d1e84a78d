"""Run every check of the project in the current environment: lint, format, types, tests.

Usage: python tools/check.py [--slow] [arguments for pytest]

The tests run the documentation's code and the examples too.  ``--slow`` adds the suites in ``tests/slow``.
All checks run even if one fails; the tests come last, so that their closing line ends the output.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MOST_WORKERS = 4


def commands(pytest_arguments: list[str]) -> dict[str, list[str]]:
    """Return the command of each check, by its name."""
    workers = max(2, min(os.cpu_count() or 2, MOST_WORKERS))
    return {
        "lint": ["ruff", "check", "."],
        "format": ["ruff", "format", "--check", "."],
        "types": ["mypy"],
        "tests": ["pytest", "-q", "-n", str(workers), *pytest_arguments],
    }


def main() -> int:
    """Run the checks in order; returns 1 if any failed."""
    if {"-h", "--help"} & {*sys.argv[1:]}:
        print(__doc__)
        return 0
    # The workers share the cores: one thread each in the libraries underneath is faster than two fighting.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    failed = []
    for name, command in commands(sys.argv[1:]).items():
        print(f"-- {name}: {' '.join(command)}", flush=True)
        started = time.monotonic()
        status = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, env=environment, check=False).returncode
        if status:
            failed.append(name)
        if name != "tests":
            print(f"   {'failed' if status else 'passed'} in {time.monotonic() - started:.0f} s", flush=True)
    if failed:
        print("Failed:", ", ".join(failed), file=sys.stderr, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
