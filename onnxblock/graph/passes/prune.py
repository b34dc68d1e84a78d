"""Leave out what no output needs."""

from __future__ import annotations

from onnx import GraphProto, ModelProto, NodeProto

from ..dependencies import needed_nodes, subgraphs
from .types import Types, unknown


def prune(model: ModelProto, _: Types = unknown) -> bool:
    """Remove what is not needed; inputs stay.

    1. Nodes that no output depends on.  2. Initializers that nothing reads.  3. Value infos of what is gone.
    4. Functions that nothing calls.  5. Imports of domains that nothing uses.
    """
    graph = model.graph
    nodes, needed = needed_nodes(graph.node, [o.name for o in graph.output])
    changed = len(nodes) < len(graph.node)
    if changed:
        del graph.node[:]
        graph.node.extend(nodes)
    kept = [t for t in graph.initializer if t.name in needed]
    if len(kept) < len(graph.initializer):
        changed = True
        del graph.initializer[:]
        graph.initializer.extend(kept)
    changed |= bool(graph.value_info) and _prune_value_infos(graph)
    return _prune_functions(model) or changed


def _prune_value_infos(graph: GraphProto) -> bool:
    made = {name for node in graph.node for name in node.output}
    kept = [v for v in graph.value_info if v.name in made]
    changed = len(kept) < len(graph.value_info)
    if changed:
        del graph.value_info[:]
        graph.value_info.extend(kept)
    return changed


def _prune_functions(model: ModelProto) -> bool:
    used = _called(list(model.graph.node))
    by_key = {(f.domain, f.name): f for f in model.functions}
    pending = [key for key in used if key in by_key]
    while pending:
        for key in _called(list(by_key[pending.pop()].node)) - used:
            used.add(key)
            if key in by_key:
                pending.append(key)
    functions = [f for f in model.functions if (f.domain, f.name) in used]
    domains = {domain for domain, _ in used} | {o.domain for f in functions for o in f.opset_import} | {"", "ai.onnx"}
    imports = [o for o in model.opset_import if o.domain in domains]
    changed = len(functions) < len(model.functions) or len(imports) < len(model.opset_import)
    if changed:
        del model.functions[:], model.opset_import[:]
        model.functions.extend(functions)
        model.opset_import.extend(imports)
    return changed


def _called(nodes: list[NodeProto]) -> set[tuple[str, str]]:
    found = set()
    while nodes:
        node = nodes.pop()
        found.add((node.domain, node.op_type))
        for body in subgraphs(node):
            nodes.extend(body.node)
    return found
