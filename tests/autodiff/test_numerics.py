"""What a formula must not do to numbers at the edge, where the rule test has nothing to compare."""

from __future__ import annotations

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

import onnxblock
from onnxblock.autodiff.gradients import gradients


def run(graph: onnxblock.Graph, outputs: list[str], **feeds: object) -> list[np.ndarray]:
    graph.model.graph.output.extend(helper.make_tensor_value_info(y, TensorProto.FLOAT, None) for y in outputs)
    session = onnxruntime.InferenceSession(graph.model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {name: np.asarray(x, np.float32) for name, x in feeds.items()})


def test_where_keeps_infinite_and_undefined_cotangents_of_the_other_side_out() -> None:
    with onnxblock.empty_base() as graph:
        x, y, d = (graph.input(name, TensorProto.FLOAT, [4]) for name in ("x", "y", "d"))
        chosen = graph.op.Where(graph.op.Greater(x, 0.0), x, y)
        found = run(
            graph,
            gradients([chosen], [x, y], [d]),
            x=[1, -1, 1, -1],
            y=[0, 0, 0, 0],
            d=[1, np.inf, 2, np.nan],
        )
    np.testing.assert_array_equal(found, [[1, 0, 2, 0], [0, np.inf, 0, np.nan]])


def test_softmax_of_masked_scores() -> None:
    with onnxblock.empty_base() as graph:
        x, d = (graph.input(name, TensorProto.FLOAT, [3]) for name in ("x", "d"))
        [found] = run(graph, gradients([x.softmax()], [x], [d]), x=[0, 0, -np.inf], d=[1, 2, 3])
    np.testing.assert_allclose(found, [-0.25, 0.25, 0], atol=1e-7)


def test_cross_entropy_by_log_softmax_far_from_the_label() -> None:
    with onnxblock.empty_base() as graph:
        x = graph.input("x", TensorProto.FLOAT, [3])
        picked = graph.op.Gather(graph.op.LogSoftmax(x), 2)
        [found] = run(graph, [gradients(picked, x)], x=[200, 0, -200])
    np.testing.assert_allclose(found, [-1, 0, 1], atol=1e-7)
