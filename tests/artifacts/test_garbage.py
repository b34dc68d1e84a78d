"""Generating artifacts leaves no reference cycles, and Python's collector as it was."""

from __future__ import annotations

import gc
from collections import Counter

import pytest

from artifacts.garbage import without_collector
from onnxblock.errors import OnnxBlockError
from onnxblock.optim import AdamW
from tests.training import convolutional, generate, perceptron


@pytest.fixture(params=[True, False])
def enabled(request):
    before = gc.isenabled()
    (gc.enable if request.param else gc.disable)()
    yield request.param
    (gc.enable if before else gc.disable)()


def test_the_collector_is_as_before(enabled, tmp_path):
    generate(perceptron(), tmp_path)
    assert gc.isenabled() is enabled
    with pytest.raises(OnnxBlockError):
        generate(perceptron(), tmp_path, requires_grad=["no such weight"])
    assert gc.isenabled() is enabled


def test_the_collector_waits(enabled):
    with without_collector():
        assert not gc.isenabled()
        with without_collector():
            pass
        assert not gc.isenabled()


@pytest.mark.parametrize("make", [perceptron, convolutional])
def test_no_graph_is_in_a_cycle(make, tmp_path):
    """Else all graphs of a run would stay until the collector comes: for large models that is most of the memory."""
    settings = {"optimizer": AdamW(), "fused_step": True, "recompute": True}
    generate(make(), tmp_path, **settings)
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        generate(make(), tmp_path, **settings)
        gc.collect()
        left = Counter(type(x).__qualname__ for x in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
    assert not left.keys() & {"Graph", "Index", "Weights", "ModelProto", "NodeProto", "TypeProto"}
