"""The oldest versions that the project says it works with, in an environment of their own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from artifacts import api
from tests.interop import loop
from tests.interop.networks import NETWORKS
from tests.interop.test_training import assert_alike, generate

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


@pytest.fixture(scope="module")
def oldest_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the oldest versions."""
    if sys.version_info[:2] > NEWEST_PYTHON:
        pytest.skip("the oldest versions have no wheels for this Python")
    assert len(oldest()) == 3
    folder = tmp_path_factory.mktemp("oldest") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = next(p for p in folder.glob("*/python*") if p.stem == "python")
    install = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*install, *oldest(), "pytest"], check=True)
    return python


def test_the_oldest_versions_train(oldest_python: Path) -> None:
    # onnxruntime-extensions, where other tests imported it, has chosen the slow protobuf for all processes to come.
    environment = {k: v for k, v in os.environ.items() if k != "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"}
    done = subprocess.run(
        [str(oldest_python), "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *TESTS],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout


TRAIN = """
import json, sys
from pathlib import Path
import numpy as np
from artifacts import api
from tests.interop import loop
for path in map(Path, sys.argv[1:]):
    np.savez(path.with_suffix(".npz"), **loop.run(api, json.loads(path.read_text(encoding="utf-8"))))
"""


def test_files_made_with_the_newest_train_alike_on_the_oldest(oldest_python: Path, tmp_path: Path) -> None:
    """The same files that tests/interop trains with the original: losses, evaluation, parameters, statistics."""
    jobs = {}
    for family in NETWORKS:
        for opset in (17, 21):
            for runtime in ("onnxruntime", "onnxruntime-training"):
                path = tmp_path / f"{family}-{opset}-{runtime}" / "job.json"
                path.parent.mkdir()
                jobs[path] = generate(NETWORKS[family](opset), path.parent, runtime=runtime)
                path.write_text(json.dumps(jobs[path], default=str), encoding="utf-8")
    done = subprocess.run(
        [str(oldest_python), "-c", TRAIN, *map(str, jobs)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    for path, job in jobs.items():
        with np.load(path.with_suffix(".npz")) as theirs:
            assert_alike(loop.run(api, job), dict(theirs))
