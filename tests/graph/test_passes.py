"""Each pass finds what it is for, leaves the rest alone, and changes no result."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, parser

from onnxblock.block import set_outputs
from onnxblock.graph.graph import Graph
from onnxblock.graph.passes import run_passes
from onnxblock.graph.waiting import Arrival
from tests.running import normal, run

X = normal(2, 3, 4)
A, B = normal(3, 4), normal(3, 5, seed=1)


def model_of(body: str, **inputs) -> ModelProto:
    """A model whose output is y, written as ONNX writes graphs."""
    declared = ", ".join(f"float[{','.join(map(str, x.shape))}] {name}" for name, x in inputs.items())
    text = f'<ir_version: 10, opset_import: ["" : 21]> g ({declared}) => (float y) {{ {body} }}'
    model = parser.parse_model(text)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model


def operators(model: ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node)


def finished(model: ModelProto, feeds) -> Counter[str]:
    """The operators that are left after the passes, which must not have changed the result."""
    (expected,) = run(model, feeds, optimize=False)
    graph = Graph(model)
    run_passes(graph.model, graph.tensor_type)
    (result,) = run(graph.model, feeds, optimize=False)
    np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-6)
    assert graph.model.graph.output[0].name == "y"
    return operators(graph.model)


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("t = Transpose<perm = [1, 0, 2]>(x) u = Transpose<perm = [2, 1, 0]>(t) y = Relu(u)", {"Transpose": 1}),
        ("t = Transpose<perm = [1, 0, 2]>(x) u = Transpose<perm = [1, 0, 2]>(t) y = Relu(u)", {}),
        ("t = Transpose(x) u = Transpose(t) y = Relu(u)", {}),
        ("t = Transpose<perm = [1, 0, 2]>(x) u = Transpose<perm = [1, 0, 2]>(t) v = Transpose(t) y = Add(u, v)", None),
    ],
)
def test_transposes_of_transposes(body, left):
    feeds = {"x": normal(3, 3, 3)}
    found = finished(model_of(body, **feeds), feeds)
    assert left is None or found == {"Relu": 1, **left}


ROWS = "s = Constant<value_ints = [4, 3]>() z = ConstantOfShape(s) i = Constant<value = int64[2, 1] {2, 0}>()"
ONES = ROWS.replace("Shape(s)", "Shape<value = float[1] {1}>(s)")
ELEMENTS = (
    "s = Constant<value_ints = [4, 3]>() z = ConstantOfShape(s) i = Constant<value = int64[2, 3] {2,0,1,1,0,1}>()"
)


@pytest.mark.parametrize(
    ("body", "left"),
    [
        (f'{ROWS} t = ScatterND<reduction = "add">(z, i, u) y = Add(x, t)', {"ScatterND": 1}),
        (f'{ROWS} t = ScatterND<reduction = "add">(z, i, u) y = Add(t, x)', {"ScatterND": 1}),
        (f'{ELEMENTS} t = ScatterElements<reduction = "add">(z, i, u) y = Add(x, t)', {"ScatterElements": 1}),
        (f'{ROWS} t = ScatterND<reduction = "add">(z, i, u) v = Add(t, x) y = Add(v, t)', {"ScatterND": 1, "Add": 2}),
        (f"{ROWS} t = ScatterND(z, i, u) y = Add(x, t)", {"ScatterND": 1, "Add": 1}),
        (f'{ROWS} t = ScatterND<reduction = "add">(x, i, u) y = Add(x, t)', {"ScatterND": 1, "Add": 1}),
        (f'{ROWS} t = ScatterND<reduction = "add">(z, i, u) b = Relu(w) y = Add(b, t)', {"ScatterND": 1, "Add": 1}),
        (f'{ONES} t = ScatterND<reduction = "add">(z, i, u) y = Add(x, t)', {"ScatterND": 1, "Add": 1}),
    ],
)
def test_what_is_added_to_zeros_is_added_to_the_other_summand(body, left):
    feeds = {"x": normal(4, 3), "u": normal(2, 3, seed=1), "w": normal(1, 3, seed=2)}
    found = finished(model_of(body, **feeds), feeds)
    assert {k: n for k, n in found.items() if k in ("ScatterND", "ScatterElements", "Add")} == left


@pytest.mark.parametrize("flags", ["", "<transA = 1>", "<transB = 1, alpha = 0.5>", "<transA = 1, transB = 1>"])
def test_a_product_comes_out_transposed(flags):
    a = A.T if "transA" in flags else A
    b = normal(5, 4, seed=2) if "transB" in flags else normal(4, 5, seed=2)
    feeds = {"a": a, "b": b}
    assert finished(model_of(f"p = Gemm{flags}(a, b) t = Transpose<perm = [1, 0]>(p) y = Relu(t)", **feeds), feeds) == {
        "Gemm": 1,
        "Relu": 1,
    }


def test_a_product_that_others_read_stays():
    feeds = {"a": A, "b": normal(4, 3, seed=2)}
    body = "p = Gemm(a, b) t = Transpose<perm = [1, 0]>(p) y = Add(p, t)"
    assert finished(model_of(body, **feeds), feeds) == {"Gemm": 1, "Transpose": 1, "Add": 1}
    body = "p = Gemm(a, b, c) t = Transpose<perm = [1, 0]>(p) y = Relu(t)"
    assert finished(model_of(body, **feeds, c=normal(3)), {**feeds, "c": normal(3)})["Transpose"] == 1


def padded(sizes, adds, axis=1, total=9):
    """Pads of the parts of one axis, and the sum of them."""
    nodes, initializers, at = [], [], 0
    for k, size in enumerate(sizes):
        pads = np.zeros((2, 2), np.int64)
        pads[:, axis] = at, total - at - size
        at += size
        initializers.append(helper.make_tensor(f"p{k}", TensorProto.INT64, [4], pads.ravel()))
        nodes.append(helper.make_node("Pad", [f"x{k}", f"p{k}"], [f"y{k}"]))
    nodes += [helper.make_node("Add", [a, b], [c]) for a, b, c in adds]
    feeds = {f"x{k}": normal(3, size, seed=k) if axis else normal(size, 3, seed=k) for k, size in enumerate(sizes)}
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, x.shape) for name, x in feeds.items()]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", inputs, [output], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), feeds


@pytest.mark.parametrize("axis", [0, 1])
def test_parts_that_lie_behind_each_other_are_concatenated(axis):
    adds = [("y2", "y0", "s"), ("s", "y1", "y")]
    assert finished(*padded([2, 3, 4], adds, axis)) == {"Concat": 1}


@pytest.mark.parametrize(
    ("sizes", "total"),
    [([2, 3, 3], 9), ([2, 3, 4], 10)],
    ids=["a gap at the end", "another"],
)
def test_parts_that_leave_a_gap_are_added(sizes, total):
    adds = [("y2", "y0", "s"), ("s", "y1", "y")]
    assert finished(*padded(sizes, adds, total=total)) == {"Pad": 3, "Add": 2}


def test_parts_that_others_read_are_added():
    adds = [("y0", "y1", "s"), ("s", "s", "y")]
    assert finished(*padded([4, 5], adds))["Concat"] == 1  # the inner sum, read twice
    model, feeds = padded([4, 5], [("y0", "y1", "s"), ("s", "y0", "y")])
    assert finished(model, feeds) == {"Pad": 1, "Concat": 1, "Add": 1}


@pytest.mark.parametrize(
    ("first", "shape", "left"),
    [
        ("Reshape(x, s)", "{6, 4}", 1),
        ("Reshape(x, s)", "{-1, 2}", 1),
        ("Reshape(x, s)", "{0, 1, 2}", 2),  # the first size is that of the view
        ("Flatten<axis = 1>(x)", "{6, 4}", 1),
        ("Unsqueeze(x, k)", "{6, 4}", 1),
        ("Reshape(x, s)", "{2, 3, 4}", 0),
    ],
)
def test_a_view_of_a_view(first, shape, left):
    rank = shape.count(",") + 1
    body = f"""
        s = Constant<value = int64[2] {{12, 2}}>() k = Constant<value = int64[1] {{0}}>()
        t = {first} w = Constant<value = int64[{rank}] {shape}>() u = Reshape(t, w) y = Relu(u)"""
    found = finished(model_of(body, x=X), {"x": X})
    assert sum(n for kind, n in found.items() if kind in ("Reshape", "Flatten", "Unsqueeze")) == left


def test_a_view_that_others_read_stays():
    body = """
        s = Constant<value = int64[2] {12, 2}>() w = Constant<value = int64[2] {6, 4}>() v = Transpose(x)
        t = Reshape(v, s) u = Reshape(t, w) a = Relu(t) b = Relu(u) f = Constant<value = int64[1] {-1}>()
        c = Reshape(a, f) d = Reshape(b, f) y = Add(c, d)"""
    assert finished(model_of(body, x=X), {"x": X})["Reshape"] == 4
    body = body.replace("{6, 4}", "{4, 3, 2}").replace("int64[2] {4", "int64[3] {4")
    assert finished(model_of(body, x=X), {"x": X})["Reshape"] == 3  # undone


def test_what_waits_is_not_looked_through():
    feeds = {"x": X, "z": normal(2, 2)}
    graph = Graph(model_of("y = Relu(x)", **feeds))
    late = Arrival([graph.value("z")]).view(graph.value("x"))
    set_outputs(graph, [graph.op.Reshape(late, [2, 12])])
    run_passes(graph.model, graph.tensor_type)
    assert [node.input[0] for node in graph.model.graph.node if node.op_type == "Reshape"][-2:] == ["x", late]
    np.testing.assert_array_equal(run(graph.model, feeds)[0], X.reshape(2, 12))


@pytest.mark.parametrize(
    "body",
    [
        "t = Cast<to = 1>(x) y = Relu(t)",
        "t = Cast<to = 11>(x) u = Cast<to = 1>(t) y = Relu(u)",
        "s = Constant<value = int64[3] {2, 3, 4}>() t = Reshape(x, s) y = Relu(t)",
        "s = Constant<value = int64[3] {1, 3, 1}>() t = Expand(x, s) y = Relu(t)",
        "one = Constant<value = float {1.0}>() t = Mul(one, x) y = Relu(t)",
        "one = Constant<value = float[1] {1.0}>() t = Div(x, one) y = Relu(t)",
        "zero = Constant<value = float {0.0}>() t = Sub(x, zero) y = Relu(t)",
        "t = Identity(x) u = Sum(t) y = Relu(u)",
        "one = Constant<value = float[4] {1.0, 1.0, 1.0, 1.0}>() t = Mul(x, one) y = Relu(t)",
        "p = Constant<value = int64[6] {0, 0, 0, 0, 0, 0}>() t = Pad(x, p) y = Relu(t)",
        "a = Constant<value = int64[1] {0}>() b = Constant<value = int64[1] {9}>() t = Slice(x, a, b) y = Relu(t)",
        """a = Constant<value = int64[2] {0, -4}>() b = Constant<value = int64[2] {3, 4}>()
        k = Constant<value = int64[2] {1, 2}>() one = Constant<value = int64[2] {1, 1}>()
        t = Slice(x, a, b, k, one) y = Relu(t)""",
    ],
)
def test_nodes_that_change_nothing(body):
    assert finished(model_of(body, x=X), {"x": X}) == {"Relu": 1}


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        ("one = Constant<value = float {1.0}>() t = Div(one, x) y = Relu(t)", "Div"),
        ("zero = Constant<value = float {0.0}>() t = Sub(zero, x) y = Relu(t)", "Sub"),
        ("one = Constant<value = float[1,1,1,1] {1.0}>() t = Mul(x, one) y = Relu(t)", "Mul"),
        ("s = Constant<value = int64[3] {4, 3, 2}>() t = Reshape(x, s) y = Relu(t)", "Reshape"),
        ("t = Cast<to = 10>(x) u = Cast<to = 1>(t) y = Relu(u)", "Cast"),
        ("t = Cast<to = 7>(x) u = Cast<to = 1>(t) y = Relu(u)", "Cast"),
        ("t = Cast<to = 11>(x) u = Cast<to = 10>(t) v = Cast<to = 1>(u) y = Relu(v)", "Cast"),
        ("y = Identity(x)", "Identity"),
        ("p = Constant<value = int64[6] {0, 0, 1, 0, 0, -1}>() t = Pad(x, p) y = Relu(t)", "Pad"),
        ("p = Constant<value = int64[6] {0, 0, 0, 0, 0, 1}>() t = Pad(x, p) y = Relu(t)", "Pad"),
        (
            """a = Constant<value = int64[1] {-1}>() b = Constant<value = int64[1] {-9}>()
            k = Constant<value = int64[1] {1}>() t = Slice(x, a, b, k, a) y = Relu(t)""",
            "Slice",
        ),
        (
            """a = Constant<value = int64[1] {0}>() b = Constant<value = int64[1] {3}>()
            k = Constant<value = int64[1] {2}>() t = Slice(x, a, b, k) y = Relu(t)""",
            "Slice",
        ),
    ],
)
def test_nodes_that_change_something(body, kept):
    assert finished(model_of(body, x=X), {"x": X})[kept] >= 1


def test_a_cast_beside_a_node_that_leaves_an_output_out():
    """Inference gives such an output a type all the same, which must not be taken for that of what is cast."""
    graph = Graph(model_of("u = Cast<to = 11>(x) v = Relu(u) w = Cast<to = 1>(v) y = Relu(w)", x=X))
    weights = [graph.constant(np.ones(shape, np.float32)) for shape in ((1, 6, 4), (1, 6, 2))]
    graph.proto.node.append(helper.make_node("GRU", ["x", *weights], ["", "last"], hidden_size=2))
    graph.sync()
    assert graph.tensor_type("last") is not None
    run_passes(graph.model, graph.tensor_type)
    assert operators(graph.model)["Cast"] == 2
    (result,) = run(graph.model, {"x": X}, optimize=False)
    np.testing.assert_array_equal(result, np.maximum(X, 0))


@pytest.mark.parametrize(
    ("before", "after", "left"),
    [
        ("n", "-1", {"Relu": 1}),
        ("n, 3, 4", "-1, 3, 4", {"Relu": 1}),
        ("n, 3, 4", "-1, 4, 3", {"Reshape": 1, "Relu": 1}),
        ("n, 3, m", "-1, 3, 4", {"Reshape": 1, "Relu": 1}),
        ("n, 0, 4", "2, 0, 4", {"Reshape": 1, "Relu": 1}),
    ],
)
def test_views_that_can_have_but_one_shape(before, after, left):
    sizes = after.split(", ")
    allowed = "<allowzero = 1>" if "0" in sizes else ""
    result = after.replace("-1", "k")
    text = f"""<ir_version: 9, opset_import: ["" : 18]> g (float[{before}] x) => (float[{result}] y) {{
        s = Constant<value = int64[{len(sizes)}] {{{after}}}>() t = Reshape{allowed}(x, s) y = Relu(t)
    }}"""
    graph = Graph(parser.parse_model(text))
    run_passes(graph.model, graph.tensor_type)
    assert Counter(node.op_type for node in graph.model.graph.node if node.op_type != "Constant") == left


def test_sizes_that_only_the_graph_can_compute():
    """An exporter's chunk: where a slice ends is computed from the size of the axis."""
    body = """
        s = Shape(x) k = Constant<value = int64[1] {-1}>() n = Gather(s, k) two = Constant<value = int64[1] {2}>()
        half = Div(n, two) zero = Constant<value = int64[1] {0}>() t = Slice(x, zero, half, k) y = Relu(t)"""
    graph = Graph(model_of(body, x=X))
    assert graph.value("t").shape == (2, 3, 2)
    assert graph.value("y").shape == (2, 3, 2)


def test_sizes_are_known_beside_long_vectors():
    """ONNX's inference, told to follow contents, takes some 300 bytes for each element of a vector."""
    body = """
        s = Shape(x) k = Constant<value = int64[1] {0}>() n = Gather(s, k) m = Constant<value = int64[1] {-1}>()
        sizes = Concat<axis = 0>(n, m) t = Reshape(x, sizes) z = Relu(v) y = Relu(t)"""
    graph = Graph(model_of(body, x=X, v=np.zeros(3_000_000, np.float32)))
    assert graph.value("y").shape == (2, 12)
    assert graph.value("z").shape == (3_000_000,)
