"""The body of a function in place of a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, helper

from .schemas import find_schema


def inlined(node: NodeProto, function: FunctionProto) -> list[NodeProto]:
    """The nodes that compute what ``node``, a call of ``function``, does.

    Values inside are called after the node, a slash, and their name in the function.
    """
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
