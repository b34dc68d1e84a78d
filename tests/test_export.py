from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper, parser

from onnxblock import export_for_inference
from onnxblock.errors import FeedError, InvalidModelError, OnnxBlockError, UnknownNameError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 8)).astype(np.float32)


def run(path: Path, **feeds: np.ndarray) -> list[Any]:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


@pytest.fixture
def mlp() -> ModelProto:
    """Opset 11, IR 3: a large weight listed as an input too, a small bias, and one weight in a Constant node."""
    weights = {"fc1.weight": RNG.normal(size=(64, 8)), "fc1.bias": RNG.normal(size=64)}
    constant = numpy_helper.from_array(RNG.normal(size=(3, 64)).astype(np.float32), "value")
    graph = helper.make_graph(
        [
            helper.make_node("Gemm", ["x", "fc1.weight", "fc1.bias"], ["h"], "fc1", transB=1),
            helper.make_node("Clip", ["h"], ["a"], "clip"),
            helper.make_node("Constant", [], ["fc2.weight"], "c", value=constant),
            helper.make_node("Gemm", ["a", "fc2.weight"], ["y"], "fc2", transB=1),
            helper.make_node("Softmax", ["y"], ["p"], axis=1),
        ],
        "mlp",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8]),
            *(helper.make_tensor_value_info(name, TensorProto.FLOAT, w.shape) for name, w in weights.items()),
        ],
        [helper.make_tensor_value_info("p", TensorProto.FLOAT, ["n", 3])],
        [numpy_helper.from_array(w.astype(np.float32), name) for name, w in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=3)


