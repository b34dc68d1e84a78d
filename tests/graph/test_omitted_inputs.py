"""Types of nodes that leave an input out: the oldest supported onnx needs a model around such a node."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, defs, helper, numpy_helper, shape_inference

from onnxblock.graph.inference import InferenceError, infer_node
from onnxblock.graph.types import tensor_type

F, I = TensorProto.FLOAT, TensorProto.INT64
TYPES = {
    "image": (F, (1, 1, 4, 4)),
    "x": (F, (2, 3)),
    "bound": (F, ()),
    "sizes": (I, (4,)),
    "count": (I, ()),
    "series": (F, (5, 2, 3)),
    "w": (F, (1, 16, 3)),
    "r": (F, (1, 16, 4)),
    "start": (F, (1, 2, 4)),
}
BODY = helper.make_graph(
    [
        helper.make_node("Identity", ["going"], ["goes_on"]),
        helper.make_node("MatMul", ["state", "outside"], ["next"]),
    ],
    "body",
    [
        helper.make_tensor_value_info("iteration", I, []),
        helper.make_tensor_value_info("going", TensorProto.BOOL, []),
        helper.make_tensor_value_info("state", F, [2, 3]),
    ],
    [helper.make_tensor_value_info("goes_on", TensorProto.BOOL, []), helper.make_tensor_value_info("next", F, None)],
)
NODES = [
    helper.make_node("Clip", ["x", "", "bound"], ["y"]),
    helper.make_node("Resize", ["image", "", "", "sizes"], ["y"]),
    helper.make_node("Loop", ["count", "", "x"], ["y"], body=BODY),
    helper.make_node("LSTM", ["series", "w", "r", "", "", "start"], ["y", "", "last"], hidden_size=4),
]
IMPORTS = [helper.make_opsetid("", 18)]


def infer(node):
    types = {name: helper.make_tensor_type_proto(*known) for name, known in TYPES.items()}
    types["outside"] = helper.make_tensor_type_proto(F, (3, 3))
    constants = {"sizes": numpy_helper.from_array(np.array([1, 1, 8, 8]), "other")}
    found = infer_node(defs.get_schema(node.op_type, 18, ""), node, types, constants, IMPORTS)
    return {name: tensor_type(proto) for name, proto in found.items()}


def refuse(*_args, **_kwargs):
    raise KeyError("")


@pytest.mark.parametrize("node", NODES, ids=lambda node: node.op_type)
def test_types_are_the_same_either_way(node, monkeypatch):
    expected = infer(node)
    monkeypatch.setattr(shape_inference, "infer_node_outputs", refuse)
    assert infer(node) == expected
    assert expected.keys() == {name for name in node.output if name}
    assert all(known is not None and known.dtype == F for known in expected.values())


def test_what_cannot_fit_is_refused_either_way(monkeypatch):
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"])
    for _ in range(2):
        with pytest.raises(InferenceError):
            infer(node)
        monkeypatch.setattr(shape_inference, "infer_node_outputs", refuse)
