"""Bringing a user's model in: from a path or a ``ModelProto`` to a light model and its weights."""

from __future__ import annotations

import os
from pathlib import Path

from google.protobuf.message import DecodeError
from onnx import ModelProto, TensorProto

from ..errors import InvalidModelError
from ..files import as_path
from ..left_in_file import with_weights_left
from ..wire import WireError
from .external import ExternalFiles
from .function_weights import lift_function_weights
from .inner_weights import lift_inner_weights
from .structure import settle_structure
from .weights import Weights, detach_with, weights_in_constants

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
        model = ModelProto()
        with path.open("rb") as file:
            _refuse_other_formats(path, file.read(64))
            model.ParseFromString(with_weights_left(file, size, path.name, _LEFT_IN_FILE_NBYTES))
    except OSError as error:
        raise InvalidModelError(f"{str(path)!r} cannot be read: {error.strerror or error}.") from error
    except (WireError, DecodeError) as error:
        raise InvalidModelError(
            f"{str(path)!r} is not an ONNX model, or only a part of one: {error}.", "Export or copy the model again."
        ) from error
    return model


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
