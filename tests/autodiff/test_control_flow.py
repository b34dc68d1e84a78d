"""Random nodes inside branches and loops run once: the gradient sees what the forward pass drew."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, parser

import onnxblock
from onnxblock.autodiff.backward import backward
from onnxblock.errors import UnsupportedOperatorError
from onnxblock.graph.dependencies import all_nodes
from onnxblock.graph.graph import Graph
from onnxblock.graph.passes import run_passes

X, W = np.array([0.5, -1.5, 2.0, 0.75], np.float32), np.array([1.5, 0.5, -0.75, 2.0], np.float32)
COTANGENT = np.array([1.0, -2.0, 0.5, 3.0], np.float32)

DROP = "m = Mul ({x}, w) {y} = Dropout (m, ratio, training)"
BRANCH = """
    y = If (c) <then_branch = then () => (float[4] p) {{ {nodes} }},
                else_branch = other () => (float[4] q) {{ q = Mul (x, x) }}>
"""
LOOP = """
    y = Loop (two, , x) <body = body (int64 k, bool on, float[4] s) => (bool go, float[4] t) {{
        {nodes}
        go = Identity (on)
    }}>
"""
INNER = """
    t = Loop (two, , s) <body = inner (int64 j, bool running, float[4] u) => (bool go_on, float[4] v) {
        m = Mul (u, w)
        v = Dropout (m, ratio, training)
        go_on = Identity (running)
    }>
"""
EVERY_OTHER = """
    rest = Mod (k, two)
    odd = Cast <to = 9> (rest)
    t = If (odd) <then_branch = drop () => (float[4] d) { m = Mul (s, w) d = Dropout (m, ratio, training) },
                  else_branch = keep () => (float[4] e) { e = Mul (s, w) }>
"""
SOMETIMES = """
        f = Constant <value_ints = [0]> ()
        first = Gather (e, f)
        limit = Constant <value = float[1] {1}> ()
        flag = Greater (first, limit)
        t = If (flag) <then_branch = drop () => (float[4] d) { d = Dropout (se, ratio, training) },
                       else_branch = keep () => (float[4] i) { i = Identity (se) }>
"""
AS_OFTEN = """
        place = Constant <value_int = 3> ()
        some = Gather (e, place)
        ceiling = Ceil (some)
        often = Cast <to = 7> (ceiling)
        t = Loop (often, , se) <body = inner (int64 j, bool running, float[4] u) => (bool go_on, float[4] v) {
            v = Dropout (u, ratio, training)
            go_on = Identity (running)
        }>
"""
SCAN = """
    z = Constant <value = float[2, 4] {1.5, 2.5, 0.5, -1.5, 0.5, 1.25, 2.0, 0.25}> ()
    y = Scan (x, z) <num_scan_inputs = 1, body = body (float[4] s, float[4] e) => (float[4] t) {
        se = Mul (s, e)
        t = Dropout (se, ratio, training)
    }>
