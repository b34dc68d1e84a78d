"""Parameters and gradients of a training state, as live arrays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from onnxblock.errors import ParameterError

from .storage import Array, Storage, StoredParameter, data_of


class Parameter:
    """A parameter of a :class:`~artifacts.api.CheckpointState`."""

    def __init__(self, stored: StoredParameter) -> None:
        self._stored = stored

    @property
    def name(self) -> str:
        """Its name in the model."""
        return self._stored.name

    @property
    def requires_grad(self) -> bool:
        """Whether it is trained."""
        return self._stored.requires_grad

    @property
    def data(self) -> Array:
        """Its value, a view of the memory that training uses.

        An optimizer step changes it, and writing into it changes the parameter.  Assigning copies an array of the same
        shape and dtype.

        Raises:
            CheckpointError: the state is nominal and has no data yet.
            ParameterError: the assigned array has another shape or dtype.
        """
        return data_of(self._stored)

    @data.setter
    def data(self, value: Array) -> None:
        copy_checked(self.data, value, f"parameter {self.name!r}")

    @property
    def grad(self) -> Array | None:
        """Its accumulated gradient, a live view like :attr:`data`.

        It is ``None`` if the parameter is frozen or no module was made yet.  Assigning copies.

        Raises:
            ParameterError: there is no gradient to assign to, or the array has another shape or dtype.
        """
        return self._stored.gradient

    @grad.setter
    def grad(self, value: Array) -> None:
        if self._stored.gradient is None:
            why = "no Module was made with it yet" if self.requires_grad else "it is frozen"
            raise ParameterError(f"parameter {self.name!r} has no gradient: {why}", "Only trained parameters have one.")
        copy_checked(self._stored.gradient, value, f"the gradient of {self.name!r}")

    def __repr__(self) -> str:
        return f"Parameter(name={self.name}, requires_grad={self.requires_grad})"


class Parameters:
    """The parameters of a state by name; iterating gives (name, parameter) pairs in the order of the checkpoint.

    That is the order of the model in a checkpoint of new artifacts, and sorted by name in one that was saved, as
    onnxruntime-training saves it.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def __getitem__(self, name: str) -> Parameter:
        """The parameter of this name.

        Raises:
            UnknownNameError: there is none (a ``KeyError``).
        """
        return Parameter(self._storage.parameter(name))

    def __setitem__(self, name: str, value: Array) -> None:
        """Copy an array into a parameter; raises as :attr:`Parameter.data` does."""
        self[name].data = value

    def __contains__(self, name: object) -> bool:
        return name in self._storage.parameters

    def __iter__(self) -> Iterator[tuple[str, Parameter]]:
        return iter([(name, Parameter(stored)) for name, stored in self._storage.parameters.items()])

    def __len__(self) -> int:
        return len(self._storage.parameters)

    def __repr__(self) -> str:
        return f"Parameters({', '.join(self._storage.parameters)})"


def copy_checked(target: Array, value: Any, what: str) -> None:
    """Copy ``value`` into ``target``, which stays where it is.

    Raises:
        ParameterError: ``value`` has another shape or dtype.
    """
    array = np.asarray(value)
    if array.shape != target.shape:
        raise ParameterError(
            f"{what} has shape {list(target.shape)}, the array that was given {list(array.shape)}",
            "Give an array of the same shape.",
        )
    if array.dtype != target.dtype:
        raise ParameterError(
            f"{what} is {target.dtype}, the array that was given {array.dtype}",
            f"Convert it: array.astype('{target.dtype}').",
        )
    np.copyto(target, array)
