"""Poolings and transposed convolutions whose sizes ONNX's inference gets wrong, written so that it does not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import NodeProto, helper

from .dependencies import subgraphs
from .graph import Graph
from .loops import body_input_types
from .subgraph import Subgraph
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

    The Indices of a MaxPool count the elements of the image that it is given: with them it stays whole.
    """
    if len(node.output) > 1 and node.output[1]:
        return
    with graph.scope(node.name or node.output[0]):
        axes = np.array([2 + axis for axis in cut])
        short = graph.op.Slice(graph.value(node.input[0]), [0] * len(cut), list(cut.values()), axes)
    slice_ = graph.proto.node[-1]
    node.input[0] = str(short)
    others = list(graph.proto.node)[:-1]
    place = next(k for k, other in enumerate(others) if other.output[0] == node.output[0])
    graph.arrange([*others[:place], slice_, *others[place:]])
