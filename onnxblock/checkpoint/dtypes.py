"""Element types: ONNX number, name, size, and the NumPy dtype that holds them, without importing ``onnx``.

Source: the enumeration ``TensorProto.DataType`` of the ONNX specification.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import CheckpointError


@dataclass(frozen=True)
class ElementType:
    """One tensor element type.

    ``storage`` is the plain NumPy dtype of the same width.  Types that NumPy itself lacks (bfloat16, float8) are held
    as unsigned integers of that width unless ``ml_dtypes`` is installed; types below 8 bits stay packed in bytes.
    """

    number: int
    name: str
    bits: int
    storage: npt.DTypeLike
    extension: bool = False

    def nbytes(self, shape: Sequence[int]) -> int:
        """Bytes that a tensor of this type and ``shape`` takes, packed types rounded up to whole bytes."""
        return (math.prod(shape) * self.bits + 7) // 8

    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype of arrays of this type: that of ``ml_dtypes`` where it is needed and installed."""
        if self.extension and self.bits >= 8:
            try:
                extended: np.dtype[Any] = np.dtype(getattr(importlib.import_module("ml_dtypes"), self.name))
            except (ImportError, AttributeError):
                pass
            else:
                return extended
        return np.dtype(self.storage)

    def array_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Shape of the array that holds a tensor of ``shape``: flat bytes for packed types."""
        return (self.nbytes(shape),) if self.bits < 8 else tuple(shape)


_TYPES = (
    ElementType(1, "float32", 32, "<f4"),
    ElementType(2, "uint8", 8, "u1"),
    ElementType(3, "int8", 8, "i1"),
    ElementType(4, "uint16", 16, "<u2"),
    ElementType(5, "int16", 16, "<i2"),
    ElementType(6, "int32", 32, "<i4"),
    ElementType(7, "int64", 64, "<i8"),
    ElementType(9, "bool", 8, "?"),
    ElementType(10, "float16", 16, "<f2"),
    ElementType(11, "float64", 64, "<f8"),
    ElementType(12, "uint32", 32, "<u4"),
    ElementType(13, "uint64", 64, "<u8"),
    ElementType(14, "complex64", 64, "<c8"),
    ElementType(15, "complex128", 128, "<c16"),
    ElementType(16, "bfloat16", 16, "<u2", extension=True),
    ElementType(17, "float8_e4m3fn", 8, "u1", extension=True),
    ElementType(18, "float8_e4m3fnuz", 8, "u1", extension=True),
    ElementType(19, "float8_e5m2", 8, "u1", extension=True),
    ElementType(20, "float8_e5m2fnuz", 8, "u1", extension=True),
    ElementType(21, "uint4", 4, "u1", extension=True),
    ElementType(22, "int4", 4, "u1", extension=True),
    ElementType(23, "float4_e2m1fn", 4, "u1", extension=True),
    ElementType(24, "float8_e8m0fnu", 8, "u1", extension=True),
    ElementType(25, "uint2", 2, "u1", extension=True),
    ElementType(26, "int2", 2, "u1", extension=True),
)
_BY_NUMBER = {t.number: t for t in _TYPES}
_BY_NAME = {t.name: t for t in _TYPES}


def element_type(number: int) -> ElementType:
    """The element type with this ONNX number.

    Raises:
        CheckpointError: the number is not one of a numeric tensor type (strings are not parameters).
    """
    try:
        return _BY_NUMBER[number]
    except KeyError:
        kind = "string tensors" if number == 8 else f"tensors of ONNX element type {number}"
        raise CheckpointError(f"{kind} cannot be stored as parameters", "Leave them in the model.") from None


def element_type_of(dtype: npt.DTypeLike | str) -> ElementType:
    """The element type with the name of this NumPy (or ``ml_dtypes``) dtype, for example ``float32``.

    Raises:
        CheckpointError: no ONNX type corresponds.
    """
    name = dtype if isinstance(dtype, str) else np.dtype(dtype).name
    try:
        return _BY_NAME[name]
    except KeyError:
        known = ", ".join(_BY_NAME)
        raise CheckpointError(f"no ONNX element type corresponds to {name!r}", f"Known: {known}.") from None
