"""What a checkpoint holds, as plain data."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ..names import CHECKPOINT_GROUP
from .dtypes import ElementType, element_type, element_type_of
from .layout import Chunks, counted

Property = int | float | str
"""A value of the property bag: 64-bit integer, float (kept as float32) or text."""


@dataclass(frozen=True)
class Tensor:
    """A named tensor whose data is an array or a stream.

    ``data_type`` is the ONNX number of the element type.  ``data`` is an array of that type and ``shape`` (flat bytes
    for types below 8 bits), a function that gives the little-endian bytes in chunks, or ``None`` in a nominal
    checkpoint, which knows names and types only.
    """

    name: str
    data_type: int
    shape: tuple[int, ...]
    data: npt.NDArray[Any] | Chunks | None
    doc_string: str | None = None

    @classmethod
    def from_array(cls, name: str, array: npt.NDArray[Any]) -> Tensor:
        """A tensor that refers to ``array`` without copying it.

        Raises:
            CheckpointError: the array's dtype has no ONNX element type.
        """
        return cls(name, element_type_of(array.dtype).number, array.shape, array)

    @property
    def element_type(self) -> ElementType:
        """The element type.

        Raises:
            CheckpointError: it is not a numeric one.
        """
        return element_type(self.data_type)

    @property
    def nbytes(self) -> int:
        """Size of the data in bytes."""
        return self.element_type.nbytes(self.shape)

    def chunks(self) -> Iterator[bytes | memoryview]:
        """The data as little-endian bytes, in order."""
        if isinstance(self.data, np.ndarray):
            array = np.ascontiguousarray(self.data)
            if array.dtype.byteorder == ">" or (array.dtype.byteorder == "=" and sys.byteorder == "big"):
                array = array.byteswap()
            yield array.reshape(-1).view(np.uint8).data
        elif self.data is not None:
            yield from counted(self.data, self.nbytes)

    def array(self) -> npt.NDArray[Any]:
        """The data as an aligned array of ``shape``; a stream is read into a new one."""
        if isinstance(self.data, np.ndarray):
            return np.require(self.data, requirements="A")
        flat = np.empty(self.nbytes, np.uint8)
        at = 0
        for chunk in self.chunks():
            view = np.frombuffer(chunk, np.uint8)
            flat[at : at + view.size] = view
            at += view.size
        return flat.view(self.element_type.dtype()).reshape(self.element_type.array_shape(self.shape))


@dataclass
class OptimizerGroup:
    """The state of one optimizer: for each parameter its moments by name, in order."""

    name: str = CHECKPOINT_GROUP
    step: int = 0
    initial_learning_rate: float = 0.001
    moments: dict[str, list[Tensor]] = field(default_factory=dict)


@dataclass
class Checkpoint:
    """A whole checkpoint.

    ``optimizer_groups`` and ``properties`` may be ``None``: then the file has no such field, as the one that is written
    next to new artifacts.  ``nominal`` means that the tensors have no data yet.
    """

    trainable: list[Tensor]
    frozen: list[Tensor]
    nominal: bool = False
    optimizer_groups: list[OptimizerGroup] | None = None
    properties: dict[str, Property] | None = None
    external: bool = False

    @property
    def parameters(self) -> list[Tensor]:
        """All parameters, the trainable ones first."""
        return [*self.trainable, *self.frozen]
