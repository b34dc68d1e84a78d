"""Optimizers written for the original, which make the sequence inputs themselves."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import onnxblock
from onnxblock import optim
from onnxblock.errors import BlockBuildError
from onnxblock.graph.check import check
from tests.optim.stepping import run_sequence_steps, run_steps, sequence_model, start, step_model

TENSORS = onnx.helper.make_sequence_type_proto(onnx.helper.make_tensor_type_proto(TensorProto.FLOAT, None))


class CustomOptimizer(onnxblock.ForwardBlock):
    """As written against onnxruntime.training.onnxblock."""

    def __init__(self):
        super().__init__()
        self.clip = onnxblock.optim.ClipGradNorm(1.0)
        self.adamw = onnxblock.optim.AdamWOptimizer(weight_decay=0.1)

    def build(self, parameters):
        trainable, _ = parameters
        assert [p.name for p in trainable] == list(start())
        rate = onnx.helper.make_tensor_value_info("learning_rate", TensorProto.FLOAT, [1])
        step = onnx.helper.make_tensor_value_info("step", TensorProto.INT64, [1])
        sequences = [
            onnx.helper.make_tensor_sequence_value_info(name, TensorProto.FLOAT, None)
            for name in ("params", "gradients", "first_order_moments", "second_order_moments")
        ]
        self.base.graph.input.extend([rate, step, *sequences])
        clipped = self.clip("gradients")
        return self.adamw("learning_rate", "step", "params", clipped, "first_order_moments", "second_order_moments")


class CustomSGD(onnxblock.ForwardBlock):
    def build(self, parameters):
        del parameters
        self.base.graph.input.extend(
            [
                onnx.helper.make_tensor_value_info("learning_rate", TensorProto.FLOAT, [1]),
                onnx.helper.make_tensor_sequence_value_info("params", TensorProto.FLOAT, None),
                onnx.helper.make_tensor_sequence_value_info("gradients", TensorProto.FLOAT, None),
            ]
        )
        return onnxblock.optim.SGDOptimizer()("learning_rate", "gradients", "params")


def model_of(block) -> onnx.ModelProto:
    tensors = [onnx.numpy_helper.from_array(x, name) for name, x in start().items()]
    with onnxblock.empty_base():
        block((tensors, []))
        return block.to_model_proto()


@pytest.mark.parametrize(
    ("custom", "same"),
    [
        (CustomOptimizer(), optim.AdamW(weight_decay=0.1, clip_grad=optim.ClipGradNorm(1.0))),
        (CustomSGD(), optim.SGD()),
    ],
)
def test_a_custom_optimizer(custom, same):
    found = run_sequence_steps(model_of(custom), start())
    expected = run_steps(step_model(same), start())
    for name, array in found.items():
        np.testing.assert_allclose(array, expected[name], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("optimizer", [optim.AdamW(), optim.SGD(), optim.RMSprop()])
def test_an_optimizer_gives_its_model_itself(optimizer):
    """As scripts for the original ask for it, that build each model by hand."""
    found, expected = run_steps(model_of(optimizer), start()), run_steps(step_model(optimizer), start())
    for name, array in expected.items():
        assert np.array_equal(found[name], array)


@pytest.mark.parametrize(
    ("optimizer", "op_type", "moments", "attributes"),
    [
        (
            optim.AdamW(betas=(0.5, 0.75), eps=0.25, weight_decay=0.125),
            "AdamWOptimizer",
            ["first_order_moments", "second_order_moments"],
            {"alpha": 0.5, "beta": 0.75, "epsilon": 0.25, "weight_decay": 0.125, "correct_bias": 1, "adam_mode": 1},
        ),
        (
            optim.AdamW(variant="torch"),
            "AdamWOptimizer",
            ["first_order_moments", "second_order_moments"],
            {"correct_bias": 1, "adam_mode": 0},
        ),
        (optim.SGD(), "SGDOptimizerV2", ["first_order_moments"], {}),
    ],
)
def test_what_the_old_runtime_looks_for(optimizer, op_type, moments, attributes):
    model = sequence_model(optimizer)
    check(model)
    assert [v.name for v in model.graph.input] == ["learning_rate", "step", "params", "gradients", *moments]
    assert [v.type for v in model.graph.input[2:]] == [TENSORS] * (2 + len(moments))
    (node,) = model.graph.node
    assert (node.domain, node.op_type) == ("com.microsoft", op_type)
    found = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    assert {k: found[k] for k in attributes} == attributes
    assert model.graph.output[0].name == node.output[0]
    assert model.graph.output[0].type.tensor_type.elem_type == TensorProto.BOOL
    assert model.ir_version <= 10


def test_what_the_old_runtime_refuses():
    """Its kernel fails in the first step without the correction of PyTorch's variant."""
    with pytest.raises(BlockBuildError, match="always corrects this variant"):
        sequence_model(optim.AdamW(bias_correction=False, variant="torch"))


def test_names_that_are_no_sequences():
    with onnxblock.empty_base() as graph:
        graph.input("learning_rate", TensorProto.FLOAT, [1])
        graph.input("x", TensorProto.FLOAT, [3])
        with pytest.raises(BlockBuildError, match="'x' is not a sequence"):
            optim.SGDOptimizer()("learning_rate", "x", "x")
        with pytest.raises(BlockBuildError, match="'x' is not a sequence"):
            optim.ClipGradNorm(1.0)("x")
