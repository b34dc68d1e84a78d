"""Writing a light model and its weights to disk, one weight at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from typing import BinaryIO

from onnx import GraphProto, ModelProto, TensorProto

from ..files import as_path, replacing
from .weights import Weights, is_stub
from .wire import copy_fields, length_prefix

SINGLE_FILE_NBYTES = 1800 << 20
"""Models of at least this size get a second file: protobuf's own limit is 2 GiB, and some margin is needed."""

_ALIGNMENT = 4096
_GRAPH = ModelProto.DESCRIPTOR.fields_by_name["graph"].number
_INITIALIZER = GraphProto.DESCRIPTOR.fields_by_name["initializer"].number
_RAW_DATA = TensorProto.DESCRIPTOR.fields_by_name["raw_data"].number


def write(model: ModelProto, weights: Weights, path: str | os.PathLike[str]) -> None:
    """Write a model to ``path``: the bytes that ``onnx.save`` would write were the weights inside it.

    From :data:`SINGLE_FILE_NBYTES` on, the weights go to ``<path>.data`` beside it, as external data.  Files appear
    whole or not at all, and the files that the weights come from may be the ones written.

    Args:
        model: the graph, with a stub for each large weight.
        weights: the data of at least those stubs.
        path: the ``.onnx`` file, absolute or relative to the current folder.

    Raises:
        OnnxBlockError: the file cannot be written.
        UnknownNameError: the data of a stub is not among the weights.
        InvalidModelError: the data of a weight can no longer be read.
    """
    path = as_path(path).absolute()
    with ExitStack() as files:
        if model_nbytes(model, weights) < SINGLE_FILE_NBYTES:
            _write_model(files.enter_context(replacing(path)), model, weights)
            return
        data_path = path.with_name(path.name + ".data")
        file = files.enter_context(replacing(path))
        data = files.enter_context(replacing(data_path))
        _write_model(file, _with_external_data(model, weights, data, data_path.name), Weights())


def model_nbytes(model: ModelProto, weights: Weights) -> int:
    """About as many bytes as ``model`` takes with its weights inside."""
    stubs = [tensor.name for tensor in model.graph.initializer if is_stub(tensor)]
    return int(model.ByteSize()) + sum(weights.nbytes(name) for name in stubs)


def _with_external_data(model: ModelProto, weights: Weights, data: BinaryIO, location: str) -> ModelProto:
    """A copy of ``model`` whose stubs refer to ``location``, where their data was written."""
    external = ModelProto()
    external.CopyFrom(model)
    for tensor in external.graph.initializer:
        if not is_stub(tensor):
            continue
        offset = -(-data.tell() // _ALIGNMENT) * _ALIGNMENT
        data.seek(offset)
        data.writelines(weights.chunks(tensor.name))
        tensor.ClearField("external_data")
        for key, value in (("location", location), ("offset", offset), ("length", weights.nbytes(tensor.name))):
            tensor.external_data.add(key=key, value=str(value))
    return external


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
