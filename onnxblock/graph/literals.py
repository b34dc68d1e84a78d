"""Numbers take the element type that the operator wants where they stand."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from onnx import TensorProto
from onnx.defs import OpSchema

from ..errors import BlockBuildError
from .schemas import get_schema
from .types import FLOATS, dtype_name

Literal: TypeAlias = "int | float | bool | Sequence[int] | Sequence[float] | np.generic"

_NAMES = frozenset(TensorProto.DataType.keys())
_FLOAT, _INT64, _BOOL = int(TensorProto.FLOAT), int(TensorProto.INT64), int(TensorProto.BOOL)


def literal_dtype(schema: OpSchema, formal: str, content: Any, bound: Mapping[str, int], first: int | None) -> int:
    """The element type for ``content`` where ``schema`` takes the type ``formal``.

    1. The type that a typed operand gave to the same type variable.  2. A type the operator fixes (``tensor(int64)``).
    3. The type of the first typed operand where it is allowed there.  4. float32, else int64.
    """
    kind = np.asarray(content).dtype.kind
    if kind not in "fiub":
        raise BlockBuildError(f"{schema.name}: {content!r} is not a number, an array, a value or the name of one.")
    allowed = allowed_dtypes(schema, formal)
    if formal in bound:
        dtype = bound[formal]
    elif len(allowed) == 1:
        dtype = next(iter(allowed))
    elif kind == "b":
        dtype = _BOOL
    elif first in allowed and (first in FLOATS or kind != "f"):
        dtype = first
    else:
        dtype = _FLOAT if _FLOAT in allowed else _INT64
    if kind == "f" and dtype not in FLOATS and np.any(np.asarray(content) % 1):
        raise BlockBuildError(
            f"{schema.name}: the number {content!r} stands where the other operands are {dtype_name(dtype)}.",
            "Cast the operands to a float type first.",
        )
    return dtype


def allowed_dtypes(schema: OpSchema, formal: str) -> frozenset[int]:
    """The element types of what ``schema`` calls the type ``formal``."""
    return _allowed(schema.name, schema.domain, schema.since_version, formal)


@functools.cache
def _allowed(op_type: str, domain: str, since_version: int, formal: str) -> frozenset[int]:
    schema = get_schema(op_type, since_version, domain)
    texts: Sequence[str] = [formal]
    for constraint in schema.type_constraints:
        if constraint.type_param_str == formal:
            texts = constraint.allowed_type_strs
    found = set()
    for text in texts:
        name = text[len("tensor(") : -1].upper() if text.startswith("tensor(") else ""
        if name in _NAMES:
            found.add(int(TensorProto.DataType.Value(name)))
    return frozenset(found)
