"""The same model in float64, for checks that need more digits than training does."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, helper, numpy_helper
from onnx.defs import OpSchema

from .dependencies import subgraphs
from .schemas import find_schema
from .types import FLOATS

_NARROW = FLOATS - {TensorProto.DOUBLE}
_TYPE_ATTRIBUTES = ("to", "dtype", "output_datatype")
_FLOAT32_BY_DEFAULT = {
    "BlackmanWindow": "output_datatype",
    "HammingWindow": "output_datatype",
    "HannWindow": "output_datatype",
    "MelWeightMatrix": "output_datatype",
    "RandomNormal": "dtype",
    "RandomUniform": "dtype",
}


def to_float64(model: ModelProto) -> ModelProto:
    """A copy of ``model`` whose float tensors are all float64: inputs, weights, constants, bodies and functions.

    Where an operator takes float32 only (the scales of Resize), a constant stays as it is and anything else is cast
    there; what an operator gives as float32 only (the statistics of LayerNormalization) is cast to float64 behind it.
    """
    wide = ModelProto()
    wide.CopyFrom(model)
    opsets = {o.domain: o.version for o in model.opset_import}
    _widen_graph(wide.graph, opsets)
    for function in wide.functions:
        for node in function.node:
            _widen_node(node)
    return wide


def _widen_graph(graph: GraphProto, opsets: dict[str, int]) -> None:
    fixed = _read_as_float32_only(graph, opsets)
    narrow = set()
    for tensor in graph.initializer:
        if tensor.data_type in _NARROW:
            if tensor.name in fixed:
                narrow.add(tensor.name)
            else:
                tensor.CopyFrom(_widen_tensor(tensor))
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.name not in narrow:
            _widen_type(value.type)
    nodes: list[NodeProto] = []
    for node in graph.node:
        _widen_node(node)
        for body in subgraphs(node):
            _widen_graph(body, opsets)
        before, after = _casts(node, opsets, narrow)
        nodes += [*before, node, *after]
    del graph.node[:]
    graph.node.extend(nodes)


def _widen_type(proto: TypeProto) -> None:
    kind = proto.WhichOneof("value")
    if kind == "tensor_type" and proto.tensor_type.elem_type in _NARROW:
        proto.tensor_type.elem_type = TensorProto.DOUBLE
    elif kind in ("sequence_type", "optional_type"):
        _widen_type(getattr(proto, kind).elem_type)


def _widen_tensor(tensor: TensorProto) -> TensorProto:
    return numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name)


def _widen_node(node: NodeProto) -> None:
    for attribute in node.attribute:
        if attribute.type == AttributeProto.TENSOR and attribute.t.data_type in _NARROW:
            attribute.t.CopyFrom(_widen_tensor(attribute.t))
        elif attribute.name in _TYPE_ATTRIBUTES and attribute.type == AttributeProto.INT and attribute.i in _NARROW:
            attribute.i = TensorProto.DOUBLE
        elif node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
            array = np.array(helper.get_attribute_value(attribute), np.float64)
            attribute.CopyFrom(helper.make_attribute("value", numpy_helper.from_array(array)))
    present = {a.name for a in node.attribute}
    if node.op_type == "ConstantOfShape" and "value" not in present:
        node.attribute.append(helper.make_attribute("value", numpy_helper.from_array(np.zeros(1))))
    default = _FLOAT32_BY_DEFAULT.get(node.op_type)
    if default is not None and not node.domain and default not in present:
        node.attribute.append(helper.make_attribute(default, int(TensorProto.DOUBLE)))


def _read_as_float32_only(graph: GraphProto, opsets: dict[str, int]) -> set[str]:
    """The names that are read, and only where the operator takes no float64."""
    fixed: set[str] = set()
    free: set[str] = {o.name for o in graph.output}
    for node in graph.node:
        for name, formal in _formals(node, opsets):
            (fixed if formal is not None and _refuses_float64(formal) else free).add(name)
        for body in subgraphs(node):
            for inner in body.node:
                free.update(inner.input)
    return fixed - free


def _formals(node: NodeProto, opsets: dict[str, int]) -> Iterable[tuple[str, OpSchema.FormalParameter | None]]:
    schema = find_schema(node.op_type, opsets.get(node.domain, 0), node.domain)
    for k, name in enumerate(node.input):
        if schema is None or not schema.inputs:
            yield name, None
        else:
            yield name, schema.inputs[min(k, len(schema.inputs) - 1)]


def _refuses_float64(formal: OpSchema.FormalParameter) -> bool:
    return "tensor(float)" in formal.types and "tensor(double)" not in formal.types


def _casts(node: NodeProto, opsets: dict[str, int], narrow: set[str]) -> tuple[list[NodeProto], list[NodeProto]]:
    """The casts before and behind a node that takes or gives float32 only."""
    before, after = [], []
    for k, (name, formal) in enumerate(list(_formals(node, opsets))):
        if name and formal is not None and name not in narrow and _refuses_float64(formal):
            node.input[k] = f"{node.output[0]}.{k}.float32"
            before.append(helper.make_node("Cast", [name], [node.input[k]], to=TensorProto.FLOAT))
    schema = find_schema(node.op_type, opsets.get(node.domain, 0), node.domain)
    if schema is not None and schema.outputs:
        for k, name in enumerate(node.output):
            formal = schema.outputs[min(k, len(schema.outputs) - 1)]
            if name and _refuses_float64(formal):
                node.output[k] = f"{name}.float32"
                after.append(helper.make_node("Cast", [node.output[k]], [name], to=TensorProto.DOUBLE))
    return before, after
