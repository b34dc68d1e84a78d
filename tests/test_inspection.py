"""``onnxblock.inspect`` says what ``generate_artifacts`` will do, or why it cannot."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import artifacts
import onnxblock
from onnxblock.errors import ArgumentError, UnknownNameError, UnsupportedOperatorError


def model(
    text: str, weights: dict[str, Any], opsets: dict[str, int] | None = None, outputs: tuple[str, ...] = ("y",)
) -> onnx.ModelProto:
    """Nodes as lines of ``result, ... = domain::Operator(operand, ...)``, from ``x``."""
    nodes = []
    for line in text.strip().splitlines():
        results, _, call = line.partition("=")
        operator, _, operands = call.strip().rstrip(")").partition("(")
        domain, _, op_type = operator.rpartition("::")
        names = [r.strip() for r in results.split(",")]
        read = [o.strip() for o in operands.split(",")] if operands else []
        nodes.append(helper.make_node(op_type, read, names, name=f"node_{names[0]}", domain=domain))
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(w), name) for name, w in weights.items()],
    )
    imports = [helper.make_opsetid(d, v) for d, v in ({"": 18} | (opsets or {})).items()]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


def matrix(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def names(found: Any) -> list[str]:
    return [f.name for f in found]


def test_a_plain_model():
    given = model("h = MatMul(x, w)\ny = Add(h, b)", {"w": matrix(4, 3), "b": matrix(3), "steps": np.int64(3)})
    before = given.SerializeToString(deterministic=True)
    found = onnxblock.inspect(given)
    assert given.SerializeToString(deterministic=True) == before
    assert (names(found.trainable), found.trainable_elements) == (["w", "b"], 15)
    assert found.can_train
    nothing = (found.not_trained, found.statistics, found.unsupported, found.stopping, found.decomposed, found.random)
    assert nothing == ((),) * 6
    assert (found.opset, found.raised_from, found.batch_norm, found.looks_folded) == (18, None, "none", False)
    assert "trained by default: 2 weights, 15 elements" in str(found)


def test_a_path_and_an_older_opset(tmp_path):
    given = model("y = MatMul(x, w)", {"w": matrix(4, 3)}, {"": 13})
    onnx.save(given, tmp_path / "m.onnx")
    found = onnxblock.inspect(tmp_path / "m.onnx")
    assert (found.opset, found.raised_from) == (18, 13)
    assert "opset: 18, raised from 13" in str(found)
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]


def test_every_unsupported_node_is_listed_with_what_is_behind_it(tmp_path):
    given = model(
        "h = MatMul(x, w)\na = my::Mystery(h)\nb = MatMul(a, v)\ny = my::Riddle(b)",
        {"w": matrix(4, 4), "v": matrix(4, 2)},
        {"my": 1},
    )
    found = onnxblock.inspect(given)
    assert [(n.op_type, names(n.weights), n.elements) for n in found.unsupported] == [
        ("Mystery", ["w"], 16),
        ("Riddle", ["w", "v"], 24),
    ]
    assert not found.can_train
    text = str(found)
    for part in ("my::Mystery 'node_a'", "no rule, no decomposition", "behind it 2 weights, 24 elements: w, v"):
        assert part in text
    with pytest.raises(UnsupportedOperatorError, match="2 nodes"):
        artifacts.generate_artifacts(given, loss=artifacts.LossType.MSELoss, artifact_directory=tmp_path)


def test_a_node_that_stops_the_gradient_by_nature():
    given = model("h = MatMul(x, w)\nr = Round(h)\ny = MatMul(r, v)\n", {"w": matrix(4, 4), "v": matrix(4, 2)})
    found = onnxblock.inspect(given)
    assert names(found.trainable) == ["v"]
    assert [(n.op_type, names(n.weights), n.reason) for n in found.stopping] == [
        ("Round", ["w"], "constant between its jumps")
    ]
    assert re.fullmatch(
        "on no differentiable path to the loss: Round '.*' passes no gradient back", found.not_trained[0].reason
    )
    assert found.can_train


def test_a_shape_stops_nothing_that_has_another_path():
    given = model("h = MatMul(x, w)\ns = Shape(h)\ny = Reshape(h, s)", {"w": matrix(4, 4)})
    assert onnxblock.inspect(given).stopping == ()


def test_what_is_replaced_first_and_what_cannot_be():
    given = model(
        "h = MatMul(x, w)\ng = com.microsoft::FastGelu(h)\ny = com.microsoft::NGramRepeatBlock(g)",
        {"w": matrix(4, 4)},
        {"com.microsoft": 1},
    )
    found = onnxblock.inspect(given)
    assert [(n.op_type, n.reason) for n in found.decomposed] == [("FastGelu", "composed of standard operators")]
    assert [n.op_type for n in found.unsupported] == ["NGramRepeatBlock"]


def test_statistics_and_the_mode_of_batch_normalization():
    given = model(
        "y = BatchNormalization(x, s, b, m, v)",
        {name: matrix(4) for name in ("s", "b", "m", "v")},
    )
    kept, moved = onnxblock.inspect(given), onnxblock.inspect(given, batch_norm="train")
    assert names(kept.trainable) == names(moved.trainable) == ["s", "b"]
    assert (kept.batch_norm, moved.batch_norm) == ("frozen", "train")
    assert [(s.name, s.reason) for s in moved.statistics] == [("m", "moved by the data"), ("v", "moved by the data")]
    assert {s.reason for s in kept.statistics} == {"used as they are"}
    assert kept.not_trained == ()


def test_random_nodes_say_whether_they_are_on():
    given = model(
        "a = Dropout(x, ratio, on)\nb = Dropout(a)\ny = MatMul(b, w)",
        {"ratio": np.float32(0.5), "on": np.array(True), "w": matrix(4, 4)},
    )
    assert [n.reason for n in onnxblock.inspect(given).random] == [
        "drawn anew at every step",
        "not in training mode: passes its input through",
    ]


def test_bodies_and_functions_are_looked_into():
    given = model("h = MatMul(x, w)\nf = local::Twice(h)\ny = If(c)", {"w": matrix(4, 4), "c": np.array(True)})
    branch = helper.make_graph(
        [helper.make_node("Mystery", ["f"], ["inner"], name="inside", domain="my")],
        "branch",
        [],
        [helper.make_tensor_value_info("inner", TensorProto.FLOAT, None)],
    )
    for name in ("then_branch", "else_branch"):
        given.graph.node[-1].attribute.append(helper.make_attribute(name, branch))
    given.opset_import.extend([helper.make_opsetid("local", 1), helper.make_opsetid("my", 1)])
    body = [helper.make_node("Add", ["p", "p"], ["q"])]
    given.functions.append(helper.make_function("local", "Twice", ["p"], ["q"], body, given.opset_import[:1]))
    found = onnxblock.inspect(given)
    assert found.inlined_functions == ("local::Twice",)
    assert {(n.op_type, n.name, names(n.weights)[0]) for n in found.unsupported} == {("Mystery", "inside", "w")}
    assert [n.reason.split(":")[0] for n in found.unsupported] == [
        f"in If 'node_y'.{branch}" for branch in ("then_branch", "else_branch")
    ]


def test_it_agrees_with_what_is_generated(tmp_path):
    given = model(
        "h = MatMul(x, w)\nk = Mul(h, scale)\ny = Add(k, inv_freq)",
        {"w": matrix(4, 4), "scale": np.float32(2), "inv_freq": matrix(4)},
    )
    found = onnxblock.inspect(given)
    made = artifacts.generate_artifacts(given, loss=artifacts.LossType.MSELoss, artifact_directory=tmp_path)
    assert found.trainable == made.trainable
    assert found.not_trained == made.untouched
    assert len(found.not_trained) == 2


def test_outputs_may_be_named():
    given = model("h = MatMul(x, w)\ny = MatMul(h, v)", {"w": matrix(4, 4), "v": matrix(4, 4)})
    assert names(onnxblock.inspect(given, outputs=["h"]).trainable) == ["w"]
    with pytest.raises(UnknownNameError, match=r"(?s)'hh'\. Did you mean 'h'.*'z'"):
        onnxblock.inspect(given, outputs=["hh", "z"])
    with pytest.raises(ArgumentError, match="batch_norm"):
        onnxblock.inspect(given, batch_norm="on")
