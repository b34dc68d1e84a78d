"""Training where only NumPy and onnxruntime are installed, and on models of every element type."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from artifacts.api import CheckpointState, Module
from onnxblock import names
from onnxblock.checkpoint import Checkpoint, Tensor, write_checkpoint
from tests.artifacts import handmade
from tests.artifacts.handmade import Files, X, node, train

ROOT = Path(__file__).resolve().parents[2]

WITHOUT_ONNX = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"onnx", "ml_dtypes", "flatbuffers", "google", "torch"}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Block())
import numpy as np
from artifacts.api import CheckpointState, LinearLRScheduler, Module, Optimizer
folder = sys.argv[1]
state = CheckpointState.load_checkpoint(f"{folder}/checkpoint")
module = Module(f"{folder}/training_model.onnx", state, f"{folder}/eval_model.onnx", seed=3)
optimizer = Optimizer(f"{folder}/optimizer_model.onnx", module)
scheduler = LinearLRScheduler(optimizer, 0, 10**6, 0.001)
data = np.load(f"{folder}/data.npz")
for _ in range(3):
    print(repr(float(module(data["x"], data["target"]))))
    optimizer.step()
    module.lazy_reset_grad()
CheckpointState.save_checkpoint(state, f"{folder}/trained", include_optimizer_state=True)
module.eval()(data["x"], data["target"])
try:
    module.export_model_for_inferencing(f"{folder}/m.onnx", ["y"])
except ImportError as error:
    print(type(error).__name__)
assert "onnx" not in sys.modules
"""


