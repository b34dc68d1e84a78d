"""What no careful user would do and some user will: each ends in the right result or in an error that says why."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnx
from onnx import parser

from artifacts.api import CheckpointState, Module, Optimizer
from onnxblock.files import replacing
from tests.refusing import generate


def _product() -> onnx.ModelProto:
    return parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 18]>
        agraph (float[n, 2] x) => (float[n, 2] y) <float[2, 2] w = {1, 2, 3, 4}> { y = MatMul(x, w) }
    """)


def test_two_that_write_one_file_at_once(tmp_path):
    path = tmp_path / "checkpoint"
    with replacing(path) as first:
        first.write(b"one ")
        with replacing(path) as second:
            second.write(b"two two")
        assert path.read_bytes() == b"two two"
        first.write(b"one one")
    assert path.read_bytes() == b"one one one"
    assert list(tmp_path.iterdir()) == [path]


def test_a_result_that_is_a_weight_or_an_input_keeps_its_value(tmp_path):
    files = generate(_product(), tmp_path, additional_output_names=["w", "x"])
    state = CheckpointState.load_checkpoint(files.checkpoint)
    module = Module(files.training_model, state, files.eval_model)
    optimizer = Optimizer(files.optimizer_model, module)
    x = np.ones((3, 2), np.float32)
    for training in (True, False):
        before = state.parameters["w"].data.copy()
        _, weight, given = module.train(training)(x, np.zeros((3, 2), np.float32))
        optimizer.step()
        assert not np.array_equal(state.parameters["w"].data, before)
        assert np.array_equal(weight, before)
        given.fill(0)
        assert np.all(x == 1)


def test_one_module_in_many_threads(tmp_path):
    files = generate(_product(), tmp_path)
    module = Module(files.training_model, CheckpointState.load_checkpoint(files.checkpoint), files.eval_model).eval()
    batches = [np.full((n, 2), n, np.float32) for n in (1, 2, 500, 3000)]

    def loss(batch: Any) -> float:
        return float(module(batch, np.zeros_like(batch)))

    alone = [loss(batch) for batch in batches]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(loss, batches * 100))
    assert together == alone * 100
