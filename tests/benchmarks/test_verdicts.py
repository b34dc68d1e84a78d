from __future__ import annotations

from typing import Any

import pytest

from benchmarks import bars
from benchmarks.engines import CHANNELS_LAST, ENGINES, FOREACH, ONNXSIM, ORIGINAL, OURS, TORCH
from benchmarks.verdicts import compare, fastest_eager, verdicts
from benchmarks.workloads import WORKLOADS

ROUNDS = 15


def engine(seconds: float, memory: float = 100.0, error: str = "") -> dict[str, Any]:
    return {"times": [] if error else [seconds] * ROUNDS, "memory": memory, "error": error}


def of(workload: str, what: str, engines: dict[str, Any]) -> dict[str, Any]:
    title = f"{WORKLOADS[workload].title}: {what}"
    return {one.against: one for one in verdicts({workload: {"size": "full", "engines": engines}}) if one.what == title}


def test_every_workload_has_its_bars():
    steps = {name for name, workload in WORKLOADS.items() if not workload.only_optimizer}
    assert set(bars.STEP_AGAINST_EAGER) == steps
    assert len(steps) == 9
    against = {*bars.STEP_AGAINST_OTHERS, *bars.OPTIMIZER_AGAINST}
    assert against <= set(ENGINES)


def test_time_is_compared_with_the_faster_eager_setting():
    engines = {OURS: engine(1.4), TORCH: engine(2.0), CHANNELS_LAST: engine(1.0)}
    assert fastest_eager(engines) == CHANNELS_LAST
    assert of("cnn", "time", engines)[CHANNELS_LAST].met is True  # 1.4 of it, and the bar is 1.5
    assert of("cnn", "time", {**engines, OURS: engine(1.6)})[CHANNELS_LAST].met is False


@pytest.mark.parametrize(("seconds", "met"), [(0.9, True), (0.91, False)])
def test_time_is_compared_with_the_others(seconds, met):
    found = of("mlp", "time", {OURS: engine(seconds), TORCH: engine(2), ORIGINAL: engine(1), ONNXSIM: engine(1)})
    assert (found[ORIGINAL].met, found[ONNXSIM].met) == (met, met)


def test_an_engine_that_cannot_run_a_workload_is_no_obstacle():
    found = of("bert", "time", {OURS: engine(1), TORCH: engine(1), ORIGINAL: engine(0, error="no gradient")})
    assert (found[ORIGINAL].met, found[ORIGINAL].figure) == (True, "does not run it")


def test_what_does_not_run_here_is_not_met_and_not_hidden():
    found = of("mlp", "time", {OURS: engine(0, error="broken"), TORCH: engine(1), ORIGINAL: engine(0, error="too")})
    assert {one.met for one in found.values()} == {None}
    assert {one.figure for one in found.values()} == {"not measured"}


def test_memory_is_compared_with_the_original_where_it_runs():
    engines = {OURS: engine(1, 90), TORCH: engine(1, 100), ORIGINAL: engine(1, 80)}
    found = of("mlp", "memory", engines)
    assert list(found) == [ORIGINAL]
    assert found[ORIGINAL].met is False
    without = of("mlp", "memory", {**engines, ORIGINAL: engine(0, error="cannot")})
    assert list(without) == [TORCH]
    assert without[TORCH].met is False  # 0.9, and the bar is 0.7
    assert of("mlp", "memory", {OURS: engine(1, 70), TORCH: engine(1, 100)})[TORCH].met is True


def test_the_optimizer_alone_has_bars_of_its_own():
    found = of("adamw-3m", "time", {OURS: engine(2.5), TORCH: engine(1), FOREACH: engine(2.4)})
    assert (found[TORCH].met, found[FOREACH].met) == (True, False)


def test_generation_figures_are_compared_with_limits():
    figures = {limit.figure: limit.most for limit in bars.GENERATION}
    found = [one for one in verdicts({"generation": {"size": "full", "figures": figures}}) if one.met is not None]
    assert len(found) == len(bars.GENERATION)
    assert all(one.met for one in found)
    above = {"size": "full", "figures": {name: most + 0.1 for name, most in figures.items()}}
    assert not any(one.met for one in verdicts({"generation": above}))


def test_another_size_meets_no_bar():
    engines = {OURS: engine(0.1), TORCH: engine(1)}
    assert {one.met for one in verdicts({"mlp": {"size": "tiny", "engines": engines}})} == {None}


def test_nothing_is_compared_with_what_did_not_run():
    assert compare({OURS: engine(1)}, OURS, TORCH) is None
    assert compare({OURS: engine(1), TORCH: engine(0, error="x")}, OURS, TORCH) is None
    assert fastest_eager({OURS: engine(1)}) is None
