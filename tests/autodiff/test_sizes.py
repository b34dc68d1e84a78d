"""Elementwise operators and reductions of a single number and of nothing, however much of their shapes is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from onnxblock.autodiff import registry
from onnxblock.autodiff.check import model_of_node
from onnxblock.autodiff.gradients import gradients

from . import harness
from .cases import case

FORMS = ("static", "symbolic", "unranked")
OF_VECTORS = {"Softmax", "LogSoftmax"}


def _family(rule: registry.Rule) -> str:
    return Path(rule.where.rpartition(":")[0]).stem


ELEMENTWISE = [
    entry.op_type
    for entry in registry.entries()
    if isinstance(entry, registry.Rule)
    and not entry.domain
    and _family(entry) in {"elementwise", "activation"}
    and entry.op_type not in OF_VECTORS
]


def _first_case(op_type: str) -> harness.Case:
    return next(
        c
        for c in harness.cases_of(op_type)
        if len(c.model.graph.node) == 1 and harness.is_smooth(c) and not harness.exception_of(c, "all")
    )


def _resized(one: harness.Case, shape: tuple[int, ...]) -> harness.Case:
    """The case with inputs of this shape; numbers that set something stay."""
    size = int(np.prod(shape))
    feeds = {n: x.ravel()[:size].reshape(shape) if x.ndim else x for n, x in one.feeds.items()}
    model = model_of_node(one.model.graph.node[0], feeds, harness.opset(one.model))
    return harness.Case(one.op_type, one.domain, one.name, model, feeds, None, one.constants)


def _gradients(one: harness.Case, form: str) -> list[np.ndarray]:
    model = getattr(harness, form)(one)
    made = gradients(model, wrt=harness.wrt(one), outputs=[one.model.graph.output[0].name])
    return harness.run_onnxruntime(made, one.feeds, optimized=True)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("op_type", ELEMENTWISE)
def test_a_number_is_a_vector_of_one(op_type: str, form: str) -> None:
    one = _first_case(op_type)
    number, vector = _resized(one, ()), _resized(one, (1,))
    expected = _gradients(vector, "static")
    for name, d, exact in zip(harness.wrt(one), _gradients(number, form), expected, strict=True):
        assert d.shape == number.feeds[name].shape
        np.testing.assert_allclose(d, exact.reshape(d.shape), rtol=1e-5)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("op_type", ELEMENTWISE)
def test_nothing_has_a_gradient_of_nothing(op_type: str, form: str) -> None:
    one = _resized(_first_case(op_type), (0, 3))
    for name, d in zip(harness.wrt(one), _gradients(one, form), strict=True):
        assert d.shape == one.feeds[name].shape


X = np.array(1.5, np.float32)
OF_A_NUMBER = [
    *(
        (case(f"Reduce{name}", X), slope)
        for name, slope in [
            *(("Sum", 1), ("Mean", 1), ("Max", 1), ("Min", 1), ("Prod", 1), ("L1", 1), ("L2", 1)),
            *(("SumSquare", 3), ("LogSum", 1 / 1.5), ("LogSumExp", 1)),
        ]
    ),
    (case("Reshape", X, np.array([1, 1])), 1),
    (case("Unsqueeze", X, np.array([0])), 1),
    (case("Expand", X, np.array([2, 3])), 6),
    (case("Squeeze", X), 1),
    (case("Flatten", X, axis=0), 1),
    (case("Transpose", X), 1),
    (case("Identity", X), 1),
    (case("Where", np.array(True), X, np.array(2, np.float32)), 1),
    (case("Einsum", X, np.array(4, np.float32), equation=",->"), 4),
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("one", "slope"), OF_A_NUMBER, ids=lambda x: getattr(x, "op_type", ""))
def test_a_single_number_is_reduced_and_moved(one: harness.Case, slope: float, form: str) -> None:
    d = _gradients(one, form)[0]
    assert d.shape == ()
    np.testing.assert_allclose(d, slope, rtol=1e-6)
