"""Operators that have no rule are replaced, before the sweep, by what they are made of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from onnx import FunctionProto, NodeProto, TypeProto, helper

from ..errors import OnnxBlockError
from ..graph import decomposition
from ..graph.dependencies import needed_nodes, reads, subgraphs
from ..graph.graph import Graph
from ..graph.inlining import inlined
from ..graph.scans import scan_as_loop
from ..graph.schemas import NEWEST_OPSET, find_schema
from ..graph.subgraph import Subgraph
from . import registry
from .randomness import varies_between_steps
from .registry import NoGradient

_MOST_ROUNDS = 16


def expand(graph: Graph, wrt: Iterable[str], outputs: Iterable[str]) -> dict[str, str]:
    """Replace operators without a rule by their decompositions or function bodies, in place.

    Only those that lie between ``wrt`` and ``outputs``; what they are made of too.  Names inside begin with the node's
    name and a slash.  Returns the reasons why nodes could not be replaced, by the name of their first output.
    """
    roots, ends = list(wrt), list(outputs)
    refused: dict[str, str] = {}
    for _ in range(_MOST_ROUNDS):
        if not _replace(graph, nodes_without_rule(graph, roots, ends), refused):
            break
    return refused


def expand_undefined(graph: Graph) -> None:
    """Replace operators that ONNX does not define by what they are made of, in place, those in bodies too."""
    for _ in range(_MOST_ROUNDS):
        nodes = [n for n in graph.proto.node if find_schema(n.op_type, NEWEST_OPSET, n.domain) is None]
        if not _replace(graph, nodes, {}):
            break
    for node in graph.proto.node:
        for body in subgraphs(node):
            expand_undefined(Subgraph(graph, body))


def _replace(graph: Graph, nodes: Iterable[NodeProto], refused: dict[str, str]) -> bool:
    """Replace those of the nodes of which it is known what they are made of; ``refused`` learns why others are not."""
    count = len(graph.proto.node)
    made: dict[str, list[NodeProto]] = {}
    for node in nodes:
        start = len(graph.proto.node)
        try:
            if _append_parts(graph, node):
                made[node.output[0]] = list(graph.proto.node[start:])
        except OnnxBlockError as error:
            refused[node.output[0]] = str(error.args[0])
    if len(graph.proto.node) > count:
        kept = list(graph.proto.node[:count])
        graph.arrange([new for node in kept for new in made.get(_first_output(node), [node])])
    return bool(made)


def has_function_body(op_type: str, opset: int, domain: str = "") -> bool:
    """Whether the schema of an operator carries a function body at this opset."""
    schema: Any = find_schema(op_type, opset, domain)
    return schema is not None and bool(schema.has_function or schema.has_context_dependent_function)


def passing_nodes(nodes: Iterable[NodeProto], outputs: Iterable[str]) -> list[NodeProto]:
    """The nodes that ``outputs`` depend on through operators that pass a gradient back, in their order."""
    passing = [n for n in nodes if not isinstance(registry.find(n.op_type, n.domain), NoGradient)]
    return needed_nodes(passing, outputs)[0]


def nodes_without_rule(graph: Graph, roots: Iterable[str], ends: Iterable[str]) -> list[NodeProto]:
    """The nodes through which a gradient would have to pass and that have no rule, or only one for another form."""
    live, missing = set(roots), []
    for node in passing_nodes(graph.proto.node, ends):
        entry = registry.find(node.op_type, node.domain)
        if live.isdisjoint(reads(node)):
            continue
        live.update(name for name in node.output if name and graph.carries_gradient(name))
        if entry is None or varies_between_steps(graph, node):
            missing.append(node)
    return missing


def _first_output(node: NodeProto) -> str:
    return node.output[0] if node.output else ""


def _append_parts(graph: Graph, node: NodeProto) -> bool:
    """Append what ``node`` is made of, with the names of its outputs; False where that is not known."""
    entry = decomposition.find(node.op_type, node.domain)
    if varies_between_steps(graph, node):
        entry = decomposition.Decomposition(node.op_type, node.domain, scan_as_loop, scan_as_loop.__module__)
    if entry is not None:
        results = decomposition.decompose(graph, node, entry)
        for name, result in zip(node.output, results, strict=False):
            if name and result is not None:
                graph.proto.node.append(helper.make_node("Identity", [result], [name], name=f"{name}/Identity"))
    else:
        body = _body(graph, node)
        if body is None:
            return False
        graph.proto.node.extend(inlined(node, body))
    graph.sync()
    return True


def _body(graph: Graph, node: NodeProto) -> FunctionProto | None:
    local: dict[tuple[str, str], FunctionProto] = {(f.domain, f.name): f for f in graph.model.functions}
    if (node.domain, node.op_type) in local:
        return local[node.domain, node.op_type]
    opset = next((o.version for o in graph.model.opset_import if o.domain == node.domain), 0)
    schema: Any = find_schema(node.op_type, opset, node.domain)
    if schema is None:
        return None
    if schema.has_context_dependent_function:
        return _context_body(schema, node, opset, graph)
    versions = [v for v in schema.function_opset_versions if v <= opset]
    if not schema.has_function or not versions:
        return None
    function = FunctionProto()
    function.ParseFromString(schema.get_function_with_opset_version(max(versions)))
    return function


def _context_body(schema: Any, node: NodeProto, opset: int, graph: Graph) -> FunctionProto | None:
    versions = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
    known = [(graph.type_proto(name) or TypeProto()).SerializeToString() for name in node.input]
    if not versions:
        return None
    text = schema.get_context_dependent_function_with_opset_version(max(versions), node.SerializeToString(), known)
    function = FunctionProto()
    function.ParseFromString(text)
    return function if text else None
