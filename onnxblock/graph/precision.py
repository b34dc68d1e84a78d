"""The same model in another float type: float64 for checks that need more digits than training does."""

from __future__ import annotations

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, helper, numpy_helper
from onnx.defs import OpSchema

from .dependencies import captured, subgraphs
from .schemas import find_schema
from .types import FLOATS, numpy_dtype

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
    """A copy of ``model`` in float64, as :func:`in_float_type` makes it."""
    return in_float_type(model, TensorProto.DOUBLE)


def in_float_type(model: ModelProto, dtype: int) -> ModelProto:
    """A copy of ``model`` whose float tensors are all ``dtype``: inputs, weights, constants, bodies and functions.

    Where an operator takes float32 only (the scales of Resize), a constant stays as it is and anything else is cast
    there; what an operator gives as float32 only (the statistics of LayerNormalization) is cast behind it.
    """
    changed = ModelProto()
    changed.CopyFrom(model)
    conversion = _Conversion(int(dtype), {o.domain: o.version for o in model.opset_import})
    conversion.graph(changed.graph)
    for function in changed.functions:
        for node in function.node:
            conversion.node(node)
    return changed


class _Conversion:
    """The float type to convert to, and the opsets that say what operators take."""

    def __init__(self, dtype: int, opsets: dict[str, int]) -> None:
        self.dtype, self.opsets = dtype, opsets
        self.numpy_dtype = numpy_dtype(dtype)
        self.text = f"tensor({TensorProto.DataType.Name(dtype).lower()})"

    def graph(self, graph: GraphProto) -> None:
        fixed = self._read_as_float32_only(graph)
        kept = set()
        for tensor in graph.initializer:
            if tensor.data_type in FLOATS:
                if tensor.name in fixed:
                    kept.add(tensor.name)
                else:
                    tensor.CopyFrom(self._tensor(tensor))
        for value in (*graph.input, *graph.output, *graph.value_info):
            if value.name not in kept:
                self._type(value.type)
        nodes: list[NodeProto] = []
        for node in graph.node:
            self.node(node)
            for body in subgraphs(node):
                self.graph(body)
            before, after = self._casts(node, kept)
            nodes += [*before, node, *after]
        del graph.node[:]
        graph.node.extend(nodes)

    def node(self, node: NodeProto) -> None:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR and attribute.t.data_type in FLOATS:
                attribute.t.CopyFrom(self._tensor(attribute.t))
            elif attribute.name in _TYPE_ATTRIBUTES and attribute.type == AttributeProto.INT and attribute.i in FLOATS:
                attribute.i = self.dtype
            elif node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
                array = np.array(helper.get_attribute_value(attribute), self.numpy_dtype)
                attribute.CopyFrom(helper.make_attribute("value", numpy_helper.from_array(array)))
        present = {a.name for a in node.attribute}
        if node.op_type == "ConstantOfShape" and "value" not in present:
            zero = numpy_helper.from_array(np.zeros(1, self.numpy_dtype))
            node.attribute.append(helper.make_attribute("value", zero))
        default = _FLOAT32_BY_DEFAULT.get(node.op_type)
        if default is not None and not node.domain and default not in present:
            node.attribute.append(helper.make_attribute(default, self.dtype))

    def _type(self, proto: TypeProto) -> None:
        kind = proto.WhichOneof("value")
        if kind == "tensor_type" and proto.tensor_type.elem_type in FLOATS:
            proto.tensor_type.elem_type = self.dtype
        elif kind in ("sequence_type", "optional_type"):
            self._type(getattr(proto, kind).elem_type)

    def _tensor(self, tensor: TensorProto) -> TensorProto:
        return numpy_helper.from_array(numpy_helper.to_array(tensor).astype(self.numpy_dtype), tensor.name)

    def _read_as_float32_only(self, graph: GraphProto) -> set[str]:
        """The names that are read, and only where the operator takes no other float type."""
        fixed: set[str] = set()
        free: set[str] = {o.name for o in graph.output}
        for node in graph.node:
            for name, formal in self._formals(node):
                (fixed if formal is not None and self._refused(formal) else free).add(name)
            for body in subgraphs(node):
                free.update(captured(body))
        return fixed - free

    def _formals(self, node: NodeProto) -> list[tuple[str, OpSchema.FormalParameter | None]]:
        schema = self._schema(node)
        if schema is None or not schema.inputs:
            return [(name, None) for name in node.input]
        last = len(schema.inputs) - 1
        return [(name, schema.inputs[min(k, last)]) for k, name in enumerate(node.input)]

    def _schema(self, node: NodeProto) -> OpSchema | None:
        return find_schema(node.op_type, self.opsets.get(node.domain, 0), node.domain)

    def _refused(self, formal: OpSchema.FormalParameter) -> bool:
        return "tensor(float)" in formal.types and self.text not in formal.types

    def _casts(self, node: NodeProto, kept: set[str]) -> tuple[list[NodeProto], list[NodeProto]]:
        """The casts before and behind a node that takes or gives float32 only."""
        before, after = [], []
        for k, (name, formal) in enumerate(self._formals(node)):
            if name and formal is not None and name not in kept and self._refused(formal):
                node.input[k] = f"{node.output[0]}.{k}.float32"
                before.append(helper.make_node("Cast", [name], [node.input[k]], to=TensorProto.FLOAT))
        schema = self._schema(node)
        if schema is not None and schema.outputs:
            for k, name in enumerate(node.output):
                formal = schema.outputs[min(k, len(schema.outputs) - 1)]
                if name and self._refused(formal):
                    node.output[k] = f"{name}.float32"
                    after.append(helper.make_node("Cast", [node.output[k]], [name], to=self.dtype))
        return before, after
