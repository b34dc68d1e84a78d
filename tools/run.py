"""Set up a virtual environment and run something in it, with nothing but Python 3.10 or newer and pip.

    python tools/run.py demo     train on handwritten digits, export, draw the loss curve to out/
    python tools/run.py check    lint, types and tests; --slow adds the long suites

Arguments after the first are passed on.  ``--venv DIR`` puts the environment elsewhere than ``.venv``, and
``--no-torch`` leaves out PyTorch, whose comparisons are then skipped.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST_PYTHON = (3, 10)
TORCH = "torch==2.13.0"


def create(directory: Path) -> Path:
    """Create the virtual environment unless it is there, and return its interpreter."""
    python = directory / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not python.exists():
        print(f"Setting up {directory}", flush=True)
        made = subprocess.run([sys.executable, "-m", "venv", directory], capture_output=True, text=True, check=False)
        if made.returncode:
            # Some Linux distributions split ensurepip off; the environment then borrows the pip that is installed.
            subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", directory], check=True)
            subprocess.run([sys.executable, "-m", "pip", "--python", python, "install", "-q", "pip"], check=True)
    return python


def install(python: Path, *what: str) -> None:
    """Install the packages into the environment of ``python``; what is there already is left alone."""
    print("Installing", *what, flush=True)
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    subprocess.run([*pip, *what], cwd=ROOT, check=True)


def main() -> int:
    """Read the command line, set up, run; returns the exit status of what was run."""
    if sys.version_info < OLDEST_PYTHON:
        print(f"Python {'.'.join(map(str, OLDEST_PYTHON))} or newer is needed; this is {sys.version.split()[0]}.")
        return 2
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=["demo", "check"], help="what to run; both are described above")
    parser.add_argument(
        "--venv", type=Path, default=ROOT / ".venv", metavar="DIR", help="the environment, made if it is not there"
    )
    parser.add_argument("--no-torch", action="store_true", help="check without PyTorch, which is a large download")
    arguments, rest = parser.parse_known_args()

    python = create(arguments.venv)
    install(python, "--upgrade", "pip")
    if arguments.task == "demo":
        install(python, "--editable", ".[demo]")
        script = ROOT / "examples" / "digits.py"
    elif arguments.no_torch:
        install(python, "--editable", ".[test]")
        script = ROOT / "tools" / "check.py"
    else:
        # First and on its own: resolved together with packages that accept any torch, another build may be taken.
        install(python, TORCH)
        install(python, "--editable", ".[test,torch]")
        script = ROOT / "tools" / "check.py"
    return subprocess.run([python, script, *rest], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
