"""Writing checkpoints: the bytes are those of the original, see README.md in this folder."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..errors import CheckpointError
from ..files import as_path, replacing
from .layout import MAXIMUM_SIZE, Field, Layout
from .state import Checkpoint, OptimizerGroup, Property, Tensor

IDENTIFIER = b"ODTC"
VERSION = 2
EXTERNAL_SUFFIX = ".data"
EXTERNAL_THRESHOLD = 1800
"""From this many MiB of parameters on, their data goes into a second file."""

INLINE_BELOW = 64
"""Parameters with fewer bytes than this stay in the first file next to new artifacts."""

_MIB = 1 << 20

INSIDE_LIMIT = MAXIMUM_SIZE - 16 * _MIB
"""Bytes of tensor data that fit into one FlatBuffer, with room for names and shapes."""


def write_checkpoint(
    path: str | os.PathLike[str],
    checkpoint: Checkpoint,
    *,
    inline_below: int = INLINE_BELOW,
    external_threshold: int = EXTERNAL_THRESHOLD,
    durable: bool = True,
) -> Path | None:
    """Write ``checkpoint`` to ``path``, in its own order, and return the path of its second file if there is one.

    The parameters' data goes to ``path + ".data"`` when ``checkpoint.external`` is set or they reach
    ``external_threshold`` MiB, except tensors of fewer than ``inline_below`` bytes.  Moments of the optimizer stay in
    the first file unless that would pass its limit of 2 GiB.  Files are written under temporary names and renamed,
    the checkpoint last; they are on the disk when this returns, unless that is not needed (``durable``).

    Raises:
        CheckpointError: two parameters share a name, a tensor has a type that cannot be stored, its data has the wrong
            length, or the file cannot be written.
    """
    parameters = checkpoint.parameters
    twice = [name for name, count in Counter(t.name for t in parameters).items() if count > 1]
    if twice:
        raise CheckpointError(
            f"parameters appear twice in the checkpoint: {', '.join(map(repr, twice))}",
            "Name each parameter once, as trainable or as frozen.",
        )
    external: list[Tensor] = []
    if not checkpoint.nominal:
        if checkpoint.external or _size_in_mib(parameters) >= external_threshold:
            external = [t for t in parameters if t.nbytes >= inline_below]
        moments = [t for group in checkpoint.optimizer_groups or [] for ts in group.moments.values() for t in ts]
        inside = sum(t.nbytes for t in parameters) - sum(t.nbytes for t in external)
        if inside + sum(t.nbytes for t in moments) > INSIDE_LIMIT:
            external += moments
    offsets = _external_offsets(external)
    layout = _lay_out(checkpoint, offsets)
    data_path = external_path(path) if external else None
    if data_path is not None:
        with replacing(data_path, CheckpointError, durable=durable) as file:
            at = 0
            for tensor in external:
                file.write(bytes(offsets[id(tensor)] - at))
                file.writelines(tensor.chunks())
                at = offsets[id(tensor)] + tensor.nbytes
    with replacing(path, CheckpointError, durable=durable) as file:
        file.writelines(layout.write_to())
    return data_path


def external_path(path: str | os.PathLike[str]) -> Path:
    """Where the external data of the checkpoint at ``path`` lies."""
    path = as_path(path, CheckpointError)
    return path.with_name(path.name + EXTERNAL_SUFFIX)


def _varint_size(value: int) -> int:
    return max(1, (value.bit_length() + 6) // 7)


def _size_in_mib(tensors: Iterable[Tensor]) -> int:
    """Total size as protobuf messages, which is what the original compares with its threshold, in whole MiB."""
    return max(1, -(-sum(map(_message_size, tensors)) // _MIB))


def _message_size(tensor: Tensor) -> int:
    """Size of the ``TensorProto`` that holds this tensor as raw data; each field is a key, a length and its bytes."""
    size = sum(1 + _varint_size(d) for d in tensor.shape) + 1 + _varint_size(tensor.data_type)
    lengths = [len(tensor.name.encode()), tensor.nbytes]
    if tensor.doc_string is not None:
        lengths.append(len(tensor.doc_string.encode()))
    return size + sum(1 + _varint_size(length) + length for length in lengths)


def _external_offsets(tensors: Sequence[Tensor]) -> dict[int, int]:
    """Where each tensor's data starts in the external file, by identity of the tensor."""
    offsets: dict[int, int] = {}
    end = 0
    for tensor in tensors:
        alignment = 8 if tensor.element_type.name in ("int64", "float64") else 4
        offsets[id(tensor)] = end + -end % alignment
        end = offsets[id(tensor)] + tensor.nbytes
    return offsets


