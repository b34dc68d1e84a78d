from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, helper, parser

from onnxblock.accumulation import accumulate, accumulator_function
from onnxblock.graph.inplace import InPlace, after, in_place_safe
from tests.in_place import run_bound, settings, shuffled
from tests.running import build, normal

FEEDS = {"old": normal(8, 8), "g": normal(8, 8, seed=1)}


def model_of(function) -> ModelProto:
    """A model with inputs old and g whose first output is called new, others as they come."""

    def named(old, g):
        first, *others = result if isinstance(result := function(old, g), list) else [result]
        return [old.graph.rename(first, "new"), *others]

    return build(named, FEEDS)


def wait(old, g):
    first = old * 0.9
    direction = (first + g * 0.1).tanh()
    return [old * after(old.graph.constant(np.float32(0.5)), first) + g, direction]


ROWS = np.array([1, 6])


def put_rows(data, rows, places=ROWS[:, np.newaxis], **settings):
    return data.graph.op.ScatterND(data, places, rows, **settings)


SAFE = {
    "the writer alone reads": lambda old, g: old - g * 0.1,
    "twice by the writer": lambda old, _: old * old,
    "before the writer": lambda old, g: (old * 0.9) + g * 0.1,
    "a norm before the writer": lambda old, g: old - g * old.graph.op.ReduceL2(old, keepdims=0),
    "not read at all": lambda _, g: g * 2,
    "through a view": lambda old, g: old.reshape(64).reshape(8, 8) - g,
    "one factor for two results": lambda old, g: [(a := old * 0.9) * 1.1 + g, (a + g).tanh()],
    "made to wait": wait,
    "rows put into it": lambda old, g: put_rows(old, old.graph.op.Gather(old, ROWS) - g.graph.op.Gather(g, ROWS)),
    "rows put into it, after a product": lambda old, g: put_rows(old, old.graph.op.Gather((old @ g).tanh(), ROWS)),
}
UNSAFE = {
    "another reader": lambda old, g: [old - g, old * 2],
    "another reader, far away": lambda old, g: [old - g, (old * 2 + g).tanh().sum()],
    "two factors": lambda old, g: [old * 0.99 + g * 0.01, (old * 0.9 + g * 0.1).tanh()],
    "a reader of a view": lambda old, g: [old.reshape(64).reshape(8, 8) - g, old.reshape(64) + 1],
    "a view as an output": lambda old, g: [old - g, old.reshape(64)],
    "a reader that may come to nothing": lambda old, g: [(b := old * 1.0) - g, b + g],
    "a writer that may come to nothing": lambda old, g: [(old - g) * (old * 0 + 1).max() * 1.0, old + g],
    "no writer": lambda old, _: old.graph.op.Identity(old),
    "transposed in the writer": lambda old, g: old.T - g,
    "a product": lambda old, g: old @ g,
    "a product with a sum, which may become one kernel": lambda old, g: old @ g + 1,
    "a product of a view": lambda old, g: old.T @ g + 1,
    "a third term, added onto the result": lambda old, g: old.graph.op.Sum(g, g, old),
    "rows put into it, and a reader": lambda old, g: [put_rows(old, g.graph.op.Gather(g, ROWS)), old * 2],
    "rows put into a transpose of it": lambda old, g: put_rows(old.T, g.graph.op.Gather(g, ROWS)),
    "its own rows put into it": lambda old, _: put_rows(old, old.graph.op.Gather(old, ROWS + 1)),
    "rows added to it": lambda old, g: put_rows(old, g.graph.op.Gather(g, ROWS), reduction="add"),
    "all of it put into itself": lambda old, _: put_rows(old, old, np.arange(8)[::-1, np.newaxis].copy()),
}


@pytest.mark.parametrize("name", SAFE)
def test_safe(name):
    model = model_of(SAFE[name])
    assert in_place_safe(model, "old", "new")
    expected = run_bound(model, FEEDS, {})
    for seed in range(4):
        for setting in settings():
            found = run_bound(shuffled(model, seed), FEEDS, {"old": "new"}, **setting)
            for output, array in expected.items():
                assert np.array_equal(found[output], array), (seed, setting, output)


@pytest.mark.parametrize("name", UNSAFE)
def test_unsafe(name):
    assert not in_place_safe(model_of(UNSAFE[name]), "old", "new")


def test_what_is_refused_does_go_wrong():
    """Otherwise the comparison of bits above would show nothing."""
    model = model_of(UNSAFE["two factors"])
    expected = run_bound(model, FEEDS, {})
    runs = [run_bound(shuffled(model, seed), FEEDS, {"old": "new"}, level="ORT_DISABLE_ALL") for seed in range(8)]
    assert any(not np.array_equal(run[name], expected[name]) for run in runs for name in expected)


