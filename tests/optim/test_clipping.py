from __future__ import annotations

import numpy as np
import pytest

import onnxblock
from onnxblock import blocks, optim
from onnxblock.errors import BlockBuildError
from tests.optim.stepping import run_steps, start, step_model
from tests.running import evaluate, normal

X, Y = normal(3, 4), normal(5, seed=1)


def clipped(max_norm, *arrays):
    feeds = {f"g{k}": x for k, x in enumerate(arrays)}
    return evaluate(lambda *g: optim.ClipGradNorm(max_norm)(list(g)), feeds)


def test_above_the_limit():
    norm = np.sqrt((X**2).sum() + (Y**2).sum())
    for found, given in zip(clipped(0.5, X, Y), (X, Y), strict=True):
        np.testing.assert_allclose(found, given * 0.5 / (norm + 1e-6), rtol=1e-6)


def test_within_the_limit_not_a_bit_changes():
    for found, given in zip(clipped(100.0, X, Y), (X, Y), strict=True):
        assert np.array_equal(found, given)


def test_small_norms_are_kept_away_from_zero():
    tiny = np.full((4,), 2e-6, np.float32)
    np.testing.assert_allclose(clipped(1e-6, tiny)[0], tiny * (1e-6 / (4e-6 + 1e-6)), rtol=1e-6)
    assert np.array_equal(clipped(1.0, np.zeros(3, np.float32))[0], np.zeros(3, np.float32))


def test_element_types_together():
    found = clipped(1.0, X, Y.astype(np.float64))
    norm = np.sqrt((X**2).sum() + (Y**2).sum())
    assert [x.dtype for x in found] == [np.float32, np.float64]
    np.testing.assert_allclose(found[1], Y / norm, rtol=1e-5)


def test_a_sequence():
    def run(x, y):
        op = x.graph.op
        sequence = optim.ClipGradNorm(0.5)(blocks.SequenceConstruct()(x, y))
        return [op.SequenceAt(sequence, 0), op.SequenceAt(sequence, 1)]

    for found, expected in zip(evaluate(run, {"x": X, "y": Y}), clipped(0.5, X, Y), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_block_of_ones_own_that_takes_a_sequence():
    class Twice(onnxblock.Block):
        def build(self, gradients_name):
            parts = [blocks.SequenceAt()(gradients_name, k) for k in range(3)]
            return blocks.SequenceConstruct()(*(p * 2 for p in parts))

    doubled = run_steps(step_model(optim.SGD(clip_grad=Twice())), start(), 1)
    plain = run_steps(step_model(optim.SGD()), start(), 1)
    for name, x in start().items():
        np.testing.assert_allclose(doubled[name] - x, 2 * (plain[name] - x), atol=1e-6)


@pytest.mark.parametrize("max_norm", [0, -1.0, float("nan")])
def test_limits_are_positive(max_norm):
    with pytest.raises(BlockBuildError, match="not a positive number"):
        optim.ClipGradNorm(max_norm)
