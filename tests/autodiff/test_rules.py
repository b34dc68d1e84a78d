"""Every gradient rule, through ONNX's own backend cases of its operator and the rows in ``cases/``.

To add a rule: write it in ``onnxblock/autodiff/rules/<family>.py``; this test finds it, and ONNX's cases of the
operator, by itself.  Run it with ``pytest tests/autodiff -k <Operator>``.  What those cases leave out (ties, kinks,
dynamic inputs, ...) is one row each in ``cases/<family>.py``:

    case("Relu", [-1.0, 0.0, 2.0], gradient=[0, 0, 1])       literal: at a kink
    case("Gemm", normal(2, 3), normal(3, 4), alpha=0.5)      finite differences

The name of a test says what ran it in float64.  Nothing is skipped: where a step cannot work, a family says so with the
reason in ``EXCEPTIONS``, and the test makes sure that it still fails.
"""

from __future__ import annotations

import dataclasses
import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from onnx import defs

from onnxblock.autodiff import registry
from onnxblock.autodiff.coverage import Way, coverage
from onnxblock.errors import GradientMismatchError
from onnxblock.graph.passes.common_subexpressions import RANDOM
from onnxblock.graph.schemas import NEWEST_OPSET
from onnxblock.graph.sequences import for_each
from onnxblock.graph.types import is_sequence
from tests.runtime import is_newest, require_newest, require_opset, too_old_for

from . import harness
from .cases import gathered

if TYPE_CHECKING:
    from collections.abc import Callable

    from onnxblock.graph.value import Value

RULES = [e for e in registry.entries() if isinstance(e, registry.Rule)]
NO_GRADIENT = [e for e in registry.entries() if isinstance(e, registry.NoGradient) and e.op_type not in RANDOM]
CASES = harness.all_cases()


def _id(index: int) -> str:
    case = CASES[index]
    return f"{case.op_type}-{case.name}-{harness.evaluator_of(case)}-float64"


def _run(case: harness.Case, step: str, do: Callable[[], Any]) -> Any:
    """Do a step, or make sure that it cannot be done where a family says so."""
    reason = harness.exception_of(case, step)
    if reason is None:
        return do()
    try:
        done = do()
    except Exception:  # noqa: BLE001 - whatever it is, the reason is given in words
        return None
    # The reasons are those of the newest runtime; an older one may know an older form of the operator.
    assert not is_newest(), f"it works, though {reason}"
    return done


def _running(cases: list[harness.Case]) -> list[harness.Case]:
    """The cases of opsets that onnxruntime runs; where there are none, the test is skipped."""
    require_opset(min(harness.opset(case.model) for case in cases))
    return [case for case in cases if not too_old_for(harness.opset(case.model))]


@pytest.mark.parametrize("index", range(len(CASES)), ids=_id)
def test_gradient(index: int) -> None:
    case = CASES[index]
    require_opset(harness.opset(case.model))
    if harness.exception_of(case, "all"):
        _run(case, "all", lambda: harness.step_float64(case, harness.Point(case)))
        return
    at = harness.point(index)
    _run(case, "float64", lambda: harness.step_float64(case, at))
    backward = _run(case, "structure", lambda: harness.step_structure(case))
    if backward is not None:
        _run(case, "float32", lambda: harness.step_float32(case, at, backward))


@pytest.mark.parametrize("form", harness.FORMS)
@pytest.mark.parametrize("index", range(len(CASES)), ids=_id)
def test_form(index: int, form: str) -> None:
    case = CASES[index]
    require_opset(harness.opset(case.model))
    if harness.exception_of(case, "all"):
        return
    if form in ("symbolic", "unranked") and not all(x.size for x in case.feeds.values()):
        require_newest("its optimizer writes -1 for a size that a tensor without elements makes ambiguous")
    _run(case, form, lambda: harness.step_form(case, harness.point(index), form))


