"""Reading checkpoints, with every fault of the file named."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import CheckpointError
from ..files import as_path
from .state import Checkpoint, OptimizerGroup, Property, Tensor
from .tables import MalformedError, Table
from .write import IDENTIFIER, VERSION, external_path

_Bytes = npt.NDArray[np.uint8]
_ANOTHER_FILE = "Pass the file that generate_artifacts, save_checkpoint or CheckpointState.save_checkpoint wrote."
_AGAIN = "Write or copy the checkpoint again; it may have been cut off."


def read_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Read the checkpoint at ``path``.

    The tensors' arrays are read-only views of the mapped file, those of external data are copy-on-write views of the
    mapped external file: writable, private to this process, and read from disk only where they are used.

    Raises:
        CheckpointError: the file or its external data is missing, empty, truncated, not a checkpoint, of an unknown
            version, or names something twice.
    """
    path = as_path(path, CheckpointError)
    content = _map(path, "r")
    if content.size == 0:
        raise CheckpointError(f"{path} is empty, not a checkpoint", _ANOTHER_FILE)
    data = content.data
    if content.size < 8 or bytes(data[4:8]) != IDENTIFIER:
        raise CheckpointError(
            f"{path} is not a checkpoint: its bytes 4 to 8 are not {IDENTIFIER.decode()}", _ANOTHER_FILE
        )
    try:
        root = Table.root(data)
        version = root.integer(0, "i")
        if version != VERSION:
            raise CheckpointError(
                f"{path} is a checkpoint of version {version}; only version {VERSION} can be read",
                "Write it again with a release that writes this version.",
            )
        return _checkpoint(path, content, root)
    except MalformedError:
        raise CheckpointError(f"{path} is truncated or damaged: it points outside of itself", _AGAIN) from None


def is_checkpoint(path: Path) -> bool:
    """Whether the file at ``path`` is there and begins as checkpoints do."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(8)[4:] == IDENTIFIER


def _map(path: Path, mode: Any) -> _Bytes:
    try:
        if path.is_dir():
            raise CheckpointError(f"{path} is a folder, not a checkpoint", _ANOTHER_FILE)
        if path.stat().st_size == 0:
            return np.empty(0, np.uint8)
        return np.asarray(np.memmap(path, np.uint8, mode))
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}", _ANOTHER_FILE) from error


def _checkpoint(path: Path, content: _Bytes, root: Table) -> Checkpoint:
    module = root.table(1)
    if module is None or not (module.has(0) and module.has(1)):
        raise CheckpointError(f"{path} holds no module state", _AGAIN)
    nominal = bool(module.integer(2, "?"))
    external = _external_data(path) if module.integer(3, "?") else None
    trainable, frozen = ([_tensor(path, t, content, external, nominal) for t in module.tables(slot)] for slot in (0, 1))
    _refuse_duplicates(path, "parameter", (t.name for t in [*trainable, *frozen]))
    groups = None
    if root.has(2):
        groups = [_group(path, table, content, external) for table in root.tables(2)]
        _refuse_duplicates(path, "optimizer group", (g.name for g in groups))
    bag = root.table(3)
    properties = None if bag is None else _properties(path, bag)
    return Checkpoint(trainable, frozen, nominal, groups, properties, external is not None)


def _external_data(path: Path) -> _Bytes:
    data = external_path(path)
    if not data.exists():
        raise CheckpointError(
            f"the checkpoint {path} keeps its data in {data}, which does not exist",
            "Keep the two files together, under the names they were written with.",
        )
    return _map(data, "c")


def _tensor(path: Path, table: Table, content: _Bytes, external: _Bytes | None, nominal: bool = False) -> Tensor:
    name = _name(path, table)
    data_type, shape = table.integer(3, "i"), table.int64s(2)
    if nominal:
        return Tensor(name, data_type, (), None)
    if min(shape, default=0) < 0:
        raise MalformedError
    tensor = Tensor(name, data_type, shape, None)
    element_type, nbytes = tensor.element_type, tensor.nbytes
    offset = table.integer(6, "q", -1)
    if offset >= 0:
        if external is None:
            raise CheckpointError(f"{path} refers to external data for {name!r} but says it has none", _AGAIN)
        if offset + nbytes > external.size:
            raise CheckpointError(f"{external_path(path)} is too short for {name!r}", _AGAIN)
        raw = external[offset : offset + nbytes]
    else:
        start, length = table.vector(4, 1) or (0, 0)
        if length != nbytes:
            raise CheckpointError(
                f"{path} holds {length} bytes for {name!r}; {element_type.name} {list(shape)} takes {nbytes}", _AGAIN
            )
        raw = content[start : start + length]
    array = raw.view(element_type.dtype()).reshape(element_type.array_shape(shape))
    return Tensor(name, data_type, shape, array, table.text(1))


def _name(path: Path, table: Table) -> str:
    name = table.text(0)
    if not name:
        raise CheckpointError(f"{path} holds an entry without a name", _AGAIN)
    return name


def _group(path: Path, table: Table, content: _Bytes, external: _Bytes | None) -> OptimizerGroup:
    states = list(table.tables(3))
    names = [_name(path, state) for state in states]
    _refuse_duplicates(path, "optimizer state", names)
    moments = {
        name: [_tensor(path, moment, content, external) for moment in state.tables(1)]
        for name, state in zip(names, states, strict=True)
    }
    return OptimizerGroup(_name(path, table), table.integer(1, "q"), float(table.scalar(2, "f")), moments)


def _properties(path: Path, bag: Table) -> dict[str, Property]:
    items: list[tuple[str, Property]] = []
    items += [(_name(path, t), t.integer(1, "q")) for t in bag.tables(0)]
    items += [(_name(path, t), float(t.scalar(1, "f"))) for t in bag.tables(1)]
    items += [(_name(path, t), t.text(1) or "") for t in bag.tables(2)]
    _refuse_duplicates(path, "property", (name for name, _ in items))
    return dict(sorted(items))


def _refuse_duplicates(path: Path, kind: str, names: Iterable[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise CheckpointError(f"{path} holds one {kind} twice: {', '.join(map(repr, twice))}", _AGAIN)
