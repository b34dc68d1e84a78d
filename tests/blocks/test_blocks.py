from __future__ import annotations

import inspect

import numpy as np
import pytest
from onnx import TensorProto, helper

import onnxblock
from onnxblock import blocks
from onnxblock.errors import BlockBuildError, NoGraphError, UnknownNameError
from tests.running import build, evaluate, normal

X, Y = normal(3, 4), normal(3, 4, seed=1)


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (blocks.Neg(), -X),
        (blocks.Abs(), np.abs(X)),
        (blocks.Sigmoid(), 1 / (1 + np.exp(-X))),
        (blocks.Pow(2), X**2),
        (blocks.Pow(np.array([1, 2, 3, 4], np.float32)), X ** np.array([1, 2, 3, 4], np.float32)),
        (blocks.Clip(-0.5, 0.5), np.clip(X, -0.5, 0.5)),
        (blocks.Clip(clip_max=0.5), np.minimum(X, 0.5)),
        (blocks.ReduceMean(), X.mean(keepdims=True)),
        (blocks.ReduceMean(keepdims=False), X.mean()),
        (blocks.ReduceSum(axes=1), X.sum(1, keepdims=True)),
        (blocks.ReduceSum(False, [0, 1]), X.sum()),
        (blocks.Cast(TensorProto.DOUBLE), X.astype(np.float64)),
        (blocks.Cast(np.int32), X.astype(np.int32)),
        (blocks.PassThrough(), X),
        (blocks.ReduceAllL2(), np.linalg.norm(X)),
    ],
)
def test_one_input(block, expected):
    (y,) = evaluate(block, {"x": X})
    assert y.dtype == expected.dtype
    assert y.shape == expected.shape
    np.testing.assert_allclose(y, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (blocks.Add(), X + Y),
        (blocks.Sub(), X - Y),
        (blocks.Mul(), X * Y),
        (blocks.Div(), X / Y),
        (blocks.ReduceAllL2(), np.sqrt((X**2).sum() + (Y**2).sum())),
    ],
)
def test_two_inputs(block, expected):
    (z,) = evaluate(block, {"x": X, "y": Y})
    assert z.shape == expected.shape
    np.testing.assert_allclose(z, expected, rtol=1e-6)


def test_log():
    np.testing.assert_allclose(evaluate(blocks.Log(), {"x": np.abs(X)})[0], np.log(np.abs(X)), rtol=1e-6)


def test_several_inputs_pass_through_as_a_tuple():
    def both(x, y):
        passed = blocks.PassThrough()(x, y)
        assert isinstance(passed, tuple)
        return passed

    x, y = evaluate(both, {"x": X, "y": Y})
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(y, Y)


def test_sequence():
    sequence, first = evaluate(
        lambda x, y: [s := blocks.SequenceConstruct()(x, y), blocks.SequenceAt()(s, 0)], {"x": X, "y": Y}
    )
    np.testing.assert_array_equal(sequence[1], Y)
    np.testing.assert_array_equal(first, X)


def test_label_encoder():
    encoder = blocks.LabelEncoder(keys_int64s=[1, 5], values_floats=[0.5, 2.5], default_float=-1.0)
    (y,) = evaluate(encoder, {"x": np.array([5, 1, 7])})
    np.testing.assert_array_equal(y, np.array([2.5, 0.5, -1], np.float32))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_number_takes_the_type_it_meets(dtype):
    def halves(x):
        half = blocks.Constant(0.5)()
        assert half.shape == ()
        return [blocks.Mul()(half, x), blocks.Mul()(x, half)]

    for y in evaluate(halves, {"x": X.astype(dtype)}):
        assert y.dtype == dtype
        np.testing.assert_array_equal(y, X.astype(dtype) * dtype(0.5))


def test_an_array_keeps_its_type():
    with onnxblock.empty_base():
        assert blocks.Constant(np.ones((2, 3)))().dtype == TensorProto.DOUBLE
        assert blocks.Constant([1.0, 2.0])().dtype == TensorProto.FLOAT
        assert blocks.Constant([1, 2])().dtype == TensorProto.INT64
        assert blocks.Constant(np.float64(3))().shape == ()
    with pytest.raises(BlockBuildError, match="not 'red'"):
        blocks.Constant("red")


def test_input_like():
    model = build(lambda x: x + blocks.InputLike("x")("other"), {"x": X})
    assert [v.name for v in model.graph.input] == ["x", "other"]
    assert model.graph.input[1].type == model.graph.input[0].type
    with onnxblock.empty_base() as graph:
        x = graph.input("x", TensorProto.FLOAT, ["batch", 3])
        sequence = blocks.SequenceConstruct()(x)
        unnamed = [blocks.InputLike(x)(), blocks.InputLike(x)()]
        assert unnamed[0] != unnamed[1]
        assert unnamed[0].shape == ("batch", 3)
        assert graph.type_proto(blocks.InputLike(sequence)("several")) == graph.type_proto(sequence)
        with pytest.raises(BlockBuildError, match="already has a value called 'x'"):
            blocks.InputLike(sequence)("x")
        with pytest.raises(UnknownNameError, match="no value 'y'"):
            blocks.InputLike("y")("z")


