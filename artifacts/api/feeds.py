"""Arrays on their way into a model: checked against its inputs, wrapped without a copy."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from artifacts.manifest import Input, tensor_text
from onnxblock.checkpoint import ElementType, element_type_of
from onnxblock.errors import FeedError
from onnxblock.names import UNKNOWN_SIZES

from .interface import type_name
from .session import runtime
from .storage import Array

STRING = "string"


class UserInput:
    """An input that the user feeds: what arrays fit it."""

    def __init__(self, port: Input) -> None:
        self.name = port.name
        self.shape = port.shape
        self.type_name = port.dtype
        self.element_type: ElementType | None = None if port.dtype == STRING else element_type_of(port.dtype)
        self._dtype = np.dtype(object) if self.element_type is None else self.element_type.dtype()

    def array(self, value: Any) -> Array | str:
        """``value`` as a contiguous array of the right dtype and shape, or what is wrong with it.

        Arrays must have the dtype of the input, or be of smaller integers where it takes int64, as labels often are;
        lists and numbers take it.
        """
        if value is None:
            return f"{self.name!r} cannot be made of what was given: None"
        if isinstance(value, np.ndarray) or hasattr(value, "__array__"):
            array = np.asarray(value, order="C")
        else:
            try:
                plain = np.asarray(value)
                if plain.dtype.kind == "f" and self._dtype.kind in "iub":
                    return f"{self.name!r} is {self}, what was given has fractions"
                array = np.asarray(value, self._dtype, order="C")
            except (TypeError, ValueError) as error:
                return f"{self.name!r} cannot be made of what was given: {error}"
        if self._dtype == np.int64 and array.dtype.kind in "iu" and np.can_cast(array.dtype, self._dtype):
            array = array.astype(self._dtype, copy=False)
        if array.dtype != self._dtype and not (self.element_type is None and array.dtype.kind in "UO"):
            return f"{self.name!r} is {self}, the array given is {array.dtype}{list(array.shape)}"
        return array if self._fits(array.shape) else self._misfit(array.shape)

    def ortvalue(self, value: Any) -> Any | str:
        """``value``, an OrtValue, if its type and shape fit; otherwise what is wrong with it."""
        given = type_name(value.data_type())
        if given != self.type_name:
            return f"{self.name!r} is {self}, the OrtValue given is {given}{list(value.shape())}"
        return value if self._fits(value.shape()) else self._misfit(value.shape())

    def remedy(self, value: Any) -> str:
        """What helps where ``value`` does not fit."""
        if value is None:
            return "Give an array for each input."
        shape = getattr(value, "shape", None)
        shape = shape() if callable(shape) else shape
        if shape is None or self._fits(shape):
            return "Give an array of that type; array.astype(…) converts one."
        rank, is_class = None if self.shape is None else len(self.shape), self._dtype.kind in "iu"
        if rank == len(shape):
            fixed = (
                "Sizes that are numbers were fixed when the model was exported. Feed arrays of these sizes, or export"
                " it with dynamic ones (dynamic_shapes of torch.onnx.export)."
            )
            labels = " For labels of scores whose last axis is the classes: CrossEntropyLoss(class_axis=-1)."
            return fixed + labels * (is_class and rank > 1)
        if is_class and rank == len(shape) - 1:
            return "Labels are the numbers of classes; of one-hot rows array.argmax(axis=-1) gives them."
        return "Bring the array into that shape with array.reshape(…)."

    def _fits(self, shape: Sequence[int]) -> bool:
        expected = self.shape
        if expected is None:
            return True
        return len(shape) == len(expected) and all(
            not isinstance(want, int) or want == have for want, have in zip(expected, shape, strict=True)
        )

    def _misfit(self, shape: Sequence[int]) -> str:
        return f"{self.name!r} is {self}, what was given has shape {list(shape)}"

    def __str__(self) -> str:
        return tensor_text(self.type_name, self.shape)


def checked(inputs: Sequence[UserInput], values: Sequence[Any], is_ortvalue: Sequence[bool]) -> list[Any]:
    """The arrays and OrtValues to bind.

    Raises:
        FeedError: there are too few or too many, or some do not fit; all are listed.
    """
    if len(values) != len(inputs):
        raise FeedError(
            f"the model takes {len(inputs)} inputs, {len(values)} were given",
            f"Give them in this order: {', '.join(i.name for i in inputs) or '(none)'}.",
        )
    ready = [
        port.ortvalue(value) if wrapped else port.array(value)
        for port, value, wrapped in zip(inputs, values, is_ortvalue, strict=True)
    ]
    problems = [item for item in ready if isinstance(item, str)]
    if problems:
        raise FeedError(
            "the arrays do not fit the model's inputs:\n    " + "\n    ".join(problems),
            "\n  ".join(
                dict.fromkeys(p.remedy(v) for p, v, r in zip(inputs, values, ready, strict=True) if isinstance(r, str))
            ),
        )
    disagreements = list(_disagreements(inputs, ready))
    if disagreements:
        raise FeedError(
            "the sizes of the arrays do not agree with each other:\n    " + "\n    ".join(disagreements),
            "Give the arrays of one batch.",
        )
    return ready


def _disagreements(inputs: Sequence[UserInput], values: Sequence[Any]) -> Iterator[str]:
    """What a dimension's name stands for must be one size in all inputs, or a run may be wrong without an error."""
    sizes: dict[str, dict[int, str]] = {}
    for port, value in zip(inputs, values, strict=True):
        shape = value.shape if isinstance(value, np.ndarray) else value.shape()
        for want, have in zip(port.shape or (), shape):
            if isinstance(want, str) and want not in UNKNOWN_SIZES:
                sizes.setdefault(want, {}).setdefault(have, port.name)
    for name, found in sizes.items():
        if len(found) > 1:
            yield f"{name} is " + ", ".join(f"{size} in {port!r}" for size, port in found.items())


def wrap(array: Array, of: ElementType) -> Any:
    """An OrtValue that shares the memory of a contiguous array; the caller keeps the array alive."""
    make = runtime().OrtValue
    if not of.extension:
        return make.ortvalue_from_numpy(array)
    return make.ortvalue_from_numpy_with_onnx_type(array.view(of.storage), of.number)


def unwrap(value: Any) -> Array:
    """The content of a tensor OrtValue on the CPU as an array."""
    kind = type_name(value.data_type())
    if kind == STRING or not element_type_of(kind).extension:
        array: Array = value.numpy()
        return array
    of = element_type_of(kind)
    shape = value.shape()
    data = ctypes.string_at(value.data_ptr(), of.nbytes(shape)) if of.nbytes(shape) else b""
    return np.frombuffer(bytearray(data), of.dtype()).reshape(of.array_shape(shape))
