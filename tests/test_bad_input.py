"""Bad arguments of ``generate_artifacts`` end in one exception: what, where, the remedy; and nothing is written."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxblock
from artifacts import LossType, OptimType
from onnxblock.errors import (
    ArgumentError,
    BlockBuildError,
    InvalidModelError,
    ParameterError,
    UnknownNameError,
    UnsupportedOperatorError,
)
from tests.refusing import generate, refused, rename
from tests.test_training import mlp
from tests.training import convolutional

# -- names


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"requires_grad": ["w00"]}, ParameterError, ["requires_grad", "no weight 'w00'", "Did you mean 'w0'"]),
        ({"frozen_params": ["w11"]}, ParameterError, ["frozen_params", "no weight 'w11'", "'w1'"]),
        (
            {"requires_grad": ["w0", "x1", "nothing like it"], "frozen_params": ["w0", "b2"]},
            ParameterError,
            ["'x1'", "'nothing like it'.\n", "'w0' is both in requires_grad and in frozen_params", "'b2'", "'b1'"],
        ),
        ({"requires_grad": []}, ParameterError, ["none of the model's weights is trained", "w0: not in requires_grad"]),
        (
            {"additional_output_names": ["h00"], "loss_input_names": ["yy"]},
            UnknownNameError,
            ["additional_output_names: the model has no value 'h00'", "'h0'", "loss_input_names", "'yy'", "'y'"],
        ),
        ({"requires_grad": "w0"}, ArgumentError, ["requires_grad is str", "requires_grad=['w0']"]),
        ({"frozen_params": b"w0"}, ArgumentError, ["frozen_params is bytes"]),
        ({"additional_output_names": "h0"}, ArgumentError, ["additional_output_names is str"]),
        ({"loss_input_names": "y"}, ArgumentError, ["loss_input_names is str"]),
        ({"requires_grad": 3}, ArgumentError, ["requires_grad is int"]),
        ({"requires_grad": [None, 1, b"w0"]}, ArgumentError, ["NoneType, bytes, int"]),
        ({"requires_grad": mlp().graph.initializer}, ArgumentError, ["holds TensorProto, where names are expected"]),
    ],
)
def test_names(settings, error, words, folder):
    with refused(error, *words):
        generate(mlp(), folder, **settings)


def test_all_old_except_clauses_still_catch():
    expected = {
        ArgumentError: (TypeError, ValueError),
        InvalidModelError: (ValueError,),
        ParameterError: (RuntimeError, ValueError),
        UnknownNameError: (KeyError, ValueError),
        UnsupportedOperatorError: (NotImplementedError,),
    }
    for error, builtins in expected.items():
        assert all(issubclass(error, builtin) for builtin in builtins)


@pytest.mark.parametrize(
    "names",
    [["w0", "b1"], ("w0", "b1"), {"w0", "b1"}, {"b1": 1, "w0": 2}.keys(), ["b1", "w0", "w0"], np.array(["w0", "b1"])],
    ids=lambda names: type(names).__name__,
)
def test_any_collection_of_names_will_do(names, tmp_path):
    made = generate(mlp(), tmp_path, requires_grad=names, frozen_params=iter(["w1"]), loss_input_names=iter("y"))
    assert [p.name for p in made.trainable] == ["w0", "b1"]
    assert [p.name for p in made.frozen] == ["w1"]


def test_a_name_without_its_path_is_recognised(folder):
    with refused(ParameterError, "Did you mean 'Convolutional/mean'", "'Convolutional/Linear/bias'"):
        generate(convolutional(), folder, requires_grad=["mean"], frozen_params=["bias"])


# -- parameters


def test_integers_have_no_gradient(folder):
    model = mlp()
    model.graph.initializer.append(numpy_helper.from_array(np.arange(4), "places"))
    model.graph.node.append(helper.make_node("Gather", ["y", "places"], ["z"], axis=1))
    model.graph.output[0].name = "z"
    with refused(ParameterError, "'places' is int64, which is not differentiable"):
        generate(model, folder, requires_grad=["w0", "places"])


STATISTICS = ["Convolutional/mean", "Convolutional/variance"]


def test_running_statistics_are_not_trained(folder):
    with refused(ParameterError, *(f"{name!r} is a running statistic of BatchNorm" for name in STATISTICS)):
        generate(convolutional(), folder, requires_grad=["Convolutional/weight", *STATISTICS])


def test_running_statistics_in_a_list_of_everything_are_left_out(tmp_path):
    """Scripts name every initializer; the summary says what became of the statistics."""
    model = convolutional()
    everything = [t.name for t in model.graph.initializer if t.data_type == TensorProto.FLOAT]
    made = generate(model, tmp_path, requires_grad=everything)
    assert [p.name for p in made.trainable] == [name for name in everything if name not in STATISTICS]
    assert [p.name for p in made.statistics] == STATISTICS
    assert "a running statistic: it is moved by the data, not by gradients" in str(made)


def without_weights() -> onnx.ModelProto:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize("settings", [{}, {"requires_grad": []}])
def test_a_model_without_weights(settings, folder):
    with refused(ParameterError, "no float weights"):
        generate(without_weights(), folder, **settings)


def test_a_model_whose_weights_are_attributes(folder):
    """Converters of scikit-learn write linear models so."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, 1]) for name in "xy")
    linear = helper.make_node("LinearRegressor", ["x"], ["y"], "linear", domain="ai.onnx.ml", coefficients=[2.0])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 1)]
    model = helper.make_model(helper.make_graph([linear], "g", [x], [y]), opset_imports=opsets, ir_version=9)
    with refused(ParameterError, "those of LinearRegressor 'linear': attributes of the node", "black_op"):
        generate(model, folder)


