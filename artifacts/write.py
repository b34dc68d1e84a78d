"""Writing the artifacts, which can be made again: each file whole or not at all, the checkpoint last."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from onnx import ModelProto

from onnxblock import names
from onnxblock.checkpoint import Checkpoint, Tensor, write_checkpoint
from onnxblock.errors import ArgumentError, InvalidModelError, OnnxBlockError, refusal
from onnxblock.files import AnyPath, as_path, is_one_of
from onnxblock.graph.store import DATA_SUFFIX, SINGLE_FILE_NBYTES, model_nbytes, write_together
from onnxblock.graph.weights import Weights, is_stub
from onnxblock.training import TrainingModels

_FILES = (
    names.TRAINING_MODEL_FILE,
    names.EVAL_MODEL_FILE,
    names.OPTIMIZER_MODEL_FILE,
    names.STEP_MODEL_FILE,
    names.CHECKPOINT_FILE,
    names.NOMINAL_CHECKPOINT_FILE,
)
_WRITTEN = (*_FILES, *(name + DATA_SUFFIX for name in (names.TRAINING_MODEL_FILE, names.CHECKPOINT_FILE)))
_OWN_METADATA = (names.MANIFEST_KEY, names.FORWARD_MODEL_KEY, names.CONSTANTS_KEY)


def folder_for(folder: AnyPath | None, prefix: str) -> Path:
    """The folder to write to, the current one for None; it is not made yet.

    Raises :class:`OnnxBlockError` when it could not be made or written to.
    """
    path = Path.cwd() if folder is None else as_path(folder)
    inner = _folder_of(path, prefix)
    try:
        there = next(p for p in (inner, *inner.parents) if p.exists())
        problem = None if there.is_dir() else f"{str(there)!r} is not a folder"
        in_the_way = [str(p) for p in (path / f"{prefix}{name}" for name in _FILES) if p.is_dir()]
        if in_the_way:
            problem = f"{', '.join(map(repr, in_the_way))} is a folder, and a file is to have that name"
    except OSError as error:
        there, problem = path, error.strerror or str(error)
    if problem is not None:
        raise OnnxBlockError(f"cannot write to {str(path)!r}: {problem}.", "Choose another folder.")
    if not os.access(there, os.W_OK | os.X_OK):
        raise OnnxBlockError(f"cannot write to {str(path)!r}: {str(there)!r} is read-only.", "Choose another folder.")
    return path


def _folder_of(folder: Path, prefix: str) -> Path:
    return (folder / f"{prefix}{names.CHECKPOINT_FILE}").parent


def require_other_files(folder: Path, prefix: str, sources: Iterable[Path]) -> None:
    """Raise :class:`ArgumentError` when the files to write include one of ``sources``, which the model is read from."""
    taken = [folder / f"{prefix}{name}" for name in _WRITTEN if is_one_of(folder / f"{prefix}{name}", sources)]
    if taken:
        raise ArgumentError(
            f"{', '.join(repr(str(path)) for path in taken)} would be overwritten, and the model is read from there.",
            "Choose another artifact_directory, or a prefix.",
        )


def write_models(
    folder: Path,
    prefix: str,
    models: Mapping[str, ModelProto],
    metadata: Mapping[str, Mapping[str, str]],
    weights: Weights,
) -> tuple[dict[str, Path], Path | None]:
    """Write each model under its file name with these entries of metadata; return the paths, and that of their data.

    Models that are too large for one file share a second one, where each weight that stays in them stands once.  The
    folder is made if it is not there.  Raises :class:`OnnxBlockError` when something cannot be written.
    """
    try:
        _folder_of(folder, prefix).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OnnxBlockError(
            f"cannot make the folder {str(folder)!r}: {error.strerror or error}.", "Choose another folder."
        ) from error
    for file_name, model in models.items():
        kept = [p for p in model.metadata_props if p.key not in _OWN_METADATA]  # the model may be one of ours
        del model.metadata_props[:]
        model.metadata_props.extend(kept)
        for key, text in metadata[file_name].items():
            model.metadata_props.add(key=key, value=text)
    paths = {file_name: folder / f"{prefix}{file_name}" for file_name in models}
    by_path = {paths[file_name]: model for file_name, model in models.items()}
    return paths, write_together(by_path, weights, durable=False)


def require_ort_sizes(models: Mapping[str, ModelProto], weights: Weights) -> None:
    """Raise :class:`InvalidModelError` when a model is too large for the ORT format, and name what it holds.

    onnxruntime ends the process where it writes a FlatBuffer of more than 2 GiB, so nothing may be left to it.
    """
    for file_name, model in models.items():
        nbytes = model_nbytes(model, weights)
        if nbytes < SINGLE_FILE_NBYTES:
            continue
        held = sorted((t.name for t in model.graph.initializer if is_stub(t)), key=weights.nbytes, reverse=True)
        shown = ", ".join(f"{name!r} ({weights.nbytes(name) / 1e9:.2f} GB)" for name in held[:5])
        raise InvalidModelError(
            f"{file_name} takes {nbytes / 1e9:.2f} GB with the weights that stay inside it, more than the ORT format"
            f" can hold: {shown}{', …' if len(held) > 5 else ''}.",
            "Name the large ones in frozen_params, so that they are kept in the checkpoint; or pass ort_format=False.",
        )


def write_parameters(
    folder: Path, prefix: str, models: TrainingModels, fingerprint: str, *, nominal: bool = False
) -> tuple[Path, Path | None]:
    """Write the checkpoint of the trainable and frozen parameters, streamed from where their bytes are.

    A ``nominal`` one has their names and types only, and a name of its own.  Returns its path, and that of its second
    file if there is one.
    """
    path = folder / f"{prefix}{names.NOMINAL_CHECKPOINT_FILE if nominal else names.CHECKPOINT_FILE}"
    state = json.dumps({"version": 1, "model": fingerprint}, separators=(",", ":"))
    checkpoint = Checkpoint(
        [_tensor(models, name) for name in models.choice.trainable],
        [_tensor(models, name) for name in models.choice.frozen],
        nominal=nominal,
        properties={names.STATE_PROPERTY: state},
    )
    return path, write_checkpoint(path, checkpoint, durable=False)


def _tensor(models: TrainingModels, name: str) -> Tensor:
    weights = models.weights
    return Tensor(name, weights.dtype(name), weights.shape(name), lambda: weights.chunks(name))


def write_ort_format(paths: Iterable[Path], custom_op_library: str | None) -> list[Path]:
    """Write each model beside itself in ORT format, at the extended optimization level; return the new paths."""
    import onnxruntime

    written = []
    for path in paths:
        target = path.with_suffix(".ort")
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.optimized_model_filepath = os.fspath(target)
        options.add_session_config_entry("session.save_model_format", "ORT")
        try:
            if custom_op_library is not None:
                options.register_custom_ops_library(custom_op_library)
            onnxruntime.InferenceSession(os.fspath(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:
            raise OnnxBlockError(
                f"onnxruntime cannot write {str(target)!r}: {refusal(error)}",
                "Pass ort_format=False; the .onnx files are whole.",
            ) from error
        written.append(target)
    return written