def new_values() -> dict[str, np.ndarray]:
    shapes = {"fc1.weight": (64, 8), "fc1.bias": (64,), "fc2.weight": (3, 64)}
    return {name: RNG.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def logits(w: dict[str, np.ndarray]) -> np.ndarray:
    return (X @ w["fc1.weight"].T + w["fc1.bias"]) @ w["fc2.weight"].T


def softmax(y: np.ndarray) -> np.ndarray:
    e = np.exp(y - y.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def test_the_users_model_with_new_weights(tmp_path: Path, mlp: ModelProto) -> None:
    before = mlp.SerializeToString()
    values = new_values()
    export_for_inference(mlp, values, tmp_path / "new.onnx")
    assert mlp.SerializeToString() == before
    np.testing.assert_allclose(run(tmp_path / "new.onnx", x=X)[0], softmax(logits(values)), atol=1e-5)
    written = onnx.load(tmp_path / "new.onnx")
    assert written.ir_version == 3
    assert written.opset_import == mlp.opset_import
    assert [n.name for n in written.graph.node] == [n.name for n in mlp.graph.node]
    assert [v.name for v in written.graph.input] == ["x", "fc1.weight", "fc1.bias"]
    expected = ModelProto()
    expected.CopyFrom(mlp)
    for tensor in expected.graph.initializer:
        tensor.raw_data = values[tensor.name].tobytes()
    expected.graph.node[2].attribute[0].t.raw_data = values["fc2.weight"].tobytes()
    assert written == expected


def test_a_path_and_the_same_path(tmp_path: Path, mlp: ModelProto) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(mlp, path)
    values = new_values()
    export_for_inference(str(path), values, str(path))
    np.testing.assert_allclose(run(path, x=X)[0], softmax(logits(values)), atol=1e-5)
    export_for_inference(path, {"fc1.bias": 2 * values["fc1.bias"]}, path)
    values["fc1.bias"] = 2 * values["fc1.bias"]
    np.testing.assert_allclose(run(path, x=X)[0], softmax(logits(values)), atol=1e-5)


def test_a_model_with_external_data(tmp_path: Path, mlp: ModelProto) -> None:
    onnx.save(mlp, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    values = new_values()
    export_for_inference(tmp_path / "m.onnx", values, tmp_path / "new.onnx")
    (tmp_path / "m.data").unlink()
    np.testing.assert_allclose(run(tmp_path / "new.onnx", x=X)[0], softmax(logits(values)), atol=1e-5)


def test_other_outputs(tmp_path: Path, mlp: ModelProto) -> None:
    values = new_values()
    export_for_inference(mlp, values, tmp_path / "y.onnx", outputs=["y", "h"])
    y, h = run(tmp_path / "y.onnx", x=X)
    np.testing.assert_allclose(y, logits(values), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(h, X @ values["fc1.weight"].T + values["fc1.bias"], rtol=1e-4, atol=1e-4)
    export_for_inference(mlp, values, tmp_path / "h.onnx", outputs=["h"])
    written = onnx.load(tmp_path / "h.onnx")
    assert [n.name for n in written.graph.node] == ["fc1"]
    onnx.checker.check_model(written, full_check=True)


def test_inputs_that_are_not_needed_go(tmp_path: Path) -> None:
    model = parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        g (float[2] a, float[2] b) => (float[2] y) { h = Exp(a)
          k = com.microsoft.Gelu(b)
          y = Add(h, k) }""")
    export_for_inference(model, {}, tmp_path / "h.onnx", outputs=["h"])
    written = onnx.load(tmp_path / "h.onnx")
    assert [v.name for v in written.graph.input] == ["a"]
    assert [o.domain for o in written.opset_import] == [""]
    np.testing.assert_allclose(run(tmp_path / "h.onnx", a=np.zeros(2, np.float32))[0], [1, 1])


def test_a_model_that_forgets_to_import_a_domain(tmp_path: Path) -> None:
    model = parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        g (float[N,2] a) => (float[N,2] y) <float[2,2] w = {1, 2, 3, 4}> {
          h = MatMul(a, w)
          y = com.microsoft.Gelu(h)
        }""")
    del model.opset_import[1:]
    export_for_inference(model, {"w": np.eye(2, dtype=np.float32)}, tmp_path / "new.onnx", ["h", "y"])
    a = np.array([[0.5, -1]], np.float32)
    h, y = run(tmp_path / "new.onnx", a=a)
    np.testing.assert_array_equal(h, a)
    assert y.shape == (1, 2)


def test_names_and_arrays_that_do_not_fit(tmp_path: Path, mlp: ModelProto) -> None:
    path = tmp_path / "m.onnx"
    with pytest.raises(UnknownNameError) as caught:
        export_for_inference(mlp, {"fc1.wieght": X, "head.bias": X}, path)
    assert "'fc1.wieght'. Did you mean 'fc1.weight'" in str(caught.value)
    assert "'head.bias'" in str(caught.value)
    wrong = {"fc1.weight": np.zeros((8, 64), np.float32), "fc1.bias": np.zeros(64), "fc2.weight": np.array("a")}
    with pytest.raises(FeedError) as mismatched:
        export_for_inference(mlp, wrong, path)
    assert "'fc1.weight' is float32[64, 8], but the array is float32[8, 64]" in str(mismatched.value)
    assert "'fc1.bias' is float32[64], but the array is float64[64]" in str(mismatched.value)
    assert "'fc2.weight'" in str(mismatched.value)
    with pytest.raises(UnknownNameError, match=r"no value 'z'"):
        export_for_inference(mlp, {}, path, outputs=["p", "z"])
    for outputs in ([], ["p", "p"]):
        with pytest.raises(OnnxBlockError, match="at least one value"):
            export_for_inference(mlp, {}, path, outputs=outputs)
    with pytest.raises(OnnxBlockError, match="cannot write"):
        export_for_inference(mlp, {}, tmp_path / "nowhere" / "m.onnx")
    assert list(tmp_path.iterdir()) == []


def batch_norm(opset: int, outputs: str, more: str = "", attributes: str = "") -> ModelProto:
    return parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : {opset}]>
        g (float[4,3,2] x) => (float[4,3,2] z)
        <float[3] scale = {{1,2,3}}, float[3] bias = {{0,1,2}}, float[3] mean = {{1,1,2}}, float[3] var = {{1,4,4}}> {{
          {outputs} = BatchNormalization <epsilon: float = 0.0 {attributes}> (x, scale, bias, mean, var)
          {more}
          z = Relu(y)
        }}""")


@pytest.mark.parametrize(
    ("opset", "outputs", "attributes"),
    [(9, "y, m, v, s, t", ""), (14, "y, m, v", ", training_mode: int = 1"), (15, "y", ", training_mode: int = 0")],
)
def test_batch_norm_uses_its_running_statistics(tmp_path: Path, opset: int, outputs: str, attributes: str) -> None:
    x = RNG.normal(size=(4, 3, 2)).astype(np.float32)
    mean, var = np.array([5, 6, 7], np.float32), np.array([1, 4, 16], np.float32)
    model = batch_norm(opset, outputs, attributes=attributes)
    export_for_inference(model, {"mean": mean, "var": var}, tmp_path / "m.onnx")
    scale, bias = np.array([1, 2, 3]), np.array([0, 1, 2])
    columns = [value[:, None] for value in (mean, np.sqrt(var), scale, bias)]
    expected = np.maximum((x - columns[0]) / columns[1] * columns[2] + columns[3], 0)
    np.testing.assert_allclose(run(tmp_path / "m.onnx", x=x)[0], expected, rtol=1e-5, atol=1e-5)
    written = onnx.load(tmp_path / "m.onnx")
    onnx.checker.check_model(written, full_check=True)
    assert list(written.graph.node[0].output) == ["y"]
    assert written.opset_import == model.opset_import


def test_statistics_that_are_read_stand_still(tmp_path: Path) -> None:
    model = batch_norm(15, "y, m, v", attributes=", training_mode: int = 1")
    model.graph.output.append(helper.make_tensor_value_info("v", TensorProto.FLOAT, [3]))
    export_for_inference(model, {}, tmp_path / "m.onnx")
    _, v = run(tmp_path / "m.onnx", x=np.ones((4, 3, 2), np.float32))
    assert v.tolist() == [1, 4, 4]
    saved = batch_norm(9, "y, m, v, s, t")
    saved.graph.output.append(helper.make_tensor_value_info("s", TensorProto.FLOAT, [3]))
    with pytest.raises(InvalidModelError, match="saved mean"):
        export_for_inference(saved, {}, tmp_path / "s.onnx")


def test_dropout_is_switched_off_unless_an_input_says(tmp_path: Path) -> None:
    model = parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[100] x, bool on) => (float[100] y, float[100] z, float[100] w)
        <float ratio = {0.5}, bool training = {1}> {
          y = Dropout(x, ratio, training)
          z = If (on) <then_branch = t () => (float[100] a) { a = Dropout(x, ratio, training) },
                       else_branch = e () => (float[100] b) { b = Identity(x) }>
          w = Dropout(x, ratio, on)
        }""")
    export_for_inference(model, {"ratio": np.array(0.25, np.float32)}, tmp_path / "m.onnx")
    x = np.ones(100, np.float32)
    y, z, w = run(tmp_path / "m.onnx", x=x, on=np.array(True))
    assert y.tolist() == z.tolist() == x.tolist()
    assert set(w.tolist()) == {0, np.float32(1 / 0.75)}
    written = onnx.load(tmp_path / "m.onnx")
    assert list(written.graph.node[0].input) == ["x", "ratio"]
    assert [t.name for t in written.graph.initializer] == ["ratio"]


def test_weights_of_bodies(tmp_path: Path) -> None:
    model = parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[2] x, bool c) => (float[2] y) {
          y = If (c) <
            then_branch = t () => (float[2] a) { w = Constant <value: tensor = float[2] {1, 2}> ()
              both = Constant <value: tensor = float[2] {1, 1}> ()
              p = Mul(x, w)
              a = Mul(p, both) },
            else_branch = e () => (float[2] b) { both = Constant <value: tensor = float[2] {2, 2}> ()
              b = Mul(x, both) }>
        }""")
    export_for_inference(model, {"w": np.array([5, 6], np.float32)}, tmp_path / "m.onnx")
    assert run(tmp_path / "m.onnx", x=np.ones(2, np.float32), c=np.array(True))[0].tolist() == [5, 6]
    with pytest.raises(UnknownNameError, match="'both'"):
        export_for_inference(model, {"both": np.ones(2, np.float32)}, tmp_path / "m.onnx")


@pytest.mark.parametrize("kind", ["bfloat16", "float16", "float64", "int8"])
def test_other_element_types(tmp_path: Path, kind: str) -> None:
    dtype = {"bfloat16": 16, "float16": 10, "float64": 11, "int8": 3}[kind]
    given = helper.tensor_dtype_to_np_dtype(dtype)
    value = np.array([[1, 2], [3, 4]]).astype(given)
    graph = helper.make_graph(
        [helper.make_node("Cast", ["w"], ["y"], to=TensorProto.FLOAT)],
        "g",
        [],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 2])],
        [numpy_helper.from_array(np.zeros_like(value), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    arrays = [value, value.T.copy().T] + ([value.view(np.uint16)] if kind == "bfloat16" else [])
    for array in arrays:
        export_for_inference(model, {"w": array}, tmp_path / "m.onnx")
        assert run(tmp_path / "m.onnx")[0].tolist() == [[1, 2], [3, 4]]
    if kind == "float16":
        with pytest.raises(FeedError, match=r"float16.*uint16"):
            export_for_inference(model, {"w": value.view(np.uint16)}, tmp_path / "m.onnx")


def test_a_constant_that_holds_floats_without_a_tensor(tmp_path: Path) -> None:
    model = parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[N,2] a) => (float[N,2] y) {
          w = Constant<value_floats = [1.0, 2.0]>()
          b = Constant<value_float = 3.0>()
          h = Mul(a, w)
          y = Add(h, b)
        }""")
    new = {"w": np.array([5, 6], np.float32), "b": np.float32(7)}
    export_for_inference(model, new, tmp_path / "new.onnx", ["y"])
    np.testing.assert_array_equal(run(tmp_path / "new.onnx", a=np.ones((1, 2), np.float32))[0], [[12, 13]])
