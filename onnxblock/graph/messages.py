"""Protobuf messages, field by field."""

from __future__ import annotations

from collections.abc import Callable

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message


def copy_fields(source: Message, target: Message, wanted: Callable[[FieldDescriptor], bool]) -> None:
    """Copy those set fields of a message that are wanted, whatever fields this release of onnx knows."""
    for field, value in source.ListFields():
        if not wanted(field):
            continue
        if hasattr(value, "extend"):
            getattr(target, field.name).extend(value)
        elif hasattr(value, "CopyFrom"):
            getattr(target, field.name).CopyFrom(value)
        else:
            setattr(target, field.name, value)
