from __future__ import annotations

import numpy as np
import pytest

from onnxblock.block import set_outputs
from onnxblock.graph.broadcasting import widen_scalars
from onnxblock.graph.context import empty_base
from tests.running import run


def shapes_of_scalars(graph):
    """The shape of the second operand of every product."""
    return [graph.value(n.input[1]).shape for n in graph.model.graph.node if n.op_type == "Mul"]


@pytest.mark.parametrize(
    ("shape", "wide"),
    [
        ((64, 8, 1, 1), (1, 1, 1, 1)),
        ((512, 1), (1, 1)),
        (("n", 1), (1, 1)),
        ((64, 8, 3, 3), ()),
        ((2, 1), ()),
        ((512,), ()),
    ],
)
def test_scalars_have_the_rank_of_what_ends_in_ones(shape, wide):
    with empty_base() as graph:
        x, rate = graph.input("x", np.float32, shape), graph.input("rate", np.float32, ())
        set_outputs(graph, [graph.rename(x * 0.5 * rate, "y")])
    widen_scalars(graph)
    assert shapes_of_scalars(graph) == [wide, wide]
    sizes = [size if isinstance(size, int) else 7 for size in shape]
    data = np.arange(np.prod(sizes), dtype=np.float32).reshape(sizes)
    feeds = {"x": data, "rate": np.array(3, np.float32)}
    (result,) = run(graph.to_model_proto(), feeds)
    np.testing.assert_array_equal(result, data * np.float32(1.5))


def test_one_scalar_is_widened_once_for_each_rank():
    with empty_base() as graph:
        rate = graph.input("rate", np.float32, ())
        shapes = [(99, 1), (98, 1), (97, 1, 1)]
        set_outputs(graph, [graph.input(f"x{k}", np.float32, shape) * rate for k, shape in enumerate(shapes)])
    widen_scalars(graph)
    assert [n.op_type for n in graph.model.graph.node].count("Reshape") == 2
    assert shapes_of_scalars(graph) == [(1, 1), (1, 1), (1, 1, 1)]