@pytest.mark.parametrize("op_type", ["Conv", "Gather", "LSTM", "MaxPool", "Reshape", "Sin", "Slice", "TopK"])
def test_bfloat16_is_not_left_out_where_there_are_kernels(op_type: str) -> None:
    require_newest("it has fewer kernels of bfloat16")
    case = harness.cases_of(op_type)[0]
    assert harness.has_kernels(harness.vjp(case, harness.brain(case)), errors=())


@pytest.mark.parametrize("rule", RULES, ids=lambda r: f"{r.domain}{r.op_type}")
def test_every_rule_has_a_case(rule: registry.Rule) -> None:
    assert harness.cases_of(rule.op_type, rule.domain), f"write a row for {rule.op_type} in tests/autodiff/cases"


def times(d: Value | None, factor: float) -> Value | None:
    """A cotangent scaled; that of a sequence is a sequence."""
    if d is not None and is_sequence(d.graph.type_proto(d)):
        return for_each(lambda x: x * factor, d)
    return None if d is None else d * factor


@pytest.mark.parametrize("rule", RULES, ids=lambda r: f"{r.domain}{r.op_type}")
def test_a_rule_wrong_by_a_thousandth_is_caught(rule: registry.Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    def scaled(g: Any) -> Any:
        result = rule.function(g)
        if isinstance(result, registry.Cotangents):
            captured = {name: times(d, 1.001) for name, d in result.captured.items()}
            return registry.Cotangents([times(d, 1.001) for d in result.inputs], captured)
        values = [result] if isinstance(result, str) or result is None else result
        return [times(d, 1.001) for d in values]

    wrong = dataclasses.replace(rule, function=scaled)
    monkeypatch.setitem(registry._entries, (rule.domain, rule.op_type), wrong)
    for case in _running(harness.cases_of(rule.op_type, rule.domain)):
        if harness.exception_of(case, "all") or harness.exception_of(case, "float64"):
            continue
        try:
            harness.step_float64(case, harness.Point(case))
        except (GradientMismatchError, AssertionError):
            return
    pytest.fail("no case notices")


DERIVATIVES = [rule for rule in RULES if rule.op_type not in gathered("NO_DIFFERENCES")]


@pytest.mark.parametrize("rule", DERIVATIVES, ids=lambda r: f"{r.domain}{r.op_type}")
def test_what_a_rule_gives_can_be_differentiated_again(rule: registry.Rule) -> None:
    """Differences of the gradient itself, at the rule's first smooth case."""
    smooth = [c for c in harness.cases_of(rule.op_type, rule.domain) if harness.is_smooth(c)]
    assert smooth, "write a row without literal gradients"
    cases = _running(smooth)
    _run(cases[0], "second", lambda: harness.step_second(cases[0], harness.Point(cases[0])))


@pytest.mark.parametrize("entry", NO_GRADIENT, ids=lambda e: f"{e.domain}{e.op_type}")
def test_a_declared_zero_is_zero(entry: registry.NoGradient) -> None:
    """Between its jumps, the operator gives the same result in a neighbourhood of every point."""
    for case in harness.cases_of_backend(entry.op_type, entry.domain):
        harness.constant_nearby(case)


def test_every_exception_is_of_a_case() -> None:
    steps = ["all", "float64", "structure", "float32", "second", *harness.FORMS]
    known = [f"{case.name}:{step}" for case in CASES for step in steps]
    stale = [pattern for pattern in gathered("EXCEPTIONS") if not fnmatch.filter(known, pattern)]
    assert not stale


def test_the_readme_says_how_much_was_shown() -> None:
    root = Path(__file__).resolve().parents[2]
    if f"opset {NEWEST_OPSET};" not in (root / "docs" / "operators.md").read_text(encoding="utf-8"):
        pytest.skip("the pages are written with another version of onnx than the one installed")
    ways = [
        coverage(name, NEWEST_OPSET).way
        for name in {s.name for s in defs.get_all_schemas_with_history() if not s.domain}
    ]
    count = sum(way not in (Way.NONE, Way.GAP, Way.REFUSED) for way in ways)
    text = " ".join((root / "README.md").read_text(encoding="utf-8").split())
    assert f"{count} operators of ai.onnx and " in text
    assert f"shown by {len(CASES):,} cases" in text
