"""Which operators the adjoint of a convolution in its image is made of."""

from __future__ import annotations

import pytest
from onnx import TensorProto, helper

import onnxblock

CONVOLUTIONS = {"Conv", "ConvTranspose"}


def adjoint(image, weights, **attributes):
    """The operators of the gradient in the image, of these sizes (or symbols)."""
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="conv", **attributes)
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", image), ("w", weights))]
    graph = helper.make_graph([node], "g", values, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    made = onnxblock.gradients(model, ["x"])
    return {n.op_type for n in made.graph.node if n.name != "conv"}


@pytest.mark.parametrize(
    ("image", "weights", "attributes"),
    [
        ([2, 8, 16, 16], [8, 8, 3, 3], {"pads": [1, 1, 1, 1]}),
        (["batch", 8, 20, 20], [8, 8, 3, 3], {}),
        ([2, 8, 128], [4, 8, 5], {"dilations": [2]}),
        ([1, 4, 8, 8, 8], [4, 4, 3, 3, 3], {}),
        ([2, 6, 4, 4], [6, 3, 3, 3], {"group": 2}),
        ([2, 8, 4, 4], [8, 8, 1, 1], {}),
    ],
)
def test_a_convolution_with_the_kernel_turned(image, weights, attributes):
    assert adjoint(image, weights, **attributes) & CONVOLUTIONS == {"Conv"}


@pytest.mark.parametrize(
    ("image", "weights", "attributes"),
    [
        ([2, 8, 16, 16], [8, 8, 3, 3], {"strides": [2, 2]}),
        ([2, 8, 16, 16], [16, 8, 3, 3], {}),
        ([1, 64, 8, 8], [64, 64, 3, 3], {}),
        ([2, 8, "height", 16], [8, 8, 3, 3], {}),
        ([2, 8, 16, 16], [8, 8, 2, 2], {"pads": [2, 2, 2, 2]}),
        ([2, 32, 4, 4], [32, 16, 3, 3], {"group": 2}),
    ],
)
def test_a_transposed_convolution(image, weights, attributes):
    """Strides, more channels of the outputs, small images, unknown sizes, borders wider than the kernel reaches."""
    assert adjoint(image, weights, **attributes) & CONVOLUTIONS == {"ConvTranspose"}
