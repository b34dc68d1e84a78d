from __future__ import annotations

import time

import numpy as np
import onnx
import pytest
from onnx import ModelProto, NodeProto, TensorProto, defs, helper, numpy_helper, parser

from onnxblock.errors import InvalidModelError
from onnxblock.graph.upgrade import overridable_inputs, raise_opset
from onnxblock.graph.weights import detach, is_stub
from tests.graph.upgrading import normal, one_node, session, verify


def parsed(text: str) -> ModelProto:
    model = parser.parse_model(text)
    onnx.checker.check_model(model)
    return model


def ops(model: ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def test_newer_models_stay_as_they_are() -> None:
    for opset in (18, 21, defs.onnx_opset_version()):
        model = one_node(helper.make_node("Relu", ["x"], ["y"]), 18, {"x": normal(2)})
        model.opset_import[0].version = opset
        model.ir_version = 9
        raised = raise_opset(model)
        assert raised == model
        assert raised is not model


def test_the_original_is_not_modified() -> None:
    feeds = {"x": normal(2, 3, 1)}
    model = one_node(helper.make_node("Squeeze", ["x"], ["y"], axes=[2]), 11, feeds)
    before = model.SerializeToString()
    raise_opset(model)
    assert model.SerializeToString() == before


@pytest.mark.parametrize(("opset", "words"), [(6, "too old"), (1, "too old"), (999, "knows only up to")])
def test_opsets_out_of_range(opset: int, words: str) -> None:
    model = one_node(helper.make_node("Relu", ["x"], ["y"]), 9, {"x": normal(2)})
    model.opset_import[0].version = opset
    with pytest.raises(InvalidModelError, match=words):
        raise_opset(model)


def test_only_constants_are_added_and_all_names_are_kept() -> None:
    model = parsed("""
        <ir_version: 4, opset_import: ["" : 9]>
        g (float[N,3,4] x) => (float[N,4] y) <float[4] axes = {1, 2, 3, 4}> {
          [first] h = Clip <min: float = -1.0, max: float = 1.0> (x)
          [second] s = ReduceSum <axes: ints = [1], keepdims: int = 0> (h)
          y = Mul(s, axes)
        }""")
    raised = verify(model, {"x": normal(2, 3, 4)})
    assert ops(raised) == ["Constant", "Constant", "Clip", "Constant", "ReduceSum", "Mul"]
    assert [node.name for node in raised.graph.node if node.op_type != "Constant"] == ["first", "second", ""]
    assert [node.output[0] for node in raised.graph.node] == ["first/min", "first/max", "h", "second/axes", "s", "y"]
    assert raised.graph.initializer == model.graph.initializer
    assert raise_opset(model).SerializeToString() == raised.SerializeToString()


def test_new_names_do_not_clash() -> None:
    model = parsed("""
        <ir_version: 4, opset_import: ["" : 9]>
        g (float[3,1] x) => (float[1,3,1] y) {
          [node] h = Squeeze <axes: ints = [1]> (x)
          [other] n = Unsqueeze <axes: ints = [0]> (h)
          one = Constant <value: tensor = float[1] {1}> ()
          y = Unsqueeze <axes: ints = [2]> (n)
        }""")
    model.graph.node[2].output[0] = "node/axes"
    raised = verify(model, {"x": normal(3, 1)})
    outputs = [name for node in raised.graph.node for name in node.output]
    assert len(outputs) == len(set(outputs))
    assert {"h", "n", "y", "node/axes"} < set(outputs)


def test_softmax_over_one_axis_needs_no_flattening() -> None:
    def softmax(shape: tuple[int, ...], axis: int) -> ModelProto:
        return raise_opset(one_node(helper.make_node("Softmax", ["x"], ["y"], axis=axis), 11, {"x": normal(*shape)}))

    for shape, axis, expected in (((2, 5, 1, 1), 1, 1), ((2, 3, 4), 2, 2), ((2, 3, 4), -1, 2), ((2, 1, 4), 1, 2)):
        raised = softmax(shape, axis)
        assert ops(raised) == ["Softmax"]
        assert raised.graph.node[0].attribute[0].i == expected
    assert ops(softmax((2, 3, 4), 1)) == ["Flatten", "Shape", "Softmax", "Reshape"]


def test_upsampling_by_known_factors_is_one_node() -> None:
    node = helper.make_node("Upsample", ["x"], ["y"], scales=[1.0, 1.0, 2.0, 2.0])
    assert ops(raise_opset(one_node(node, 7, {"x": normal(1, 1, 2, 2)}))) == ["Constant", "Resize"]


def test_the_dropped_coordinate_mode_is_replaced() -> None:
    attributes = {"coordinate_transformation_mode": "tf_half_pixel_for_nn", "nearest_mode": "floor"}
    node = helper.make_node("Resize", ["x", "r", "s"], ["y"], **attributes)
    feeds = {"x": normal(1, 1, 4, 4), "r": np.zeros(0, np.float32), "s": np.array([1, 1, 0.6, 1.7], np.float32)}
    (resize,) = verify(one_node(node, 11, feeds), feeds).graph.node
    found = {a.name: helper.get_attribute_value(a) for a in resize.attribute}
    assert found["coordinate_transformation_mode"] == b"half_pixel"
    assert found["nearest_mode"] == b"round_prefer_ceil"
    assert list(resize.input) == ["x", "", "s"]


def test_bodies_are_raised_with_what_is_known_outside() -> None:
    model = parsed("""
        <ir_version: 6, opset_import: ["" : 11]>
        g (float[2,3,4] x, bool c, int64 n) => (float[2,12] y, float[2,3,4] z) {
          h = Relu(x)
          y = If (c) <
            then_branch = t () => (float[2,12] u) {
              w = Softmax <axis: int = 1> (h)
              u = Flatten(w)
            },
            else_branch = e () => (float[2,12] v) {
              s = Unsqueeze <axes: ints = [0]> (h)
              q = Squeeze <axes: ints = [0]> (s)
              v = Flatten(q)
            }>
          z = Loop (n, c, h) <body = b (int64 i, bool k, float[2,3,4] a) => (bool m, float[2,3,4] o) {
              m = Identity(k)
              p = Split <axis: int = 2, split: ints = [4]> (a)
              o = Softmax <axis: int = 0> (p)
            }>
        }""")
    for c in (True, False):
        raised = verify(model, {"x": normal(2, 3, 4), "c": np.array(c), "n": np.array(2)})
    branch = raised.graph.node[1].attribute[0].g
    assert [node.op_type for node in branch.node] == ["Flatten", "Shape", "Softmax", "Reshape", "Flatten"]


@pytest.mark.parametrize("directions", [None, [0], [1]])
def test_scan_over_a_batch(directions: list[int] | None) -> None:
    body = parser.parse_graph("""
        b (float[2] state, float[2] item) => (float[2] next, float[1,2] out) {
          next = Add(state, item)
          out = Unsqueeze <axes: ints = [0]> (next)
        }""")
    attributes = {"body": body, "num_scan_inputs": 1} | ({} if directions is None else {"directions": directions})
    node = helper.make_node("Scan", ["", "s", "x"], ["f", "y"], "scan", **attributes)
    feeds = {"s": normal(3, 2), "x": normal(3, 5, 2, seed=1)}
    raised = verify(one_node(node, 8, feeds), feeds)
    assert ops(raised) == ["Scan"]
    lengths = helper.make_node("Scan", ["l", "s", "x"], ["f", "y"], "scan", **attributes)
    with pytest.raises(InvalidModelError, match=r"'scan' \(Scan, outputs f, y\): sequence lengths"):
        raise_opset(one_node(lengths, 8, {"l": np.array([5, 5, 5]), **feeds}))


def test_batch_norm_that_trained_still_does() -> None:
    names = ["x", "scale", "b", "mean", "var"]
    graph = helper.make_graph(
        [helper.make_node("BatchNormalization", names, ["y", "new_mean", "new_var", "s", "t"], "bn", momentum=0.75)],
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4, 3, 5] if n == "x" else [3]) for n in names],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 3, 5])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 9)], ir_version=4)
    raised = raise_opset(model)
    (node,) = raised.graph.node
    assert list(node.output) == ["y", "new_mean", "new_var"]
    assert {a.name: helper.get_attribute_value(a) for a in node.attribute} == {"momentum": 0.75, "training_mode": 1}
    x, scale, b = normal(4, 3, 5), normal(3), normal(3)
    (y,) = session(raised).run(None, {"x": x, "scale": scale, "b": b, "mean": scale, "var": abs(scale)})
    deviation = np.sqrt(x.var((0, 2), keepdims=True) + 1e-5)
    expected = (x - x.mean((0, 2), keepdims=True)) / deviation * scale[:, None] + b[:, None]
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)

    model.graph.node[0].output[1] = ""
    assert list(raise_opset(model).graph.node[0].output) == ["y", "bn/output_1", "new_var"]
    model.graph.output[0].name = "s"
    with pytest.raises(InvalidModelError, match="saved mean"):
        raise_opset(model)


