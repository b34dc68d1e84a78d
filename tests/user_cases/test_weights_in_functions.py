"""Weights that an exporter put inside model-local functions: found, trained, and put back."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import onnxblock
from onnxblock.errors import ParameterError
from onnxblock.export import export_for_inference
from tests.user_cases import compare_with_torch, export, generate, normal, outputs_of, train

torch = pytest.importorskip("torch", reason="the comparison with PyTorch needs the extra 'torch'")

WEIGHT, SCALE = normal(20, 20) / np.float32(4), np.array([1.5, -0.5], np.float32)
LARGE = ["Layer.weight", "Scaled.If_of_rest.then_branch.inner"]
NAMES = [LARGE[0], "Scaled.scale", LARGE[1]]


def _model(path=None, opset=18):
    """Layer is called twice, once through Scaled, whose If has a weight in a branch and captures another."""
    model = parser.parse_model(f"""
        <ir_version: 9, opset_import: ["" : {opset}, "own" : 1]>
        g (float[3, 20] x, bool c) => (float[3, 20] y) {{
            h = own.Layer (x)
            y = own.Scaled (h, c)
        }}
        <domain: "own", opset_import: ["" : {opset}]>
        Layer (x, unused) => (y) {{
            weight = Constant <value: tensor = float[1] {{1}}> ()
            y = MatMul (x, weight)
        }}
        <domain: "own", opset_import: ["" : {opset}, "own" : 1]>
        Scaled (x, c) => (y) {{
            scale = Constant <value: tensor = float[2] {{1.5, -0.5}}> ()
            axis = Constant <value: tensor = int64[1] {{0}}> ()
            p = own.Layer (x)
            y = If (c) <
              then_branch = t () => (float[3, 20] a) {{
                inner = Constant <value: tensor = float[1] {{1}}> ()
                q = MatMul (p, inner)
                half = ReduceSum (scale, axis)
                a = Mul (q, half) }},
              else_branch = e () => (float[3, 20] b) {{ b = Identity (p) }}>
        }}""")
    layer, scaled = model.functions
    layer.node[0].attribute[0].t.CopyFrom(numpy_helper.from_array(WEIGHT))
    scaled.node[3].name = "If_of_rest"
    scaled.node[3].attribute[0].g.node[0].attribute[0].t.CopyFrom(numpy_helper.from_array(WEIGHT[::-1].copy()))
    if path is not None:
        onnx.save(model, path)
    return model


def _forward(values):
    weight, inner = (getattr(values, name) for name in LARGE)
    scale = getattr(values, "Scaled.scale", torch.tensor(SCALE))
    return values.x @ weight @ weight @ inner * scale.sum()


FEEDS = {"x": normal(3, 20), "c": np.array(True)}


def test_they_are_listed(tmp_path):
    _model(tmp_path / "m.onnx")
    for model in (_model(), tmp_path / "m.onnx"):
        assert [w.name for w in onnxblock.inspect(model).trainable] == NAMES
    assert [w.name for w in generate(_model(), tmp_path, frozen_params=NAMES[:1]).trainable] == NAMES[1:]


def test_small_ones_beside_initializers_are_listed_as_not_trained(tmp_path):
    model = _model()
    model.graph.initializer.append(numpy_helper.from_array(normal(20), "b"))
    model.graph.node.add(op_type="Add", input=["y", "b"], output=["z"])
    model.graph.output[0].name = "z"
    found, files = onnxblock.inspect(model), generate(model, tmp_path)
    for trained, left in ((found.trainable, found.not_trained), (files.trainable, files.untouched)):
        assert sorted(w.name for w in trained) == sorted(["b", *LARGE])
        assert [(w.name, w.shape) for w in left] == [("Scaled.scale", (2,))]
        assert "name it in requires_grad" in left[0].reason
    files = generate(model, tmp_path, requires_grad=["Scaled.scale"])
    assert [w.name for w in files.trainable] == ["Scaled.scale"]


@pytest.mark.parametrize("opset", [13, 18, 21])
@pytest.mark.parametrize("named", [None, LARGE])
def test_calls_share_the_weight_and_it_goes_back(tmp_path, opset, named):
    training = compare_with_torch(_model(opset=opset), tmp_path, _forward, FEEDS, requires_grad=named)
    assert sorted(training.gradients()) == sorted(named or NAMES)
    before = training.data()
    training.apply()
    after = training.data()
    assert all((after[name] != before[name]).all() for name in named or NAMES)
    weight, inner = (after[name] for name in LARGE)
    y = FEEDS["x"] @ weight @ weight @ inner * after.get("Scaled.scale", SCALE).sum()
    exported = export(training, tmp_path / "exported.onnx")
    assert [(f.domain, f.name) for f in exported.functions] == [("own", "Layer"), ("own", "Scaled")]
    onnx.checker.check_model(exported)
    export_for_inference(_model(opset=opset), after, tmp_path / "own.onnx")
    assert not onnx.load(tmp_path / "own.onnx").graph.initializer
    for path in ("exported.onnx", "own.onnx"):
        np.testing.assert_allclose(outputs_of(tmp_path / path, FEEDS)[0], y, rtol=1e-4, atol=1e-5)


def test_gradients_of_them(tmp_path):
    made = onnxblock.gradients(_model(), wrt=NAMES)
    onnx.save(made, tmp_path / "gradients.onnx")
    found = outputs_of(tmp_path / "gradients.onnx", FEEDS)
    arrays = (WEIGHT, SCALE, WEIGHT[::-1])
    values = {name: torch.tensor(a.copy(), requires_grad=True) for name, a in zip(NAMES, arrays, strict=True)}
    _forward(type("", (), {**values, "x": torch.tensor(FEEDS["x"])})).sum().backward()
    for gradient, value in zip(found, values.values(), strict=True):
        np.testing.assert_allclose(gradient, value.grad.numpy(), rtol=1e-4, atol=1e-4)


def test_functions_of_one_name_and_a_weight_that_is_the_result(tmp_path):
    """Two domains, one function name; a value of the graph called as the weight would be; no node in between."""
    model = parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 18, "a" : 1, "b" : 1]>
        g (float[3, 2] x) => (float[3, 2] y) {
            p = a.F ()
            q = b.F ()
            between = MatMul (x, p)
            y = Add (between, q)
        }
        <domain: "a", opset_import: ["" : 18]>
        F () => (w) { w = Constant <value: tensor = float[2, 2] {1, 2, 3, 4}> () }
        <domain: "b", opset_import: ["" : 18]>
        F () => (w) { w = Constant <value: tensor = float[2] {5, 6}> () }
        <domain: "b", opset_import: ["" : 18]>
        Never () => (w) { w = Constant <value: tensor = float[2] {5, 6}> () }
        """)
    model.graph.node[2].output[0] = model.graph.node[3].input[0] = "F.w_1"
    names = ["F.w", "F.w_2"]
    training = compare_with_torch(
        model,
        tmp_path,
        lambda t: t.x @ getattr(t, "F.w") + getattr(t, "F.w_2"),
        {"x": normal(3, 2)},
        requires_grad=names,
    )
    training.apply()
    found = export(training, tmp_path / "exported.onnx")
    held = {tensor.name: numpy_helper.to_array(tensor) for tensor in found.graph.initializer}
    assert held.keys() == set(names)
    for name in names:
        np.testing.assert_array_equal(held[name], training.data()[name])
    y = FEEDS["x"][:, :2] @ held["F.w"] + held["F.w_2"]
    np.testing.assert_allclose(outputs_of(tmp_path / "exported.onnx", {"x": FEEDS["x"][:, :2]})[0], y, rtol=1e-5)


def test_a_tensor_that_a_call_sets_is_no_weight_of_the_function(tmp_path):
    model = parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 18, "own" : 1]>
        g (float[2] x) => (float[2] y)
          <float[2] v = {3, 4}> {
            p = own.F <t: tensor = float[2] {1, 2}> (x)
            y = Mul (p, v)
        }
        <domain: "own", opset_import: ["" : 18]>
        F <t> (x) => (y) {
            w = Constant <value: tensor = @t> ()
            y = Mul (x, w)
        }""")
    w = torch.tensor([1.0, 2.0])
    compare_with_torch(model, tmp_path, lambda t: t.x * w * t.v, {"x": normal(2)})
    with pytest.raises(ParameterError, match=r"no weight 'F\.w'"):
        train(model, tmp_path, requires_grad=["F.w"])
