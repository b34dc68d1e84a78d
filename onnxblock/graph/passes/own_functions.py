"""Functions of our own domain, which exist only to carry a gradient, give way to what they compute."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from onnx import FunctionProto, ModelProto, NodeProto

from ...names import OWN_DOMAIN
from ..dependencies import subgraphs
from ..inlining import inlined
from .types import Types, unknown


def inline_own_functions(model: ModelProto, _: Types = unknown) -> bool:
    """Replace every call of a function of the domain ``onnxblock`` by its body, in bodies of control flow too."""
    own = {f.name: f for f in model.functions if f.domain == OWN_DOMAIN}
    if not own:
        return False
    nodes = list(_expanded(model.graph.node, own))
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    kept = [f for f in model.functions if f.domain != OWN_DOMAIN]
    imports = [o for o in model.opset_import if o.domain != OWN_DOMAIN]
    del model.functions[:], model.opset_import[:]
    model.functions.extend(kept)
    model.opset_import.extend(imports)
    return True


def _expanded(nodes: Iterable[NodeProto], own: Mapping[str, FunctionProto]) -> Iterator[NodeProto]:
    for node in nodes:
        if node.domain == OWN_DOMAIN and node.op_type in own:
            yield from _expanded(inlined(node, own[node.op_type]), own)
            continue
        for body in subgraphs(node):
            inner = list(_expanded(body.node, own))
            del body.node[:]
            body.node.extend(inner)
        yield node
