"""Training with one model that does the whole step."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from onnxblock.errors import CheckpointError

from .model import TrainedModel
from .session import Provider
from .state import CheckpointState
from .stepping import Stepping


class TrainingStep(TrainedModel, Stepping):
    """A model that trains by being called: forward, backward and update in one run.

    ``generate_artifacts(..., fused_step=True)`` makes its file.  It does what :class:`Module` and :class:`Optimizer` do
    with one batch for each step, in less time and memory: no gradient is kept.  In evaluation mode nothing changes.
    The state is the same: a checkpoint that was saved here goes on there, and the other way round.

    Args:
        step_model_uri: the step model.
        state: its parameters; trained in place.
        eval_model_uri: the evaluation model, needed for evaluation and export.
        device: where to run, for example ``cpu`` or ``cuda:0``; parameters stay in host memory.
        session_options: ``onnxruntime.SessionOptions`` for all sessions; by default onnxruntime prints nothing.
        providers: execution providers as for ``onnxruntime.InferenceSession``, instead of ``device``.
        seed: makes dropout reproducible.  The seed and the number of runs are saved with the state, and continue from
            there unless another seed is given.

    Raises:
        ArgumentError: ``state`` is no state, or the seed no number of 63 bits.
        InvalidModelError: a model file is missing or cannot be loaded.
        ArtifactMismatchError: the files do not belong together.
        RuntimeUnavailableError: the device is not available.
        CheckpointError: the state holds moments of another optimizer or that do not fit this one, or gradients that a
            step is to be made of.
    """

    _kind = "step"

    def __init__(
        self,
        step_model_uri: str | os.PathLike[str],
        state: CheckpointState,
        eval_model_uri: str | os.PathLike[str] | None = None,
        device: str = "cpu",
        session_options: Any = None,
        *,
        providers: Sequence[Provider] | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(step_model_uri, state, eval_model_uri, device, session_options, providers=providers, seed=seed)

    def __repr__(self) -> str:
        return f"TrainingStep({self._about()}; {self._about_steps()})"

    def _begin(self) -> None:
        if self._storage.gradients_pending:
            raise CheckpointError(
                "the state holds gradients of batches that no step was made of yet, and a TrainingStep takes none",
                "Make that step with Module and Optimizer, then module.lazy_reset_grad(); "
                "or load a checkpoint without gradients.",
            )
        self._begin_steps()

    def _bind(self) -> None:
        """Bind both models to the state's arrays, and the moments."""
        super()._bind()
        trained = [port.name for port in self.manifest.inputs_of("parameter") if port.offset is None]
        self._bind_steps(self._train_model, self._prepare_moments(trained))

    def __call__(self, *user_inputs: Any) -> Any:
        """Do one training step, or run the evaluation model.

        Args:
            user_inputs: NumPy arrays, or OrtValues, in the order of :meth:`input_names`.

        Returns:
            The outputs in the order of :meth:`output_names`: one, or a tuple.  The loss is that before the update, a
            rank-0 array.  OrtValues are returned when only OrtValues are given.

        Raises:
            FeedError: number, dtype, rank or shape of the inputs is wrong; nothing has changed.
            CheckpointError: the state is nominal and has no data yet.
            OnnxBlockError: there is no evaluation model, or the run failed, on a label out of range for example.
                Parameters, moments and running statistics may then hold a part of the step.
        """
        if not self.training:
            return self._evaluate(user_inputs)
        if not self._is_bound:
            self._bind()
        self._set_numbers()
        results = self._train(user_inputs)
        if self._says_done():
            self._group.step += 1
        return results
