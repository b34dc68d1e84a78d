"""A FlatBuffer laid out from its end, with large vectors kept by reference.

FlatBuffers are built back to front: what a table refers to is placed behind it.  An ordinary builder holds the whole
buffer in memory; here only the small pieces (tables, names, shapes) exist, the bytes of a large vector are a length
and a source that is read once, when the file is written.  Offsets, alignment and the sharing of equal vtables follow
the FlatBuffers C++ library, so the bytes are those that it would have written.

Source of the layout rules: the FlatBuffers internals documentation (https://flatbuffers.dev/internals/).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..errors import CheckpointError

Chunks = Callable[[], Iterable["bytes | memoryview"]]
"""Gives the bytes of a vector, in order; every call starts again."""

Field = tuple[int, str, "int | float | bool | None"]
"""Slot, ``struct`` format (``ref`` for an offset) and value of a table field; ``None`` leaves the field out."""

MAXIMUM_SIZE = 2**31 - 1
"""FlatBuffer offsets are 32 bit and a reader refuses larger files."""

_REFERENCE = "ref"


@dataclass(frozen=True)
class _Streamed:
    nbytes: int
    chunks: Chunks


class Layout:
    """Collects the pieces of one FlatBuffer.

    Every method that places something returns its *position*: the distance of its first byte from the end of the
    file.  Objects refer to each other by these positions.
    """

    def __init__(self) -> None:
        self._pieces: list[bytes | _Streamed] = []  # last byte of the file first
        self._size = 0
        self._alignment = 1
        self._vtables: dict[bytes, int] = {}

    @property
    def size(self) -> int:
        """Bytes laid out so far."""
        return self._size

    def _push(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._size += len(piece)

    def _align(self, alignment: int, upcoming: int = 0) -> None:
        """Pad so that the next ``upcoming`` bytes start at a multiple of ``alignment`` from the end."""
        self._alignment = max(self._alignment, alignment)
        padding = -(self._size + upcoming) % alignment
        if padding:
            self._push(bytes(padding))

    def _scalar(self, form: str, value: float) -> None:
        piece = struct.pack("<" + form, value)
        self._align(len(piece))
        self._push(piece)

    def _reference(self, position: int) -> None:
        self._align(4)
        self._push(struct.pack("<I", self._size + 4 - position))

    def string(self, text: str) -> int:
        """Place a zero-terminated UTF-8 string."""
        data = text.encode()
        self._align(4, len(data) + 1)
        self._push(data + b"\0")
        self._scalar("I", len(data))
        return self._size

    def int64s(self, values: Sequence[int]) -> int:
        """Place a vector of 64-bit integers."""
        data = struct.pack(f"<{len(values)}q", *values)
        if values:
            self._align(4, len(data))
            self._align(8, len(data))
        self._push(data)
        self._scalar("I", len(values))
        return self._size

    def raw(self, nbytes: int, chunks: Chunks) -> int:
        """Place a vector of bytes by reference; ``chunks`` is called when the file is written."""
        if nbytes:
            self._align(4, nbytes)
        self._pieces.append(_Streamed(nbytes, chunks))
        self._size += nbytes
        self._scalar("I", nbytes)
        return self._size

    def references(self, positions: Sequence[int]) -> int:
        """Place a vector of references to tables."""
        if positions:
            self._align(4, 4 * len(positions))
        for position in reversed(positions):
            self._reference(position)
        self._scalar("I", len(positions))
        return self._size

    def table(self, *fields: Field) -> int:
        """Place a table and its vtable, which is shared with earlier tables of the same form."""
        start = self._size
        at: dict[int, int] = {}
        for slot, form, value in fields:
            if value is None:
                continue
            if form == _REFERENCE:
                self._reference(int(value))
            else:
                self._scalar(form, value)
            at[slot] = self._size
        self._align(4)
        position = self._size + 4
        slots = [position - at[slot] if slot in at else 0 for slot in range(max(at, default=-1) + 1)]
        vtable = struct.pack(f"<{len(slots) + 2}H", 2 * len(slots) + 4, position - start, *slots)
        known = self._vtables.get(vtable)
        if known is None:
            known = self._vtables[vtable] = position + len(vtable)
            self._push(struct.pack("<i", known - position))
            self._push(vtable)
        else:
            self._push(struct.pack("<i", known - position))
        return position

    def finish(self, root: int, identifier: bytes) -> None:
        """Place the header: the reference to the root table and the four-byte file identifier.

        Raises:
            CheckpointError: the buffer is larger than its 32-bit offsets can address.
        """
        self._align(self._alignment, 4 + len(identifier))
        self._push(identifier)
        self._reference(root)
        if self._size > MAXIMUM_SIZE:
            raise CheckpointError(
                f"the checkpoint would take {self._size} bytes inside one FlatBuffer, the limit is {MAXIMUM_SIZE}",
                "Store its tensors as external data.",
            )

    def write_to(self) -> Iterator[bytes | memoryview]:
        """The bytes of the finished buffer, front to back, in pieces.

        Raises:
            CheckpointError: a source gives another number of bytes than was announced.
        """
        small: list[bytes] = []
        for piece in reversed(self._pieces):
            if isinstance(piece, bytes):
                small.append(piece)
                continue
            if small:
                yield b"".join(small)
                small.clear()
            yield from counted(piece.chunks, piece.nbytes)
        yield b"".join(small)


def counted(chunks: Chunks, nbytes: int) -> Iterator[bytes | memoryview]:
    """The bytes of a source, checked to be exactly ``nbytes``.

    Raises:
        CheckpointError: there are more or fewer.
    """
    remaining = nbytes
    for chunk in chunks():
        remaining -= len(chunk) if isinstance(chunk, bytes) else chunk.nbytes
        if remaining < 0:
            break
        yield chunk
    if remaining:
        raise CheckpointError(
            f"the data of a tensor has {'more' if remaining < 0 else 'fewer'} bytes than its shape says ({nbytes})",
            "Give as many bytes as the shape and the element type need.",
        )
