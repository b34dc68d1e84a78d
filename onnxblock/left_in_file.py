"""A model whose large weights stay in its file, to which it refers as to external data."""

from __future__ import annotations

from typing import BinaryIO

from .wire import LENGTH_DELIMITED, VARINT, Field, fields, length_prefix, rewritten, varint

# Numbers of fields in onnx.proto, and of the value EXTERNAL.
_GRAPH, _INITIALIZER = 7, 5
_RAW_DATA, _EXTERNAL_DATA, _DATA_LOCATION = 9, 13, 14
_KEY, _VALUE = 1, 2
_EXTERNAL = 1


def with_weights_left(file: BinaryIO, size: int, name: str, least: int) -> bytes:
    """The encoding of the model in a file of ``size`` bytes, called ``name``, with references in place of raw data.

    This is for initializers of the main graph with more than ``least`` bytes, which are passed over, not read.

    Raises :class:`~onnxblock.wire.WireError` where the bytes cannot be a message.
    """

    def graph(field: Field) -> bytes | None:
        return _message(field.number, rewritten(file, *field[-2:], initializer)) if _is(field, _GRAPH) else None

    def initializer(field: Field) -> bytes | None:
        if not _is(field, _INITIALIZER) or field.end - field.content <= least:
            return None
        if not any(_is(inner, _RAW_DATA) and inner.end - inner.content > least for inner in fields(file, *field[-2:])):
            return None
        return _message(_INITIALIZER, rewritten(file, *field[-2:], tensor))

    def tensor(field: Field) -> bytes | None:
        if field.number in {_EXTERNAL_DATA, _DATA_LOCATION}:
            return b""
        return _reference(name, field.content, field.end - field.content) if _is(field, _RAW_DATA) else None

    return rewritten(file, 0, size, graph)


def _reference(location: str, offset: int, length: int) -> bytes:
    entries = {"location": location, "offset": str(offset), "length": str(length)}
    encoded = b"".join(
        _message(_EXTERNAL_DATA, _message(_KEY, key.encode()) + _message(_VALUE, value.encode()))
        for key, value in entries.items()
    )
    return encoded + varint(_DATA_LOCATION << 3 | VARINT) + varint(_EXTERNAL)


def _is(field: Field, number: int) -> bool:
    return field.number == number and field.wire_type == LENGTH_DELIMITED


def _message(number: int, content: bytes) -> bytes:
    return length_prefix(number, len(content)) + content
