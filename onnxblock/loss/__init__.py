"""Losses: blocks that compare what a model says with what it should say.

A loss is called with the name of a value of the model, makes the input for the target itself, and returns one number
(rank 0), or one per element or sample with ``reduction="none"``.  Every loss works in the element type of the value.
"""

from __future__ import annotations

from .binary import BCEWithLogitsLoss
from .classification import CrossEntropyLoss
from .regression import L1Loss, MSELoss

__all__ = ["BCEWithLogitsLoss", "CrossEntropyLoss", "L1Loss", "MSELoss"]