"""
# The nodes, and how often w is a factor of y.
CASES = {
    "dropout in a branch": (BRANCH.format(nodes=DROP.format(x="x", y="p")), 1),
    "dropout in a loop": (LOOP.format(nodes=DROP.format(x="s", y="t")), 2),
    "dropout in a loop in a loop": (LOOP.format(nodes=INNER), 4),
    "dropout in every other iteration": (LOOP.format(nodes=EVERY_OTHER), 2),
    "dropout in a loop in a branch": (
        BRANCH.format(nodes=INNER.replace("t = Loop (two, , s)", "p = Loop (two, , x)")),
        2,
    ),
    "dropout in a scan": (SCAN, 0),
    "dropout in some steps of a scan": (
        SCAN.replace("t = Dropout (se, ratio, training)", SOMETIMES),
        0,
    ),
    "dropout in a loop in a scan, as often as an element says": (
        SCAN.replace("t = Dropout (se, ratio, training)", AS_OFTEN),
        0,
    ),
    "dropout in a loop in a loop, more often each time": (
        LOOP.format(nodes=INNER.replace("Loop (two, , s)", "Loop (k, , s)")),
        1,
    ),
    "noise in a branch": (BRANCH.format(nodes="n = RandomNormal <shape = [4]> () p = Mul (x, n)"), 0),
    "noise in a loop": (LOOP.format(nodes="n = RandomNormal <shape = [4]> () t = Mul (s, n)"), 0),
}


def with_gradients(nodes: str) -> ModelProto:
    """y, and the gradients of x and w for a cotangent that is an input."""
    model = parser.parse_model(f"""
        <ir_version: 10, opset_import: ["": 21]>
        g (float[4] x, float[4] w, bool c, float[4] dy) => (float[4] y) {{
            ratio = Constant <value_float = 0.3> ()
            training = Constant <value = bool {{1}}> ()
            two = Constant <value = int64 {{2}}> ()
            {nodes}
        }}
    """)
    graph = Graph(model)
    found = backward(graph, {"y": graph.value("dy")}, ["x", "w"])
    for name in found.values():
        graph.proto.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]))
    run_passes(graph.model)
    return graph.model


def random_nodes(model: ModelProto) -> list[str]:
    return [n.op_type for n in all_nodes(model.graph.node) if n.op_type in {"Dropout", "RandomNormal"}]


@pytest.mark.parametrize("optimized", [True, False], ids=["optimized", "plain"])
@pytest.mark.parametrize("name", CASES)
def test_what_was_drawn_is_shared(name: str, optimized: bool) -> None:
    """Every y here is a product: dx = dy · y / x, and dw = dy · (times w occurs) · y / w, whatever was drawn."""
    nodes, times = CASES[name]
    model = with_gradients(nodes)
    assert len(random_nodes(model)) == 1
    options = onnxruntime.SessionOptions()
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimized else levels.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feeds = {"x": X, "w": W, "c": np.array(True), "dy": COTANGENT}
    wanted = {i.name for i in session.get_inputs()}
    drawn = set()
    for _ in range(8):
        y, dx, *dw = session.run(None, {k: v for k, v in feeds.items() if k in wanted})
        drawn.add(y.tobytes())
        np.testing.assert_allclose(dx, COTANGENT * y / X, rtol=1e-5)
        for d in dw:
            np.testing.assert_allclose(d, COTANGENT * times * y / W, rtol=1e-5)
    assert len(drawn) > 1


def test_the_branch_not_taken_has_no_part() -> None:
    model = with_gradients(CASES["dropout in a branch"][0])
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    y, dx, dw = session.run(None, {"x": X, "w": W, "c": np.array(False), "dy": COTANGENT})
    np.testing.assert_allclose(y, X * X)
    np.testing.assert_allclose(dx, 2 * COTANGENT * X)
    np.testing.assert_array_equal(dw, 0)


DECIDED = """
    outer = Constant <value = bool {{{outer}}}> ()
    inner = Constant <value = bool {{{inner}}}> ()
    y = If (outer) <
        then_branch = then () => (float[4] p) {{
            h = Mul (x, w)
            k = Tanh (h)
            z = If (inner) <then_branch = first () => (float[4] f) {{ e = Mul (k, w) f = Sin (e) }},
                            else_branch = second () => (float[4] s) {{ s = Add (k, w) }}>
            p = Mul (z, h)
        }},
        else_branch = other () => (float[4] q) {{ q = Add (x, w) }}>
