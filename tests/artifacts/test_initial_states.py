"""States that do not begin at zero: said by the optimizer, written in the manifest, prepared by the runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import artifacts
from artifacts.api import CheckpointState, Module, Optimizer
from artifacts.manifest import Initial, Manifest
from onnxblock import loss, names, optim
from onnxblock.block import Block
from tests.running import normal

W = normal(4, 2, seed=5)
X, TARGET = normal(8, 4), normal(8, 2, seed=1)


def generate(folder: Path, optimizer: Block) -> dict[str, Initial]:
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "linear",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 2])],
        [numpy_helper.from_array(W, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    artifacts.generate_artifacts(model, loss=loss.MSELoss(), optimizer=optimizer, artifact_directory=folder)
    metadata = {e.key: e.value for e in onnx.load(folder / names.OPTIMIZER_MODEL_FILE).metadata_props}
    assert names.INITIAL_STATES_KEY not in metadata
    return {pair.input: pair.initial for pair in Manifest.from_json(metadata[names.MANIFEST_KEY]).state}


def step(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """The parameter after one step with learning rate 0.1, and the gradient of that step."""
    state = CheckpointState.load_checkpoint(folder / names.CHECKPOINT_FILE)
    module = Module(folder / names.TRAINING_MODEL_FILE, state)
    optimizer = Optimizer(folder / names.OPTIMIZER_MODEL_FILE, module)
    optimizer.set_learning_rate(0.1)
    module.train()
    module(X, TARGET)
    gradient = np.array(state.parameters["w"].grad)
    optimizer.step()
    return np.array(state.parameters["w"].data), gradient


def test_a_number(tmp_path: Path) -> None:
    found = generate(tmp_path, optim.Adagrad(initial_accumulator_value=0.5))
    assert found["w.momentum0"] == Initial("constant", value=0.5)
    w, g = step(tmp_path)
    np.testing.assert_allclose(w, W - 0.1 * g / np.sqrt(0.5 + g * g), rtol=1e-5, atol=1e-6)


def test_the_parameter(tmp_path: Path) -> None:
    found = generate(tmp_path, optim.ExponentialMovingAverage(optim.SGD(momentum=0.9)))
    assert found["w.momentum0"] == Initial("zeros")
    assert found["w.momentum1"] == Initial("parameter", "w")
    w, g = step(tmp_path)
    np.testing.assert_allclose(w, W - 0.1 * g, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("optimizer", [optim.AdamW(), optim.SGD()])
def test_otherwise_zeros(tmp_path: Path, optimizer: Block) -> None:
    assert all(initial.kind == "zeros" for name, initial in generate(tmp_path, optimizer).items() if name != "w")
