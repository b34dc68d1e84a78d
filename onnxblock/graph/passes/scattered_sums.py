"""A sum of a tensor and of what was added up in zeros."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, NodeProto, helper, numpy_helper

from ..dependencies import has_operator, read_counts
from ..types import same_shape
from .types import Types, unknown

_SCATTERS = ("ScatterElements", "ScatterND")


def add_in_place(model: ModelProto, types: Types = unknown) -> bool:
    """Add ``x`` and elements that were scattered into zeros by scattering them into ``x``.

    That is the gradient of an embedding that is the output layer too: the zeros and the sum are as large as it is.
    """
    graph = model.graph
    if not has_operator(graph.node, *_SCATTERS):
        return False
    count = read_counts(graph)
    producers = {name: node for node in graph.node for name in node.output}
    changed = False
    for node in graph.node:
        if node.op_type != "Add" or node.domain:
            continue
        for x, name in (node.input, node.input[::-1]):
            scatter = producers.get(name)
            if (
                scatter is not None
                and count[name] == 1
                and _adds_to_zeros(scatter, producers)
                and _alike(types, x, name)
            ):
                own, output = node.name, node.output[0]
                node.CopyFrom(scatter)
                node.name, node.input[0], node.output[0] = own, x, output
                changed = True
                break
    return changed


def _adds_to_zeros(node: NodeProto, producers: dict[str, NodeProto]) -> bool:
    if node.op_type not in _SCATTERS or node.domain:
        return False
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    return attributes.get("reduction") == b"add" and makes_zeros(producers.get(node.input[0]))


def makes_zeros(node: NodeProto | None) -> bool:
    """Whether ``node`` fills a tensor with zeros."""
    if node is None or node.op_type != "ConstantOfShape" or node.domain:
        return False
    return all(not np.any(numpy_helper.to_array(a.t)) for a in node.attribute)


def _alike(types: Types, x: str, y: str) -> bool:
    first, second = types(x), types(y)
    return first is not None and second is not None and same_shape(first.shape, second.shape)
