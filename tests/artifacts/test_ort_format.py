"""Training from ``.ort`` files, which a reduced build of onnxruntime can read, is training from the ``.onnx`` files."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import artifacts
from artifacts import api, write
from onnxblock.errors import InvalidModelError
from tests.interop import loop
from tests.interop.networks import NETWORKS

STEPS, BATCH = 5, 8


@pytest.mark.parametrize("family", NETWORKS)
def test_every_network_trains_from_ort_files(family, tmp_path):
    network, random = NETWORKS[family](), np.random.default_rng(0)
    files = artifacts.generate_artifacts(
        network.model,
        loss=artifacts.LossType.CrossEntropyLoss,
        optimizer=artifacts.OptimType.AdamW,
        artifact_directory=tmp_path,
        ort_format=True,
    )
    batches = [network.batch(random, BATCH) for _ in range(STEPS)]
    np.savez(tmp_path / "data.npz", **{f"input{k}": np.stack(arrays) for k, arrays in enumerate(zip(*batches))})
    results = []
    for suffix in (".onnx", ".ort"):
        job = {"checkpoint": files.checkpoint, "data": tmp_path / "data.npz", "save": tmp_path / f"saved{suffix}"}
        for name in ("training_model", "eval_model", "optimizer_model"):
            job[name] = getattr(files, name).with_suffix(suffix)
            assert job[name].exists()
        results.append(loop.run(api, job))
    expected, found = results
    assert expected.keys() == found.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6, err_msg=name)


def test_inference_models_are_made_from_onnx_files(tmp_path):
    network = NETWORKS["mlp"]()
    files = artifacts.generate_artifacts(
        network.model, loss=artifacts.LossType.CrossEntropyLoss, artifact_directory=tmp_path, ort_format=True
    )
    state = api.CheckpointState.load_checkpoint(files.checkpoint)
    module = api.Module(files.training_model.with_suffix(".ort"), state, files.eval_model.with_suffix(".ort"))
    with pytest.raises(InvalidModelError, match=r"is in the ORT format.*\n  Give the \.onnx model"):
        module.export_model_for_inferencing(tmp_path / "m.onnx", ["scores"])
    assert not (tmp_path / "m.onnx").exists()


def test_models_that_the_format_cannot_hold(folder, monkeypatch):
    """A FlatBuffer ends at 2 GiB, where onnxruntime ends the process."""
    monkeypatch.setattr(write, "SINGLE_FILE_NBYTES", 20_000)
    weights = {"big": np.ones((60, 100), np.float32), "w": np.ones((100, 5), np.float32)}
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "big"], ["h"]), helper.make_node("MatMul", ["h", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", 1, ["n", 60])],
        [helper.make_tensor_value_info("y", 1, ["n", 5])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.checker.check_model(model)
    settings = {"loss": artifacts.LossType.MSELoss, "requires_grad": ["w"], "ort_format": True}
    with pytest.raises(InvalidModelError) as caught:
        artifacts.generate_artifacts(model, artifact_directory=folder, **settings)
    assert "training_model.onnx takes 0.00 GB with the weights that stay inside it" in str(caught.value)
    assert "can hold: 'big' (0.00 GB)" in str(caught.value)
    assert "Name the large ones in frozen_params" in str(caught.value)


def test_frozen_weights_are_not_in_the_files(tmp_path, monkeypatch):
    monkeypatch.setattr(write, "SINGLE_FILE_NBYTES", 20_000)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "big"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", 1, ["n", 60])],
        [helper.make_tensor_value_info("y", 1, ["n", 100])],
        [numpy_helper.from_array(np.ones((60, 100), np.float32), "big")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    files = artifacts.generate_artifacts(
        model, loss=artifacts.LossType.MSELoss, artifact_directory=tmp_path, ort_format=True
    )
    assert files.training_model.with_suffix(".ort").exists()
