"""The block language: values, contexts, and blocks that build."""

from __future__ import annotations

import copy
import operator
import pickle
import threading
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxblock
from onnxblock.errors import ArgumentError, BlockBuildError, NoGraphError, UnknownNameError
from tests.running import evaluate
from tests.runtime import newest_opset


def model(dtype: int = TensorProto.FLOAT) -> onnx.ModelProto:
    """y = x + w and z = x * w."""
    weight = numpy_helper.from_array(np.ones(3, helper.tensor_dtype_to_np_dtype(dtype)), "w")
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"]), helper.make_node("Mul", ["x", "w"], ["z"])],
        "g",
        [helper.make_tensor_value_info("x", dtype, ["n", 3])],
        [helper.make_tensor_value_info(name, dtype, ["n", 3]) for name in ("y", "z")],
        [weight],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def run(made: onnx.ModelProto, **feeds: np.ndarray) -> list[np.ndarray]:
    from onnx.reference import ReferenceEvaluator

    return list(ReferenceEvaluator(made).run(None, feeds))


class Lambda(onnxblock.ForwardBlock):
    """A block out of a function of the graph and the inputs."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def build(self, *inputs: str) -> Any:
        return self.function(self.graph, *inputs)


def built(function: Any, *inputs: str, dtype: int = TensorProto.FLOAT) -> onnx.ModelProto:
    with onnxblock.base(model(dtype)):
        block = Lambda(function)
        block(*inputs)
        return block.to_model_proto()


# -- values


def test_a_value_is_its_name() -> None:
    with onnxblock.base(model()) as graph:
        y = graph.value("y")
        assert y == "y"
        assert {"y": 1}[y] == 1
        assert hash(y) == hash("y")
        assert len(graph.value("y")) == 1
        assert f"{y}" == "y"
        assert [*y] == ["y"]
        assert y < "z"
        assert helper.make_node("Neg", [y], ["out"]).input[0] == "y"
        assert (y.dtype, y.shape, y.rank) == (TensorProto.FLOAT, ("n", 3), 2)


def test_a_plain_string_keeps_string_behaviour_in_both_orders() -> None:
    with onnxblock.base(model()) as graph:
        y = graph.value("y")
        for text in (y + "_grad", "grad/" + y):
            assert type(text) is str
        assert y + "_grad" == "y_grad"
        assert "grad/" + y == "grad/y"
        for operation in (lambda: y - "a", lambda: "a" - y, lambda: y * "a", lambda: y / "a", lambda: y @ "a"):
            with pytest.raises(TypeError):
                operation()
        assert "%s" % y == "y"  # noqa: UP031 - formatting with a value is what is tested
        assert y.upper() == "Y"
        assert not any(hasattr(str, name) for name in ("mean", "sum", "exp", "reshape", "transpose", "cast"))


@pytest.mark.parametrize(
    ("operate", "operator_named"),
    [
        (lambda x: x[:, 0], "Slice"),
        (lambda x: x[0], "Gather"),
        (lambda x: x % 2, "Mod"),
        (lambda x: x > 0, "Greater"),
        (lambda x: max(x, -x), "Greater"),
        (lambda x: x <= -x, "LessOrEqual"),
        (lambda x: x < 1, "Less"),
        (lambda x: x >= np.zeros(2), "GreaterOrEqual"),
    ],
)
def test_what_would_look_at_the_name_instead_of_the_tensor_is_refused(operate: Any, operator_named: str) -> None:
    with onnxblock.empty_base() as graph:
        x = graph.input("x", np.float32, [2])
        with pytest.raises(TypeError, match=rf"graph\.op\..*{operator_named}"):
            operate(x)
        assert sorted([x, "y", graph.input("b", np.float32, [2])]) == ["b", "x", "y"]


def test_a_copied_value_is_a_plain_string() -> None:
    with onnxblock.base(model()) as graph:
        y = graph.value("y")
        for made in (pickle.loads(pickle.dumps(y)), copy.deepcopy(y)):
            assert type(made) is str
            assert made == "y"


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (lambda y, z: y + z, lambda y, z: y + z),
        (lambda y, z: 2 - y, lambda y, z: 2 - y),
        (lambda y, z: y - 2, lambda y, z: y - 2),
        (lambda y, z: 3 / y, lambda y, z: 3 / y),
        (lambda y, z: y / 4, lambda y, z: y / 4),
        (lambda y, z: y * 0.5 * z, lambda y, z: y * 0.5 * z),
        (lambda y, z: y**2, lambda y, z: y**2),
        (lambda y, z: 2**y, lambda y, z: 2**y),
        (lambda y, z: -y, lambda y, z: -y),
        (lambda y, z: y @ z.T, lambda y, z: y @ z.T),
        (lambda y, z: ((y - z) ** 2).mean(), lambda y, z: ((y - z) ** 2).mean()),
        (lambda y, z: y.sum(1, keepdims=True), lambda y, z: y.sum(1, keepdims=True)),
        (lambda y, z: y.max(), lambda y, z: y.max()),
        (lambda y, z: y.clip(0.0, 1.0), lambda y, z: y.clip(0, 1)),
        (lambda y, z: y.exp().log().abs().sqrt().tanh(), lambda y, z: np.tanh(np.sqrt(np.abs(y)))),
        (lambda y, z: y.reshape(-1).unsqueeze(0).squeeze(0), lambda y, z: y.reshape(-1)),
    ],
)
@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.DOUBLE])
def test_operators(expression: Any, expected: Any, dtype: int) -> None:
    x = np.array([[0.5, -0.75, 2.0], [3.0, 0.25, -0.5]], helper.tensor_dtype_to_np_dtype(dtype))
    (result,) = run(built(lambda _, y, z: expression(y, z), "y", "z", dtype=dtype), x=x)
    assert result.dtype == x.dtype
    np.testing.assert_allclose(result, expected(x + 1, x), rtol=1e-5)


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.DOUBLE])
@pytest.mark.parametrize(
    "operate",
    [operator.add, operator.sub, operator.mul, operator.truediv, operator.pow, operator.matmul],
    ids=lambda f: f.__name__,
)
def test_arrays_stand_on_either_side(operate: Any, dtype: int) -> None:
    x = np.array([[0.5, 0.75, 2.0], [3.0, 0.25, 0.5]], helper.tensor_dtype_to_np_dtype(dtype))
    matrix = np.arange(1, 10, dtype=x.dtype).reshape(3, 3)
    left, right = (matrix[:2, :2], matrix) if operate is operator.matmul else (matrix[:2], matrix[0])
    for build, expected in (
        (lambda y: operate(left, y), operate(left, x + 1)),
        (lambda y: operate(y, right), operate(x + 1, right)),
    ):
        (result,) = run(built(lambda _, y, z, build=build: build(y), "y", "z", dtype=dtype), x=x)
        np.testing.assert_allclose(result, expected, rtol=1e-5)


def test_a_number_of_numpy_stands_on_the_left() -> None:
    x = np.array([[0.5, 0.75, 2.0], [3.0, 0.25, 0.5]], np.float32)
    (result,) = run(built(lambda _, y, z: np.float32(2) * y - np.float32(1), "y", "z"), x=x)
    np.testing.assert_allclose(result, 2 * (x + 1) - 1, rtol=1e-6)


def test_what_is_no_element_type_is_refused() -> None:
    with onnxblock.base(model()) as graph:
        for use in (
            lambda: graph.input("q", "flaot32", (3,)),
            lambda: graph.input("q", 999, (3,)),
            lambda: graph.value("y").cast("float23"),
        ):
            with pytest.raises(BlockBuildError, match="is no element type"):
                use()


@pytest.mark.parametrize("shape", [3, "batch", (2.5,), (-1, 3), [[2]], b"n"])
def test_what_is_no_shape_is_refused(shape: Any) -> None:
    with onnxblock.base(model()) as graph, pytest.raises(BlockBuildError, match="is no shape"):
        graph.input("q", np.float32, shape)


def test_shapes_are_any_list_of_dimensions() -> None:
    with onnxblock.base(model()) as graph:
        assert graph.input("sizes", np.float32, ["n", None, np.int64(4)]).shape == ("n", None, 4)
        assert graph.input("scalar", np.float32, []).shape == ()
        assert graph.input("unknown", np.float32, None).shape is None


def test_numbers_take_the_type_of_the_first_typed_operand() -> None:
    for dtype in (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16):
        with onnxblock.base(model(dtype)) as graph:
            half = onnxblock.blocks.Constant(0.5)()
            assert half.shape == ()
            assert half.dtype == TensorProto.FLOAT
            assert (half * graph.value("y")).dtype == dtype
            assert (graph.value("y") + half).dtype == dtype
            assert graph.op.Where(graph.op.Greater(graph.value("y"), 0), graph.value("y"), 0).dtype == dtype


def test_a_fraction_among_integers_is_refused() -> None:
    with onnxblock.base(model()) as graph, pytest.raises(BlockBuildError, match="int64"):
        graph.op.Shape(graph.value("x"), end=-1) * 0.5


# -- contexts


def test_a_block_outside_of_a_context_says_how_to_get_one() -> None:
    with pytest.raises(NoGraphError, match=r"onnxblock\.base\(model\)"):
        onnxblock.blocks.Neg()("y")


def test_contexts_nest() -> None:
    with onnxblock.base(model()) as outer:
        with onnxblock.empty_base() as inner:
            assert onnxblock.current_graph() is inner
        assert onnxblock.current_graph() is outer


def test_contexts_belong_to_their_thread() -> None:
    seen: list[object] = []

    def other() -> None:
        try:
            onnxblock.current_graph()
        except NoGraphError as error:
            seen.append(error)

    with onnxblock.base(model()):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert len(seen) == 1


def test_the_users_model_is_not_changed() -> None:
    given = model()
    before = given.SerializeToString()
    with onnxblock.base(given):
        Lambda(lambda graph, y: y * 2)("y")
    assert given.SerializeToString() == before


def test_models_below_opset_18_are_raised_to_18() -> None:
    old = model()
    old.opset_import[0].version = 13
    with onnxblock.base(old) as graph:
        assert graph.opset == 18
    with onnxblock.empty_base(15) as graph:
        assert graph.opset == 18


@pytest.mark.parametrize("opset", range(18, newest_opset() + 1))
def test_what_is_built_from_nothing_runs_whatever_the_opset(opset: int) -> None:
    np.testing.assert_array_equal(evaluate(lambda x: x + 1.0, {"x": np.ones(3, np.float32)}, opset), [[2, 2, 2]])


def test_an_opset_that_onnx_does_not_know_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"opset 99 .* knows only up to"), onnxblock.empty_base(99):
        pass


# -- blocks


class Legacy(onnxblock.Block):
    """Written as for the original: no super().__init__(), nodes appended to self.base."""

    def __init__(self) -> None:
        self.negative = onnxblock.blocks.Neg()

    def build(self, name: str) -> str:
        self.base.graph.initializer.append(numpy_helper.from_array(np.float32(2), "two"))
        self.base.graph.node.append(helper.make_node("Mul", [name, "two"], [name + "_twice"], "twice"))
        return self.negative(name + "_twice")


def test_a_block_may_edit_the_model_itself() -> None:
    with onnxblock.base(model()) as graph:
        out = Legacy()("y")
        assert isinstance(out, onnxblock.Value)
        assert graph.value("y_twice").shape == ("n", 3)
        assert out.shape == ("n", 3)


def test_names_of_values_arrive_as_values() -> None:
    seen: list[object] = []

    class Look(onnxblock.Block):
        def build(self, name: str, other: str, names: list[str], target_name: str = "target") -> str:
            seen.extend([name, other, *names, target_name])
            return name

    with onnxblock.base(model()):
        Look()("y", "no such value", ["z"], target_name="w")
    assert [type(x).__name__ for x in seen] == ["Value", "str", "Value", "Value"]


def test_a_wrong_number_of_arguments_names_the_block_and_what_build_wants() -> None:
    class Three(onnxblock.Block):
        def build(self, a: str, b: str, c: str) -> str:
            return a

    with onnxblock.base(model()), pytest.raises(BlockBuildError, match=r"Three\.build\(a.*missing.*'c'"):
        Three()("y", "z")


def test_errors_name_operator_opset_shapes_and_types() -> None:
    with onnxblock.base(model()) as graph, pytest.raises(BlockBuildError) as caught:
        graph.op.MatMul("y", graph.constant(np.ones((4, 2), np.float32)))
    for text in ("MatMul", "opset 18", "'y' float32[n, 3]", "float32[4, 2]"):
        assert text in str(caught.value)


def test_misspelt_operators_attributes_and_values_offer_the_nearest() -> None:
    with onnxblock.base(model()) as graph:
        with pytest.raises(UnknownNameError, match="Did you mean 'Softmax'"):
            graph.op.Sofmax("y")
        with pytest.raises(BlockBuildError, match="Did you mean 'axis'"):
            graph.op.Softmax("y", axes=1)
        with pytest.raises(UnknownNameError, match="no value 'q'"):
            graph.op.Neg("q")
        with pytest.raises(UnknownNameError, match="came with opset 20"):
            graph.op.Gelu("y")


def test_an_input_name_that_is_taken_is_refused() -> None:
    with onnxblock.base(model()) as graph, pytest.raises(BlockBuildError, match="'y'"):
        graph.input("y", np.float32, (1,))


def test_what_an_opset_takes_as_input_may_be_named() -> None:
    made = built(lambda graph, y: graph.op.ReduceSum(graph.op.Clip(y, min=0), axes=[1], keepdims=0), "y")
    np.testing.assert_array_equal(run(made, x=np.array([[-3, 1, 2]], np.float32))[0], [5])


def test_shape_arithmetic_is_computed_while_building() -> None:
    with onnxblock.empty_base() as graph:
        x = graph.input("x", np.float32, (2, 3, 4))
        count = graph.op.Size(x) / graph.op.Gather(graph.op.Shape(x), 1)
        assert graph.constant_value(count) == 8
        assert not graph.model.graph.node


def test_a_forward_block_returns_a_checked_model_with_its_weights() -> None:
    big = model()
    big.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.arange(3000, dtype=np.float32).reshape(1000, 3), "w"))
    with onnxblock.base(big):
        block = Lambda(lambda graph, y: y * 2)
        block("y")
    made = block.to_model_proto()
    assert [o.name for o in made.graph.output] == ["Lambda/Mul"]
    np.testing.assert_array_equal(numpy_helper.to_array(made.graph.initializer[0])[-1], [2997, 2998, 2999])
    with pytest.raises(NoGraphError, match="has not been called"):
        Lambda(lambda graph: None).to_model_proto()
