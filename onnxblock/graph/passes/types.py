"""What passes may know of values."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ..types import TensorType

Types: TypeAlias = Callable[[str], TensorType | None]
"""Gives the type of a value, or None where it is not known."""


def unknown(_: str) -> TensorType | None:
    """Knows nothing of any value."""
    return None