def test_shapes_that_are_not_known_to_be_equal():
    narrow = {"old": normal(8, 1), "g": FEEDS["g"]}
    model = build(lambda old, g: old.graph.rename(old + g, "new"), narrow)
    assert not in_place_safe(model, "old", "new")
    model = model_of(SAFE["the writer alone reads"])
    model.graph.input[0].type.tensor_type.shape.dim[0].ClearField("dim_value")
    assert not in_place_safe(model, "old", "new")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    model.graph.input[1].type.tensor_type.shape.dim[0].dim_param = "n"
    assert in_place_safe(model, "old", "new")


def test_names_that_are_not_there():
    proof = InPlace(model_of(SAFE["the writer alone reads"]))
    assert not proof.is_safe("older", "new")
    assert not proof.is_safe("old", "newer")


def test_functions_are_looked_into():
    def accumulated(old, g):
        graph = old.graph
        graph.import_domain("com.microsoft", 1)
        graph.model.functions.append(accumulator_function(graph.opset))
        flag = graph.constant(np.array([False]))
        graph.model.graph.node.append(accumulate(old, g, flag, "flag", "new"))
        graph.sync()
        graph.set_type("new", graph.type_proto(old))
        return ["new"]

    model = build(accumulated, FEEDS)
    assert in_place_safe(model, "old", "new")
    model.graph.node.append(helper.make_node("Neg", ["old"], ["late"]))
    model.graph.output.append(helper.make_tensor_value_info("late", 1, [8, 8]))
    assert not in_place_safe(model, "old", "new")


@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize("known", [True, False])
def test_a_choice_between_elementwise_branches(flag, known):
    """Where the condition is constant a runtime puts the branch in the place of the If."""

    def branch(op_type, inputs, output):
        value = helper.make_tensor_value_info(output, 1, [8, 8])
        return helper.make_graph([helper.make_node(op_type, inputs, [output])], output, [], [value])

    def chosen(other):
        def build_it(old, g):
            op = old.graph.op
            g = op.Neg(g)
            condition = old.graph.constant(np.array([flag])) if known else op.Greater(g.sum(), 0.0)
            return op.If(condition, then_branch=branch("Identity", [g], "a"), else_branch=branch(*other(old, g), "b"))

        return build(lambda old, g: old.graph.rename(build_it(old, g), "new"), FEEDS)

    assert in_place_safe(chosen(lambda old, g: ("Add", [old, g])), "old", "new")
    # the product reads all of the old value for each element; a branch that is never taken does not count
    assert in_place_safe(chosen(lambda old, g: ("MatMul", [old, g])), "old", "new") == (known and flag)


def test_bodies_that_capture_the_old_value_read_it():
    def branch(name, op_type):
        output = helper.make_tensor_value_info(name, 1, [8, 8])
        return helper.make_graph([helper.make_node(op_type, ["old"], [name])], name, [], [output])

    def chosen(old, g):
        op = old.graph.op
        taken = op.If(op.Greater(g.sum(), 0.0), then_branch=branch("a", "Neg"), else_branch=branch("b", "Abs"))
        return [old - g, taken]

    assert not in_place_safe(model_of(chosen), "old", "new")
    assert in_place_safe(model_of(lambda old, g: old - chosen(old, g)[1] * 0.5), "old", "new")


@pytest.mark.parametrize(("needed", "safe"), [("Neg (a)", False), ("Neg (b)", True), ("Add (a, b)", True)])
def test_one_result_of_an_if_may_be_there_before_the_others(needed, safe):
    """A runtime puts the nodes of a branch in the place of an If whose condition it finds constant."""
    model = parser.parse_model(f"""
        <ir_version: 9, opset_import: ["" : 18]>
        step (float[8, 8] old, float[8, 8] g) => (float[8, 8] new, float[8, 8] other)
        <bool flag = {{1}}>
        {{
            early = Mul (old, old)
            a, b = If (flag) <
                then_branch = t () => (ta, tb) {{ ta = Neg (g)  tx = Tanh (early)  tb = Mul (tx, old) }},
                else_branch = e () => (ea, eb) {{ ea = Abs (g)  ex = Exp (early)  eb = Mul (ex, old) }}
            >
            needed = {needed}
            new = Sub (old, needed)
            other = Neg (b)
        }}""")
    assert in_place_safe(model, "old", "new") == safe
    expected = run_bound(model, FEEDS, {})
    runs = [run_bound(shuffled(model, k), FEEDS, {"old": "new"}, **s) for k in range(4) for s in settings()]
    assert all(np.array_equal(run[name], expected[name]) for run in runs for name in expected) == safe


@pytest.mark.parametrize("reading", ["Tanh (early)", "Tanh (g)"])
def test_what_one_branch_of_an_if_needs_may_come_late(reading):
    model = parser.parse_model(f"""
        <ir_version: 9, opset_import: ["" : 18]>
        step (float[8, 8] old, float[8, 8] g, bool flag) => (float[8, 8] new, float[8, 8] early)
        {{
            early = Mul (old, old)
            a = If (flag) <
                then_branch = t () => (ta) {{ ta = Neg (early) }},
                else_branch = e () => (ea) {{ ea = {reading} }}
            >
            new = Sub (old, a)
        }}""")
    assert in_place_safe(model, "old", "new") == ("early" in reading)
