"""Blocks with a backward pass of their own."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

import onnxblock
from onnxblock import blocks
from onnxblock.block import set_outputs
from onnxblock.errors import BlockBuildError, UnsupportedOperatorError
from onnxblock.graph.check import check
from onnxblock.graph.passes import run_passes
from tests.running import build, normal, run

X, Y = normal(3, 4), normal(3, 4, seed=1)


class Reversed(blocks.CustomGradient):
    """x, with the gradient turned around: a gradient reversal layer."""

    def __init__(self, strength):
        self._strength = strength

    def forward(self, x):
        return x

    def backward(self, inputs, outputs, cotangents):
        return cotangents[0] * -self._strength


class Product(blocks.CustomGradient):
    """x y and x + y; the cotangent of y is made up, and uses everything that a backward pass is given."""

    def forward(self, x, y):
        return x * y, blocks.Add()(x, y)

    def backward(self, inputs, outputs, cotangents):
        x, y = inputs
        return cotangents[0] * y + cotangents[1], outputs[0] + outputs[1] + x


def gradients_of(function, feeds, wrt, *, finish=True):
    """The value of ``function``, summed, and its gradients."""
    with onnxblock.empty_base() as graph:
        inputs = [graph.input(name, x.dtype, x.shape) for name, x in feeds.items()]
        value = function(*inputs)
        found = onnxblock.gradients(value, wrt)
        set_outputs(graph, [value, *found])
        check(graph.model)
        model = graph.to_model_proto()
    if finish:
        run_passes(model)
        assert not model.functions
        assert {n.domain for n in model.graph.node} == {""}
        assert [o.domain for o in model.opset_import] == [""]
    return run(model, feeds)


@pytest.mark.parametrize("finish", [True, False])
class TestGradients:
    def test_the_declared_one_is_used(self, finish):
        value, dx = gradients_of(lambda x: Reversed(0.5)(x) ** 2, {"x": X}, ["x"], finish=finish)
        np.testing.assert_allclose(value, X**2, rtol=1e-6)
        np.testing.assert_allclose(dx, -0.5 * 2 * X, rtol=1e-6)

    def test_several_inputs_and_outputs(self, finish):
        def function(x, y):
            product, total = Product()(x, y)
            return product * 2 + total * 3

        value, dx, dy = gradients_of(function, {"x": X, "y": Y}, ["x", "y"], finish=finish)
        np.testing.assert_allclose(value, 2 * X * Y + 3 * (X + Y), rtol=1e-5)
        np.testing.assert_allclose(dx, 2 * Y + 3, rtol=1e-6)
        np.testing.assert_allclose(dy, X * Y + (X + Y) + X, rtol=1e-5, atol=1e-6)

    def test_an_output_that_nothing_uses_has_the_cotangent_zero(self, finish):
        _, dx, _ = gradients_of(lambda x, y: Product()(x, y)[0], {"x": X, "y": Y}, ["x", "y"], finish=finish)
        np.testing.assert_allclose(dx, Y, rtol=1e-6)

    def test_blocks_in_blocks(self, finish):
        class Outer(blocks.CustomGradient):
            def forward(self, x):
                return Reversed(1.0)(x) * 2

            def backward(self, inputs, outputs, cotangents):
                return Reversed(1.0)(cotangents[0]) * 7

        value, dx = gradients_of(lambda x: Outer()(x), {"x": X}, ["x"], finish=finish)  # noqa: PLW0108
        np.testing.assert_allclose(value, 2 * X, rtol=1e-6)
        np.testing.assert_allclose(dx, np.full_like(X, 7))

    def test_the_gradient_can_be_differentiated(self, finish):
        def penalty(x):
            (d,) = onnxblock.gradients(Reversed(2.0)(x * x * x), ["x"])
            return d * d

        _, dx = gradients_of(penalty, {"x": X}, ["x"], finish=finish)
        # d = -2 · 3x², and its own gradient goes through the declared backward pass as it is written.
        np.testing.assert_allclose(dx, 36 * 4 * X**3, rtol=1e-5)

    def test_stop(self, finish):
        value, dx = gradients_of(lambda x: blocks.StopGradient()(x * x) * x, {"x": X}, ["x"], finish=finish)
        np.testing.assert_allclose(value, X**3, rtol=1e-5)
        np.testing.assert_allclose(dx, X**2, rtol=1e-6)

    def test_straight_through(self, finish):
        value, dx = gradients_of(
            lambda x: blocks.StraightThrough(blocks.Round())(x * 3) * 2, {"x": X}, ["x"], finish=finish
        )
        np.testing.assert_array_equal(value, np.round(X * 3) * 2)
        np.testing.assert_array_equal(dx, np.full_like(X, 6))


def test_what_has_no_gradient_may_stand_behind_a_stop():
    def function(x):
        foreign = x.graph.add("Unheard", [x], domain="far.away")[0]
        x.graph.set_type(foreign, x.graph.type_proto(x))
        return foreign

    with onnxblock.empty_base() as graph:
        graph.import_domain("far.away", 1)
        x = graph.input("x", TensorProto.FLOAT, [3])
        assert str(onnxblock.gradients(x * blocks.StopGradient()(function(x)), x).type) == "float32[3]"
        with pytest.raises(UnsupportedOperatorError, match="Unheard"):
            onnxblock.gradients(x * function(x), x)


def test_equal_functions_are_added_once():
    model = build(lambda x: Reversed(1.0)(x) + Reversed(1.0)(x) + Reversed(2.0)(x), {"x": X})
    assert [f.name for f in model.functions] == ["Reversed", "Reversed_backward", "Reversed_1", "Reversed_1_backward"]
    again = build(lambda x: Reversed(1.0)(x) + Reversed(1.0)(x) + Reversed(2.0)(x), {"x": X})
    assert model.SerializeToString() == again.SerializeToString()


def test_a_model_made_with_it_keeps_its_gradient():
    """The model that is saved carries the backward pass, so it can be trained later."""
    model = build(lambda x: blocks.StraightThrough(blocks.Round())(x) * 3, {"x": X})
    gradient = onnxblock.gradients(model, ["x"])
    np.testing.assert_array_equal(run(gradient, {"x": X})[0], np.full_like(X, 3))
    assert not gradient.functions


def test_training_uses_it_and_evaluation_does_not_need_it():
    class Loss(onnxblock.TrainingBlock):
        def build(self, y):
            return (Reversed(3.0)(y) ** 2).mean()

    def forward(x):
        return x * x.graph.parameter("w", Y)

    with onnxblock.base(build(forward, {"x": X})) as graph:
        block = Loss()
        block(graph.model.graph.output[0].name)
        training, evaluation = block.to_model_proto()
    for model in (training, evaluation):
        assert {n.domain for n in model.graph.node} <= {"", "com.microsoft"}
        assert "onnxblock" not in {o.domain for o in model.opset_import}
    feeds = {v.name: X for v in training.graph.input}
    feeds.update({v.name: Y for v in training.graph.input if v.name == "w"})
    feeds.update({v.name: np.zeros_like(X) for v in training.graph.input if v.name.endswith("buffer")})
    feeds["lazy_reset_grad"] = np.array([True])
    loss, _, dw = run(training, feeds)
    np.testing.assert_allclose(loss, ((X * Y) ** 2).mean(), rtol=1e-6)
    np.testing.assert_allclose(dw, -3 * 2 * X * Y * X / X.size, rtol=1e-5)
    np.testing.assert_allclose(run(evaluation, {"x": X, "w": Y})[0], loss, rtol=1e-6)


class TestWhatDoesNotFit:
    def test_more_cotangents_than_inputs(self):
        class Wrong(blocks.CustomGradient):
            def forward(self, x):
                return x

            def backward(self, inputs, outputs, cotangents):
                return [cotangents[0], cotangents[0]]

        with pytest.raises(BlockBuildError, match="returned 2 values for 1 inputs"):
            build(Wrong(), {"x": X})

    def test_shapes_that_cannot_pass_straight_through(self):
        with pytest.raises(BlockBuildError, match=r"makes 'output0' float32\[4, 3\] of 'input0' float32\[3, 4\]"):
            build(blocks.StraightThrough(blocks.Transpose()), {"x": X})

    def test_unknown_types(self):
        with onnxblock.empty_base() as graph:
            graph.import_domain("far.away", 1)
            unknown = graph.add("Unheard", [graph.input("x", TensorProto.FLOAT, [3])], domain="far.away")[0]
            with pytest.raises(BlockBuildError, match="type of 'Unheard' is not known"):
                blocks.StopGradient()(unknown)
