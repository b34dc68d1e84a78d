"""One full check of a finished model."""

from __future__ import annotations

from onnx import ModelProto, TensorProto, checker, helper

from ..errors import InvalidModelError
from . import decomposition
from .decomposition import MICROSOFT
from .dependencies import all_nodes
from .schemas import NEWEST_OPSET, find_schema
from .weights import is_stub


def check(model: ModelProto) -> None:
    """Raise :class:`InvalidModelError` unless ``model`` is valid ONNX.

    Weights that are held outside of the model stand in the check as inputs of their type.
    """
    view = ModelProto()
    view.CopyFrom(model)
    graph = view.graph
    stubs = [t for t in graph.initializer if is_stub(t)]
    inputs = {v.name for v in graph.input}
    kept = [t for t in graph.initializer if not is_stub(t)]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    for tensor in stubs:
        if tensor.name not in inputs:
            graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    for value in (*graph.input, *graph.output):
        # The checker insists on a type and a rank, though both may be unknown: any will do.
        if value.type.WhichOneof("value") is None:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.shape.SetInParent()
    _allow_early_group_normalization(view)
    _allow_foreign_operators(view)
    try:
        checker.check_model(view)
    except checker.ValidationError as error:
        raise InvalidModelError(f"the model is not valid ONNX: {str(error).strip()}", "Export it again.") from None


def _allow_early_group_normalization(view: ModelProto) -> None:
    """Let another operator with the same inputs stand for GroupNormalization before opset 21.

    ONNX calls that form deprecated and its checker refuses it, though runtimes run it.
    """
    if any(o.domain in ("", "ai.onnx") and o.version >= 21 for o in view.opset_import):
        return
    for node in view.graph.node:
        if node.op_type == "GroupNormalization" and node.domain in ("", "ai.onnx"):
            node.op_type = "InstanceNormalization"
            kept = [a for a in node.attribute if a.name == "epsilon"]
            del node.attribute[:]
            node.attribute.extend(kept)


def _allow_foreign_operators(view: ModelProto) -> None:
    """Move operators that ONNX does not know out of its domain, where some optimizers put them, for the check."""
    foreign = [
        n
        for n in all_nodes(view.graph.node)
        if not n.domain and find_schema(n.op_type, NEWEST_OPSET) is None and decomposition.find(n.op_type, "")
    ]
    for node in foreign:
        node.domain = MICROSOFT
    if foreign and all(o.domain != MICROSOFT for o in view.opset_import):
        view.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
