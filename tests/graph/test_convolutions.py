"""Which operators the adjoints of a convolution are made of: each form is the fastest somewhere."""

from __future__ import annotations

from collections import Counter

import pytest
from onnx import TensorProto, helper

import onnxblock

CONVOLUTIONS = {"Conv", "ConvTranspose"}


def adjoint(image, weights, wrt="x", **attributes):
    """The operators of the gradient in the image x or in the weights w, of these sizes (or symbols)."""
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="conv", **attributes)
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", image), ("w", weights))]
    graph = helper.make_graph([node], "g", values, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    made = onnxblock.gradients(model, [wrt])
    return Counter(n.op_type for n in made.graph.node if n.name != "conv")


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
    assert adjoint(image, weights, **attributes).keys() & CONVOLUTIONS == {"Conv"}


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
    assert adjoint(image, weights, **attributes).keys() & CONVOLUTIONS == {"ConvTranspose"}


@pytest.mark.parametrize(
    ("image", "weights", "attributes", "products"),
    [
        ([2, 16, 32, 32], [8, 16, 3, 3], {"pads": [1, 1, 1, 1]}, 3),
        (["batch", 4, 32, 32], [4, 4, 5, 3], {"dilations": [1, 2]}, 5),
        ([2, 16, 600], [8, 16, 3], {}, 1),
        ([2, 4, 10, 10, 10], [4, 4, 3, 2, 3], {}, 6),
        ([2, 8, 32, 32], [8, 4, 3, 3], {"group": 2}, 3),
    ],
)
def test_weights_of_many_positions(image, weights, attributes, products):
    """A product for each place in the kernel on the axes but the last."""
    operators = adjoint(image, weights, "w", **attributes)
    assert operators["MatMul"] == products
    assert operators["Pad"] == weights[-1] + ("pads" in attributes)


@pytest.mark.parametrize(
    ("image", "weights", "attributes", "operator"),
    [
        ([2, 32, 8, 8], [64, 32, 3, 3], {"pads": [1, 1, 1, 1]}, "Gather"),
        ([2, 32, 64, 64], [64, 32, 3, 3], {"strides": [2, 2]}, "Gather"),
        ([2, 3, 64, 64], [8, 3, 7, 7], {"strides": [2, 2]}, "Conv"),
        ([2, 64, 7, 7], [64, 64, 1, 1], {}, "Gemm"),
        ([2, 64, 7, 7], [64, 64, 5, 3], {"dilations": [1, 2]}, "Gemm"),
        ([2, 8, 32, 32], [8, 1, 3, 3], {"group": 8}, "Cast"),
        ([2, 8, "height", "width"], [8, 8, 3, 3], {}, "Slice"),
    ],
)
def test_other_forms_for_weights(image, weights, attributes, operator):
    """Some positions, strides, a large kernel of few channels, few positions, one channel to a group, unknown sizes."""
    assert operator in adjoint(image, weights, "w", **attributes)
