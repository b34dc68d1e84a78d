"""The training state: everything that training changes, loaded from and saved to a checkpoint."""

from __future__ import annotations

import os
from functools import cached_property

from onnxblock.checkpoint import read_checkpoint, write_checkpoint
from onnxblock.errors import ArgumentError

from .parameters import Parameters
from .properties import Properties
from .storage import Storage


class CheckpointState:
    """Parameters, properties, optimizer state and seed of a training.

    :class:`Module` and :class:`Optimizer` work on it in place; it is made by :meth:`load_checkpoint`.
    """

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    @classmethod
    def load_checkpoint(cls, checkpoint_uri: str | os.PathLike[str]) -> CheckpointState:
        """Load a checkpoint, written by this library or by onnxruntime-training.

        Raises:
            CheckpointError: the file is missing, empty, truncated, or not a checkpoint of a known version.
        """
        return cls(Storage(read_checkpoint(checkpoint_uri)))

    @classmethod
    def save_checkpoint(
        cls,
        state: CheckpointState,
        checkpoint_uri: str | os.PathLike[str],
        include_optimizer_state: bool = False,
        *,
        include_gradients: bool = False,
    ) -> None:
        """Save a state so that onnxruntime-training, too, can load it.

        Args:
            state: what to save.
            checkpoint_uri: the file; parameters of 1,800 MiB and more go to ``<checkpoint_uri>.data``.
            include_optimizer_state: save what the optimizer has, to resume training: its step and moments, the learning
                rate, and the state of the scheduler.
            include_gradients: save the accumulated gradients too, to stop and resume between two batches of one step.
                Those that the next batch replaces, after ``module.lazy_reset_grad()``, are left out all the same.

        Raises:
            ArgumentError: ``state`` is none.
            CheckpointError: the file cannot be written; an earlier one is kept.
        """
        require(state, CheckpointState, "state")
        write_checkpoint(
            checkpoint_uri, state.storage.to_checkpoint(include_optimizer_state, include_gradients), inline_below=0
        )

    @cached_property
    def parameters(self) -> Parameters:
        """The parameters by name."""
        return Parameters(self.storage)

    @cached_property
    def properties(self) -> Properties:
        """Numbers and texts that are saved with the state."""
        return Properties(self.storage)

    def __repr__(self) -> str:
        return f"CheckpointState({len(self.parameters)} parameters, {len(self.properties)} properties)"


def require(given: object, kind: type, what: str, *others: type) -> None:
    """Raise :class:`ArgumentError` unless ``given`` is a ``kind``, or one of ``others``."""
    if not isinstance(given, (kind, *others)):
        wanted = " or ".join(k.__name__ for k in (kind, *others))
        article = "an" if wanted[0] in "AEIOU" else "a"
        raise ArgumentError(
            f"{what} is {type(given).__name__}, where {article} {wanted} is expected.",
            "The order is Module(training model, state, eval model), Optimizer(optimizer model, module), "
            "TrainingStep(step model, state, eval model), save_checkpoint(state, path).",
        )
