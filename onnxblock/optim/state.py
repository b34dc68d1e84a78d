"""What an optimizer remembers of a parameter from one step to the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..graph.types import Shape


@dataclass(frozen=True)
class State:
    """One state: its shape, the value that its elements start with (a number, or the parameter itself), what it is.

    Optimizers whose states have the same ``content`` can go on from each other's.
    """

    shape: Shape
    initial: float | Literal["parameter"] = 0.0
    content: str = ""


MOMENTUM = "momentum"
AVERAGE = "average of g"
SQUARES = "average of g²"
LARGEST_SQUARES = "largest average of g²"
