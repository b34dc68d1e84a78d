"""Writing a light model and its weights to disk, one weight at a time."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from onnx import GraphProto, ModelProto, TensorProto

from ..files import as_path, replacing
from ..wire import length_prefix
from .messages import copy_fields
from .weights import Weights, is_stub

SINGLE_FILE_NBYTES = 1800 << 20
"""Models of at least this size get a second file: protobuf's own limit is 2 GiB, and some margin is needed."""

DATA_SUFFIX = ".data"
"""What the name of a file with external data has after that of the model."""

_ALIGNMENT = 4096
_GRAPH = ModelProto.DESCRIPTOR.fields_by_name["graph"].number
_INITIALIZER = GraphProto.DESCRIPTOR.fields_by_name["initializer"].number
_RAW_DATA = TensorProto.DESCRIPTOR.fields_by_name["raw_data"].number


def write(model: ModelProto, weights: Weights, path: str | os.PathLike[str]) -> None:
    """Write one model: :func:`write_together` with nothing else."""
    write_together({as_path(path): model}, weights)


def write_together(models: Mapping[Path, ModelProto], weights: Weights, *, durable: bool = True) -> Path | None:
    """Write models that may share weights, each to its path: the bytes that ``onnx.save`` would write.

    The weights of a model of :data:`SINGLE_FILE_NBYTES` and more are external data, ``<path>.data`` beside it.  Several
    such models in one folder share the file of the first, where a weight of both stands once.  Files appear whole or
    not at all, in the order of ``models``, the one with the data first; and those that the weights come from may be
    among the ones written.

    Args:
        models: graphs with a stub for each large weight, by the ``.onnx`` file, absolute or relative to the current
            folder.
        weights: the data of at least those stubs.
        durable: whether the files are on the disk when this returns.

    Returns:
        The file with external data, if there is one.

    Raises:
        OnnxBlockError: a file cannot be written.
        UnknownNameError: the data of a stub is not among the weights.
        InvalidModelError: the data of a weight can no longer be read.
    """
    by_path = {path.absolute(): model for path, model in models.items()}
    large = [path for path, model in by_path.items() if model_nbytes(model, weights) >= SINGLE_FILE_NBYTES]
    data_path = large[0].with_name(large[0].name + DATA_SUFFIX) if large else None
    with ExitStack() as files:  # which closes the last one first
        opened = {path: files.enter_context(replacing(path, durable=durable)) for path in reversed(by_path)}
        data = None
        if data_path is not None:
            data = _DataFile(files.enter_context(replacing(data_path, durable=durable)), data_path.name, weights)
        for path, model in by_path.items():
            if data is not None and path in large:
                _write_model(opened[path], data.hold(model), Weights())
            else:
                _write_model(opened[path], model, weights)
        if data is not None:
            _take_away(large, [*opened.values(), data.file])
    return data_path


def _take_away(paths: Iterable[Path], written: Iterable[BinaryIO]) -> None:
    """Remove models that are about to be replaced: none may be seen with the data of the next, wherever this ends."""
    for file in written:  # what could still fail
        file.flush()
        os.fsync(file.fileno())
    for path in paths:
        path.unlink(missing_ok=True)


def model_nbytes(model: ModelProto, weights: Weights) -> int:
    """About as many bytes as ``model`` takes with its weights inside."""
    stubs = [tensor.name for tensor in model.graph.initializer if is_stub(tensor)]
    return int(model.ByteSize()) + sum(weights.nbytes(name) for name in stubs)


class _DataFile:
    """A file of external data, and where in it each weight is."""

    def __init__(self, file: BinaryIO, location: str, weights: Weights) -> None:
        self.file = file
        self._location, self._weights = location, weights
        self._offsets: dict[str, int] = {}

    def hold(self, model: ModelProto) -> ModelProto:
        """A copy of ``model`` whose stubs refer to this file; what it does not have yet is written."""
        external = ModelProto()
        external.CopyFrom(model)
        for tensor in external.graph.initializer:
            if not is_stub(tensor):
                continue
            entries = {"location": self._location, "offset": self._offset(tensor.name)}
            entries["length"] = self._weights.nbytes(tensor.name)
            tensor.ClearField("external_data")
            for key, value in entries.items():
                tensor.external_data.add(key=key, value=str(value))
        return external

    def _offset(self, name: str) -> int:
        if name not in self._offsets:
            offset = -(-self.file.tell() // _ALIGNMENT) * _ALIGNMENT
            self.file.seek(offset)
            self.file.writelines(self._weights.chunks(name))
            self._offsets[name] = offset
        return self._offsets[name]


def _write_model(file: BinaryIO, model: ModelProto, weights: Weights) -> None:
    """The encoding of ``model``, fields in the order of their numbers, with the data of each stub in its place."""
    before, after = _split(model, _GRAPH)
    graph_before, graph_after = _split(model.graph, _INITIALIZER)
    tensors = [_Encoded(tensor, weights) for tensor in model.graph.initializer]
    graph_nbytes = len(graph_before) + len(graph_after)
    graph_nbytes += sum(len(length_prefix(_INITIALIZER, t.nbytes)) + t.nbytes for t in tensors)
    file.write(before + length_prefix(_GRAPH, graph_nbytes) + graph_before)
    for tensor in tensors:
        file.write(length_prefix(_INITIALIZER, tensor.nbytes))
        file.writelines(tensor.chunks())
    file.write(graph_after + after)


class _Encoded:
    """One initializer: the length of its encoding, and the encoding piece by piece."""

    def __init__(self, tensor: TensorProto, weights: Weights) -> None:
        self._name = tensor.name if is_stub(tensor) else None
        self._weights = weights
        whole = TensorProto()
        whole.CopyFrom(tensor)
        if self._name is None:
            self._before, self._after = whole.SerializeToString(), b""
            self.nbytes = len(self._before)
            return
        whole.ClearField("external_data")
        whole.ClearField("data_location")
        self._before, self._after = _split(whole, _RAW_DATA)
        nbytes = weights.nbytes(self._name)
        self._before += length_prefix(_RAW_DATA, nbytes)
        self.nbytes = len(self._before) + nbytes + len(self._after)

    def chunks(self) -> Iterator[bytes | memoryview]:
        yield self._before
        if self._name is not None:
            yield from self._weights.chunks(self._name)
            yield self._after


def _split(message: ModelProto | GraphProto | TensorProto, number: int) -> tuple[bytes, bytes]:
    """The encodings of the fields of ``message`` below and above ``number``."""
    below, above = type(message)(), type(message)()
    copy_fields(message, below, lambda field: field.number < number)
    copy_fields(message, above, lambda field: field.number > number)
    return below.SerializeToString(), above.SerializeToString()
