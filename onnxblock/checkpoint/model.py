"""Checkpoints from and into ONNX models.  Only this file of the package needs ``onnx``, and only when it is called."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ..errors import ArgumentError, CheckpointError
from .dtypes import element_type
from .layout import Chunks
from .read import read_checkpoint
from .state import Checkpoint, Tensor
from .write import write_checkpoint

if TYPE_CHECKING:
    import onnx

_CHUNK = 1 << 20


class HeldWeights(Protocol):
    """Data of tensors by name, read in chunks; ``onnxblock.graph.weights.Weights`` is one."""

    def __contains__(self, name: object) -> bool:
        """Whether the data of this tensor is held."""

    def chunks(self, name: str) -> Iterator[bytes | memoryview]:
        """The little-endian bytes of this tensor."""


def save_checkpoint(
    parameters: tuple[Sequence[onnx.TensorProto], Sequence[onnx.TensorProto]],
    path_to_checkpoint: str | os.PathLike[str],
    nominal_checkpoint: bool = False,
    *,
    weights: HeldWeights | None = None,
) -> None:
    """Write the (trainable, frozen) parameters of a training block as a checkpoint, in their order.

    Args:
        parameters: what ``TrainingBlock.parameters()`` returns.
        path_to_checkpoint: the file to write; data of 1,800 MiB and more goes to a second file, ``<path>.data``.
        nominal_checkpoint: write names and element types only, for a device that gets the weights another way.
        weights: holds the data of tensors that only refer to it, by name.  The data of other external tensors is read
            from the file that they name.

    Raises:
        CheckpointError: see :func:`onnxblock.checkpoint.write_checkpoint`; or external data cannot be found.
    """
    trainable, frozen = ([_tensor(proto, weights) for proto in protos] for protos in parameters)
    write_checkpoint(path_to_checkpoint, Checkpoint(trainable, frozen, nominal=nominal_checkpoint))


def load_checkpoint_to_model(path_to_checkpoint: str | os.PathLike[str], model: onnx.ModelProto) -> None:
    """Put the parameters of a checkpoint into the initializers of ``model`` that have their names.

    Parameters that the model does not have, and initializers that are not in the checkpoint, are left alone.

    Raises:
        CheckpointError: the checkpoint cannot be read, is nominal, has no parameter in common with the model, or one of
            another shape or element type.
        ArgumentError: ``model`` is no ``ModelProto``.
    """
    if not hasattr(model, "graph"):
        raise ArgumentError(
            f"the model is {type(model).__name__}, where a ModelProto is expected.", "Load it: onnx.load(path)."
        )
    checkpoint = read_checkpoint(path_to_checkpoint)
    if checkpoint.nominal:
        raise CheckpointError(
            f"{Path(path_to_checkpoint)} is a nominal checkpoint: it holds names, no data",
            "Load a checkpoint that was written with nominal_checkpoint=False.",
        )
    initializers = {initializer.name: initializer for initializer in model.graph.initializer}
    common = [(tensor, initializers[tensor.name]) for tensor in checkpoint.parameters if tensor.name in initializers]
    if checkpoint.parameters and not common:
        raise CheckpointError(
            f"{Path(path_to_checkpoint)} and the model have no parameter in common",
            f"The checkpoint holds {', '.join(repr(t.name) for t in checkpoint.parameters[:5])}, …; "
            "load it into the model that it was made from.",
        )
    differing = [
        f"{tensor.name!r}: {_form(tensor.data_type, tensor.shape)} in the checkpoint, "
        f"{_form(initializer.data_type, initializer.dims)} in the model"
        for tensor, initializer in common
        if (tensor.data_type, tensor.shape) != (initializer.data_type, tuple(initializer.dims))
    ]
    if differing:
        raise CheckpointError(
            "the checkpoint does not fit the model:\n    " + "\n    ".join(differing),
            "Load it into the model that it was made from.",
        )
    for tensor, initializer in common:
        doc_string = initializer.doc_string
        initializer.Clear()
        initializer.name, initializer.data_type = tensor.name, tensor.data_type
        initializer.dims.extend(tensor.shape)
        initializer.raw_data = b"".join(tensor.chunks())
        if doc_string:
            initializer.doc_string = doc_string


def _form(data_type: int, shape: Sequence[int]) -> str:
    return f"{element_type(data_type).name} {list(shape)}"


def _tensor(proto: onnx.TensorProto, weights: HeldWeights | None) -> Tensor:
    doc_string = proto.doc_string if proto.HasField("doc_string") else None
    return Tensor(proto.name, proto.data_type, tuple(proto.dims), _data(proto, weights), doc_string)


def _data(proto: onnx.TensorProto, weights: HeldWeights | None) -> Chunks:
    if proto.data_location == proto.EXTERNAL:
        if weights is not None and proto.name in weights:
            return lambda: weights.chunks(proto.name)
        return _external_data(proto, element_type(proto.data_type).nbytes(proto.dims))
    if proto.HasField("raw_data"):
        return lambda: (proto.raw_data,)

    def converted() -> Iterator[bytes]:
        import onnx.numpy_helper

        plain = onnx.TensorProto()
        plain.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(proto)))
        yield plain.raw_data

    return converted


def _external_data(proto: onnx.TensorProto, nbytes: int) -> Chunks:
    entries = {entry.key: entry.value for entry in proto.external_data}
    path, offset = Path(entries.get("location", "")), int(entries.get("offset", 0))
    if not path.is_file():
        raise CheckpointError(
            f"the data of {proto.name!r} lies in the external file {str(path)!r}, which does not exist here",
            "Run from the folder of the model, or load the model together with its external data.",
        )

    def chunks() -> Iterator[bytes]:
        with path.open("rb") as file:
            file.seek(offset)
            for at in range(0, nbytes, _CHUNK):
                yield file.read(min(_CHUNK, nbytes - at))

    return chunks
