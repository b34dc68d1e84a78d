from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from onnx import defs

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "make_stubs.py"


@pytest.fixture(scope="module")
def make_stubs():
    spec = importlib.util.spec_from_file_location("make_stubs", SCRIPT)
    module = sys.modules["make_stubs"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("target", "text"), [("BLOCKS", "blocks_text"), ("METHODS", "methods_text")])
def test_stubs_are_current(make_stubs, target, text):
    written = getattr(make_stubs, target).read_text(encoding="utf-8")
    if f"opset {defs.onnx_opset_version()};" not in written:
        pytest.skip("the stubs are written with another version of onnx than the one installed")
    assert written == getattr(make_stubs, text)(), "run: python tools/make_stubs.py"


def test_stubs_say_what_is_required(make_stubs):
    operator = make_stubs.describe("Concat")
    assert operator.inputs == ["*inputs: Operand"]
    assert operator.attributes == {"axis": "int"}
    assert operator.has_one_output
    assert make_stubs.describe("Clip").optional_inputs == ["min", "max"]
    assert not make_stubs.describe("Dropout").has_one_output
