"""A Scan in the form of a Loop computes the same, whatever the axes and directions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from onnx import TensorProto, helper

from onnxblock.autodiff.check import onnxruntime_evaluator
from onnxblock.graph.context import open_graph
from onnxblock.graph.node import NodeContext
from onnxblock.graph.scans import scan_as_loop

AXES, DIRECTIONS = (0, 2, -1, -2, -3), (0, 1)


@pytest.mark.parametrize("ranked", [True, False], ids=["ranked", "unranked"])
@pytest.mark.parametrize("steps", [3, 1])
def test_every_axis_and_direction(steps: int, ranked: bool) -> None:
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("Add", ["s", "a"], ["t"]),
            helper.make_node("Mul", ["t", "b"], ["p"]),
            helper.make_node("Sub", ["t", "b"], ["q"]),
        ],
        "body",
        [value(name, TensorProto.FLOAT, None) for name in "sab"],
        [value(name, TensorProto.FLOAT, [2, 4]) for name in "tpq"],
    )
    rng = np.random.default_rng(0)
    for (axis, back), (out_axis, out_back) in itertools.product(itertools.product(AXES, DIRECTIONS), repeat=2):
        node = helper.make_node(
            "Scan",
            ["s0", "as", "bs"],
            ["last", "ps", "qs"],
            body=body,
            num_scan_inputs=2,
            scan_input_axes=[axis, 0],
            scan_input_directions=[back, 1],
            scan_output_axes=[out_axis, 0],
            scan_output_directions=[out_back, 1],
        )
        element = np.moveaxis(rng.standard_normal((steps, 2, 4)), 0, axis).astype(np.float32)
        feeds = {"s0": element[:1, :1, :1].sum((0, 1, 2)) * np.ones((2, 4), np.float32), "as": element}
        feeds["bs"] = rng.standard_normal((steps, 2, 4)).astype(np.float32)
        inputs = [value(k, TensorProto.FLOAT, x.shape if ranked else None) for k, x in feeds.items()]
        outputs = [value(k, TensorProto.FLOAT, None) for k in node.output]
        model = helper.make_model(
            helper.make_graph([node], "g", inputs, outputs), opset_imports=[helper.make_opsetid("", 21)], ir_version=10
        )
        graph = open_graph(model)
        results = scan_as_loop(NodeContext(graph, graph.proto.node[0]))
        graph.proto.node.pop(0)
        for name, result in zip(node.output, results, strict=True):
            graph.proto.node.append(helper.make_node("Identity", [result], [name]))
        expected = onnxruntime_evaluator(model)(feeds)
        found = onnxruntime_evaluator(graph.to_model_proto())(feeds)
        for y, z in zip(expected, found, strict=True):
            np.testing.assert_array_equal(y, z)
