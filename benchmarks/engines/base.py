"""What an engine does; see the package."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from . import SPECIFICATION

Array = np.ndarray[Any, Any]
LEARNING_RATE, EPSILON, WEIGHT_DECAY = 1e-4, 1e-8, 0.01


class BaseEngine(ABC):
    """Trains one workload, whose files stand in ``folder``, on ``threads`` threads.

    The methods are called in the order in which they stand here, ``generate`` in a process of its own.  Arrays of
    the batches are read before anything is measured.
    """

    made_by: ClassVar[str] = ""
    """Part of the name of the folder that ``generate`` writes to."""
    late_imports: ClassVar[tuple[str, ...]] = ()
    """What the packages import only when they train; it counts as memory, and is told apart."""

    def __init__(self, folder: Path, threads: int, settings: dict[str, str]) -> None:
        self.folder, self.threads, self.settings = folder, threads, settings
        self.specification: dict[str, Any] = json.loads((folder / SPECIFICATION).read_text(encoding="utf-8"))
        stacked = [np.load(folder / f"input{k}.npy") for k in range(self.specification["inputs"] + 1)]
        self.batches: list[tuple[Array, ...]] = [tuple(arrays) for arrays in zip(*stacked, strict=True)]

    @property
    def own_folder(self) -> Path:
        """Where this engine writes what it generates."""
        return self.folder / f"made-by-{self.made_by}"

    @abstractmethod
    def imports(self) -> str:
        """Import all that will be needed, and return the version of what is measured."""

    def generate(self) -> bool:
        """Write the files that training needs; returns whether there are any."""
        return False

    @abstractmethod
    def load(self) -> None:
        """Get ready for the first step."""

    def step(self, batch: int) -> float:
        """Forward, backward and update on a batch by its number; returns the loss before the update."""
        loss = self.forward_backward(batch)
        self.update()
        return loss

    def forward_backward(self, batch: int) -> float:
        """The first part of a step, where it has parts; returns the loss."""
        raise NotImplementedError("this engine has no separate parts of a step")

    def update(self) -> None:
        """The second part of a step: the optimizer, on the gradients that are there."""
        raise NotImplementedError("this engine has no separate optimizer step")
