"""Files say which runtimes they are for; what the discontinued one would not train is refused where it is asked for."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import artifacts
from artifacts.manifest import Manifest
from onnxblock.errors import InvalidModelError

BOTH, STOCK = ("onnxruntime", "onnxruntime-training"), ("onnxruntime",)


def model(opset: int = 17, ir_version: int = 8, dtype: str = "float32", frozen: str = "float32") -> onnx.ModelProto:
    """y = x w + cast(bias); ``bias`` is to be frozen."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["h"]),
            helper.make_node("Cast", ["bias"], ["b"], to=kind),
            helper.make_node("Add", ["h", "b"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", kind, ["n", 3])],
        [helper.make_tensor_value_info("y", kind, ["n", 2])],
        [numpy_helper.from_array(np.ones((3, 2), dtype), "w"), numpy_helper.from_array(np.ones(2, frozen), "bias")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)


def generate(given, folder, **settings):
    return artifacts.generate_artifacts(
        given,
        requires_grad=["w"],
        frozen_params=["bias"],
        loss=artifacts.LossType.MSELoss,
        optimizer=artifacts.OptimType.SGD,
        artifact_directory=folder,
        **settings,
    )


@pytest.mark.parametrize(
    "form",
    [{}, {"opset": 21, "ir_version": 10}, {"opset": 21, "ir_version": 11}, {"frozen": "float64"}, {"frozen": "int16"}],
)
def test_for_both_runtimes(form, tmp_path):
    files = generate(model(**form), tmp_path, runtime="onnxruntime-training")
    assert files.runtimes == BOTH
    for path in (files.training_model, files.eval_model, files.optimizer_model):
        made = onnx.load(path)
        manifest = Manifest.from_metadata({p.key: p.value for p in made.metadata_props})
        assert manifest is not None
        assert manifest.runtimes == BOTH
        assert made.ir_version <= 10  # the newest that the discontinued runtime loads


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        ({"dtype": "float64"}, "it trains float32 only, and there are parameters of float64"),
        ({"dtype": "float16"}, "it trains float32 only, and there are parameters of float16"),
        ({"frozen": "float16"}, "it cannot load frozen parameters of float16"),
        ({"opset": 22, "ir_version": 10}, "it knows opsets up to 21, and the model has 22"),
    ],
)
def test_for_stock_onnxruntime_only(form, reason, folder, tmp_path):
    if form.get("opset", 0) > onnx.defs.onnx_opset_version():
        pytest.skip("this onnx does not know that opset")
    assert generate(model(**form), tmp_path / "stock").runtimes == STOCK
    with pytest.raises(InvalidModelError) as caught:
        generate(model(**form), folder, runtime="onnxruntime-training")
    assert str(caught.value) == (
        f"onnxruntime-training cannot train these artifacts: {reason}.\n  Leave runtime= at its default, 'onnxruntime'."
    )


def test_an_input_that_is_called_like_a_gradient(tmp_path):
    """The original takes it for a buffer, and fails in its first run."""
    given = model()
    given.graph.node[0].input[0] = given.graph.input[0].name = "x_grad"
    assert generate(given, tmp_path / "stock").runtimes == STOCK
    with pytest.raises(InvalidModelError, match="it takes the inputs 'x_grad' for gradients, because of their names"):
        generate(given, tmp_path / "old", runtime="onnxruntime-training")


@pytest.mark.parametrize("runtime", ["onnxruntime", "onnxruntime-training"])
def test_the_summary_says_for_each_file_what_it_is_for(tmp_path, runtime):
    stock = runtime == "onnxruntime"
    files = generate(model(), tmp_path, runtime=runtime, fused_step=stock, ort_format=stock)
    assert (files.runtimes, files.optimizer_runtimes) == (BOTH, STOCK if stock else BOTH)
    shown = str(files).split("files, and the runtimes that they are for:\n")[1]
    both, optimizer = ", ".join(BOTH), ", ".join(files.optimizer_runtimes)
    expected = [["training_model.onnx", both], ["eval_model.onnx", both], ["optimizer_model.onnx", optimizer]]
    if stock:
        expected.append(["step_model.onnx", "onnxruntime"])
    expected.append(["checkpoint", both])
    if stock:
        kinds = ("training", "eval", "optimizer", "step")
        expected += [[f"{kind}_model.ort", "onnxruntime"] for kind in kinds]
        assert files.ort_models == tuple(tmp_path / f"{kind}_model.ort" for kind in kinds)
    rows = [line.split(None, 1) for line in shown.splitlines()]
    assert rows == [[str(tmp_path / name), runtimes] for name, runtimes in expected]
    assert {path.name for path in tmp_path.iterdir()} == {name for name, _ in expected}


def test_all_reasons_are_listed(folder):
    with pytest.raises(InvalidModelError, match=r"of float64; it cannot load frozen parameters of float16\."):
        generate(model(dtype="float64", frozen="float16"), folder, runtime="onnxruntime-training")
