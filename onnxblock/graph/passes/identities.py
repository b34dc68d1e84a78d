"""Remove nodes that change nothing."""

from __future__ import annotations

from onnx import ModelProto, NodeProto

from .renaming import rename_reads


def remove_identities(model: ModelProto) -> bool:
    """Remove 1. Identity, 2. Sum, Max, Min, Mean and Concat of one input, 3. Transpose that keeps every axis.

    A node whose output is an output of the graph stays: its name is part of the interface.
    """
    graph = model.graph
    outputs = {o.name for o in graph.output}
    replaced: dict[str, str] = {}
    kept = []
    for node in graph.node:
        if replaced:
            rename_reads(node, replaced)
        if _changes_nothing(node) and node.output[0] not in outputs:
            replaced[node.output[0]] = node.input[0]
        else:
            kept.append(node)
    if not replaced:
        return False
    del graph.node[:]
    graph.node.extend(kept)
    return True


def _changes_nothing(node: NodeProto) -> bool:
    if node.domain:
        return False
    if node.op_type == "Identity":
        return True
    if node.op_type in ("Sum", "Max", "Min", "Mean", "Concat"):
        return len(node.input) == 1
    if node.op_type == "Transpose":
        return any(a.name == "perm" and list(a.ints) == list(range(len(a.ints))) for a in node.attribute)
    return False