def test_names_that_training_needs_for_its_own(folder):
    for name in ("w0_grad.accumulation.buffer", "w0.accumulated_grad", "w0_grad.accumulation.out", "lazy_reset_grad"):
        for renamed in ("w1", "h0", "x", "y"):
            with refused(ParameterError, f"{name!r}", "Rename"):
                generate(rename(mlp(), renamed, name), folder)
    for name in (
        "learning_rate",
        "step",
        "w0_grad",
        "w0.updated",
        "w0.momentum0",
        "w0.momentum12",
        "w0.momentum0.updated",
    ):
        with refused(ParameterError, f"{name!r}"):
            generate(rename(mlp(), "w1", name), folder)


# -- losses and optimizers


def two_outputs() -> onnx.ModelProto:
    model = mlp()
    model.graph.output.append(helper.make_tensor_value_info("h0", TensorProto.FLOAT, ["batch", 4]))
    return model


class Loss(onnxblock.Block):
    """A loss out of a function of the graph and the output."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def build(self, prediction: onnxblock.Value) -> Any:
        return self.function(self.graph, prediction)


class TwoLosses(onnxblock.Block):
    def build(self, first: onnxblock.Value, second: onnxblock.Value) -> onnxblock.Value:
        return onnxblock.loss.MSELoss()(first) + onnxblock.loss.MSELoss()(second)


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (LossType.MSELoss, ["MSELoss takes one value and the model has 2 outputs: 'y', 'h0'", "loss_input_names"]),
        (onnxblock.loss.CrossEntropyLoss(), ["2 outputs (y, h0)", "CrossEntropyLoss.build wants 1"]),
        (Loss(lambda graph, y: y.mean()), ["Loss.build wants 1 (prediction)", "loss_input_names"]),
        (TwoLosses(), ["already has a value called 'target'", "target_name"]),
        (None, ["the loss 'y' has shape [batch, 4]; it must be one number", "loss.mean()"]),
    ],
)
def test_several_outputs(loss, words, folder):
    with refused(BlockBuildError, *words):
        generate(two_outputs(), folder, loss=loss)


@pytest.mark.parametrize("loss", [None, *LossType, onnxblock.loss.HuberLoss()])
def test_a_sequence_is_no_loss(loss, folder):
    model = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["" : 18]> g (float[N,4] x) => (seq(float[N,3]) y) <float[4,3] w = {0}>
        { h = MatMul(x, w) y = SequenceConstruct(h, h) }"""
    )
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.ones((4, 3), np.float32), "w"))
    with refused(BlockBuildError, "'y'", "is a sequence"):
        generate(model, folder, loss=loss)


def test_too_few_outputs(folder):
    with refused(BlockBuildError, "1 output (y)", "TwoLosses.build wants 2 (first, second)"):
        generate(mlp(), folder, loss=TwoLosses())
    model = mlp()
    del model.graph.output[:]
    for loss in (None, LossType.MSELoss):
        with refused(InvalidModelError, "no outputs"):
            generate(model, folder, loss=loss)


@pytest.mark.parametrize("old", ["h0", "x", "w0"])
def test_a_target_whose_name_is_taken(old, folder):
    with refused(BlockBuildError, "already has a value called 'target'", "target_name="):
        generate(rename(mlp(), old, "target"), folder)


