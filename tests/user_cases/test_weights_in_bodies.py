"""Weights that an exporter put inside the bodies of control flow: found, trained, and put back."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import onnxblock
from onnxblock.export import export_for_inference
from tests.user_cases import compare_with_torch, export, generate, normal, outputs_of, train

torch = pytest.importorskip("torch", reason="the comparison with PyTorch needs the extra 'torch'")


def _model(path=None):
    """y = x W in one branch, x V + b in the other; both branches call their weight ``weight``, as exporters do."""
    model = parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[3, 5] x, bool c) => (float[3, 4] y) {
          y = If (c) <
            then_branch = t () => (float[3, 4] a) { a = MatMul (x, weight) },
            else_branch = e () => (float[3, 4] b) {
              bias = Constant <value: tensor = float[4] {1, 2, -1, 0.5}> ()
              p = MatMul (x, weight)
              b = Add (p, bias) }>
        }""")
    model.graph.node[0].name = "choice"
    for k, attribute in enumerate(model.graph.node[0].attribute):
        attribute.g.initializer.append(numpy_helper.from_array(normal(5, 4, seed=k), "weight"))
    if path is not None:
        onnx.save(model, path)
    return model


NAMES = ["choice.then_branch.weight", "choice.else_branch.weight"]


@pytest.mark.parametrize("flag", [True, False])
def test_initializers_of_branches(tmp_path, flag):
    training = compare_with_torch(
        _model(),
        tmp_path,
        lambda t: t.x @ getattr(t, NAMES[0]) if flag else t.x @ getattr(t, NAMES[1]) + torch.tensor([1, 2, -1, 0.5]),
        {"x": normal(3, 5), "c": np.array(flag)},
    )
    assert sorted(training.gradients()) == sorted(NAMES)
    before = training.data()
    training.apply()
    after = training.data()
    used = NAMES[0 if flag else 1]
    assert (after[used] != before[used]).all()
    y = normal(3, 5) @ after[used] + (0 if flag else np.array([1, 2, -1, 0.5], np.float32))
    feeds = {"x": normal(3, 5), "c": np.array(flag)}
    export(training, tmp_path / "evaluation.onnx")
    np.testing.assert_allclose(outputs_of(tmp_path / "evaluation.onnx", feeds)[0], y, rtol=1e-4, atol=1e-5)
    export_for_inference(_model(), after, tmp_path / "own.onnx")
    np.testing.assert_allclose(outputs_of(tmp_path / "own.onnx", feeds)[0], y, rtol=1e-4, atol=1e-5)
    assert not onnx.load(tmp_path / "own.onnx").graph.initializer


def test_they_are_listed(tmp_path):
    _model(tmp_path / "m.onnx")
    for model in (_model(), tmp_path / "m.onnx"):
        assert [w.name for w in onnxblock.inspect(model).trainable] == NAMES
    assert [w.name for w in generate(_model(), tmp_path, frozen_params=NAMES[1:]).trainable] == NAMES[:1]


@pytest.mark.parametrize("what", ["requires_grad", "frozen_params"])
def test_a_small_constant_of_a_branch_is_used_as_asked(tmp_path, what):
    files = generate(_model(), tmp_path, **{what: ["bias"]})
    listed = files.trainable if what == "requires_grad" else files.frozen
    assert [w.name for w in listed] == ["bias"]


def test_a_branch_that_is_a_weight_and_a_loop_in_a_branch(tmp_path):
    model = parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 18]>
        g (float[3, 5] x, bool c) => (float[3, 5] y) {
          y = If (c) <
            then_branch = t () => (float[3, 5] weight) {},
            else_branch = e () => (float[3, 5] b) {
              two = Constant <value_int = 2> ()
              b = Loop (two, , x) <body = l (int64 k, bool go, float[3, 5] s) => (bool on, float[3, 5] r) {
                on = Identity (go)
                big = Constant <value: tensor = float[1] {1}> ()
                r = Mul (s, big) }> }>
        }""")
    large, constant = normal(3, 5), normal(20, 3, 5)
    model.graph.node[0].attribute[0].g.initializer.append(numpy_helper.from_array(large, "weight"))
    loop = model.graph.node[0].attribute[1].g.node[1]
    body = loop.attribute[0].g
    body.node[1].attribute[0].t.CopyFrom(numpy_helper.from_array(constant))
    body.node[2].input[1] = "mean"
    body.node.insert(2, onnx.helper.make_node("ReduceMean", ["big", "axis"], ["mean"], keepdims=0))
    model.graph.initializer.append(numpy_helper.from_array(np.array([0]), "axis"))
    training = compare_with_torch(
        model,
        tmp_path,
        lambda t: t.x * t.big.mean(0) ** 2,
        {"x": normal(3, 5), "c": np.array(False)},
    )
    assert set(training.gradients()) == {"y.then_branch.weight", "big"}
    training = train(model, tmp_path, requires_grad=["y.then_branch.weight"])
    training.accumulate(normal(3, 5), np.array(True), np.zeros((3, 5), np.float32))
    np.testing.assert_allclose(training.gradients()["y.then_branch.weight"], 2 * large / 15, rtol=1e-5)
    export_for_inference(model, {"y.then_branch.weight": large + 1}, tmp_path / "own.onnx")
    found = outputs_of(tmp_path / "own.onnx", {"x": normal(3, 5), "c": np.array(True)})[0]
    np.testing.assert_array_equal(found, large + 1)
