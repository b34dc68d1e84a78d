"""Types and shapes by ONNX's own inference: once for a whole model, then node by node."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

import onnx
from onnx import (
    AttributeProto,
    ModelProto,
    NodeProto,
    OperatorSetIdProto,
    TensorProto,
    TypeProto,
    helper,
    numpy_helper,
    shape_inference,
)
from onnx.defs import OpSchema

from .dependencies import all_nodes, reads
from .folding import constant_node_value
from .schemas import opset_of
from .types import TensorType, same_shape, tensor_type
from .waiting import is_declared
from .window_sizes import POOLS, attributes_of, is_uncertain_pool, is_uncertain_transpose, pooled_sizes, right_sizes

_LONGEST_VECTOR = 65_536
_CAST_SINCE = 13


def infer_model(model: ModelProto, *, follow_contents: bool = True) -> dict[str, TypeProto]:
    """The type of every value of the main graph that can be inferred.

    The model's own ``value_info`` is dropped first, since exporters leave stale shapes there, but for what only this
    library's declaration tells.  Nodes whose inferred shapes are known to be wrong count as dynamic.  Sizes that the
    model computes are found only with ``follow_contents``.
    """
    bare = ModelProto()
    bare.CopyFrom(model)
    declared = {name for node in bare.graph.node if is_declared(node) for name in node.output}
    kept = [value for value in bare.graph.value_info if value.name in declared]
    del bare.graph.value_info[:]
    bare.graph.value_info.extend(kept)
    for value in bare.graph.output:
        value.ClearField("type")
    for node in bare.graph.node:
        if _is_uninferred(node):
            del node.input[1:]
            del node.attribute[:]
            node.op_type = "Identity"
    # Some optimizers forget imports, which onnxruntime does without and this inference does not.
    imported = {entry.domain for entry in bare.opset_import}
    forgotten = {node.domain for node in all_nodes(bare.graph.node)} - imported - {"", "ai.onnx"}
    bare.opset_import.extend(helper.make_opsetid(domain, 1) for domain in sorted(forgotten))
    follow_contents = follow_contents and not _has_long_vector(bare)
    stand_in_for_label_encoders(bare)
    inferred = shape_inference.infer_shapes(bare, check_type=False, strict_mode=False, data_prop=follow_contents)
    graph = inferred.graph
    types = {t.name: helper.make_tensor_type_proto(t.data_type, t.dims) for t in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        if _says_something(value.type):
            types[value.name] = value.type
    for value in model.graph.output:
        if value.name not in types and _says_something(value.type):
            types[value.name] = value.type
    types.pop("", None)
    _distrust(model, types)
    return types


def stand_in_for_label_encoders(model: ModelProto) -> None:
    """Put a Cast of the same type in place of each LabelEncoder of a model that is only to be inferred.

    ONNX's inference ends the process at a LabelEncoder whose input has no known type, behind a custom operator say.
    """
    for node in all_nodes(model.graph.node):
        if (node.domain, node.op_type) != ("ai.onnx.ml", "LabelEncoder"):
            continue
        dtypes = [_dtype_of_values(attribute) for attribute in node.attribute if attribute.name.startswith("values_")]
        if dtypes:
            node.domain, node.op_type = "", "Cast"
            del node.attribute[:]
            node.attribute.append(helper.make_attribute("to", dtypes[0]))
            if all(entry.domain not in ("", "ai.onnx") for entry in model.opset_import):
                model.opset_import.append(helper.make_opsetid("", _CAST_SINCE))


def _dtype_of_values(attribute: AttributeProto) -> int:
    if attribute.type == AttributeProto.TENSOR:
        return attribute.t.data_type
    return {AttributeProto.FLOATS: TensorProto.FLOAT, AttributeProto.STRINGS: TensorProto.STRING}.get(
        attribute.type, TensorProto.INT64
    )


def _has_long_vector(model: ModelProto) -> bool:
    """Whether following contents would cost gigabytes: ONNX takes every vector apart, element by element.

    Without it, a graph still follows the small integers that sizes are made of, node by node.
    """
    given = [t.dims for t in model.graph.initializer]
    given += [[d.dim_value for d in v.type.tensor_type.shape.dim] for v in model.graph.input]
    return any(len(dims) == 1 and dims[0] > _LONGEST_VECTOR for dims in given)


def _is_uninferred(node: NodeProto) -> bool:
    """Whether a node keeps the type of its input though ONNX infers no shape for it."""
    standard = node.domain in ("", "ai.onnx")
    return standard and node.op_type in ("GroupNormalization", "MeanVarianceNormalization") and len(node.output) == 1


def _says_something(proto: TypeProto) -> bool:
    """Whether a type is more than a shape, which is all that inference finds behind an operator it does not know."""
    kind = proto.WhichOneof("value")
    return kind is not None and (kind != "tensor_type" or proto.tensor_type.elem_type != TensorProto.UNDEFINED)


def _distrust(model: ModelProto, types: dict[str, TypeProto]) -> None:
    """Forget shapes that come from nodes whose inference is wrong, and infer again what depends on them."""
    opset = opset_of(model)
    tainted: set[str] = set()
    constants = {t.name: t for t in model.graph.initializer}
    literals = {node.output[0]: node for node in model.graph.node if node.op_type == "Constant"}
    for node in model.graph.node:
        wrong = wrongly_inferred(node, types)
        if not wrong and (not tainted or tainted.isdisjoint(node.input)):
            continue
        from .schemas import find_schema

        for name in literals.keys() & set(node.input):
            content = constant_node_value(literals.pop(name))
            if content is not None:
                constants[name] = numpy_helper.from_array(content, name)
        schema = find_schema(node.op_type, opset, node.domain)
        found: dict[str, TypeProto] = {}
        if schema is not None:
            # A branch that is never taken may fit no input of this rank.
            with contextlib.suppress(shape_inference.InferenceError):
                found = infer_node(schema, node, types, constants, model.opset_import)
        for name in node.output:
            inferred = found.get(name, types.get(name))
            if inferred is None:
                continue
            if wrong:
                inferred = rightly_inferred(node, types, inferred)
            elif name not in found:
                inferred = _without_shape(inferred)
            types[name] = inferred
            tainted.add(name)


def _without_shape(proto: TypeProto) -> TypeProto:
    known = tensor_type(proto)
    return proto if known is None else helper.make_tensor_type_proto(known.dtype, None)


_DOUBTFUL = frozenset({*POOLS, "Attention", "ConvTranspose", "STFT", "SequenceAt"})


def wrongly_inferred(node: NodeProto, types: Mapping[str, TypeProto]) -> bool:
    """Whether ONNX's inference is known to give this node a wrong shape; ``types`` are those of its inputs.

    1. Pooling with ``ceil_mode``: one window too many where the last would start in the padding (before opset 22).
    2. ConvTranspose with SAME padding and an output_padding: the size is input · stride, the padding is added to it.
    3. STFT without an explicit ``onesided``: the default of 1 is ignored.
    4. Attention with sizes that are not numbers: some of the sizes of its outputs are zero.
    5. SequenceAt of elements with named sizes: every element gets the same names, though their sizes may differ.
    """
    if node.op_type not in _DOUBTFUL:
        return False
    if is_uncertain_pool(node):
        image = tensor_type(types.get(node.input[0]))
        if image is None or image.shape is None:
            return True
        return any(size is not None and one_more for size, one_more in pooled_sizes(node, image.shape[2:]))
    if is_uncertain_transpose(node):
        return True
    if node.op_type == "Attention" and node.domain in ("", "ai.onnx"):
        inputs = [tensor_type(types.get(name)) for name in node.input if name]
        return not all(known is not None and known.is_static for known in inputs)
    if node.op_type == "SequenceAt":
        sequence = types.get(node.input[0])
        element = None if sequence is None else tensor_type(sequence.sequence_type.elem_type)
        return element is not None and any(isinstance(size, str) for size in element.shape or ())
    return node.op_type == "STFT" and "onesided" not in attributes_of(node)


def rightly_inferred(node: NodeProto, types: Mapping[str, TypeProto], found: TypeProto) -> TypeProto:
    """The type of an output of a wrongly inferred node, with the sizes that are known to be right."""
    known = tensor_type(found)
    if known is None:
        return found
    if node.op_type == "SequenceAt" and known.shape is not None:
        numbers = [size if isinstance(size, int) else None for size in known.shape]
        return helper.make_tensor_type_proto(known.dtype, numbers)
    sizes = None
    if known.shape is not None and (is_uncertain_pool(node) or is_uncertain_transpose(node)):
        sizes = right_sizes(node, [tensor_type(types.get(name)) for name in node.input])
    shape = None if known.shape is None or sizes is None else (*known.shape[:2], *sizes)
    return helper.make_tensor_type_proto(known.dtype, shape)


def infer_node(
    schema: OpSchema,
    node: NodeProto,
    types: Mapping[str, TypeProto],
    constants: Mapping[str, TensorProto],
    opset_imports: object,
) -> dict[str, TypeProto]:
    """The types of the outputs of one node.  Raises ``onnx.shape_inference.InferenceError`` where they cannot fit.

    Nothing is inferred where an input is of unknown type, nor for an operator that ONNX calls deprecated.
    """
    if _is_uninferred(node):
        kept = types.get(node.input[0])
        return {} if kept is None else {node.output[0]: kept}
    if schema.deprecated:
        return {}
    if any(name and name not in types for name in node.input):
        return {}
    read = reads(node)
    known = {name: types[name] for name in read if name in types}
    data = {name: constants[name] for name in read if name in constants and not _is_external(constants[name])}
    imports: list[OperatorSetIdProto] = list(opset_imports)  # type: ignore[call-overload]
    try:
        found = dict(shape_inference.infer_node_outputs(schema, node, known, data, opset_imports=imports))
    except KeyError:  # before 1.17, onnx cannot do this for a node that leaves an input out
        found = _infer_in_model(node, known, data, imports)
    found.pop("", None)  # an output that the node leaves out
    return found


def _infer_in_model(
    node: NodeProto,
    types: Mapping[str, TypeProto],
    constants: Mapping[str, TensorProto],
    opset_imports: Sequence[OperatorSetIdProto],
) -> dict[str, TypeProto]:
    """The types of the outputs of one node, as the only node of a model."""
    model = ModelProto(ir_version=onnx.IR_VERSION, opset_import=opset_imports)
    model.graph.name = "node"
    model.graph.node.append(node)
    for name, kind in types.items():
        model.graph.input.append(helper.make_value_info(name, kind))
    for name, constant in constants.items():
        model.graph.initializer.add().CopyFrom(constant)
        model.graph.initializer[-1].name = name
    inferred = shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    return {value.name: value.type for value in inferred.graph.value_info if value.name in node.output}


_KEEPS_TYPE = frozenset(
    {"Abs", "Cos", "Erf", "Exp", "Identity", "Log", "LogSoftmax", "Neg", "Reciprocal", "Relu"}
    | {"Sigmoid", "Sign", "Sin", "Softmax", "Sqrt", "Tanh"}
)
_BROADCASTS = frozenset({"Add", "Div", "Mul", "Sub"})


def operand_with_output_type(op_type: str, operands: Sequence[TensorType | None]) -> int | None:
    """Which operand of an elementwise operator has the type of the output, where that is plain to see.

    Saves a call of ONNX's inference for most of the nodes of a gradient.
    """
    if op_type in _KEEPS_TYPE and len(operands) == 1:
        return 0
    if op_type not in _BROADCASTS or len(operands) != 2:
        return None
    a, b = operands
    if a is None or b is None or a.dtype != b.dtype:
        return None
    if b.shape == () or same_shape(a.shape, b.shape):
        return 0
    return 1 if a.shape == () else None


def _is_external(tensor: TensorProto) -> bool:
    return tensor.data_location == TensorProto.EXTERNAL


def has_subgraph(node: NodeProto) -> bool:
    """Whether the node carries a body."""
    return any(a.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) for a in node.attribute)


InferenceError = onnx.shape_inference.InferenceError
