"""The weights of a model, held by reference: an initializer's name and where its bytes are.

A graph under construction carries *stubs* (name, element type, shape) in place of its large initializers, so that it
stays small whatever the model weighs; :func:`detach` makes the two from a user's model without copying a large weight.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, numpy_helper

from ..errors import InvalidModelError, UnknownNameError, did_you_mean
from .dependencies import all_nodes, subgraphs
from .external import CHUNK, ExternalFiles, FileRegion
from .messages import copy_fields
from .storage import (
    array_from_bytes,
    bytes_of_array,
    element_bits,
    is_numeric,
    tensor_bytes,
    tensor_nbytes,
    wrong_size,
)
from .types import FLOATS, onnx_dtype

# Checkers of onnx pass over a location that starts like this; no file can be meant.
_HELD = "#held by onnxblock"
_LARGE_NBYTES = 1024
_LARGE_INTEGERS_NBYTES = 65536
_FEW = 4096


@dataclass(frozen=True)
class _Weight:
    dtype: int
    shape: tuple[int, ...]
    nbytes: int
    source: TensorProto | FileRegion | npt.NDArray[np.generic]


class Weights:
    """Initializer names and where their bytes are: in a user's ``TensorProto`` or array, or in a file.

    Nothing is copied when a weight is added; reading one brings that one into memory, in pieces with :meth:`chunks`.
    What is held by reference must not be changed as long as it is held.  Lookups raise
    :class:`~onnxblock.errors.UnknownNameError`, reading raises :class:`~onnxblock.errors.InvalidModelError` when the
    data is not what the shape needs, or its file is gone or has changed.
    """

    def __init__(self) -> None:
        self._weights: dict[str, _Weight] = {}

    def names(self) -> list[str]:
        """All names, in the order they were added."""
        return list(self._weights)

    def files(self) -> set[Path]:
        """The files that weights are still to be read from."""
        return {w.source.path for w in self._weights.values() if isinstance(w.source, FileRegion)}

    def __contains__(self, name: object) -> bool:
        return name in self._weights

    def __len__(self) -> int:
        return len(self._weights)

    def dtype(self, name: str) -> int:
        """The element type, an ``onnx.TensorProto.DataType``."""
        return self._weight(name).dtype

    def shape(self, name: str) -> tuple[int, ...]:
        return self._weight(name).shape

    def nbytes(self, name: str) -> int:
        """Bytes of the elements as raw data."""
        return self._weight(name).nbytes

    def chunks(self, name: str, size: int = CHUNK) -> Iterator[bytes | memoryview]:
        """The little-endian raw data, at most ``size`` bytes at a time."""
        weight = self._weight(name)
        if isinstance(weight.source, FileRegion):
            yield from weight.source.chunks(size)
            return
        data = memoryview(self._in_memory(name, weight.source))
        for start in range(0, len(data), size):
            yield data[start : start + size]

    def array(self, name: str) -> npt.NDArray[Any]:
        """The elements as a read-only array."""
        weight = self._weight(name)
        if isinstance(weight.source, np.ndarray):
            view = weight.source.view()
            view.flags.writeable = False
            return view
        if isinstance(weight.source, TensorProto):
            return array_from_bytes(tensor_bytes(weight.source, name), weight.dtype, weight.shape)
        data = bytearray(weight.nbytes)
        end = 0
        for chunk in weight.source.chunks(CHUNK):
            data[end : end + len(chunk)] = chunk
            end += len(chunk)
        return array_from_bytes(data, weight.dtype, weight.shape)

    def tensor(self, name: str) -> TensorProto:
        """A new ``TensorProto`` called ``name`` that holds the elements as raw data."""
        weight = self._weight(name)
        data = b"".join(self.chunks(name))
        return TensorProto(name=name, data_type=weight.dtype, dims=weight.shape, raw_data=data)

    def add(self, tensor: TensorProto, name: str | None = None) -> None:
        """Hold a tensor by reference, under its own name unless another is given.

        Raises :class:`InvalidModelError` for strings, external data and stubs, whose data is not in ``tensor``, and
        for a name that is there already.
        """
        name = tensor.name if name is None else name
        if tensor.data_location == TensorProto.EXTERNAL:
            raise InvalidModelError(f"the data of tensor {name!r} is not in it, only a reference to where it is.")
        self._hold(name, _Weight(tensor.data_type, tuple(tensor.dims), tensor_nbytes(tensor), tensor))

    def take(self, tensor: TensorProto) -> TensorProto:
        """``tensor`` itself if it is small; a large one is held, and its stub returned."""
        if not is_large(tensor):
            return tensor
        self.add(tensor)
        return stub(tensor)

    def add_array(self, name: str, array: npt.NDArray[Any], dtype: int | None = None) -> None:
        """Hold an array by reference (one with elements of less than a byte, packed).

        ``dtype`` is the ONNX element type, where NumPy has none of that name and lends another of the same width.
        Raises :class:`InvalidModelError` for a name that is there already.
        """
        dtype = onnx_dtype(array.dtype.newbyteorder("=")) if dtype is None else dtype
        if element_bits(dtype) < 8:
            self.add(numpy_helper.from_array(array, name))
        else:
            self._hold(name, _Weight(dtype, array.shape, array.nbytes, array))

    def add_region(self, name: str, tensor: TensorProto, region: FileRegion) -> None:
        """Hold a part of a file as the data of ``tensor``, a stub or a reference; the name must be new."""
        self._hold(name, _Weight(tensor.data_type, tuple(tensor.dims), region.nbytes, region))

    def remove(self, name: str) -> None:
        """Let go of a weight."""
        self._weight(name)
        del self._weights[name]

    def _weight(self, name: str) -> _Weight:
        try:
            return self._weights[name]
        except KeyError:
            raise UnknownNameError(f"no weight is called {name!r}." + did_you_mean(name, self._weights)) from None

    def _hold(self, name: str, weight: _Weight) -> None:
        if name in self._weights:
            raise InvalidModelError(f"two weights are called {name!r}.")
        self._weights[name] = weight

    @staticmethod
    def _in_memory(name: str, source: TensorProto | npt.NDArray[np.generic]) -> bytes | memoryview:
        return tensor_bytes(source, name) if isinstance(source, TensorProto) else bytes_of_array(source)


def stub(tensor: TensorProto, name: str | None = None) -> TensorProto:
    """Everything about ``tensor`` but its data: what a graph carries while a :class:`Weights` holds the elements."""
    made = TensorProto(name=tensor.name if name is None else name, data_type=tensor.data_type, dims=tensor.dims)
    if tensor.doc_string:
        made.doc_string = tensor.doc_string
    made.data_location = TensorProto.EXTERNAL
    made.external_data.add(key="location", value=_HELD)
    return made


def is_stub(tensor: TensorProto) -> bool:
    """Whether ``tensor`` was made by :func:`stub`."""
    return tensor.data_location == TensorProto.EXTERNAL and any(
        entry.key == "location" and entry.value == _HELD for entry in tensor.external_data
    )


def is_uniform(tensor: TensorProto, weights: Weights) -> bool:
    """Whether the elements of an initializer are all the same; ``weights`` holds it if it is a stub.

    Nothing is read behind the first that differs.
    """
    element, first = np.dtype((np.void, element_bits(tensor.data_type) // 8)), None
    for chunk in _chunks(tensor, weights, _FEW):
        elements = np.frombuffer(chunk, element)
        first = elements[0] if first is None else first
        if (elements != first).any():
            return False
    return True


def beginning(tensor: TensorProto, weights: Weights, nbytes: int) -> bytes:
    """The first ``nbytes`` (1 or more) of the raw data of an initializer; ``weights`` holds it if it is a stub."""
    return bytes(next(_chunks(tensor, weights, nbytes))[:nbytes])


def _chunks(tensor: TensorProto, weights: Weights, size: int) -> Iterator[bytes | memoryview]:
    if is_stub(tensor):
        yield from weights.chunks(tensor.name, size)
    else:
        yield tensor_bytes(tensor, tensor.name)


def detach(model: ModelProto, base_dir: str | os.PathLike[str] | None = None) -> tuple[ModelProto, Weights]:
    """A copy of ``model`` with stubs for its large initializers, and the weights that they stand for.

    Large is more than 1 KiB, and more than 64 KiB for int32 and int64, which are mostly shapes and indices that
    inference wants to see.  A ``Constant`` node of the main graph with a large tensor becomes an initializer called
    like its output; where the model has no float initializers, as some exporters write it, every float one with an
    axis does.  Initializers and constants of bodies and functions keep their data.  ``model`` is not modified
    and, apart from those, no large weight is copied.

    Args:
        model: the model as the user holds it; what it holds in memory is referred to, not copied.
        base_dir: the folder of its external data; the current one, as for onnxruntime, when None.

    Raises:
        InvalidModelError: external data that is missing, too short or outside ``base_dir``, two initializers with one
            name, or data that does not fit its shape; all of one kind are named at once.
    """
    return detach_with(model, ExternalFiles("." if base_dir is None else base_dir), weights_in_constants(model))


def detach_with(
    model: ModelProto, files: ExternalFiles, is_weight: Callable[[TensorProto], bool]
) -> tuple[ModelProto, Weights]:
    """:func:`detach` with the external data that ``files`` finds; ``is_weight`` says which constants are weights."""
    light, weights = ModelProto(), Weights()
    copy_fields(model, light, lambda field: field.name != "graph")
    light.graph.SetInParent()
    copy_fields(model.graph, light.graph, lambda field: field.name not in {"node", "initializer"})
    _refuse_duplicates(model.graph)
    _refuse_wrong_sizes(model)
    for tensor in model.graph.initializer:
        _detach_tensor(tensor, tensor.name, light.graph, weights, files)
    for node in model.graph.node:
        constant = constant_tensor(node)
        if constant is not None and is_weight(constant):
            _detach_tensor(constant, node.output[0], light.graph, weights, files)
        else:
            light.graph.node.add().CopyFrom(node)
    for tensor in _inner_tensors(light):
        if tensor.data_location == TensorProto.EXTERNAL:
            _read_external(tensor, files)
    files.raise_problems()
    return light, weights


def is_large(tensor: TensorProto) -> bool:
    """Whether :func:`detach` leaves only a stub of ``tensor``."""
    if not is_numeric(tensor.data_type):
        return False
    integers = tensor.data_type in {TensorProto.INT32, TensorProto.INT64}
    return tensor_nbytes(tensor) > (_LARGE_INTEGERS_NBYTES if integers else _LARGE_NBYTES)


def weights_in_constants(model: ModelProto) -> Callable[[TensorProto], bool]:
    """Whether the tensor of a Constant node of ``model`` is a weight: a large one is.

    Where no graph of the model has a float initializer, all floats are but for single numbers, which are settings.
    """
    graphs = [model.graph, *(body for node in all_nodes(model.graph.node) for body in subgraphs(node))]
    if any(tensor.data_type in FLOATS for graph in graphs for tensor in graph.initializer):
        return is_large
    return lambda tensor: is_large(tensor) or (tensor.data_type in FLOATS and len(tensor.dims) > 0)


def constant_tensor(node: NodeProto) -> TensorProto | None:
    """The tensor that a ``Constant`` node holds in its attribute ``value``; None for any other node."""
    if node.op_type != "Constant" or node.domain not in {"", "ai.onnx"}:
        return None
    held = (a for a in node.attribute if a.name == "value" and a.type == AttributeProto.TENSOR)
    return next((a.t for a in held if not a.ref_attr_name), None)


def _refuse_duplicates(graph: GraphProto) -> None:
    counts = Counter(tensor.name for tensor in graph.initializer)
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        raise InvalidModelError(
            f"several initializers share one name: {', '.join(map(repr, twice))}.", "Give each a name of its own."
        )


def _refuse_wrong_sizes(model: ModelProto) -> None:
    tensors = [*model.graph.initializer, *_inner_tensors(model)]
    wrong = [f"tensor {t.name!r}: {problem}" for t in tensors if (problem := wrong_size(t)) is not None]
    if wrong:
        raise InvalidModelError(
            "the data of these tensors does not fit their shapes:\n    " + "\n    ".join(wrong),
            "Export the model again.",
        )


def _detach_tensor(tensor: TensorProto, name: str, graph: GraphProto, weights: Weights, files: ExternalFiles) -> None:
    """Add to ``graph`` either a stub, with the data held by ``weights``, or the whole tensor if it is small."""
    if is_stub(tensor):
        files.problems.append(f"tensor {name!r}: it is a stub, whose data a graph under construction holds.")
    elif not is_large(tensor):
        made = graph.initializer.add()
        made.CopyFrom(tensor)
        made.name = name
        if made.data_location == TensorProto.EXTERNAL:
            _read_external(made, files)
    elif tensor.data_location == TensorProto.EXTERNAL:
        region = files.find(tensor, name)
        graph.initializer.append(stub(tensor, name))
        if region is not None:
            weights.add_region(name, tensor, region)
    else:
        graph.initializer.append(stub(tensor, name))
        weights.add(tensor, name)


def _read_external(tensor: TensorProto, files: ExternalFiles) -> None:
    """Replace a reference to external data by the data."""
    region = files.find(tensor, tensor.name)
    if region is not None:
        tensor.raw_data = b"".join(region.chunks(CHUNK))
        tensor.ClearField("external_data")
        tensor.ClearField("data_location")


def _inner_tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Every tensor outside the initializers of the main graph: in attributes, in bodies, in functions."""
    for nodes in (model.graph.node, *(function.node for function in model.functions)):
        for node in nodes:
            yield from _tensors_of(node)


def _tensors_of(node: NodeProto) -> Iterator[TensorProto]:
    for attribute in node.attribute:
        if attribute.type == AttributeProto.TENSOR and not attribute.ref_attr_name:
            yield attribute.t
        yield from attribute.tensors
    for body in subgraphs(node):
        yield from body.initializer
        for inner in body.node:
            yield from _tensors_of(inner)