class TestLinear:
    def test_value_and_weights(self):
        model = build(blocks.Linear(4, 2, alpha=2.0, beta=0.5), {"x": X})
        weight, bias = (onnxblock.graph.graph.numpy_helper.to_array(t) for t in model.graph.initializer)
        assert weight.shape == (4, 2)
        assert bias.shape == (2,)
        assert np.abs(weight).max() <= 0.5
        assert weight.std() > 0.1
        assert [t.name for t in model.graph.initializer] == ["Linear/weight", "Linear/bias"]
        (y,) = evaluate(blocks.Linear(4, 2, alpha=2.0, beta=0.5), {"x": X})
        np.testing.assert_allclose(y, 2 * X @ weight + 0.5 * bias, rtol=1e-5)

    def test_more_axes_and_no_bias(self):
        x = normal(2, 3, 4, dtype=np.float64)
        (flat,) = evaluate(blocks.Linear(4, 2, bias=False, seed=3), {"x": x.reshape(6, 4)})
        (y,) = evaluate(blocks.Linear(4, 2, bias=False, seed=3), {"x": x})
        assert y.dtype == np.float64
        np.testing.assert_allclose(y, flat.reshape(2, 3, 2), rtol=1e-12)

    def test_layers_differ_and_graphs_repeat(self):
        def two(x):
            return [blocks.Linear(4, 4)(x), blocks.Linear(4, 4)(x)]

        first, second = evaluate(two, {"x": X})
        assert np.abs(first - second).max() > 0.01
        assert build(two, {"x": X}).SerializeToString() == build(two, {"x": X}).SerializeToString()

    def test_a_block_called_twice_shares_its_weights(self):
        layer = blocks.Linear(4, 4)
        assert len(build(lambda x: layer(layer(x)), {"x": X}).graph.initializer) == 2
        assert len(build(layer, {"x": X}).graph.initializer) == 2

    def test_what_does_not_fit(self):
        with pytest.raises(BlockBuildError, match="at least 1"):
            blocks.Linear(0, 3)
        with pytest.raises(BlockBuildError, match="float tensor, but 'x' is int64"):
            build(blocks.Linear(4, 2), {"x": np.zeros((3, 4), np.int64)})
        with pytest.raises(BlockBuildError):
            build(blocks.Linear(5, 2), {"x": X})


class TestOperators:
    def test_attributes_and_inputs_by_name(self):
        (y,) = evaluate(blocks.Softmax(axis=0), {"x": X})
        np.testing.assert_allclose(y, np.exp(X) / np.exp(X).sum(0), rtol=1e-5)
        for make in (
            blocks.ReduceMax(axes=[1], keepdims=0),
            lambda x: blocks.ReduceMax(keepdims=0)(x, axes=[1]),
        ):
            np.testing.assert_array_equal(evaluate(make, {"x": X})[0], X.max(1))

    def test_number_of_outputs(self):
        values, indices = evaluate(lambda x: blocks.TopK()(x, [2]), {"x": X})
        assert values.shape == indices.shape == (3, 2)
        parts = evaluate(blocks.Split(axis=1, num_outputs=2), {"x": X})
        assert [p.shape for p in parts] == [(3, 2), (3, 2)]
        parts = evaluate(lambda x: blocks.Split(axis=1)(x, [1, 3]), {"x": X})
        assert [p.shape for p in parts] == [(3, 1), (3, 3)]
        assert len(evaluate(blocks.MaxPool(kernel_shape=[2], outputs=2), {"x": X[None]})) == 2

    def test_sizes_in_a_constant_node_are_known(self):
        with onnxblock.empty_base() as graph:
            x = graph.input("x", TensorProto.FLOAT, ["rows", 4])
            sizes = graph.op.Constant(value_ints=[2, 6])
            assert graph.op.Reshape(x, graph.op.Add(sizes, [0, 1])).shape == (2, 7)

    def test_control_flow_has_the_outputs_of_its_body(self):
        def body(op_type):
            outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [3, 4]) for n in (op_type, op_type + "2")]
            nodes = [helper.make_node(op_type, ["x"], [op_type]), helper.make_node("Neg", ["x"], [op_type + "2"])]
            return helper.make_graph(nodes, op_type, [], outputs)

        block = blocks.If(then_branch=body("Exp"), else_branch=body("Abs"))
        first, second = evaluate(lambda c, x: block(c), {"c": np.array(False), "x": X})
        np.testing.assert_array_equal(first, np.abs(X))
        np.testing.assert_array_equal(second, -X)

    def test_arguments_are_checked_at_the_call(self):
        wrong = blocks.Softmax(axes=1)
        with onnxblock.empty_base() as graph:
            x = graph.input("x", TensorProto.FLOAT, [2])
            with pytest.raises(BlockBuildError, match=r"'axes'.*\n?.*Did you mean 'axis'"):
                wrong(x)
            with pytest.raises(BlockBuildError, match="axis='last'"):
                blocks.Softmax(axis="last")(x)
            with pytest.raises(BlockBuildError, match="axes given both to the constructor and to the call"):
                blocks.Squeeze(axes=[0])(x, axes=[0])
            with pytest.raises(UnknownNameError, match="no value 'nothing'"):
                blocks.Relu()("nothing")
        with onnxblock.empty_base(18) as graph, pytest.raises(UnknownNameError, match="came with opset 20"):
            blocks.Gelu()(graph.input("x", TensorProto.FLOAT, [2]))
        with pytest.raises(NoGraphError):
            blocks.Relu()("x")

    def test_all_are_listed(self):
        names = dir(blocks)
        assert {"Add", "Softmax", "LSTM", "Linear", "If"} <= set(names)
        assert all(inspect.isclass(getattr(blocks, n)) for n in names)
        assert not {"Upsample", "Scatter"} & set(names)
        assert blocks.Softmax is blocks.Softmax
        assert "Softmax" in blocks.Softmax.__doc__

    def test_unknown_ones_offer_the_nearest(self):
        with pytest.raises(AttributeError, match="Did you mean 'Softmax'"):
            blocks.Softmx  # noqa: B018 - asking for the name is the test
