"""Operators that have no rule but a function body are replaced by that body before the sweep."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TypeProto, helper

from ..graph.dependencies import dependents, needed_nodes, reads
from ..graph.inference import infer_model
from ..graph.schemas import find_schema
from . import registry

_MOST_ROUNDS = 16


def expand_functions(model: ModelProto, wrt: Iterable[str], outputs: Iterable[str]) -> ModelProto:
    """Replace operators without a rule by their function bodies, in place, and return ``model``.

    Only those that lie between ``wrt`` and ``outputs``; bodies of bodies too.  The names inside are the node's name, a
    slash, and the body's own.
    """
    roots, ends = set(wrt), set(outputs)
    for _ in range(_MOST_ROUNDS):
        chosen = _without_rule(model, roots, ends)
        if not chosen:
            break
        types = infer_model(model)
        expanded: list[NodeProto] = []
        changed = False
        for node in model.graph.node:
            body = _body(model, node, types) if node.output and node.output[0] in chosen else None
            if body is None:
                expanded.append(node)
            else:
                expanded += _inline(node, body)
                changed = True
        if not changed:
            break
        del model.graph.node[:]
        model.graph.node.extend(expanded)
    return model


def has_function_body(op_type: str, opset: int, domain: str = "") -> bool:
    """Whether the schema of an operator carries a function body at this opset."""
    schema: Any = find_schema(op_type, opset, domain)
    return schema is not None and bool(schema.has_function or schema.has_context_dependent_function)


def _without_rule(model: ModelProto, roots: set[str], ends: set[str]) -> set[str]:
    nodes, _ = needed_nodes(model.graph.node, ends)
    live = dependents(nodes, roots)
    return {
        node.output[0]
        for node in nodes
        if registry.find(node.op_type, node.domain) is None and not live.isdisjoint(reads(node))
    }


def _body(model: ModelProto, node: NodeProto, types: Mapping[str, TypeProto]) -> FunctionProto | None:
    local: dict[tuple[str, str], FunctionProto] = {(f.domain, f.name): f for f in model.functions}
    if (node.domain, node.op_type) in local:
        return local[node.domain, node.op_type]
    opset = next((o.version for o in model.opset_import if o.domain == node.domain), 0)
    schema: Any = find_schema(node.op_type, opset, node.domain)
    if schema is None:
        return None
    if schema.has_context_dependent_function:
        return _context_body(schema, node, opset, types)
    versions = [v for v in schema.function_opset_versions if v <= opset]
    if not schema.has_function or not versions:
        return None
    function = FunctionProto()
    function.ParseFromString(schema.get_function_with_opset_version(max(versions)))
    return function


def _context_body(
    schema: Any, node: NodeProto, opset: int, types: Mapping[str, TypeProto]
) -> FunctionProto | None:
    versions = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
    known = [types.get(name, TypeProto()).SerializeToString() for name in node.input]
    if not versions:
        return None
    text = schema.get_context_dependent_function_with_opset_version(max(versions), node.SerializeToString(), known)
    function = FunctionProto()
    function.ParseFromString(text)
    return function if text else None


def _inline(node: NodeProto, function: FunctionProto) -> list[NodeProto]:
    prefix = (node.name or node.output[0]) + "/"
    names = dict(zip(function.input, [*node.input, *[""] * len(function.input)], strict=False))
    names.update(zip(function.output, node.output, strict=False))

    def rename(name: str) -> str:
        return str(names.setdefault(name, prefix + name if name else ""))

    given = {a.name: a for a in node.attribute}
    defaults = {a.name: a for a in function.attribute_proto}
    schema = find_schema(node.op_type, 1 << 30, node.domain)
    if schema is not None:
        for name, attribute in schema.attributes.items():
            if attribute.default_value.name:
                defaults.setdefault(name, attribute.default_value)
    return [_copy(inner, rename, {**defaults, **given}) for inner in function.node]


def _copy(node: NodeProto, rename: Callable[[str], str], attributes: Mapping[str, AttributeProto]) -> NodeProto:
    copy = helper.make_node(
        node.op_type,
        [rename(name) for name in node.input],
        [rename(name) for name in node.output],
        name=rename(node.name or next(name for name in node.output if name) + "/node"),
        domain=node.domain,
    )
    for attribute in node.attribute:
        bound = AttributeProto()
        if attribute.ref_attr_name:
            if attribute.ref_attr_name not in attributes:
                continue
            bound.CopyFrom(attributes[attribute.ref_attr_name])
            bound.name = attribute.name
        else:
            bound.CopyFrom(attribute)
            for body in [bound.g] if bound.type == AttributeProto.GRAPH else bound.graphs:
                _rename_body(body, rename, attributes)
        copy.attribute.append(bound)
    return copy


def _rename_body(body: GraphProto, rename: Callable[[str], str], attributes: Mapping[str, AttributeProto]) -> None:
    for value in (*body.input, *body.output, *body.value_info):
        value.name = rename(value.name)
    for tensor in body.initializer:
        tensor.name = rename(tensor.name)
    nodes: Sequence[NodeProto] = [_copy(node, rename, attributes) for node in body.node]
    del body.node[:]
    body.node.extend(nodes)