@pytest.mark.parametrize(
    ("function", "error", "words"),
    [
        (lambda graph, y: None, BlockBuildError, ["Loss.build returned NoneType"]),
        (lambda graph, y: 3, BlockBuildError, ["Loss.build returned int"]),
        (lambda graph, y: [], BlockBuildError, ["Loss.build returned nothing"]),
        (lambda graph, y: "loss", UnknownNameError, ["no value 'loss'"]),
        (lambda graph, y: y, BlockBuildError, ["[batch, 4]; it must be one number"]),
        (lambda graph, y: graph.op.Size(y), BlockBuildError, ["is int64, so it has no gradient"]),
        (lambda graph, y: graph.constant(np.float32(1)), ParameterError, ["w0: on no differentiable path to the loss"]),
        (lambda graph, y: graph.op.Floor(y).mean(), ParameterError, ["w0: on no differentiable path to the loss"]),
        (lambda graph, y: onnxblock.loss.MSELoss()("yy"), UnknownNameError, ["no value 'yy'", "'y'"]),
        (lambda graph, y: onnxblock.loss.CrossEntropyLoss()([y]), BlockBuildError, ["not list"]),
    ],
)
def test_losses_of_ones_own(function, error, words, folder):
    with refused(error, *words):
        generate(mlp(), folder, loss=Loss(function))


@pytest.mark.parametrize("given", ["MSELoss", 1, OptimType.AdamW, lambda y: y, onnxblock.blocks])
def test_what_is_no_loss(given, folder):
    with refused(BlockBuildError, "neither one of LossType, nor a block, nor None", "LossType.CrossEntropyLoss"):
        generate(mlp(), folder, loss=given)


@pytest.mark.parametrize("given", ["AdamW", 1, LossType.MSELoss, object()])
def test_what_is_no_optimizer(given, folder):
    with refused(BlockBuildError, "neither one of OptimType, nor a block, nor None", "OptimType.SGD"):
        generate(mlp(), folder, optimizer=given)


def test_classes_instead_of_instances(folder):
    with refused(BlockBuildError, "loss is the class MSELoss", "loss=MSELoss()"):
        generate(mlp(), folder, loss=onnxblock.loss.MSELoss)
    with refused(BlockBuildError, "optimizer is the class AdamW", "optimizer=AdamW()"):
        generate(mlp(), folder, optimizer=onnxblock.optim.AdamW)


def test_losses_and_optimizers_mixed_up(folder):
    with refused(BlockBuildError, "an optimizer takes the list of trainable parameters"):
        generate(mlp(), folder, loss=onnxblock.optim.AdamW())
    with refused(BlockBuildError, "the name of a value is expected, not tuple"):
        generate(mlp(), folder, optimizer=onnxblock.loss.MSELoss())


def test_an_exception_in_a_block_of_the_users_passes_through(folder):
    with pytest.raises(ZeroDivisionError):
        generate(mlp(), folder, loss=Loss(lambda graph, y: 1 / 0))


def test_operators_without_a_gradient_are_all_listed(folder):
    model = mlp()
    for name in ("first", "second"):
        model.graph.node.append(helper.make_node("Reluu", ["y"], [name], name=f"node_{name}", domain="my.domain"))
    model.graph.node.append(helper.make_node("Sumo", ["first", "second"], ["z"], name="third", domain="my.domain"))
    model.graph.output[0].name = "z"
    model.opset_import.append(helper.make_opsetid("my.domain", 1))
    words = ["3 nodes", "node_first", "node_second", "third", "my.domain", "'w0'", "onnxblock.gradient", "freeze"]
    with refused(UnsupportedOperatorError, *words):
        generate(model, folder)


# -- other arguments


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"batch_norm": "training"}, ["batch_norm='training'", "'as exported', 'train', 'frozen'"]),
        ({"batch_norm": True}, ["batch_norm=True"]),
        ({"running_var": None}, ["running_var=None", "'unbiased', 'biased'"]),
        ({"runtime": "ort"}, ["runtime='ort'", "'onnxruntime', 'onnxruntime-training'"]),
        ({"prefix": None}, ["prefix is NoneType"]),
        ({"prefix": 1}, ["prefix is int"]),
        ({"custom_op_library": 1}, ["1 (int) is not a path"]),
        ({"artifact_directory": 1}, ["1 (int) is not a path"]),
        ({"artifact_directory": "a\0b"}, ["null character"]),
    ],
)
def test_other_arguments(settings, words, folder):
    with refused(ArgumentError, *words):
        generate(mlp(), folder, **settings)
