from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxblock.graph.graph import Graph
from onnxblock.graph.padding import spell_out_pads


def model(sizes, axes, *, constant, value=None, transposed=False):
    """``y = Pad(x, sizes, value, axes)``, with a Transpose before it and back behind it if asked."""
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2, 3, 4])]
    initializers = [numpy_helper.from_array(np.array(axes, np.int64), "axes")]
    if constant:
        initializers.append(numpy_helper.from_array(np.array(sizes, np.int64), "sizes"))
    else:
        inputs.append(helper.make_tensor_value_info("sizes", TensorProto.INT64, [len(sizes)]))
    if value is not None:
        initializers.append(numpy_helper.from_array(np.float32(value), "value"))
    pad = helper.make_node("Pad", ["x", "sizes", "" if value is None else "value", "axes"], ["y"])
    nodes = [pad]
    if transposed:
        pad.input[0], pad.output[0] = "turned", "padded"
        nodes = [
            helper.make_node("Transpose", ["x"], ["turned"], perm=[0, 2, 3, 1]),
            pad,
            helper.make_node("Transpose", ["padded"], ["y"], perm=[0, 3, 1, 2]),
        ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * 4)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def run(model, x, sizes):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    feeds = {"x": x, "sizes": np.array(sizes, np.int64)}
    return session.run(None, {i.name: feeds[i.name] for i in session.get_inputs()})[0]


X = np.random.default_rng(0).standard_normal((2, 2, 3, 4)).astype(np.float32)


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("value", [None, 2.5])
@pytest.mark.parametrize(
    ("sizes", "axes"), [([1, 2], [2]), ([1, -1, 0, 2], [-1, 1]), ([], []), ([1] * 8, [3, 0, 1, 2])]
)
def test_the_same_elements_are_padded(sizes, axes, constant, value):
    given = model(sizes, axes, constant=constant, value=value)
    wanted = run(given, X, sizes)
    graph = Graph(given)
    spell_out_pads(graph)
    (pad,) = [n for n in graph.model.graph.node if n.op_type == "Pad"]
    assert len(pad.input) == (2 if value is None else 3)
    np.testing.assert_array_equal(run(graph.to_model_proto(), X, sizes), wanted)


def test_a_transpose_may_move_past_it():
    graph = Graph(model([1, 2], [2], constant=False, transposed=True))
    spell_out_pads(graph)
    found = run(graph.to_model_proto(), X, [1, 2])
    np.testing.assert_array_equal(found, np.pad(X, [(0, 0), (0, 0), (0, 0), (1, 2)]))
