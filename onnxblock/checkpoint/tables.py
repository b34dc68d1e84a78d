"""Reading FlatBuffer tables with every access checked against the size of the file."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass


class MalformedError(Exception):
    """An offset or a length that points outside the file."""


@dataclass(frozen=True)
class Table:
    """A table at ``position`` of ``data``.

    ``data`` is the whole file.  Absent fields give ``None`` or the default that is passed.
    """

    data: memoryview
    position: int

    @classmethod
    def root(cls, data: memoryview) -> Table:
        """The root table of a FlatBuffer."""
        return cls(data, _follow(data, 0))

    def _field(self, slot: int) -> int | None:
        vtable = self.position - _unpack(self.data, "i", self.position)
        offset = 4 + 2 * slot
        if offset + 2 > _unpack(self.data, "H", vtable):
            return None
        relative = _unpack(self.data, "H", vtable + offset)
        return self.position + relative if relative else None

    def scalar(self, slot: int, form: str, default: float = 0) -> int | float:
        """The scalar field of ``struct`` format ``form``."""
        at = self._field(slot)
        return default if at is None else _unpack_number(self.data, form, at)

    def integer(self, slot: int, form: str, default: int = 0) -> int:
        """The integer or boolean field of ``struct`` format ``form``."""
        return int(self.scalar(slot, form, default))

    def table(self, slot: int) -> Table | None:
        """The table that the field refers to."""
        at = self._field(slot)
        return None if at is None else Table(self.data, _follow(self.data, at))

    def vector(self, slot: int, item_size: int) -> tuple[int, int] | None:
        """Position of the first item and number of items of the vector that the field refers to."""
        at = self._field(slot)
        if at is None:
            return None
        start = _follow(self.data, at)
        count = _unpack(self.data, "I", start)
        if start + 4 + count * item_size > len(self.data):
            raise MalformedError
        return start + 4, count

    def tables(self, slot: int) -> Iterator[Table]:
        """The tables of a vector of references; none if the field is absent."""
        start, count = self.vector(slot, 4) or (0, 0)
        for at in range(start, start + 4 * count, 4):
            yield Table(self.data, _follow(self.data, at))

    def int64s(self, slot: int) -> tuple[int, ...]:
        """A vector of 64-bit integers; empty if the field is absent."""
        start, count = self.vector(slot, 8) or (0, 0)
        return struct.unpack_from(f"<{count}q", self.data, start) if count else ()

    def text(self, slot: int) -> str | None:
        """A string field.

        Raises:
            MalformedError: it is not UTF-8, not terminated by a zero, or leaves the file.
        """
        vector = self.vector(slot, 1)
        if vector is None:
            return None
        start, length = vector
        if bytes(self.data[start + length : start + length + 1]) != b"\0":
            raise MalformedError
        try:
            return bytes(self.data[start : start + length]).decode()
        except UnicodeDecodeError:
            raise MalformedError from None

    def has(self, slot: int) -> bool:
        """Whether the field is present."""
        return self._field(slot) is not None


def _unpack_number(data: memoryview, form: str, at: int) -> int | float:
    if at < 0:
        raise MalformedError
    try:
        value: int | float = struct.unpack_from("<" + form, data, at)[0]
    except struct.error:
        raise MalformedError from None
    return value


def _unpack(data: memoryview, form: str, at: int) -> int:
    return int(_unpack_number(data, form, at))


def _follow(data: memoryview, at: int) -> int:
    target = at + _unpack(data, "I", at)
    if not 4 <= target < len(data):
        raise MalformedError
    return target
