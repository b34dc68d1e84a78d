"""What a rule or a decomposition returns that cannot be: an error that names the operator and where it is written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from onnx import parser

import onnxblock
from onnxblock.autodiff import registry
from onnxblock.errors import RuleError, UnsupportedOperatorError
from onnxblock.graph import decomposition

DOMAIN = "faulty.rules"
MODEL = """
    <ir_version: 9, opset_import: ["": 18, "faulty.rules": 1]>
    g (float[2, 3] x) => (float[2, 3] y) { s = Sin (x)  t = faulty.rules.Op (s)  y = Mul (s, t) }
"""


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(decomposition, "_entries", dict(decomposition._entries))
    yield
    registry.forget("Op", DOMAIN)


def differentiate() -> None:
    onnxblock.gradients(parser.parse_model(MODEL), ["x"])


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (lambda _: 3, "returns 3, which is neither a value"),
        (lambda _: "dx", "returns 'dx'"),
        (lambda g: [g.dy, 2.0], "neither a value, nor None"),
        (lambda g: g.op.Concat(g.x, g.x, axis=0), r"the cotangent of 's', \[2, 3\], has shape \[4, 3\]"),
        (lambda g: g.dy.cast(np.int64), "the cotangent of 's' is int64"),
    ],
)
def test_a_rule(rule: Any, words: str) -> None:
    onnxblock.gradient("Op", domain=DOMAIN)(rule)
    with pytest.raises(RuleError, match=words) as raised:
        differentiate()
    assert "In the gradient of Op 't'" in str(raised.value)
    assert "test_faulty_rules.py" in str(raised.value)


def test_a_rule_may_return_what_is_to_be_summed_or_nothing() -> None:
    onnxblock.gradient("Op", domain=DOMAIN)(lambda g: [g.op.Expand(g.dy, np.array([4, 2, 3])), None])
    differentiate()


def test_a_decomposition() -> None:
    decomposition.decomposition("Op", domain=DOMAIN)(lambda _: 3)
    with pytest.raises(UnsupportedOperatorError, match="the decomposition of Op 't' returns 3"):
        differentiate()
