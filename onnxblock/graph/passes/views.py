"""Views of views."""

from __future__ import annotations

from collections import Counter

from onnx import ModelProto, NodeProto, TensorProto, numpy_helper

from ..dependencies import read_counts
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
    count: Counter[str] = Counter()
    shapes = {t.name: t for t in graph.initializer if t.data_type == TensorProto.INT64}
    views: dict[str, NodeProto] = {}
    changed = False
    for node in graph.node:
        if node.op_type == "Constant" and not node.domain:
            shapes.update((node.output[0], a.t) for a in node.attribute if a.name == "value")
        view = views.get(node.input[0]) if node.op_type == "Reshape" and _is_view(node) else None
        while view is not None and _copies_no_size(node, shapes.get(node.input[1])):
            count = count or read_counts(graph)
            if count[node.input[0]] > 1 and not _is_undone(types(view.input[0]), types(node.output[0])):
                break
            count[node.input[0]] -= 1
            count[view.input[0]] += 1
            node.input[0] = view.input[0]
            view = views.get(node.input[0])
            changed = True
        if _is_view(node):
            views[node.output[0]] = node
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
