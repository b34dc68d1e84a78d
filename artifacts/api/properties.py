"""Named numbers and texts that a checkpoint carries for the user."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from onnxblock.checkpoint import Property
from onnxblock.errors import PropertyValueError, UnknownNameError, did_you_mean
from onnxblock.names import STATE_PROPERTY

from .storage import Storage


class Properties:
    """Properties of a state by name: integers (64 bit), floats (kept as float32) and text.

    Iterating gives (name, value) pairs sorted by name.
    """

    def __init__(self, storage: Storage) -> None:
        self._values = storage.properties

    def __getitem__(self, name: str) -> Property:
        """The property of this name.

        Raises:
            UnknownNameError: there is none (a ``KeyError``).
        """
        try:
            return self._values[name]
        except KeyError:
            raise UnknownNameError(
                f"there is no property {name!r}.{did_you_mean(name, self._values)}", "See list(state.properties)."
            ) from None

    def __setitem__(self, name: str, value: Property) -> None:
        """Set a property; ``bool`` becomes 0 or 1.

        Raises:
            PropertyValueError: the value is of another type (a ``TypeError``), or an integer of more than 64 bits; or
                the name is used by the library itself.
        """
        if name == STATE_PROPERTY:
            raise PropertyValueError(f"the property {name!r} is kept by the library", "Choose another name.")
        if not isinstance(name, str):
            raise PropertyValueError(f"the name of a property is text, not {name!r}", "Name it with a str.")
        self._values[name] = _property(name, value)

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[tuple[str, Property]]:
        return iter(sorted(self._values.items()))

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Properties({dict(self)})"


def _property(name: str, value: object) -> Property:
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (float, np.floating)):
        return float(np.float32(value))
    if isinstance(value, (bool, np.bool_, int, np.integer)):
        number = int(value)
        if not -(2**63) <= number < 2**63:
            raise PropertyValueError(f"property {name!r}: {number} needs more than 64 bits", "Store it as text.")
        return number
    raise PropertyValueError(
        f"property {name!r} cannot hold {type(value).__name__}", "Set an int, a float or text; json.dumps makes text."
    )
