from __future__ import annotations

import io
import json

import pytest

pytest.importorskip("torch")

from benchmarks.engines import CHANNELS_LAST, ENGINES, FOREACH, ONNXSIM, OURS
from benchmarks.measure import difference, interesting
from benchmarks.worker import serve
from benchmarks.workloads import WORKLOADS


def test_equal_losses_do_not_differ():
    assert difference([2.3, 2.2, 2.1], [2.3, 2.2, 2.1]) == ""
    assert difference([2.30001, 2.21, 2.1], [2.3, 2.2, 2.1]) == ""


@pytest.mark.parametrize(
    "losses",
    [
        [2.301, 2.2, 2.1],  # another model
        [2.3, 2.2, 2.15],  # another gradient or update
        [2.3, 2.2, float("nan")],
    ],
)
def test_a_wrong_computation_is_told_with_its_losses(losses):
    said = difference(losses, [2.3, 2.2, 2.1])
    assert "computes something else" in said
    assert "2.30000, 2.20000, 2.10000" in said


def test_engines_are_measured_where_they_differ():
    def names(workload):
        return {name for name, engine in ENGINES.items() if interesting(engine, WORKLOADS[workload])}

    assert CHANNELS_LAST in names("cnn")
    assert CHANNELS_LAST not in names("mlp")
    assert FOREACH in names("adamw-3m")
    assert FOREACH not in names("mlp")
    assert ONNXSIM not in names("adamw-3m")
    assert all(OURS in names(workload) for workload in WORKLOADS)


def test_a_worker_answers_every_command_and_survives_what_fails():
    class Worker:
        def good(self, count):
            return {"seconds": count}

        def bad(self):
            raise ValueError("no gradient of Foo")

    answers = io.StringIO()
    commands = [{"do": "good", "count": 3}, {"do": "bad"}, {"do": "good", "count": 4}]
    serve(Worker, io.StringIO("\n".join(map(json.dumps, commands))), answers)
    assert [json.loads(line) for line in answers.getvalue().splitlines()] == [
        {"seconds": 3},
        {"error": "ValueError: no gradient of Foo"},
        {"seconds": 4},
    ]


def test_a_worker_that_cannot_start_says_why():
    def fail():
        raise ModuleNotFoundError("no module")

    answers = io.StringIO()
    serve(fail, io.StringIO('{"do": "imports"}\n'), answers)
    assert json.loads(answers.getvalue()) == {"error": "ModuleNotFoundError: no module"}