"""


@pytest.mark.parametrize("outer", [True, False])
@pytest.mark.parametrize("inner", [True, False])
@pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_ALL"])
def test_the_gradient_of_a_branch_that_is_always_taken_needs_no_if(outer: bool, inner: bool, level: str) -> None:
    """onnxruntime does not open models where a branch reads, with several nodes, an If that it puts its branch for."""
    model = with_gradients(DECIDED.format(outer=int(outer), inner=int(inner)))
    assert sum(node.op_type == "If" for node in all_nodes(model.graph.node)) <= 2
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feeds = {"x": X, "w": W, "dy": COTANGENT}
    found = session.run(None, {i.name: feeds.get(i.name, np.array(True)) for i in session.get_inputs()})
    h, k = X * W, np.tanh(X * W)
    z, by_k, by_w = (np.sin(k * W), W * np.cos(k * W), k * np.cos(k * W)) if inner else (k + W, 1.0, 1.0)
    dh = COTANGENT * (z + h * by_k * (1 - k * k))
    expected = [z * h, dh * W, dh * X + COTANGENT * h * by_w] if outer else [X + W, COTANGENT, COTANGENT]
    for ours, right in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, right, rtol=1e-5)


def test_an_operator_without_gradient_inside_a_body_is_named() -> None:
    model = parser.parse_model("""
        <ir_version: 10, opset_import: ["": 21, "own": 1]>
        g (float[4] x, bool c) => (float[4] y) {
            y = If (c) <then_branch = then () => (float[4] p) { p = own.Nobody (x) },
                        else_branch = other () => (float[4] q) { q = Identity (x) }>
        }
    """)
    graph = Graph(model)
    with pytest.raises(UnsupportedOperatorError, match="Nobody"):
        backward(graph, {"y": graph.constant(COTANGENT)}, ["x"])


def test_every_operator_without_gradient_is_listed_at_whatever_depth() -> None:
    model = parser.parse_model("""
        <ir_version: 10, opset_import: ["": 21, "own": 1]>
        g (float[4] x, float[4] w, bool c, int64 n) => (float[4] z) {
            y = If (c) <then_branch = then () => (float[4] p) { p = own.Nobody (x) },
                        else_branch = other () => (float[4] q) {
                            q = Loop (n, , x) <body = body (int64 k, bool on, float[4] s) => (bool go, float[4] t) {
                                t = own.Somebody (s, w)
                                go = Identity (on)
                            }>
                        }>
            z = own.Everybody (y)
        }
    """)
    graph = Graph(model)
    with pytest.raises(UnsupportedOperatorError) as caught:
        backward(graph, {"z": graph.constant(COTANGENT)}, ["x", "w"])
    message = str(caught.value)
    for words in (
        "3 nodes on the way to the loss have no gradient",
        "Everybody (domain own, opset 21, node 'z'), behind it 'w', 'x'",
        "Nobody (domain own, opset 21, node 'p' in If 'y'.then_branch), behind it 'w', 'x'",
        "Somebody (domain own, opset 21, node 't' in Loop 'q'.body in If 'y'.else_branch)",
    ):
        assert words in message


def test_a_sequence_needed_in_every_iteration() -> None:
    """v = u · s[0] with a sequence that grows at its front: s[0] of every iteration is what an iteration put there."""
    model = parser.parse_model("""
        <ir_version: 10, opset_import: ["": 21]>
        g (double[n] x, int64 count) => (double[n] y) {
            first = SequenceConstruct (x, x)
            zero = Constant <value = int64 {0}> ()
            last, y = Loop (count, , first, x) <body = body (int64 k, bool on, seq(double[n]) s, double[n] u)
                => (bool go, seq(double[n]) t, double[n] v) {
                e = SequenceAt (s, zero)
                v = Mul (u, e)
                t = SequenceInsert (s, v, zero)
                go = Identity (on)
            }>
        }
    """)
    for count in range(4):
        found = onnxblock.check_gradients(model, {"x": X.astype(np.float64), "count": np.array(count)}, outputs=["y"])
        assert found.comparisons


def test_a_branch_that_fits_no_input_of_this_rank_has_no_part() -> None:
    """PyTorch's hstack joins vectors along the only axis and everything else along the second."""
    body = """
        zero = Constant <value_int = 0> ()
        one = Constant <value_int = 1> ()
        s = SequenceConstruct (x, w)
        first = SequenceAt (s, zero)
        sizes = Shape (first)
        rank = Size (sizes)
        is_vector = Equal (rank, one)
        joined = If (is_vector) <then_branch = then () => (float[8] p) { p = Concat <axis = 0> (first, w) },
                                 else_branch = other () => (float[8] q) { q = Concat <axis = 1> (first, w) }>
        half = Constant <value_ints = [4]> ()
        end = Constant <value_ints = [8]> ()
        last = Slice (joined, half, end)
        y = Mul (last, first)
    """
    session = onnxruntime.InferenceSession(with_gradients(body).SerializeToString(), providers=["CPUExecutionProvider"])
    y, dx, dw = session.run(None, {"x": X, "w": W, "c": np.array(True), "dy": COTANGENT})
    np.testing.assert_allclose(y, X * W)
    np.testing.assert_allclose(dx, COTANGENT * W)
    np.testing.assert_allclose(dw, COTANGENT * X)
