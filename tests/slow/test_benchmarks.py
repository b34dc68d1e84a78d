"""Every part of the benchmarks runs, at the smallest size, and what the engines compute agrees."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("rich")

from benchmarks.engines import CHANNELS_LAST, FOREACH, ORIGINAL, OURS, TORCH
from benchmarks.environments import ORIGINAL_PYTHON
from benchmarks.workloads import WORKLOADS

ROOT = Path(__file__).resolve().parents[2]
ENGINES = [OURS, TORCH, CHANNELS_LAST, FOREACH, *([ORIGINAL] if os.environ.get(ORIGINAL_PYTHON) else [])]


def run(folder, *arguments):
    command = [sys.executable, "-m", "benchmarks", *arguments, "--size", "tiny", "--output", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("workload", WORKLOADS)
def test_workload(workload, tmp_path):
    shown = run(tmp_path, workload, "--rounds", "2", "--engines", *ENGINES)
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    engines = results["parts"][workload]["engines"]
    assert {OURS, TORCH} <= set(engines)
    for name in {OURS, TORCH, CHANNELS_LAST, FOREACH} & set(engines):
        assert len(engines[name]["times"]) == 2, engines[name]["error"]
    if workload == "mlp" and ORIGINAL in engines:
        assert len(engines[ORIGINAL]["times"]) == 2, engines[ORIGINAL]["error"]
    assert WORKLOADS[workload].title in shown
    assert (tmp_path / "results.png").stat().st_size > 0


def test_generation(tmp_path):
    run(tmp_path, "generation")
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    figures = results["parts"]["generation"]["figures"]
    assert figures["node_ratio"] > 1
    assert min(figures["import_api"], figures["import_onnxblock"]) > 0


def test_profile(tmp_path):
    shown = run(tmp_path, "profile", "mlp")
    assert "costliest operators" in shown
    assert "in the optimizer model" in shown
