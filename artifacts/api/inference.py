"""Inference models out of the evaluation model and trained parameters."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from onnxblock.checkpoint import is_checkpoint
from onnxblock.errors import ArgumentError, RuntimeUnavailableError
from onnxblock.files import as_path, is_one_of
from onnxblock.names import FORWARD_MODEL_KEY, MANIFEST_KEY

from .storage import Array


def export_model(
    eval_path: str | os.PathLike[str],
    parameters: Mapping[str, Array],
    path: str | os.PathLike[str],
    outputs: Sequence[str],
    others: Iterable[Path] = (),
) -> None:
    """Write an inference model with ``parameters`` as initializers, cut down to what ``outputs`` need.

    It is the forward model as it was brought, at its own opset, which the evaluation model carries; where that cannot
    give the outputs, such as the loss, it is the evaluation model.

    Raises:
        ArgumentError: ``path`` is the evaluation model, one of the ``others``, or a checkpoint.
        UnknownNameError: the model has no value of such a name.
        RuntimeUnavailableError: the package ``onnx`` is not installed.
        OnnxBlockError: no output is named, one is named twice, or the file cannot be written.
    """
    try:
        from onnx import TensorProto

        from onnxblock import export
        from onnxblock.graph import store
        from onnxblock.graph.load import load
        from onnxblock.graph.outputs import choose_outputs
        from onnxblock.graph.passes.prune import prune
        from onnxblock.graph.weights import stub
    except ImportError as error:
        raise RuntimeUnavailableError(
            f"exporting a model needs the package onnx: {error}",
            "Install it (pip install onnx), or save a checkpoint and export elsewhere.",
        ) from error
    target = as_path(path)
    model, weights = load(eval_path)
    kept = [as_path(eval_path), *others, *weights.files()]
    for written in (target, target.with_name(target.name + store.DATA_SUFFIX)):
        if is_one_of(written, kept) or is_checkpoint(written):
            raise ArgumentError(
                f"{str(written)!r} would be overwritten, and training needs it.", "Choose another name for the export."
            )
    brought = export.unpack_forward_model(model)
    given: object = outputs
    are_named = isinstance(given, Iterable) and not isinstance(given, str)
    if brought is not None and are_named and export.can_give(brought, weights, parameters, outputs):
        export.write_for_inference(brought, weights, parameters, target, outputs)
        return
    choose_outputs(model, outputs, None if brought is None else [value.name for value in brought.graph.output])
    graph = model.graph
    inputs = list(graph.input)
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
    metadata = [entry for entry in model.metadata_props if entry.key not in (MANIFEST_KEY, FORWARD_MODEL_KEY)]
    del model.metadata_props[:]
    model.metadata_props.extend(metadata)
    store.write(model, weights, target)
