"""Reading one value instead of another, bodies of control flow included."""

from __future__ import annotations

from collections.abc import Mapping

from onnx import GraphProto, NodeProto

from ..dependencies import subgraphs


def rename_reads(node: NodeProto, names: Mapping[str, str]) -> bool:
    """Make ``node``, and what its bodies capture, read ``names[x]`` where it read ``x``."""
    changed = False
    for k, name in enumerate(node.input):
        if name in names:
            node.input[k] = names[name]
            changed = True
    for body in subgraphs(node):
        changed |= _rename_captured(body, names)
    return changed


def _rename_captured(body: GraphProto, names: Mapping[str, str]) -> bool:
    local = {v.name for v in body.input} | {t.name for t in body.initializer}
    local |= {name for node in body.node for name in node.output}
    outer = {old: new for old, new in names.items() if old not in local}
    if not outer:
        return False
    changed = False
    for node in body.node:
        changed |= rename_reads(node, outer)
    for output in body.output:
        if output.name in outer:
            output.name = outer[output.name]
            changed = True
    return changed
