"""Programs as users of the original write them run unchanged on both, and see the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest

from tests.interop.networks import NETWORKS
from tests.interop.test_semantics import alike

HERE = Path(__file__).parent
PROGRAMS = sorted((HERE / "programs").glob("*.py"))
BEFORE = {
    "there": f"import sys; sys.path.insert(0, {str(HERE)!r}); from loop import original_api; original_api()",
    "here": "import onnxblock.compat",
}


def run(program: Path, where: str, python: str, folder: Path) -> dict[str, Any]:
    """What a program writes into ``seen.json``."""
    (folder / "data").mkdir(parents=True)  # the original makes no folder
    onnx.save(NETWORKS["mlp"]().model, folder / "model.onnx")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE.parent.parent)}
    if where == "there":
        del environment["PYTHONPATH"]
    command = [python, "-c", f"{BEFORE[where]}; import runpy; runpy.run_path({str(program)!r}, run_name='__main__')"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{where}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
    if where == "here":
        assert (done.stdout, done.stderr) == ("", "")
    seen: dict[str, Any] = json.loads((folder / "seen.json").read_text(encoding="utf-8"))
    return seen


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.stem)
def test_it_runs_on_stock_onnxruntime(program, tmp_path):
    assert run(program, "here", sys.executable, tmp_path / "here")


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.stem)
def test_both_see_the_same(program, original_python, tmp_path):
    here = run(program, "here", sys.executable, tmp_path / "here")
    there = run(program, "there", original_python, tmp_path / "there")
    assert here.keys() == there.keys()
    different = {what: (ours, there[what]) for what, ours in here.items() if not alike(ours, there[what])}
    assert different == {}
