from __future__ import annotations

import onnx
import pytest

from benchmarks.nodes import count, idle, inlined, needed_for


def parse(body: str, more: str = "") -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 18, "own": 1]> {body} {more}')


def test_nodes_that_change_nothing_are_found():
    model = parse("""
    g (float[2, 3] x) => (float[2, 3] y, float[3, 2] t) <float one = {1}, int64[2] same = {2, 3}> {
        a = Identity (x)
        b = Mul (a, one)
        c = Cast <to = 1> (b)
        wide = Cast <to = 11> (c)
        back = Cast <to = 1> (wide)
        d = Transpose <perm = [0, 1]> (back)
        e = Reshape (d, same)
        f = Concat <axis = 0> (e)
        y = Relu (f)
        t = Transpose <perm = [1, 0]> (y)
    }""")
    found = [one.split()[0] for one in idle(inlined(model))]
    assert found == ["Identity", "Mul", "Cast", "Cast", "Transpose", "Reshape", "Concat"]


def test_nodes_that_change_something_are_left_alone():
    model = parse("""
    g (float[2, 3] x, float[1] w) => (float[3, 2] t, float[2, 3] named) <float two = {2}, int64[2] other = {3, 2}> {
        a = Mul (x, two)
        b = Mul (a, w)
        c = Cast <to = 7> (b)
        d = Cast <to = 1> (c)
        e = Cast <to = 10> (d)
        f = Cast <to = 1> (e)
        t = Reshape (f, other)
        named = Identity (x)
    }""")
    assert idle(inlined(model)) == []


def test_functions_and_bodies_count():
    model = parse(
        "g (float[2] x, bool c) => (float[2] y) { a = own.twice (x) y = If (c) "
        "<then_branch = p () => (float[2] q) { q = Neg (a) }, else_branch = r () => (float[2] s) { s = Relu (a) }> }",
        '<domain: "own", opset_import: ["": 18]> twice (x) => (y) { h = Add (x, x) y = Neg (h) }',
    )
    assert count(model.graph.node) == 4
    assert count(inlined(model).graph.node) == 5


@pytest.mark.parametrize(("output", "operators"), [("loss", ["Relu", "Neg"]), ("gradient", ["Relu", "Neg", "Exp"])])
def test_the_forward_part_is_what_the_loss_needs(output, operators):
    model = parse("""
    g (float[2] x) => (float[2] loss, float[2] gradient) {
        a = Neg (x)
        loss = Relu (a)
        unused = Abs (a)
        gradient = Exp (loss)
    }""")
    assert sorted(node.op_type for node in needed_for(model.graph, output)) == sorted(operators)
