"""Scalars in the form that onnxruntime's kernels are fast with."""

from __future__ import annotations

import math

from .dependencies import topological_order
from .graph import Graph
from .types import Dimension

_BROADCASTING = frozenset({"Add", "Div", "Greater", "Less", "Max", "Min", "Mul", "Pow", "Sub"})
_SMALL = 64


def widen_scalars(graph: Graph) -> None:
    """Give a scalar the rank of the other operand where that ends in axes of size 1, in place.

    The CPU kernels of onnxruntime drop such axes only where both operands have them: ``[n, 1] * []`` is computed one
    element at a time, 60 times as slow as ``[n, 1] * [1, 1]`` (1.18 to 1.32).  The weights of 1x1 convolutions are
    such tensors.
    """
    nodes = graph.model.graph.node
    count_before = len(nodes)
    wide: dict[tuple[str, int], str] = {}
    for node in list(nodes):
        if node.op_type not in _BROADCASTING or node.domain or len(node.input) != 2:
            continue
        shapes = [None if known is None else known.shape for known in map(graph.tensor_type, node.input)]
        for k, name in enumerate(node.input):
            shape, other = shapes[k], shapes[1 - k]
            if shape is None or other is None or len(shape) >= len(other):
                continue
            if _is_scalar(shape) and _ends_in_one(other):
                key = (name, len(other))
                if key not in wide:
                    wide[key] = _widened(graph, name, len(other))
                node.input[k] = wide[key]
    if len(nodes) > count_before:
        graph.arrange(topological_order(nodes))


def _is_scalar(shape: tuple[Dimension, ...]) -> bool:
    return all(size == 1 for size in shape)


def _ends_in_one(shape: tuple[Dimension, ...]) -> bool:
    sizes = [size for size in shape if isinstance(size, int)]
    return shape[-1] == 1 and (len(sizes) < len(shape) or math.prod(sizes) >= _SMALL)


def _widened(graph: Graph, name: str, rank: int) -> str:
    known = graph.constant_value(name)
    if known is not None:
        return str(graph.constant(known.reshape((1,) * rank)))
    with graph.scope(name):
        return str(graph.op.Reshape(graph.value(name), [1] * rank))
