"""Poolings and transposed convolutions whose sizes ONNX's inference gets wrong, written so that it does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper

from .dependencies import subgraphs
from .graph import Graph
from .loops import body_input_types
from .subgraph import Subgraph
from .types import TensorType
from .value import Value
from .window_sizes import (
    attributes_of,
    extents,
    is_uncertain_pool,
    is_uncertain_transpose,
    known_kernel,
    pooled_sizes,
    transpose_padding,
)

_RIGHT_FROM = 22
"""The opset from which ONNX infers the sizes of poolings as runtimes compute them."""


def make_windows_explicit(graph: Graph) -> None:
    """Give such nodes, in bodies too, the padding with which their size is inferred as it is computed, in place.

    onnxruntime plans its memory with what ONNX infers: where that is wrong, a graph that uses the result fails.  The
    values stay the same.
    """
    for node in list(graph.proto.node):
        if is_uncertain_transpose(node):
            _pad_transpose(graph, node)
        elif graph.opset < _RIGHT_FROM and is_uncertain_pool(node):
            _pad_pool(graph, node)
        for body in subgraphs(node):
            types = body_input_types(graph, node, body) if node.op_type == "Loop" else {}
            make_windows_explicit(Subgraph(graph, body, types))


def _set_ints(node: NodeProto, **given: Sequence[int]) -> None:
    kept = [a for a in node.attribute if a.name not in given]
    del node.attribute[:]
    node.attribute.extend([*kept, *(helper.make_attribute(name, list(ints)) for name, ints in given.items())])


def _pad_transpose(graph: Graph, node: NodeProto) -> None:
    kernel = known_kernel(node, graph.tensor_type(node.input[1]))
    if kernel is None:
        return
    begin, end = transpose_padding(node, kernel)
    _set_ints(node, pads=[*begin, *end])
    node.attribute.remove(next(a for a in node.attribute if a.name == "auto_pad"))


def _pad_pool(graph: Graph, node: NodeProto) -> None:
    """Along the axes whose last window would start in the padding, end the padding, or the image, where windows end."""
    known = graph.tensor_type(node.input[0])
    if known is None or known.shape is None:
        return
    given = attributes_of(node)
    rank = len(given["kernel_shape"])
    strides, pads = given.get("strides") or [1] * rank, list(given.get("pads") or [0] * 2 * rank)
    cut: dict[int, int] = {}
    for axis, (count, one_more) in enumerate(pooled_sizes(node, known.shape[2:])):
        size = known.shape[2 + axis]
        if count is None or not isinstance(size, int) or not one_more:
            continue
        rest = (count - 1) * strides[axis] + extents(given)[axis] - size - pads[axis]
        pads[rank + axis] = max(rest, 0)
        if rest < 0:
            cut[axis] = rest
    _set_ints(node, pads=pads)
    if cut:
        _cut_image(graph, node, cut)


def _cut_image(graph: Graph, node: NodeProto, cut: dict[int, int]) -> None:
    """Leave out the ends of the image that no window reads, which would be room for one more window.

    The Indices of a MaxPool, which count the elements of the image that it is given, are counted anew.
    """
    whole, start = graph.value(node.input[0]), len(graph.proto.node)
    with graph.scope(node.name or node.output[0]):
        axes = np.array([2 + axis for axis in cut])
        short = graph.op.Slice(whole, [0] * len(cut), list(cut.values()), axes)
    before, others = list(graph.proto.node)[start:], list(graph.proto.node)[:start]
    node.input[0] = str(short)
    after: list[NodeProto] = []
    if len(node.output) > 1 and node.output[1]:
        indices = node.output[1]
        with graph.scope(node.name or node.output[0]):
            node.output[1] = graph.unique("Indices")
            graph.set_type(node.output[1], TensorType(TensorProto.INT64, None))
            moved = _indices_in(graph, graph.value(node.output[1]), short, whole, attributes_of(node))
        after = [*list(graph.proto.node)[start + len(before) :], helper.make_node("Identity", [moved], [indices])]
    place = next(k for k, other in enumerate(others) if other.output[0] == node.output[0])
    graph.arrange([*others[:place], *before, others[place], *after, *others[place + 1 :]])


def _indices_in(graph: Graph, indices: Value, short: Value, whole: Value, attributes: Mapping[str, Any]) -> Value:
    """The same elements as ``indices`` of a part of the images, counted in the whole ones.

    Both begin at the same corner, so the coordinates are equal; with storage_order 1 the first is the fastest.
    """
    axes = range(2, 2 + len(attributes["kernel_shape"]))
    moved: Value | None = None
    weight: Value | None = None
    for axis in axes if attributes.get("storage_order") else reversed(axes):
        from_, to = (graph.op.Shape(x, start=axis, end=axis + 1) for x in (short, whole))
        coordinate = graph.op.Mod(indices, from_)
        indices = indices / from_
        step = coordinate if weight is None else coordinate * weight
        moved = step if moved is None else moved + step
        weight = to if weight is None else weight * to
    assert moved is not None
    assert weight is not None
    return moved + indices * weight