def test_training_without_onnx(tmp_path):
    files = Files(tmp_path)
    np.savez(tmp_path / "data.npz", x=X, target=handmade.TARGET)
    command = [sys.executable, "-W", "error", "-c", WITHOUT_ONNX, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    *losses, exporting = done.stdout.split()
    assert exporting == "RuntimeUnavailableError"
    _, module, optimizer = files.open()
    np.testing.assert_allclose([float(loss) for loss in losses], train(module, optimizer, 3), rtol=1e-6)
    assert files.open(tmp_path / "trained")[2].completed_steps == 3


def scaling_model(dtype, shape=("N", 2)):
    """loss = mean(x · w) over a parameter of any type; its gradient is the column mean of x."""
    kinds = {"w": (2,), names.gradient_buffer("w"): (2,), names.accumulated_gradient("w"): (2,)}
    nodes = [
        node("Mul", ["x", "w"], "xw"),
        node("ReduceSum", ["xw"], "loss", keepdims=0),
        node("ReduceSum", ["x", "axis0"], "dw", keepdims=0),
        node("Add", [names.gradient_buffer("w"), "dw"], names.accumulated_gradient("w")),
    ]
    ports = {name: helper.make_tensor_value_info(name, dtype, size) for name, size in kinds.items()}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", dtype, shape), ports["w"], ports[names.gradient_buffer("w")]],
        [helper.make_tensor_value_info("loss", dtype, []), ports[names.accumulated_gradient("w")]],
        [handmade.constant("axis0", np.array([0], np.int64))],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize(
    ("dtype", "numpy_type"),
    [(TensorProto.DOUBLE, np.float64), (TensorProto.FLOAT16, np.float16), (TensorProto.INT32, np.int32)],
)
def test_parameters_of_other_types(dtype, numpy_type, tmp_path):
    onnx.save(scaling_model(dtype), tmp_path / "t.onnx")
    w = np.array([2, 3], numpy_type)
    write_checkpoint(tmp_path / "c", Checkpoint([Tensor.from_array("w", w)], []))
    state = CheckpointState.load_checkpoint(tmp_path / "c")
    module = Module(tmp_path / "t.onnx", state)
    x = np.arange(6).reshape(3, 2).astype(numpy_type)
    loss = module(x)
    assert (loss.dtype, float(loss)) == (numpy_type, float((x * w).sum()))
    np.testing.assert_array_equal(state.parameters["w"].grad, x.sum(0, dtype=numpy_type), strict=True)
    module(x)
    np.testing.assert_array_equal(state.parameters["w"].grad, 2 * x.sum(0))


@pytest.mark.parametrize("shape", [(0, 3), (), (1,)])
def test_parameters_without_elements_and_scalars(shape, tmp_path):
    buffer, out = names.gradient_buffer("w"), names.accumulated_gradient("w")
    infos = {name: handmade.info(name, shape) for name in ("w", buffer, out)}
    nodes = [
        node("ReduceSum", ["w"], "total", keepdims=0),
        node("Mul", ["total", "x"], "loss"),
        node("Expand", ["x", "shape"], "dw"),
        node("Add", [buffer, "dw"], out),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [handmade.info("x", []), infos["w"], infos[buffer]],
        [handmade.info("loss", []), infos[out]],
        [handmade.constant("shape", np.array(shape, np.int64))],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, tmp_path / "t.onnx")
    write_checkpoint(tmp_path / "c", Checkpoint([Tensor.from_array("w", np.ones(shape, np.float32))], []))
    state = CheckpointState.load_checkpoint(tmp_path / "c")
    module = Module(tmp_path / "t.onnx", state)
    assert float(module(np.float32(2))) == 2 * np.ones(shape).sum()
    np.testing.assert_array_equal(state.parameters["w"].grad, np.full(shape, 2, np.float32))
    assert module.get_parameters_size() == int(np.prod(shape))


def test_bfloat16_parameters_with_and_without_ml_dtypes(tmp_path, monkeypatch):
    w = np.array([0x4000, 0x4040], np.uint16)  # 2 and 3
    buffer, out = names.gradient_buffer("w"), names.accumulated_gradient("w")
    infos = {n: helper.make_tensor_value_info(n, TensorProto.BFLOAT16, [2]) for n in ("w", "x", buffer, out, "echo")}
    nodes = [
        node("Cast", ["w"], "wf", to=TensorProto.FLOAT),
        node("ReduceSum", ["wf"], "loss", keepdims=0),
        node("Identity", ["x"], "echo"),
        node("Identity", ["x"], out),
    ]
    graph = helper.make_graph(
        nodes, "g", [infos["x"], infos["w"], infos[buffer]], [handmade.info("loss", []), infos["echo"], infos[out]]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, tmp_path / "t.onnx")
    write_checkpoint(tmp_path / "c", Checkpoint([Tensor("w", TensorProto.BFLOAT16, (2,), lambda: (w.tobytes(),))], []))

    def check(x):
        state = CheckpointState.load_checkpoint(tmp_path / "c")
        module = Module(tmp_path / "t.onnx", state)
        loss, echo = module(x)
        assert float(loss) == 5
        assert echo.dtype == x.dtype == state.parameters["w"].data.dtype
        assert echo.view(np.uint16).tolist() == w.tolist()
        assert state.parameters["w"].grad.view(np.uint16).tolist() == w.tolist()

    ml_dtypes = pytest.importorskip("ml_dtypes", reason="comes with onnx, needed for the first half")
    check(w.view(ml_dtypes.bfloat16))
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    check(w)


def test_text_inputs(tmp_path):
    """Text cannot be bound; such models run without I/O binding, with the same results."""
    model = scaling_model(TensorProto.FLOAT)
    model.graph.input.insert(0, helper.make_tensor_value_info("words", TensorProto.STRING, ["M"]))
    model.graph.node.append(node("Identity", ["words"], "echo"))
    model.graph.output.append(helper.make_tensor_value_info("echo", TensorProto.STRING, ["M"]))
    onnx.save(model, tmp_path / "t.onnx")
    write_checkpoint(tmp_path / "c", Checkpoint([Tensor.from_array("w", np.array([2, 3], np.float32))], []))
    state = CheckpointState.load_checkpoint(tmp_path / "c")
    module = Module(tmp_path / "t.onnx", state)
    data = state.parameters["w"].data
    x = np.ones((4, 2), np.float32)
    for runs in (1, 2):
        loss, echo = module(["a", "bc"], x)
        assert (float(loss), echo.tolist()) == (20, ["a", "bc"])
        np.testing.assert_array_equal(state.parameters["w"].grad, [4 * runs, 4 * runs])
    data[...] = 1
    assert float(module(np.array(["a"]), x)[0]) == 8
