"""What a model needs that onnxruntime does not have: said by node and element type."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

_NO_KERNEL = re.compile(r"Could not find an implementation for (\w[\w.:]*)\((\d+)\) node with name '([^']*)'")
_NARROW = ("float16", "bfloat16", "float8", "float4")


def missing_kernel(message: str, file: Path, providers: Sequence[str]) -> tuple[str, str] | None:
    """What is wrong and what to do, when onnxruntime's ``message`` says that it has no kernel for a node of ``file``.

    The element types of the node's inputs are told where the package ``onnx`` is installed.
    """
    found = _NO_KERNEL.search(message)
    if found is None:
        return None
    operator, version, name = found.groups()
    types = _input_types(file, operator, name)
    with_types = f", with inputs of {', '.join(types)}" if types else ""
    what = (
        f"{', '.join(providers)} has no kernel for node {name!r} of {file}: {operator}, in its form of opset {version}"
        f"{with_types}"
    )
    if any(kind.startswith(_NARROW) for kind in types):
        remedy = (
            "Train in float32: convert the weights and inputs of the forward model, and generate the artifacts again; "
            "or train on a device that computes in this type."
        )
    elif "float64" in types:
        remedy = (
            "Train in float32: convert the weights and inputs of the forward model, and generate the artifacts again."
        )
    else:
        remedy = (
            "Use another release or execution provider of onnxruntime, or generate the artifacts without this node."
        )
    return what, remedy


def _input_types(file: Path, operator: str, name: str) -> list[str]:
    """The element types that the node reads, in order; none where they cannot be found out."""
    try:
        from onnxblock.graph.dependencies import all_nodes
        from onnxblock.graph.inference import infer_model
        from onnxblock.graph.load import load
        from onnxblock.graph.types import dtype_name, tensor_type
    except ImportError:
        return []
    model, _ = load(file)
    types = infer_model(model)
    for node in all_nodes(model.graph.node):
        if (node.op_type, node.name) == (operator.rpartition(":")[2], name):
            read = [tensor_type(types[value]) for value in node.input if value in types]
            return list(dict.fromkeys(dtype_name(kind.dtype) for kind in read if kind is not None))
    return []
