"""How the elements of a tensor are laid out as bytes, whichever field of ``TensorProto`` holds them."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, numpy_helper

from ..errors import InvalidModelError
from .types import ELEMENT_TYPES, dtype_name, numpy_dtype

# Types narrower than the NumPy type that onnx gives for them, in some release at least.
_NARROW_BITS = {
    "BFLOAT16": 16,
    "FLOAT8E4M3FN": 8,
    "FLOAT8E4M3FNUZ": 8,
    "FLOAT8E5M2": 8,
    "FLOAT8E5M2FNUZ": 8,
    "FLOAT8E8M0": 8,
    "FLOAT6E2M3": 6,
    "FLOAT6E3M2": 6,
    "UINT4": 4,
    "INT4": 4,
    "FLOAT4E2M1": 4,
    "UINT2": 2,
    "INT2": 2,
}

# Which typed field holds which element types, where it is not int32_data.
_TYPED_FIELDS: dict[int, str] = {
    TensorProto.FLOAT: "float_data",
    TensorProto.COMPLEX64: "float_data",
    TensorProto.DOUBLE: "double_data",
    TensorProto.COMPLEX128: "double_data",
    TensorProto.INT64: "int64_data",
    TensorProto.UINT32: "uint64_data",
    TensorProto.UINT64: "uint64_data",
}


def is_numeric(dtype: int) -> bool:
    """Whether tensors of this element type are plain bytes (strings are not)."""
    return dtype in ELEMENT_TYPES and dtype not in {TensorProto.UNDEFINED, TensorProto.STRING}


def element_bits(dtype: int) -> int:
    """Bits per element; raises :class:`InvalidModelError` for strings and unknown types."""
    if not is_numeric(dtype):
        kind = dtype_name(dtype) if dtype in ELEMENT_TYPES else f"unknown type {dtype}"
        raise InvalidModelError(f"tensors of {kind} are not plain numbers.")
    narrow: int | None = _NARROW_BITS.get(TensorProto.DataType.Name(dtype))
    return numpy_dtype(dtype).itemsize * 8 if narrow is None else narrow


def tensor_nbytes(tensor: TensorProto) -> int:
    """Bytes that the elements take as raw data, from the element type and the shape alone."""
    if any(d < 0 for d in tensor.dims):
        raise InvalidModelError(f"tensor {tensor.name!r} has a negative dimension: {list(tensor.dims)}.")
    count: int = math.prod(tensor.dims)
    return (count * element_bits(tensor.data_type) + 7) // 8


def wrong_size(tensor: TensorProto) -> str | None:
    """What is wrong with the amount of data in ``tensor``, None if nothing is; looks at no element."""
    count: int = math.prod(tensor.dims)
    if tensor.data_location == TensorProto.EXTERNAL:
        return None
    if tensor.data_type == TensorProto.STRING:
        have, want, unit = len(tensor.string_data), count, "strings"
    elif not is_numeric(tensor.data_type):
        return f"its element type {tensor.data_type} is not known."
    elif tensor.HasField("raw_data"):
        have, want, unit = len(tensor.raw_data), tensor_nbytes(tensor), "bytes"
    elif element_bits(tensor.data_type) < 8:
        return None  # several elements lie in one number, in more than one way
    else:
        complex_parts = 2 if tensor.data_type in {TensorProto.COMPLEX64, TensorProto.COMPLEX128} else 1
        have, want, unit = len(_typed_field(tensor)), count * complex_parts, "numbers"
    form = f"{dtype_name(tensor.data_type)}{list(tensor.dims)}"
    return None if have == want else f"it has {have} {unit} of data, but {form} needs {want}."


def tensor_bytes(tensor: TensorProto, name: str) -> bytes:
    """The elements as little-endian raw data; raises :class:`InvalidModelError` if their number is wrong."""
    data = tensor.raw_data if tensor.HasField("raw_data") else _typed_bytes(tensor)
    expected = tensor_nbytes(tensor)
    if len(data) != expected:
        raise InvalidModelError(
            f"tensor {name!r} has {len(data)} bytes of data, but its type {dtype_name(tensor.data_type)} and shape"
            f" {list(tensor.dims)} need {expected}."
        )
    return data


def _typed_bytes(tensor: TensorProto) -> bytes:
    bits = element_bits(tensor.data_type)
    if bits == 6:
        return bytes(numpy_helper.from_array(numpy_helper.to_array(tensor)).raw_data)
    field = _typed_field(tensor)
    if tensor.data_type in {TensorProto.FLOAT, TensorProto.COMPLEX64}:
        return np.array(field, "<f4").tobytes()
    if tensor.data_type in {TensorProto.DOUBLE, TensorProto.COMPLEX128}:
        return np.array(field, "<f8").tobytes()
    # Wider than one element: the low bytes are the element, or what is packed into one byte.
    wide = np.array(field, "<u8" if tensor.data_type in {TensorProto.UINT32, TensorProto.UINT64} else "<i8")
    return wide.astype(f"<u{max(1, bits // 8)}").tobytes()


def _typed_field(tensor: TensorProto) -> Sequence[float]:
    field: Sequence[float] = getattr(tensor, _TYPED_FIELDS.get(tensor.data_type, "int32_data"))
    return field


def array_from_bytes(data: bytes | bytearray, dtype: int, shape: tuple[int, ...]) -> npt.NDArray[np.generic]:
    """A read-only array over little-endian raw data."""
    numpy_type = numpy_dtype(dtype)
    if numpy_type.itemsize * 8 == element_bits(dtype):
        array = np.frombuffer(data, numpy_type.newbyteorder("<")).reshape(shape)
    else:
        array = numpy_helper.to_array(TensorProto(data_type=dtype, dims=shape, raw_data=bytes(data)))
    array.flags.writeable = False
    return array


def bytes_of_array(array: npt.NDArray[np.generic]) -> memoryview:
    """The elements of a contiguous array as little-endian raw data; copied only where the machine is big-endian."""
    little = (
        array if array.dtype.isnative and sys.byteorder == "little" else array.astype(array.dtype.newbyteorder("<"))
    )
    return np.ascontiguousarray(little).reshape(-1).view(np.uint8).data
