from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("rich")

from benchmarks.profiling import MEASURED, WARM_UP, _nodes, _own_time


def event(name: str, start: int, duration: int, operator: str = "Add") -> dict[str, Any]:
    arguments = {"op_name": operator, "input_type_shape": [{"float": [2, 3]}], "output_type_shape": [{"float": []}]}
    return {"cat": "Node", "name": f"{name}_kernel_time", "ts": start, "dur": duration, "args": arguments}


def test_the_time_of_a_body_belongs_to_its_own_nodes():
    scan, inner, more, after = event("scan", 0, 100), event("in", 10, 20), event("in", 40, 30), event("next", 100, 5)
    own = {(one["name"], one["ts"]): one["dur"] for one in _own_time([inner, after, scan, more])}
    assert own == {("scan_kernel_time", 0): 50, ("in_kernel_time", 10): 20, ("in_kernel_time", 40): 30} | {
        ("next_kernel_time", 100): 5
    }


def test_a_node_has_the_median_of_its_steps_after_the_first_ones():
    durations = [9000] * WARM_UP + [1000] * (MEASURED - 1) + [50_000]
    (node,) = _nodes("training", [event("a", 100_000 * k, duration) for k, duration in enumerate(durations)])
    assert (node.operator, node.milliseconds, node.shapes) == ("Add", 1.0, "2×3 → ·")


def test_a_node_of_a_body_has_the_sum_of_its_runs_in_a_step():
    events = [event("a", 10_000 * k, 1000) for k in range(5 * (WARM_UP + MEASURED))]
    (node,) = _nodes("training", events)
    assert node.milliseconds == 5.0
