"""No operator without a gradient goes unnoticed, and ``docs/operators.md`` says what there is."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from onnxblock.autodiff import registry
from onnxblock.autodiff.coverage import Way, coverage
from onnxblock.graph.context import MINIMUM_OPSET
from onnxblock.graph.schemas import NEWEST_OPSET, operator_names

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "make_operator_table.py"


@pytest.fixture(scope="module")
def table():
    spec = importlib.util.spec_from_file_location("make_operator_table", SCRIPT)
    module = sys.modules["make_operator_table"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("opset", range(MINIMUM_OPSET, NEWEST_OPSET + 1))
def test_every_operator_has_a_gradient_or_a_reason(opset):
    names = operator_names(opset)
    assert len(names) > 180
    ways = {name: coverage(name, opset).way for name in names}
    assert [name for name, way in ways.items() if way in {Way.GAP, Way.RAISED}] == []


@pytest.mark.parametrize("domain", ["ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training"])
def test_every_operator_of_the_other_domains_of_onnx_has_a_gradient_or_a_reason(table, domain):
    rows = table.rows_of_onnx(domain)
    assert rows
    assert [name for name, found in rows if found.way is Way.GAP] == []
    assert all(found.reason for _, found in rows if found.way in {Way.NONE, Way.REFUSED})


def test_operators_of_older_opsets_are_replaced_or_have_a_gradient(table):
    assert [name for name in table.versions() if coverage(name, NEWEST_OPSET).way is Way.GAP] == []
    assert coverage("Upsample", NEWEST_OPSET).way is Way.RAISED


def test_reasons_are_sentences():
    for entry in registry.entries():
        if isinstance(entry, registry.NoGradient):
            assert len(entry.reason.split()) > 2, entry


def test_each_way_is_recognised():
    assert coverage("Relu", 18).way is Way.RULE
    assert coverage("FastGelu", 1, "com.microsoft").way is Way.DECOMPOSITION
    assert coverage("LinearAttention", 27).way is Way.FUNCTION_BODY
    assert coverage("LinearAttention", 26).way is Way.GAP
    assert coverage("Shape", 18).way is Way.NONE
    assert coverage("Mystery", 18).way is Way.GAP
    assert coverage("Adam", 1, "ai.onnx.preview.training").way is Way.REFUSED
    assert coverage("Relu", 18, "my.domain").way is Way.GAP


def test_the_page_is_current(table):
    written = table.PAGE.read_text(encoding="utf-8")
    if f"opset {NEWEST_OPSET};" not in written:
        pytest.skip("the page is written with another version of onnx than the one installed")
    assert written == table.text(), "run: python tools/make_operator_table.py"


def test_registering_an_operator_looks_at_no_other_module(monkeypatch: pytest.MonkeyPatch) -> None:
    class Untouchable(ModuleType):
        def __getattr__(self, name: str) -> Any:
            raise AssertionError(f"{name} of a module that has nothing to do with it")

    def rule(ctx: Any, x: Any, cotangent: Any) -> None:
        return None

    # Large libraries have thousands of modules, some of which are loaded only when an attribute is asked for.
    monkeypatch.setitem(sys.modules, "untouchable", Untouchable("untouchable"))
    try:
        registry.no_gradient("Untouched", reason="for this test", domain="test")
        registry.gradient("Touched", domain="test")(rule)
        for op_type in ("Untouched", "Touched"):
            entry = registry.find(op_type, "test")
            assert entry is not None
            assert entry.where.startswith(f"{__file__}:")
    finally:
        registry.forget("Untouched", "test")
        registry.forget("Touched", "test")
