"""Element types and shapes: what is known of a value before anything runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, TypeProto, helper

from ..errors import BlockBuildError

Dimension: TypeAlias = "int | str | None"
"""A size, the name of a symbolic size, or None when nothing is known."""

Shape: TypeAlias = "tuple[Dimension, ...] | None"
"""The dimensions, or None when even the rank is unknown."""

FLOATS = frozenset({TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16})
"""The element types that can carry a gradient."""

HALVES = frozenset({TensorProto.FLOAT16, TensorProto.BFLOAT16})
"""Those of them that are half as wide as float32."""

INTEGERS = frozenset(
    {
        TensorProto.INT8,
        TensorProto.INT16,
        TensorProto.INT32,
        TensorProto.INT64,
        TensorProto.UINT8,
        TensorProto.UINT16,
        TensorProto.UINT32,
        TensorProto.UINT64,
    }
)

ELEMENT_TYPES = frozenset(TensorProto.DataType.values())
"""The numbers of all element types that ONNX has."""


@dataclass(frozen=True)
class TensorType:
    """Element type (``onnx.TensorProto.DataType``) and shape of a tensor."""

    dtype: int
    shape: Shape

    @property
    def rank(self) -> int | None:
        return None if self.shape is None else len(self.shape)

    @property
    def is_static(self) -> bool:
        """Whether every dimension is a known number."""
        return self.shape is not None and all(isinstance(d, int) for d in self.shape)

    def to_proto(self) -> TypeProto:
        return helper.make_tensor_type_proto(self.dtype, self.shape)

    def __str__(self) -> str:
        return f"{dtype_name(self.dtype)}{shape_text(self.shape)}"


def tensor_type(proto: TypeProto | None) -> TensorType | None:
    """The tensor type in ``proto``; None for sequences, optionals and unknown types."""
    if proto is None:
        return None
    tensor = proto.tensor_type
    dtype = tensor.elem_type
    if not dtype:
        return None
    return TensorType(dtype, tuple(map(_dimension, tensor.shape.dim)) if tensor.HasField("shape") else None)


def innermost_dtype(proto: TypeProto | None) -> int | None:
    """The element type of a tensor, or of the tensors in a sequence or optional; None when unknown."""
    while proto is not None and proto.WhichOneof("value") in {"sequence_type", "optional_type"}:
        proto = proto.sequence_type.elem_type if proto.HasField("sequence_type") else proto.optional_type.elem_type
    return proto.tensor_type.elem_type or None if proto is not None and proto.HasField("tensor_type") else None


def is_sequence(proto: TypeProto | None) -> bool:
    """Whether this is a sequence of tensors, or an optional one."""
    if proto is not None and proto.HasField("optional_type"):
        proto = proto.optional_type.elem_type
    return proto is not None and proto.HasField("sequence_type")


def _dimension(dim: onnx.TensorShapeProto.Dimension) -> Dimension:
    size: int = dim.dim_value
    if size or dim.HasField("dim_value"):
        return size if size >= 0 else None
    return dim.dim_param or None


@cache
def dtype_name(dtype: int | None) -> str:
    """``float32`` and the like, as NumPy spells it where NumPy knows it."""
    if dtype is None or dtype == TensorProto.UNDEFINED:
        return "unknown type"
    if dtype == TensorProto.STRING:
        return "string"
    name = str(TensorProto.DataType.Name(dtype)).lower()
    return {"float": "float32", "double": "float64"}.get(name, name)


def shape_text(shape: Shape) -> str:
    """``[2, batch, ?]``, or ``[...]`` when the rank is unknown."""
    if shape is None:
        return "[...]"
    return f"[{', '.join('?' if d is None else str(d) for d in shape)}]"


def numpy_dtype(dtype: int) -> np.dtype[np.generic]:
    """The NumPy element type of an ONNX one (``ml_dtypes`` for bfloat16)."""
    return np.dtype(helper.tensor_dtype_to_np_dtype(dtype))


def onnx_dtype(dtype: npt.DTypeLike) -> int:
    """The ONNX element type of a NumPy one."""
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def element_type(dtype: int | npt.DTypeLike) -> int:
    """An ONNX element type, given as such or as NumPy spells it; raises :class:`BlockBuildError` for anything else."""
    if isinstance(dtype, int) and dtype and dtype in ELEMENT_TYPES:
        return int(dtype)
    try:
        return onnx_dtype(dtype)  # type: ignore[arg-type]  # a number is no dtype of NumPy either
    except (KeyError, TypeError):
        raise BlockBuildError(
            f"{dtype!r} is no element type.", "Give one of onnx.TensorProto, or a dtype of NumPy."
        ) from None


def checked_shape(shape: object) -> Shape:
    """``shape`` as a tuple; raises :class:`BlockBuildError` unless it is a list of dimensions, or None."""
    if shape is None:
        return None
    if isinstance(shape, Iterable) and not isinstance(shape, (str, bytes)):
        listed = tuple(int(d) if isinstance(d, np.integer) else d for d in shape)
        if all(d is None or isinstance(d, str) or (isinstance(d, int) and d >= 0) for d in listed):
            return listed
    raise BlockBuildError(
        f"{shape!r} is no shape.",
        "Give a list of dimensions, each a size of at least 0, the name of a size that varies, or None: "
        "['batch', 784], [] for a scalar; or None when even the rank is unknown.",
    )


def same_shape(a: Shape, b: Shape) -> bool:
    """Whether two shapes are certainly equal: same rank, and every dimension the same number or the same symbol."""
    return a is not None and b is not None and len(a) == len(b) and all(p == q and p is not None for p, q in zip(a, b))