def test_dropout_keeps_its_ratio_and_the_type_of_its_mask() -> None:
    for opset, dtype in ((7, np.float32), (10, np.bool_)):
        graph = helper.make_graph(
            [helper.make_node("Dropout", ["x"], ["y", "mask"], "drop", ratio=0.25)],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
            [
                helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3]),
                helper.make_tensor_value_info("mask", helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), [2, 3]),
            ],
        )
        raised = raise_opset(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=4))
        onnx.checker.check_model(raised, full_check=True)
        x = normal(2, 3)
        y, mask = session(raised).run(None, {"x": x})
        np.testing.assert_array_equal(y, x)
        assert mask.dtype == dtype
        assert mask.all()
        ratio = next(node for node in raised.graph.node if node.op_type == "Constant")
        assert numpy_helper.to_array(ratio.attribute[0].t) == np.float32(0.25)
        assert ratio.output[0] == next(node for node in raised.graph.node if node.op_type == "Dropout").input[1]


def test_all_faults_are_listed() -> None:
    model = parsed("""
        <ir_version: 6, opset_import: ["" : 11]>
        g (float[1,1,2,2] x, float[0] roi, float[4] s) => (float[1,1,4,4] y) {
          [a] h = Resize <mode = "linear", coordinate_transformation_mode = "tf_half_pixel_for_nn"> (x, roi, s)
          [b] y = Resize <nearest_mode = "ceil", coordinate_transformation_mode = "tf_half_pixel_for_nn"> (h, roi, s)
        }""")
    with pytest.raises(InvalidModelError) as caught:
        raise_opset(model)
    assert "node 'a' (Resize, outputs h)" in str(caught.value)
    assert "node 'b' (Resize, outputs y)" in str(caught.value)
    assert "opset 18 or later" in str(caught.value)


