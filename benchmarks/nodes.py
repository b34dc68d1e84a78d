"""Counts the nodes of a graph: all, those that the loss needs, and those that change nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import onnx
from onnx import inliner, numpy_helper, shape_inference

_WIDENING = {
    (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE),
    (onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT),
    (onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE),
}


def inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without functions, with the shapes of its values where they can be inferred."""
    return shape_inference.infer_shapes(inliner.inline_local_functions(model), data_prop=True)


def count(nodes: Iterable[onnx.NodeProto]) -> int:
    """How many, those in bodies included."""
    return sum(1 for node in nodes for _ in _with_bodies(node))


def _with_bodies(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    yield node
    for attribute in node.attribute:
        for graph in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
            for inner in graph.node:
                yield from _with_bodies(inner)


def needed_for(graph: onnx.GraphProto, output: str) -> list[onnx.NodeProto]:
    """The nodes that compute ``output``: of a training graph's loss, its forward part."""
    wanted, found = {output}, []
    for node in reversed(graph.node):
        if wanted.intersection(node.output):
            found.append(node)
            for inner in _with_bodies(node):
                wanted.update(inner.input)
    return found


def idle(model: onnx.ModelProto) -> list[str]:
    """Nodes of the main graph whose result is one of their inputs, as ``operator name``.

    An Identity that gives an input of the graph, or a value that has two names outside, as an output is needed.
    """
    graph = model.graph
    outputs = {value.name for value in graph.output}
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            constants[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
    types = {value.name: value.type.tensor_type for value in (*graph.input, *graph.value_info, *graph.output)}
    shapes = {name: _shape(of) for name, of in types.items()}
    shapes.update({name: array.shape for name, array in constants.items()})
    kinds = {name: of.elem_type for name, of in types.items()}
    kinds.update({tensor.name: tensor.data_type for tensor in graph.initializer})

    widened = {
        node.output[0]: node.input[0]
        for node in graph.node
        if node.op_type == "Cast" and (kinds.get(node.input[0]), node.attribute[0].i) in _WIDENING
    }

    def is_idle(node: onnx.NodeProto) -> bool:
        attributes = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
        first, result = node.input[0] if node.input else "", node.output[0]
        same_shape = shapes.get(first) is not None and shapes.get(first) == shapes.get(result)
        others = [constants.get(name) for name in node.input[1:]]
        if node.op_type == "Identity":
            return result not in outputs
        if node.op_type == "Cast":
            return attributes["to"] in (kinds.get(first), kinds.get(widened.get(first, "")))
        if node.op_type == "Transpose":
            return "perm" in attributes and list(attributes["perm"]) == sorted(attributes["perm"])
        if node.op_type in {"Reshape", "Expand", "Squeeze", "Unsqueeze", "Flatten", "Tile"}:
            return same_shape
        if node.op_type == "Slice":
            return same_shape and (len(others) < 4 or (others[3] is not None and bool(np.all(others[3] > 0))))
        if node.op_type == "Pad":
            return bool(others) and others[0] is not None and not np.any(others[0])
        if node.op_type in {"Concat", "Sum", "Max", "Min"}:
            return len(node.input) == 1
        neutral = {"Mul": 1, "Div": 1, "Pow": 1, "Add": 0, "Sub": 0}.get(node.op_type)
        return neutral is not None and same_shape and others[0] is not None and bool(np.all(others[0] == neutral))

    return [f"{node.op_type} {node.name}" for node in graph.node if is_idle(node)]


def _shape(of: onnx.TypeProto.Tensor) -> tuple[int | str, ...] | None:
    dims = tuple(d.dim_value if d.HasField("dim_value") else d.dim_param for d in of.shape.dim)
    return dims if of.HasField("shape") and "" not in dims else None
