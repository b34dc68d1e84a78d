"""The little of protobuf's encoding that is needed to read and write a model without its weights in memory.

A message is a run of fields: a varint ``number << 3 | wire type``, then a varint, eight bytes, a length with that many
bytes, or four bytes.  Source: the protobuf encoding guide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple

VARINT, FIXED64, LENGTH_DELIMITED, FIXED32 = 0, 1, 2, 5


class Field(NamedTuple):
    """One field in a file: where it starts, where its content starts, and where both end."""

    number: int
    wire_type: int
    start: int
    content: int
    end: int


class WireError(ValueError):
    """The bytes are not protobuf, or stop in the middle of a field."""


def varint(value: int) -> bytes:
    """``value`` ≥ 0 in groups of seven bits, lowest first."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def length_prefix(number: int, nbytes: int) -> bytes:
    """What stands before the ``nbytes`` bytes of a length-delimited field."""
    return varint(number << 3 | LENGTH_DELIMITED) + varint(nbytes)


def fields(file: BinaryIO, start: int, end: int) -> Iterator[Field]:
    """The fields of the message that ``file`` holds from ``start`` to ``end``; contents are passed over, not read.

    Raises :class:`WireError` where the bytes cannot be a message.
    """
    position = start
    while position < end:
        file.seek(position)
        key, content = _read_varint(file, position)
        number, wire_type = key >> 3, key & 7
        if wire_type == LENGTH_DELIMITED:
            nbytes, content = _read_varint(file, content)
        elif wire_type == VARINT:
            _, after = _read_varint(file, content)
            nbytes = after - content
        elif wire_type in {FIXED64, FIXED32}:
            nbytes = 8 if wire_type == FIXED64 else 4
        else:
            raise WireError(f"no field can start at byte {position}")
        if number == 0:
            raise WireError(f"no field can start at byte {position}")
        if content + nbytes > end:
            raise WireError(f"the field at byte {position} is {content + nbytes - end} bytes longer than what is there")
        yield Field(number, wire_type, position, content, content + nbytes)
        position = content + nbytes


def rewritten(file: BinaryIO, start: int, end: int, rewrite: Callable[[Field], bytes | None]) -> bytes:
    """The bytes of a file from ``start`` to ``end``, but what ``rewrite`` gives for those fields that it gives any."""
    parts, kept = [], start
    for field in fields(file, start, end):
        new = rewrite(field)
        if new is not None:
            parts += [_read(file, kept, field.start), new]
            kept = field.end
    return b"".join([*parts, _read(file, kept, end)])


def _read(file: BinaryIO, start: int, end: int) -> bytes:
    file.seek(start)
    return file.read(end - start)


def _read_varint(file: BinaryIO, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = file.read(1)
        if not byte:
            raise WireError(f"the file ends at byte {position}, in the middle of a field")
        position += 1
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return value, position
    raise WireError(f"no field can start at byte {position}")