def test_other_domains_stay_as_they_are() -> None:
    model = parsed("""
        <ir_version: 6, opset_import: ["ai.onnx" : 11, "com.microsoft" : 1, "ai.onnx.ml" : 2]>
        g (float[2,3] x) => (float[1,2,3] y) {
          h = com.microsoft.Gelu(x)
          k = ai.onnx.ml.Scaler <offset: floats = [0.5], scale: floats = [2.0]> (h)
          c = Clip(k)
          y = Unsqueeze <axes: ints = [0]> (c)
        }""")
    raised = verify(model, {"x": normal(2, 3)})
    assert {o.domain: o.version for o in raised.opset_import} == {"": 18, "com.microsoft": 1, "ai.onnx.ml": 2}
    assert [n.domain for n in raised.graph.node] == ["com.microsoft", "ai.onnx.ml", "", "", ""]


def test_types_are_found_at_run_time_behind_unknown_operators() -> None:
    model = parsed("""
        <ir_version: 6, opset_import: ["" : 9, "com.microsoft" : 1]>
        g (float[2,3] x) => (float[2,5] y) {
          h = com.microsoft.Gelu(x)
          c = Clip <min: float = -0.1, max: float = 0.5> (h)
          p = Pad <pads: ints = [0, 1, 0, 1], value: float = 1.5> (c)
          y = Softmax <axis: int = 0> (p)
        }""")
    raised = verify(model, {"x": normal(2, 3)})
    assert ops(raised).count("CastLike") == 3


def test_stubs_stay_stubs() -> None:
    weight = normal(32, 32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Unsqueeze", ["h"], ["y"], axes=[0])],
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", ["n", 32]), ("w", [32, 32]))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, "n", 32])],
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 9)], ir_version=3)
    light, weights = detach(model)
    raised = raise_opset(light)
    onnx.checker.check_model(raised, full_check=True)
    assert is_stub(raised.graph.initializer[0])
    assert [value.name for value in raised.graph.input] == ["x"]
    assert overridable_inputs(model) == ["w"]
    assert overridable_inputs(raised) == []
    raised.graph.initializer[0].CopyFrom(weights.tensor("w"))
    x = normal(3, 32)
    np.testing.assert_array_equal(session(raised).run(None, {"x": x})[0], session(model).run(None, {"x": x})[0])


