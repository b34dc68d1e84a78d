"""Inference models out of the evaluation model and trained parameters."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from onnxblock.errors import OnnxBlockError, RuntimeUnavailableError, UnknownNameError, did_you_mean
from onnxblock.names import MANIFEST_KEY

from .storage import Array


def export_model(
    eval_path: str | os.PathLike[str],
    parameters: Mapping[str, Array],
    path: str | os.PathLike[str],
    outputs: Sequence[str],
) -> None:
    """Write the model at ``eval_path`` with ``parameters`` as initializers, cut down to what ``outputs`` need.

    Raises:
        UnknownNameError: the model has no value of such a name.
        RuntimeUnavailableError: the package ``onnx`` is not installed.
        OnnxBlockError: no output is named, one is named twice, or the file cannot be written.
    """
    names = [str(name) for name in outputs]
    if not names or len(set(names)) < len(names):
        raise OnnxBlockError(
            f"the outputs of the inference model are {names}", "Name at least one value, each of them once."
        )
    try:
        from onnx import TensorProto, ValueInfoProto

        from onnxblock.graph import store
        from onnxblock.graph.dependencies import needed_nodes
        from onnxblock.graph.inference import infer_model
        from onnxblock.graph.load import load
        from onnxblock.graph.passes.prune import prune
        from onnxblock.graph.weights import stub
    except ImportError as error:
        raise RuntimeUnavailableError(
            f"exporting a model needs the package onnx: {error}",
            "Install it (pip install onnx), or save a checkpoint and export elsewhere.",
        ) from error
    model, weights = load(eval_path)
    graph = model.graph
    known = {name for node in graph.node for name in node.output if name} | {value.name for value in graph.output}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UnknownNameError(
            "the evaluation model has no value " + ", ".join(f"{n!r}.{did_you_mean(n, known)}" for n in unknown),
            "Name outputs or intermediate values of the evaluation model.",
        )
    types = infer_model(model)
    del graph.output[:]
    graph.output.extend(ValueInfoProto(name=name, type=types.get(name)) for name in names)
    _, read = needed_nodes(graph.node, names)
    inputs = [value for value in graph.input if value.name in read]
    del graph.input[:]
    for value in inputs:
        if value.name in parameters:
            array = parameters[value.name]
            element_type = value.type.tensor_type.elem_type
            graph.initializer.append(stub(TensorProto(name=value.name, data_type=element_type, dims=array.shape)))
            weights.add_array(value.name, array)
        else:
            graph.input.append(value)
    prune(model)
    metadata = [entry for entry in model.metadata_props if entry.key != MANIFEST_KEY]
    del model.metadata_props[:]
    model.metadata_props.extend(metadata)
    store.write(model, weights, path)
