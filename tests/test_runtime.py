"""The list of what older releases of onnxruntime cannot do, kept free of tests that are gone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.runtime import FAULTS

TESTS = Path(__file__).parent


def test_every_fault_is_of_a_test(request: pytest.FixtureRequest) -> None:
    """Whatever onnxruntime is installed: the names are the same."""
    collected = {Path(argument).resolve() for argument in request.config.args}
    if not collected & {TESTS, TESTS.parent} or request.config.getoption("keyword"):
        pytest.skip("not all tests were collected")
    pytest.importorskip("torch", reason="not all tests were collected")
    names = "\n".join(item.nodeid for item in request.session.items)
    assert not [pattern for faults in FAULTS.values() for pattern in faults if not re.search(pattern, names)]
