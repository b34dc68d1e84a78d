"""Views of views."""

from __future__ import annotations

from collections import Counter

from onnx import ModelProto, NodeProto, TensorProto, numpy_helper

from ..dependencies import has_operator, reads
from ..types import TensorType
from ..waiting import is_waiting
from .types import Types, unknown

_VIEWS = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze"})


def merge_views(model: ModelProto, types: Types = unknown) -> bool:
    """A Reshape of a view (Reshape, Flatten, Squeeze, Unsqueeze) reads what the view reads.

    Only where nobody else reads the view, or where the Reshape undoes it, so that a node falls away; and only where the
    new shape copies no size of what is reshaped.  A view that makes what reads it wait
    (:mod:`~onnxblock.graph.waiting`) is not looked through.
    """
    graph = model.graph
    if not has_operator(graph.node, "Reshape"):
        return False
    count = Counter(name for node in graph.node for name in reads(node))
    count.update(o.name for o in graph.output)
    shapes = {t.name: t for t in graph.initializer if t.data_type == TensorProto.INT64}
    producers: dict[str, NodeProto] = {}
    changed = False
    for node in graph.node:
        if node.op_type == "Constant" and not node.domain:
            shapes.update((node.output[0], a.t) for a in node.attribute if a.name == "value")
        view = producers.get(node.input[0]) if _is_view(node) and node.op_type == "Reshape" else None
        while view is not None and _is_view(view) and _copies_no_size(node, shapes.get(node.input[1])):
            if count[node.input[0]] > 1 and not _is_undone(types(view.input[0]), types(node.output[0])):
                break
            count[node.input[0]] -= 1
            count[view.input[0]] += 1
            node.input[0] = view.input[0]
            view = producers.get(node.input[0])
            changed = True
        producers.update((name, node) for name in node.output)
    return changed


def _is_view(node: NodeProto) -> bool:
    return node.op_type in _VIEWS and not node.domain and not is_waiting(node)


def _copies_no_size(node: NodeProto, shape: TensorProto | None) -> bool:
    """Whether no 0 in the shape stands for a size of the input."""
    if any(a.name == "allowzero" and a.i for a in node.attribute):
        return True
    return shape is not None and bool(numpy_helper.to_array(shape).all())


def _is_undone(before: TensorType | None, after: TensorType | None) -> bool:
    return before is not None and after is not None and before.is_static and before.shape == after.shape
