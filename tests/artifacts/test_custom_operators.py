"""Custom operators of a shared library, through ``custom_op_library``, with a gradient of the user's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import artifacts
import onnxblock
from artifacts.api import CheckpointState, Module, Optimizer
from onnxblock.autodiff import registry

extensions = pytest.importorskip("onnxruntime_extensions", reason="the library of custom operators is not installed")
DOMAIN = "ai.onnx.contrib"


@pytest.fixture
def gradient_of_negpos(monkeypatch: pytest.MonkeyPatch) -> None:
    """NegPos(x) -> (min(x, 0), max(x, 0)), from standard operators."""
    registry.find("Relu")
    monkeypatch.setattr(registry, "_entries", dict(registry._entries))

    @onnxblock.gradient("NegPos", domain=DOMAIN)
    def negpos(g: onnxblock.RuleContext) -> onnxblock.Value:
        sides = [(g.grad(0), g.op.Less(g.x, 0.0)), (g.grad(1), g.op.Greater(g.x, 0.0))]
        parts = [d * g.op.CastLike(taken, d) for d, taken in sides if d is not None]
        return parts[0] if len(parts) == 1 else parts[0] + parts[1]


@pytest.mark.usefixtures("gradient_of_negpos")
def test_a_model_with_custom_operators_trains(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["h"]),
            helper.make_node("NegPos", ["h"], ["negative", "positive"], domain=DOMAIN),
            helper.make_node("Sub", ["positive", "negative"], ["y"]),
        ],
        "absolute",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 2])],
        [numpy_helper.from_array(rng.standard_normal((3, 2)).astype(np.float32), "w")],
    )
    imports = [helper.make_opsetid("", 18), helper.make_opsetid(DOMAIN, 1)]
    library = extensions.get_library_path()
    files = artifacts.generate_artifacts(
        helper.make_model(graph, opset_imports=imports, ir_version=9),
        loss=artifacts.LossType.MSELoss,
        optimizer=artifacts.OptimType.SGD,
        artifact_directory=tmp_path,
        custom_op_library=library,
    )
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(library)
    state = CheckpointState.load_checkpoint(files.checkpoint)
    module = Module(files.training_model, state, files.eval_model, session_options=options)
    optimizer = Optimizer(files.optimizer_model, module)
    optimizer.set_learning_rate(0.1)
    x = rng.standard_normal((8, 3)).astype(np.float32)
    target = np.zeros((8, 2), np.float32)
    h = x @ state.parameters["w"].data
    first = module(x, target)
    assert float(first) == pytest.approx(float((h**2).mean()), rel=1e-5)
    np.testing.assert_allclose(state.parameters["w"].grad, x.T @ (2 * h / h.size), rtol=1e-4, atol=1e-6)
    for _ in range(20):
        optimizer.step()
        module.lazy_reset_grad()
        last = module(x, target)
    assert last < 0.5 * first