FUNCTIONS = """
    <ir_version: 8, opset_import: ["" : OUTER, "local" : 1]>
    g (float[2,4] x) => (float[1,2,4] y) <float[4,4] w = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16}> {
      [n1] h = local.dense <bias = 2.0> (x, w)
      [n2] y = local.outer(h)
    }
    <opset_import: ["" : INNER, "local" : 1], domain: "local"> dense <bias> (p, q) => (r) {
      [mm] t = MatMul(p, q)
      b = Constant <value_float: float = @bias> ()
      r = Add(t, b)
    }
    <opset_import: ["" : INNER, "com.microsoft" : 1, "local" : 1], domain: "local"> outer (p) => (r) {
      e = com.microsoft.Gelu(p)
      s = local.shift(e)
      a = AXES
      r = UNSQUEEZE
    }
    <opset_import: ["" : INNER], domain: "local"> shift (p) => (r) {
      m = ReduceMean <axes = [1]> (p)
      r = Sub(p, m)
    }"""


@pytest.mark.parametrize(("outer", "inner"), [(12, 12), (17, 17), (17, 13), (13, 17), (18, 12)])
def test_functions_are_inlined_whatever_their_opset(outer: int, inner: int) -> None:
    text = FUNCTIONS.replace("OUTER", str(outer)).replace("INNER", str(inner))
    if inner < 13:
        text = text.replace("AXES", "Relu(s)").replace("UNSQUEEZE", "Unsqueeze <axes: ints = [0]> (s)")
    else:
        text = text.replace("AXES", "Constant <value_ints = [0]> ()").replace("UNSQUEEZE", "Unsqueeze(s, a)")
    raised = raise_opset(parser.parse_model(text))
    onnx.checker.check_model(raised, full_check=True)
    assert not raised.functions
    assert {o.domain: o.version for o in raised.opset_import} == {"": 18, "com.microsoft": 1}
    assert [t.name for t in raised.graph.initializer] == ["w"]
    assert {"h", "y"} < {name for node in raised.graph.node for name in node.output}
    x = normal(2, 4)
    h = x @ np.arange(1, 17, dtype=np.float32).reshape(4, 4) + 2
    gelu = np.asarray(
        session(
            parsed("""
        <ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        g (float[2,4] x) => (float[2,4] y) { y = com.microsoft.Gelu(x) }""")
        ).run(None, {"x": h})[0]
    )
    expected = (gelu - gelu.mean(1, keepdims=True))[None]
    np.testing.assert_allclose(session(raised).run(None, {"x": x})[0], expected, rtol=1e-5, atol=1e-5)


def test_a_function_keeps_the_weights_of_the_model_as_stubs() -> None:
    text = FUNCTIONS.replace("OUTER", "17").replace("INNER", "17").replace("AXES", "Constant <value_ints = [0]> ()")
    model = parser.parse_model(text.replace("UNSQUEEZE", "Unsqueeze(s, a)").replace("[4,4] w", "[65,4] w"))
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 65
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(normal(65, 4), "w"))
    light, _ = detach(model)
    assert is_stub(light.graph.initializer[0])
    assert is_stub(raise_opset(light).graph.initializer[0])


def test_a_function_between_opsets_that_differ_is_refused() -> None:
    model = parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 20, "local" : 1]>
        g (float[1,1,2,2] x, float[1,2,2,2] y) => (float[1,1,2,2] z) { z = local.f(x, y) }
        <opset_import: ["" : 18], domain: "local"> f (x, y) => (z) { [grid] z = GridSample(x, y) }""")
    with pytest.raises(InvalidModelError, match=r"'grid'.*changed at opset 20"):
        raise_opset(model)
    model.opset_import[0].version = 18
    assert ops(raise_opset(model)) == ["GridSample"]


def test_a_large_model_is_raised_quickly() -> None:
    nodes: list[NodeProto] = []
    for i in range(4000):
        nodes.append(helper.make_node("Unsqueeze", [f"x{2 * i}"], [f"x{2 * i + 1}"], axes=[0]))
        nodes.append(helper.make_node("Squeeze", [f"x{2 * i + 1}"], [f"x{2 * i + 2}"], axes=[0]))
    value = helper.make_tensor_value_info("x0", TensorProto.FLOAT, [3])
    graph = helper.make_graph(nodes, "g", [value], [helper.make_tensor_value_info("x8000", TensorProto.FLOAT, [3])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 9)], ir_version=4)
    start = time.perf_counter()
    raised = raise_opset(model)
    assert time.perf_counter() - start < 5
    assert len(raised.graph.node) == 16000
