"""The inference model is the model as it was brought: its opset, operators and names, whatever training needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import artifacts
from artifacts.api import CheckpointState, Module, Optimizer
from onnxblock import export, names
from onnxblock.errors import InvalidModelError, UnknownNameError

RATE = 0.1


def model(opset: int, batch_norm: bool = True) -> onnx.ModelProto:
    """x → w → batch norm → dropout → two heads; ReduceSum, whose axes moved, and a weight that is not trained."""
    random = np.random.default_rng(0)
    text = f"""
    <ir_version: 7, opset_import: ["" : {opset}]>
    brought (float[n, 6] x) => (float[n, 3] scores, float[n] side) {{
        a = MatMul (x, w)
        {"c = BatchNormalization (a, scale, shift, mean, variance)" if batch_norm else "c = Identity (a)"}
        d = Dropout (c)
        scores = Gemm (d, head, bias)
        k = Mul (d, kept)
        side = {"ReduceSum <axes = [1], keepdims = 0> (k)" if opset < 13 else "ReduceSum <keepdims = 0> (k, axis)"}
    }}"""
    made = onnx.parser.parse_model(text)
    weights: dict[str, Any] = {
        "w": random.standard_normal((6, 400)) / 8,
        "head": random.standard_normal((400, 3)) / 8,
        "bias": np.zeros(3),
        "kept": random.standard_normal(400),
    }
    if batch_norm:
        weights |= {"scale": np.ones(400), "shift": np.full(400, 0.5), "mean": np.zeros(400), "variance": np.ones(400)}
    made.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(array, np.float32), name) for name, array in weights.items()
    )
    if opset >= 13:
        made.graph.initializer.append(numpy_helper.from_array(np.array([1]), "axis"))
    made.metadata_props.add(key="author", value="someone")
    onnx.checker.check_model(made, full_check=True)
    return made


def trained(given: onnx.ModelProto, folder: Path, **settings: Any) -> tuple[CheckpointState, Module]:
    files = artifacts.generate_artifacts(
        given,
        loss=artifacts.LossType.CrossEntropyLoss,
        optimizer=artifacts.OptimType.SGD,
        artifact_directory=folder,
        **{"loss_input_names": ["scores"], **settings},
    )
    state = CheckpointState.load_checkpoint(files.checkpoint)
    module = Module(files.training_model, state, files.eval_model)
    optimizer = Optimizer(files.optimizer_model, module)
    optimizer.set_learning_rate(RATE)
    random = np.random.default_rng(1)
    for _ in range(3):
        module(random.standard_normal((8, 6)).astype(np.float32), random.integers(0, 3, 8))
        optimizer.step()
        module.lazy_reset_grad()
    return state, module


def run(path: Path, x: np.ndarray) -> list[np.ndarray]:
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x": x})


X = np.random.default_rng(2).standard_normal((5, 6)).astype(np.float32)


@pytest.mark.parametrize("batch_norm", ["as exported", "train"])
@pytest.mark.parametrize("opset", [9, 12, 13, 17, 21])
def test_the_opset_is_the_users_own(opset, batch_norm, tmp_path):
    given = model(opset)
    state, module = trained(given, tmp_path, batch_norm=batch_norm)
    module.export_model_for_inferencing(tmp_path / "m.onnx", ["scores"])
    exported = onnx.load(tmp_path / "m.onnx")
    onnx.checker.check_model(exported, full_check=True)
    assert [(o.domain, o.version) for o in exported.opset_import] == [("", opset)]
    assert [n.op_type for n in exported.graph.node] == ["MatMul", "BatchNormalization", "Dropout", "Gemm"]
    assert [n.name for n in exported.graph.node] == [n.name for n in given.graph.node[:4]]
    assert [i.name for i in exported.graph.input] == ["x"]
    assert {p.key: p.value for p in exported.metadata_props} == {"author": "someone"}
    held = {t.name: numpy_helper.to_array(t) for t in exported.graph.initializer}
    assert held.keys() == {"w", "scale", "shift", "mean", "variance", "head", "bias"}
    before = {t.name: numpy_helper.to_array(t) for t in given.graph.initializer}
    for name, array in held.items():
        current = state.parameters[name].data if name in state.parameters else before[name]
        np.testing.assert_array_equal(array, current, err_msg=name)
    moving = {"w", "scale", "shift", "head", "bias"} | ({"mean", "variance"} if batch_norm == "train" else set())
    assert all(np.array_equal(held[name], before[name]) is not (name in moving) for name in held)
    # the same model as by path, with the parameters given
    arrays = {name: parameter.data for name, parameter in state.parameters}
    export.export_for_inference(given, arrays, tmp_path / "again.onnx", ["scores"])
    assert (tmp_path / "m.onnx").read_bytes() == (tmp_path / "again.onnx").read_bytes()
    np.testing.assert_array_equal(run(tmp_path / "m.onnx", X)[0], run(tmp_path / "again.onnx", X)[0])


def test_what_only_the_evaluation_model_has_comes_from_it(tmp_path):
    _, module = trained(model(13), tmp_path)
    module.export_model_for_inferencing(tmp_path / "loss.onnx", [module.output_names()[0], "scores"])
    exported = onnx.load(tmp_path / "loss.onnx")
    assert exported.opset_import[0].version == 18
    assert names.FORWARD_MODEL_KEY not in {p.key for p in exported.metadata_props}
    # ``kept`` is in no file: the loss does not depend on it
    with pytest.raises(UnknownNameError, match="'side'"):
        module.export_model_for_inferencing(tmp_path / "side.onnx", ["side"])
    module.export_model_for_inferencing(tmp_path / "middle.onnx", ["a"])
    assert onnx.load(tmp_path / "middle.onnx").opset_import[0].version == 13


def test_weights_that_are_not_trained_come_out_of_the_evaluation_model(tmp_path):
    given = model(13)
    _, module = trained(given, tmp_path, requires_grad=["head"], additional_output_names=["side"])
    module.export_model_for_inferencing(tmp_path / "m.onnx", ["scores", "side"])
    exported = onnx.load(tmp_path / "m.onnx")
    held = {t.name: t for t in exported.graph.initializer}
    for tensor in given.graph.initializer:
        if tensor.name != "head":
            np.testing.assert_array_equal(numpy_helper.to_array(held[tensor.name]), numpy_helper.to_array(tensor))
    assert exported.opset_import[0].version == 13
    assert len(run(tmp_path / "m.onnx", X)) == 2


def test_merged_statistics_get_names_of_their_own(tmp_path):
    """A running mean that was merged with a bias moves apart from it, in the exported model too."""
    given = model(13)
    node = next(n for n in given.graph.node if n.op_type == "BatchNormalization")
    node.input[2] = "mean"
    state, module = trained(given, tmp_path, batch_norm="train")
    module.export_model_for_inferencing(tmp_path / "m.onnx", ["scores"])
    exported = onnx.load(tmp_path / "m.onnx")
    assert exported.opset_import[0].version == 13
    held = {t.name: numpy_helper.to_array(t) for t in exported.graph.initializer}
    normalization = next(n for n in exported.graph.node if n.op_type == "BatchNormalization")
    bias, mean = normalization.input[2:4]
    assert bias != mean
    for name in (bias, mean):
        np.testing.assert_array_equal(held[name], state.parameters[name].data)


def test_functions_stay_functions_without_training(tmp_path):
    function = helper.make_function(
        "mine",
        "Block",
        ["x", "w"],
        ["y"],
        [
            helper.make_node("MatMul", ["x", "w"], ["h"]),
            helper.make_node("Constant", [], ["ratio"], value_float=0.5),
            helper.make_node("Constant", [], ["training"], value=helper.make_tensor("t", TensorProto.BOOL, [], [True])),
            helper.make_node("Dropout", ["h", "ratio", "training"], ["y"]),
        ],
        [helper.make_opsetid("", 17)],
    )
    graph = helper.make_graph(
        [helper.make_node("Block", ["x", "w"], ["scores"], domain="mine")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 6])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 3])],
        [numpy_helper.from_array(np.ones((6, 3), np.float32), "w")],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    given = helper.make_model(graph, functions=[function], opset_imports=imports, ir_version=8)
    state, module = trained(given, tmp_path)
    module.export_model_for_inferencing(tmp_path / "m.onnx", ["scores"])
    exported = onnx.load(tmp_path / "m.onnx")
    assert [n.op_type for n in exported.graph.node] == ["Block"]
    (scores,) = run(tmp_path / "m.onnx", X)
    np.testing.assert_allclose(scores, X @ state.parameters["w"].data, rtol=1e-5, atol=1e-6)


def test_bodies_with_much_data_are_not_carried(tmp_path, monkeypatch):
    monkeypatch.setattr(export, "_LARGEST_CARRIED", 100)
    _, module = trained(model(13), tmp_path)
    evaluation = onnx.load(tmp_path / "eval_model.onnx")
    assert [p.key for p in evaluation.metadata_props if p.key.startswith("onnxblock")] == [names.MANIFEST_KEY]
    module.export_model_for_inferencing(tmp_path / "m.onnx", ["scores"])
    assert onnx.load(tmp_path / "m.onnx").opset_import[0].version == 18


def test_a_carried_model_that_is_damaged(tmp_path):
    state, _ = trained(model(13), tmp_path)
    evaluation = onnx.load(tmp_path / "eval_model.onnx")
    for entry in evaluation.metadata_props:
        if entry.key == names.FORWARD_MODEL_KEY:
            entry.value = entry.value[:-40]
    onnx.save(evaluation, tmp_path / "eval_model.onnx")
    module = Module(tmp_path / "training_model.onnx", state, tmp_path / "eval_model.onnx")
    with pytest.raises(InvalidModelError, match=r"'onnxblock\.forward_model' of the model is damaged"):
        module.export_model_for_inferencing(tmp_path / "m.onnx", ["scores"])


def test_a_model_is_carried_once(tmp_path):
    """An evaluation model that is trained again does not carry what it carried before."""
    trained(model(13), tmp_path / "first")
    evaluation = onnx.load(tmp_path / "first" / "eval_model.onnx")
    (tmp_path / "second").mkdir()
    forward = onnx.ModelProto()
    forward.CopyFrom(evaluation)
    packed = export.pack_forward_model(forward)
    assert packed is not None
    carrier = onnx.ModelProto()
    carrier.metadata_props.add(key=names.FORWARD_MODEL_KEY, value=packed)
    unpacked = export.unpack_forward_model(carrier)
    assert unpacked is not None
    assert {p.key for p in unpacked.metadata_props} == {"author"}
