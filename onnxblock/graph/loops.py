"""What is known of the values that a Loop carries from one iteration to the next.

ONNX's inference forgets the shape of a state, since a body may change it.  Most do not, and that can be shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import GraphProto, NodeProto, TensorProto, TypeProto, ValueInfoProto

from .types import Shape, TensorType, tensor_type

if TYPE_CHECKING:
    from .graph import Graph


def body_input_types(graph: Graph, node: NodeProto, body: GraphProto) -> dict[str, TypeProto]:
    """The types of the inputs of a Loop's body that hold in every iteration.

    In the first iteration a state is like its initial value.  A dimension that the body is not seen to keep is unknown.
    To see it, unknown dimensions of initial values are given names.
    """
    states = [v.name for v in body.input[2:]]
    types = {
        given.name: TensorType(dtype, shape_of_given(given)).to_proto()
        for given, dtype in zip(body.input, (TensorProto.INT64, TensorProto.BOOL), strict=False)
    }
    for name, initial in zip(states, node.input[2:], strict=True):
        known, proto = graph.tensor_type(initial), graph.type_proto(initial)
        if known is not None and known.shape is not None:
            dims = [f"{name}_{axis}" if d is None else d for axis, d in enumerate(known.shape)]
            proto = TensorType(known.dtype, tuple(dims)).to_proto()
        if proto is not None:
            types[name] = proto
    results = [v.name for v in body.output[1 : 1 + len(states)]]
    while _forget_what_changes(graph, body, dict(zip(states, results, strict=True)), types):
        pass
    return types


def shape_of_given(given: ValueInfoProto) -> tuple[int, ...]:
    """The shape that a runtime gives to the number of the iteration, or to the condition: one element, of rank 0 or 1.

    What the body declares decides; exporters that write the number of trips with an axis declare one.
    """
    return (1,) if len(given.type.tensor_type.shape.dim) == 1 else ()


def _forget_what_changes(graph: Graph, body: GraphProto, states: dict[str, str], types: dict[str, TypeProto]) -> bool:
    from .subgraph import Subgraph

    inside, changed = Subgraph(graph, _copy(body), types), False
    for name, result in states.items():
        before, after = tensor_type(types.get(name)), inside.tensor_type(result)
        if before is None or before.shape is None:
            continue
        shape: Shape = None
        if after is not None and after.shape is not None and len(after.shape) == len(before.shape):
            shape = tuple(d if d == e else None for d, e in zip(before.shape, after.shape, strict=True))
        if shape != before.shape:
            types[name] = TensorType(before.dtype, shape).to_proto()
            changed = True
    return changed


def is_kept(graph: Graph, initial: str, carried: TypeProto | None) -> bool:
    """Whether a state has the shape of its initial value in every iteration."""
    before, always = graph.tensor_type(initial), tensor_type(carried)
    if before is None or always is None or before.shape is None or always.shape is None:
        return False
    return None not in always.shape


def loop_output_types(graph: Graph, node: NodeProto) -> dict[str, TypeProto]:
    """The types of the outputs of a Loop, as far as they are better known than by ONNX's inference."""
    from .subgraph import Subgraph

    body = next((a.g for a in node.attribute if a.name == "body"), None)
    count = len(node.input) - 2
    if body is None or len(body.input) != 2 + count or len(body.output) != 1 + len(node.output):
        return {}
    types = body_input_types(graph, node, body)
    inside = Subgraph(graph, _copy(body), types)
    found: dict[str, TypeProto] = {}
    for k, (name, inner) in enumerate(zip(node.output, body.output[1:], strict=True)):
        if k >= count:
            known = inside.tensor_type(inner.name)
            if known is not None and known.shape is not None:
                found[name] = TensorType(known.dtype, (None, *known.shape)).to_proto()
        elif is_kept(graph, node.input[2 + k], types.get(body.input[2 + k].name)):
            known = graph.tensor_type(node.input[2 + k])
            assert known is not None
            found[name] = known.to_proto()
    found.pop("", None)
    return found


def _copy(body: GraphProto) -> GraphProto:
    copy = GraphProto()
    copy.CopyFrom(body)
    return copy
