"""Tensor data in files beside a model: where it is, whether it can be used, and reading it piece by piece."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from onnx import TensorProto

from ..errors import InvalidModelError
from .storage import tensor_nbytes

CHUNK = 1 << 20
"""Bytes that are read at a time: they stay in the cache until they are written."""


@dataclass(frozen=True)
class FileRegion:
    """A run of bytes in a file, and what the file looked like when it was found there."""

    path: Path
    offset: int
    nbytes: int
    file_state: tuple[int, int]

    def chunks(self, size: int) -> Iterator[bytes]:
        """The bytes, at most ``size`` at a time; raises :class:`InvalidModelError` when the file has changed."""
        try:
            with self.path.open("rb") as file:
                if _state(os.fstat(file.fileno())) != self.file_state:
                    raise InvalidModelError(
                        f"{str(self.path)!r} has changed since the model was loaded.", "Load the model again."
                    )
                file.seek(self.offset)
                left = self.nbytes
                while left:
                    data = file.read(min(size, left))
                    if not data:
                        raise InvalidModelError(f"{str(self.path)!r} became shorter while it was read.")
                    left -= len(data)
                    yield data
        except OSError as error:
            raise InvalidModelError(
                f"{str(self.path)!r} cannot be read: {error.strerror or error}.",
                "The file must stay where it was when the model was loaded.",
            ) from error


class ExternalFiles:
    """Finds the external data of one model's tensors, and collects everything that is wrong with it.

    Args:
        folder: where the locations that the tensors name start.
        roots: the folders a location may lead to, symbolic links followed; ``folder`` alone unless given.
    """

    def __init__(self, folder: str | os.PathLike[str], roots: Iterable[str | os.PathLike[str]] = ()) -> None:
        self._folder = Path(folder).absolute()
        self._roots = [Path(os.path.realpath(root)) for root in (self._folder, *roots)]
        self._states: dict[Path, tuple[int, int] | str] = {}
        self.problems: list[str] = []

    def find(self, tensor: TensorProto, name: str) -> FileRegion | None:
        """Where the data of ``tensor`` is; None, with a line added to ``problems``, when it cannot be used."""
        found = self._find(tensor)
        if isinstance(found, FileRegion):
            return found
        self.problems.append(f"tensor {name!r}: {found}")
        return None

    def _find(self, tensor: TensorProto) -> FileRegion | str:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        if not location:
            return "its data is external, but no file is named."
        path = Path(os.path.realpath(self._folder / location))
        if not any(path.is_relative_to(root) for root in self._roots):
            return f"its file {location!r} lies outside the model's folder {str(self._folder)!r}."
        state = self._state_of(path)
        if isinstance(state, str):
            return f"its file {str(self._folder / location)!r} {state}"
        expected = tensor_nbytes(tensor)
        try:
            offset = int(entries.get("offset") or 0)
            nbytes = int(entries.get("length") or expected)
        except ValueError:
            return f"offset {entries.get('offset')!r} and length {entries.get('length')!r} are not two numbers."
        if nbytes != expected:
            return f"its shape needs {expected} bytes, but {nbytes} are stored."
        if offset < 0 or offset + nbytes > state[0]:
            return (
                f"its file {str(self._folder / location)!r} is too short: bytes {offset} to {offset + nbytes} are"
                f" needed, {state[0]} are there."
            )
        return FileRegion(path, offset, nbytes, state)

    def _state_of(self, path: Path) -> tuple[int, int] | str:
        if path not in self._states:
            try:
                self._states[path] = _state(path.stat()) if path.is_file() else "does not exist."
            except OSError as error:
                self._states[path] = f"cannot be read: {error.strerror or error}."
        return self._states[path]

    def raise_problems(self) -> None:
        """Raise one :class:`InvalidModelError` that lists all problems met so far, if there are any."""
        if self.problems:
            raise InvalidModelError(
                "the model's external data cannot be used:" + "".join(f"\n  {problem}" for problem in self.problems),
                "Put the data files where they were saved, in the model's own folder"
                f" ({str(self._folder)!r}), and give the model by its path.",
            )


def _state(stat: os.stat_result) -> tuple[int, int]:
    return stat.st_size, stat.st_mtime_ns
