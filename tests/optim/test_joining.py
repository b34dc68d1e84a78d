"""Small vectors are updated as one: the same bits, in place, with fewer nodes."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto

from onnxblock import optim
from onnxblock.graph.inplace import in_place_safe
from onnxblock.names import UPDATED_SUFFIX
from onnxblock.optim.slices import slice_form
from tests.optim.stepping import run_steps, start, step_model
from tests.test_in_place import OPTIMIZERS

SHAPES = {"a.bias": (5,), "a.weight": (3, 4), "b.bias": (2,), "b.scale": (7,), "number": (), "c.bias": (2,)}
APART = {"LAMB", "Adafactor"}
"""Their updates take the length of the parameter."""


def both(optimizer: optim.Optimizer, dtype: type = np.float32) -> tuple[ModelProto, ModelProto]:
    with slice_form():
        joined = step_model(optimizer, dtype, SHAPES)
    return step_model(optimizer, dtype, SHAPES), joined


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_same_bits_as_apart(name: str, dtype: type) -> None:
    apart, joined = both(OPTIMIZERS[name], dtype)
    grouped = "groups" in name or name == "ParameterGroups"
    assert grouped or any(node.op_type == "Concat" for node in joined.graph.node) is (name not in APART)
    assert [o.name for o in joined.graph.output] == [o.name for o in apart.graph.output]
    parameters = start(dtype=dtype, shapes=SHAPES)
    expected = run_steps(apart, parameters)
    for key, array in run_steps(joined, parameters).items():
        np.testing.assert_array_equal(array, expected[key], err_msg=key)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_state_is_still_updated_in_place(name: str) -> None:
    joined = both(OPTIMIZERS[name])[1]
    updated = [o.name for o in joined.graph.output]
    assert len(updated) > len(SHAPES) or name == "SGD"
    assert all(in_place_safe(joined, new.removesuffix(UPDATED_SUFFIX), new) for new in updated)


def test_groups_are_joined_within_themselves() -> None:
    groups = optim.ParameterGroups(optim.SGD(momentum=0.9), optim.Group("*bias", weight_decay=0.1))
    with slice_form():
        model = step_model(groups, shapes={**SHAPES, "d.bias": (1,)})
    pieces = [list(node.output) for node in model.graph.node if node.op_type == "Split"]
    owners = [name + ".bias" for name in "abcd"]
    assert pieces == [[name + end for name in owners] for end in (UPDATED_SUFFIX, ".momentum0" + UPDATED_SUFFIX)]


def test_what_is_long_or_of_unknown_length_is_not_joined() -> None:
    for length in (100_000, 0):
        with slice_form():
            model = step_model(optim.SGD(), shapes=dict.fromkeys("abcde", (length,)))
        assert not any(node.op_type == "Split" for node in model.graph.node)
