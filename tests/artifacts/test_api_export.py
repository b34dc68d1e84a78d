"""Inference models out of evaluation model and trained parameters."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from artifacts.api import CheckpointState, Module
from onnxblock.errors import OnnxBlockError, UnknownNameError
from onnxblock.graph import store
from tests.artifacts.handmade import TARGET, Files, X, train


def run(path, outputs=None, **feeds):
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(outputs, feeds)


@pytest.mark.parametrize("form", [{}, {"manifest": False}])
def test_trained_model_is_exported(form, tmp_path):
    state, module, optimizer = Files(tmp_path, statistic=True, **form).open()
    train(module, optimizer, 3)
    module.export_model_for_inferencing(tmp_path / "m.onnx", ["y"])
    model = onnx.load(tmp_path / "m.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert [i.name for i in model.graph.input] == ["x"]
    assert [o.name for o in model.graph.output] == ["y"]
    assert [n.op_type for n in model.graph.node] == ["Gemm", "Relu", "Gemm"]
    assert [t.name for t in model.graph.initializer] == ["W1", "b1", "W2", "b2"]
    assert not model.metadata_props
    weights = {name: p.data for name, p in state.parameters}
    hidden = np.maximum(X @ weights["W1"].T + weights["b1"], 0)
    (result,) = run(tmp_path / "m.onnx", x=X)
    np.testing.assert_allclose(result, hidden @ weights["W2"].T + weights["b2"], rtol=1e-5, atol=1e-6)
    # any intermediate values, and statistics among the weights
    module.export_model_for_inferencing(tmp_path / "n.onnx", ["centred", "h"])
    centred, _ = run(tmp_path / "n.onnx", x=X)
    np.testing.assert_allclose(centred, hidden - weights["mean"], rtol=1e-5, atol=1e-6)


def test_loss_can_be_exported(tmp_path):
    _, module, _ = Files(tmp_path).open()
    module.export_model_for_inferencing(str(tmp_path / "m.onnx"), ["loss", "y"])
    loss, _ = run(tmp_path / "m.onnx", x=X, target=TARGET)
    assert loss == module.eval()(X, TARGET)


def test_large_weights_are_streamed_to_external_data(tmp_path, monkeypatch):
    _, module, _ = Files(tmp_path).open()
    module.export_model_for_inferencing(tmp_path / "one.onnx", ["y"])
    monkeypatch.setattr(store, "SINGLE_FILE_NBYTES", 10)
    module.export_model_for_inferencing(tmp_path / "two.onnx", ["y"])
    assert (tmp_path / "two.onnx.data").exists()
    assert not (tmp_path / "one.onnx.data").exists()
    np.testing.assert_array_equal(run(tmp_path / "two.onnx", x=X)[0], run(tmp_path / "one.onnx", x=X)[0])


def test_outputs_that_do_not_exist(tmp_path):
    _, module, _ = Files(tmp_path).open()
    with pytest.raises(UnknownNameError, match=r"'los'\. Did you mean 'loss'"):
        module.export_model_for_inferencing(tmp_path / "m.onnx", ["los", "y"])
    for names in ([], ["y", "y"]):
        with pytest.raises(OnnxBlockError, match="at least one value"):
            module.export_model_for_inferencing(tmp_path / "m.onnx", names)
    with pytest.raises(OnnxBlockError, match="cannot write"):
        module.export_model_for_inferencing(tmp_path / "nowhere" / "m.onnx", ["y"])
    assert not (tmp_path / "m.onnx").exists()


def test_exporting_does_not_touch_the_state(tmp_path):
    files = Files(tmp_path)
    state = CheckpointState.load_checkpoint(files.checkpoint)
    module = Module(files.training, state, files.evaluation)
    before = {name: p.data.copy() for name, p in state.parameters}
    module.export_model_for_inferencing(tmp_path / "m.onnx", ["y"])
    module.export_model_for_inferencing(tmp_path / "m.onnx", ["y"])
    for name, parameter in state.parameters:
        np.testing.assert_array_equal(parameter.data, before[name])
