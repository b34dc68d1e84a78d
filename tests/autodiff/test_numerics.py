"""What a formula must not do to numbers at the edge, where the rule test has nothing to compare."""

from __future__ import annotations

import math

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import onnxblock
from onnxblock.autodiff.gradients import gradients
from onnxblock.graph.precision import in_float_type

from . import harness


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


def test_slope_of_gelu() -> None:
    values = np.array([-40, -6, -1.5, -1e-3, 0, 1e-20, 0.7, 5, 40, np.nan])
    with onnxblock.empty_base(20) as graph:
        x = graph.input("x", TensorProto.FLOAT, [len(values)])
        [found] = run(graph, [gradients(graph.op.Gelu(x), x)], x=values)
    cdf = [(1 + math.erf(v / math.sqrt(2))) / 2 for v in values]
    density = np.exp(-values * values / 2) / math.sqrt(2 * math.pi)
    np.testing.assert_allclose(found, cdf + values * density, rtol=1e-6, atol=2e-7)


_COMPARING = ["Clip", "above", "below", "unbounded", "Max", "Min", "ReduceMax", "ReduceMin", "ReduceLogSumExp"]
_COMPARING += ["max", "min", "GlobalMaxPool", "MaxPool", "TopK", "LpPool", "ReduceProd"]


@pytest.mark.parametrize("optimized", [False, True])
@pytest.mark.parametrize("kind", _COMPARING)
def test_half_precision_compares_nothing_that_one_side_has_rounded(kind: str, optimized: bool) -> None:
    """onnxruntime has a float16 kernel of these, and none of the convolution, whose result it rounds for them only.

    Nodes around them keep it from computing them in float32 too.
    """
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 2, 6, 6)).astype(np.float16), rng.standard_normal((3, 2, 3, 3)).astype(np.float16)
    with onnxblock.empty_base(18) as graph:
        op, image = graph.op, graph.input("x", TensorProto.FLOAT16, x.shape)
        h = op.Conv(image, graph.parameter("w", w))
        low, high = np.float16(-0.5), np.float16(0.5)
        places = rng.integers(0, 3, (1, 3, 4, 4))
        y = {
            "Clip": lambda: op.Clip(h, low, high),
            "above": lambda: op.Clip(h, low),
            "below": lambda: op.Clip(h, None, high),
            "Max": lambda: op.Max(h, low, np.full(4, -0.25, np.float16)),
            "Min": lambda: op.Min(h, high, np.full(4, 0.25, np.float16)),
            "unbounded": lambda: op.Clip(h),
            "ReduceMax": lambda: op.ReduceMax(h, [1], keepdims=0),
            "ReduceMin": lambda: op.ReduceMin(h, [1]),
            "ReduceLogSumExp": lambda: op.ReduceLogSumExp(h, [1]),
            "max": lambda: op.ScatterElements(h, places, op.Mul(h, low), axis=1, reduction="max"),
            "min": lambda: op.ScatterElements(h, places, op.Mul(h, low), axis=1, reduction="min"),
            "GlobalMaxPool": lambda: op.GlobalMaxPool(h),
            "MaxPool": lambda: op.MaxPool(h, kernel_shape=[2, 2]),
            "TopK": lambda: op.TopK(h, [2], axis=1, outputs=2)[0],
            "LpPool": lambda: op.LpPool(h, kernel_shape=[2, 2]),
            "ReduceProd": lambda: op.ReduceProd(h, [1]),
        }[kind]()
        z = op.Transpose(op.Clip(op.Slice(y, [0], [3], [1]), np.float16(-9), np.float16(9)))
        graph.rename(z, "z")
    model = graph.to_model_proto()
    model.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT16, None))
    [found] = harness.run_onnxruntime(onnxblock.gradients(model, ["x"]), {"x": x}, optimized=optimized)
    wide = onnxblock.gradients(in_float_type(model, TensorProto.FLOAT), ["x"])
    [exact] = harness.run_onnxruntime(wide, {"x": x.astype(np.float32)}, optimized=optimized)
    np.testing.assert_allclose(found, exact, rtol=2e-2, atol=2e-2)


def test_log_sum_exp_of_large_numbers_in_half_precision() -> None:
    """onnxruntime computes infinity, from the exponentials themselves; the gradient is what it is."""
    scores = np.array([[88, 90, -90], [-200, -201, -202], [60000, 60000, 0]], np.float16)
    with onnxblock.empty_base(18) as graph:
        x = graph.input("x", TensorProto.FLOAT16, scores.shape)
        found = gradients([graph.op.ReduceLogSumExp(x, [1])], [x], [graph.constant(np.ones((3, 1), np.float16))])
        graph.model.graph.output.extend(helper.make_tensor_value_info(d, TensorProto.FLOAT16, None) for d in found)
    [dx] = harness.run_onnxruntime(graph.model, {"x": scores}, optimized=True)
    exact = np.exp(scores.astype(np.float64) - scores.max(1, keepdims=True).astype(np.float64))
    np.testing.assert_allclose(dx, exact / exact.sum(1, keepdims=True), rtol=3e-3, atol=1e-6)


@pytest.mark.parametrize("operator", ["Gather", "GatherND", "GatherElements", "axis 1"])
def test_what_is_added_in_one_place_is_not_lost_between_threads(operator: str) -> None:
    """onnxruntime's ScatterND lets threads add to one place at once, and loses some of 200,000 rows for two places."""
    rows = np.random.default_rng(0).normal(size=(200_000, 8)).astype(np.float32)
    places = np.random.default_rng(1).integers(0, 2, len(rows))
    with onnxblock.empty_base() as graph:
        shape = [1, 2, 8] if operator == "axis 1" else [2, 8]
        x, i = graph.input("x", TensorProto.FLOAT, shape), graph.input("i", TensorProto.INT64, [len(rows)])
        if operator == "GatherElements":
            y = graph.op.GatherElements(x, graph.op.Expand(i.unsqueeze(-1), rows.shape), axis=0)
        elif operator == "GatherND":
            y = graph.op.GatherND(x, i.unsqueeze(-1))
        else:
            y = graph.op.Gather(x, i, axis=len(shape) - 2)
        d = graph.input("d", TensorProto.FLOAT, list(y.shape or ()))
        found = gradients([y], [x], [d])
        graph.model.graph.output.extend(helper.make_tensor_value_info(g, TensorProto.FLOAT, None) for g in found)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 8
    session = onnxruntime.InferenceSession(graph.model.SerializeToString(), options, ["CPUExecutionProvider"])
    expected = np.zeros((2, 8))
    np.add.at(expected, places, rows.astype(np.float64))
    for _ in range(5):
        feeds = {"x": np.zeros(shape, np.float32), "i": places, "d": rows.reshape(d.shape)}
        [sums] = session.run(None, {port.name: feeds[port.name] for port in session.get_inputs()})
        np.testing.assert_allclose(sums.reshape(2, 8), expected, rtol=1e-4, atol=1e-2)
