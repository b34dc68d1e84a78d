"""Bringing a user's model in: from a path or a ``ModelProto`` to a light model and its weights."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

from google.protobuf.message import DecodeError
from onnx import GraphProto, ModelProto, TensorProto

from ..errors import InvalidModelError
from ..files import as_path
from .external import ExternalFiles
from .function_weights import lift_function_weights
from .inner_weights import lift_inner_weights
from .structure import settle_structure
from .weights import Weights, detach_with, weights_in_constants
from .wire import LENGTH_DELIMITED, Field, WireError, fields

_GRAPH = ModelProto.DESCRIPTOR.fields_by_name["graph"].number
_INITIALIZER = GraphProto.DESCRIPTOR.fields_by_name["initializer"].number
_RAW_DATA = TensorProto.DESCRIPTOR.fields_by_name["raw_data"].number
_LEFT_IN_FILE_NBYTES = 1024


def load(model: ModelProto | str | os.PathLike[str], *, lift_constants: bool = True) -> tuple[ModelProto, Weights]:
    """A light copy of a model, with stubs for large weights, and those weights by reference.

    The large weights of a model given by its path stay in its file, or in the external data beside it, until they
    are asked for; they are never in memory together, and a model may be of any size.

    Args:
        model: a model, or the path of an ``.onnx`` file.  External data lies beside the file; that of a
            ``ModelProto``, in the current folder.
        lift_constants: whether ``Constant`` nodes with large tensors, and the weights of bodies and functions, become
            initializers of the main graph; with small tensors too where the model has no float initializers.

    Raises:
        InvalidModelError: the file is missing, empty, truncated or something else than a model; there is no graph or
            no opset; external data is missing, too short, or outside the model's folder; two initializers share one
            name; weights have more or less data than their shape needs; values are read that nothing makes.
            Everything wrong of one kind is listed.
    """
    if isinstance(model, ModelProto):
        return _light(model, "the model", ExternalFiles("."), lift_constants)
    if not isinstance(model, (str, os.PathLike)):
        raise InvalidModelError(
            f"the model is {type(model).__name__}, which is neither a ModelProto nor the path of one.",
            "Give onnx.load(path), onnx.load_from_string(data), or the path itself.",
        )
    path = as_path(model, InvalidModelError).absolute()
    files = ExternalFiles(path.parent, roots=[Path(os.path.realpath(path)).parent])
    return _light(_read(path), f"the model {str(path)!r}", files, lift_constants)


def _light(model: ModelProto, what: str, files: ExternalFiles, lift_constants: bool) -> tuple[ModelProto, Weights]:
    if not model.HasField("graph"):
        raise InvalidModelError(f"{what} has no graph.", "Export it again; this is not a whole ONNX model.")
    if not model.opset_import:
        raise InvalidModelError(
            f"{what} does not say which opset its operators are from.",
            "Add it: model.opset_import.append(onnx.helper.make_opsetid('', version)).",
        )
    is_weight = weights_in_constants(model) if lift_constants else _is_left
    light, weights = detach_with(model, files, is_weight)
    settle_structure(light, what)
    if lift_constants:
        lift_inner_weights(light, weights, is_weight)
        lift_function_weights(light, weights, is_weight)
    return light, weights


def _is_left(_: TensorProto) -> bool:
    return False


def _read(path: Path) -> ModelProto:
    """The model in a file; large raw data becomes a reference, like external data, to where it is in that file."""
    try:
        if not path.exists():
            raise InvalidModelError(f"there is no file {str(path)!r}.", "Check the path of the model.")
        if not path.is_file():
            raise InvalidModelError(f"{str(path)!r} is not a file.", "Give the path of the .onnx file itself.")
        size = path.stat().st_size
        if size == 0:
            raise InvalidModelError(f"{str(path)!r} is empty.", "Export or copy the model again.")
        with path.open("rb") as file:
            _refuse_other_formats(path, file.read(64))
            return _read_model(file, size, path.name)
    except OSError as error:
        raise InvalidModelError(f"{str(path)!r} cannot be read: {error.strerror or error}.") from error
    except (WireError, DecodeError) as error:
        raise InvalidModelError(
            f"{str(path)!r} is not an ONNX model, or only a part of one: {error}.", "Export or copy the model again."
        ) from error


def _refuse_other_formats(path: Path, start: bytes) -> None:
    text = start.lstrip()
    if start[4:8] == b"ORTM":
        problem = "is in the ORT format, which holds a graph already compiled for running"
        remedy = "Give the .onnx model that it was converted from."
    elif text.startswith(b"version https://git-lfs"):
        problem, remedy = "is only a Git LFS pointer to the model", "Fetch the file itself: git lfs pull."
    elif start.startswith(b"PK\x03\x04"):
        problem = "is a zip archive, such as a PyTorch checkpoint, not an ONNX model"
        remedy = "Export the model with torch.onnx.export, or unpack the archive."
    elif text[:9].lower() in {b"<!doctype", b"<html>"} or text[:5].lower() == b"<html":
        problem, remedy = "is a web page, not an ONNX model", "Download the file itself again."
    elif text.startswith((b"<", b"{", b"ir_version", b"graph", b"opset_import", b"producer_name")):
        problem, remedy = "is a model in a textual format", "Read it with onnx.load(path), and give what that returns."
    else:
        return
    raise InvalidModelError(f"{str(path)!r} {problem}.", remedy)


def _read_model(file: BinaryIO, size: int, own_name: str) -> ModelProto:
    outside: list[Field] = []
    inside: list[Field] = []
    initializers: list[TensorProto] = []
    has_graph = False
    for field in fields(file, 0, size):
        if field.number != _GRAPH or field.wire_type != LENGTH_DELIMITED:
            outside.append(field)
            continue
        has_graph = True
        for inner in fields(file, field.content, field.end):
            if inner.number == _INITIALIZER and inner.wire_type == LENGTH_DELIMITED:
                initializers.append(_read_tensor(file, inner, own_name))
            else:
                inside.append(inner)
    model = ModelProto()
    model.ParseFromString(_bytes_of(file, outside))
    if has_graph:
        model.graph.SetInParent()
        model.graph.MergeFromString(_bytes_of(file, inside))
        model.graph.initializer.extend(initializers)
    return model


def _read_tensor(file: BinaryIO, message: Field, own_name: str) -> TensorProto:
    kept: list[Field] = []
    raw: Field | None = None
    for field in fields(file, message.content, message.end):
        if field.number == _RAW_DATA and field.end - field.content > _LEFT_IN_FILE_NBYTES:
            raw = field
        else:
            kept.append(field)
    tensor = TensorProto()
    tensor.ParseFromString(_bytes_of(file, kept))
    if raw is not None:
        tensor.data_location = TensorProto.EXTERNAL
        tensor.ClearField("external_data")
        for key, value in (("location", own_name), ("offset", raw.content), ("length", raw.end - raw.content)):
            tensor.external_data.add(key=key, value=str(value))
    return tensor


def _bytes_of(file: BinaryIO, kept: list[Field]) -> bytes:
    """The encoding of fields, keys included; neighbours are read in one go."""
    parts = []
    start = end = 0
    for field in [*kept, Field(0, 0, -1, -1, -1)]:
        if field.start == end:
            end = field.end
            continue
        file.seek(start)
        parts.append(file.read(end - start))
        start, end = field.start, field.end
    return b"".join(parts)
