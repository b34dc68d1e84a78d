"""Make the environment that ``tests/interop`` compares with: onnxruntime-training 1.19.2, the original.

    python tools/original.py DIR

The tests find it by the environment variable ONNXBLOCK_ORT_TRAINING_PYTHON, which names its interpreter
(``DIR/bin/python``).  Exits with 1, and says why, where no Python is found that the package has a build for.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from run import create, install

MINORS = range(10, 13)  # of the Python 3 that the package has builds for, and this script runs on
PACKAGES = ("onnxruntime-training-cpu==1.19.2", "numpy<2", "onnx==1.17.0", "setuptools")


def others() -> Iterator[str]:
    """The suitable interpreters on the path that start, newest first."""
    for minor in reversed(MINORS):
        found = shutil.which(f"python3.{minor}")
        if found and subprocess.run([found, "-c", "import venv"], capture_output=True, check=False).returncode == 0:
            yield found


def main() -> int:
    """Make the environment; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, metavar="DIR", help="where the virtual environment goes")
    directory: Path = parser.parse_args().directory.resolve()
    if sys.version_info[1] not in MINORS:
        other = next(others(), None)
        if other is None:
            print(f"{PACKAGES[0]} needs Python 3.{MINORS[0]} to 3.{MINORS[-1]}, and none is there.", file=sys.stderr)
            return 1
        return subprocess.run([other, *sys.argv], check=False).returncode
    try:
        install(create(directory), *PACKAGES)
    except subprocess.CalledProcessError as error:
        print(f"{PACKAGES[0]} cannot be installed: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