def _lay_out(checkpoint: Checkpoint, offsets: dict[int, int]) -> Layout:
    layout = Layout()
    module = _module_state(layout, checkpoint, offsets)
    group_tables = [_optimizer_group(layout, group, offsets) for group in checkpoint.optimizer_groups or ()]
    properties = _property_bag(layout, checkpoint.properties)
    groups = None if checkpoint.optimizer_groups is None else layout.references(group_tables)
    root = layout.table((0, "i", VERSION), (1, "ref", module), (2, "ref", groups), (3, "ref", properties))
    layout.finish(root, IDENTIFIER)
    return layout


def _tensor(layout: Layout, tensor: Tensor, offset: int | None, nominal: bool = False) -> int:
    name = layout.string(tensor.name)
    if nominal:
        dims = layout.int64s(())
        data: int | None = layout.raw(0, tuple)
        return layout.table((0, "ref", name), (2, "ref", dims), (3, "i", tensor.data_type), (4, "ref", data))
    if tensor.data is None:
        raise CheckpointError(f"parameter {tensor.name!r} has no data", "Give its data, or write a nominal checkpoint.")
    doc_string = None if tensor.doc_string is None else layout.string(tensor.doc_string)
    dims = layout.int64s(tensor.shape)
    data = layout.raw(tensor.nbytes, tensor.chunks) if offset is None else None
    return layout.table(
        (0, "ref", name),
        (1, "ref", doc_string),
        (2, "ref", dims),
        (3, "i", tensor.data_type),
        (4, "ref", data),
        (6, "q", offset),
    )


def _module_state(layout: Layout, checkpoint: Checkpoint, offsets: dict[int, int]) -> int:
    trainable, frozen = (
        [_tensor(layout, t, offsets.get(id(t)), checkpoint.nominal) for t in tensors]
        for tensors in (checkpoint.trainable, checkpoint.frozen)
    )
    return layout.table(
        (0, "ref", layout.references(trainable)),
        (1, "ref", layout.references(frozen)),
        (2, "?", checkpoint.nominal or None),
        (3, "?", bool(offsets) or None),
    )


def _optimizer_group(layout: Layout, group: OptimizerGroup, offsets: dict[int, int]) -> int:
    states = []
    for parameter, tensors in group.moments.items():
        moments = [_tensor(layout, t, offsets.get(id(t))) for t in tensors]
        name = layout.string(parameter)
        states.append(layout.table((0, "ref", name), (1, "ref", layout.references(moments))))
    name = layout.string(group.name)
    return layout.table(
        (0, "ref", name),
        (2, "f", group.initial_learning_rate or None),
        (1, "q", group.step or None),
        (3, "ref", layout.references(states)),
    )


def _property_bag(layout: Layout, properties: dict[str, Property] | None) -> int | None:
    if not properties:
        return None
    tables: dict[type, list[int]] = {int: [], float: [], str: []}
    for name, value in properties.items():
        position = layout.string(name)
        if isinstance(value, str):
            field: Field = (1, "ref", layout.string(value))
        else:
            field = (1, "f" if isinstance(value, float) else "q", value or None)
        tables[type(value)].append(layout.table((0, "ref", position), field))
    vectors = [layout.references(tables[kind]) for kind in (int, float, str)]
    return layout.table(*((slot, "ref", vector) for slot, vector in enumerate(vectors)))
