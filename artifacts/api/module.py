"""Training and evaluation of a model, with its parameters in a state."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxblock.checkpoint import element_type_of

from .bound import single
from .model import TrainedModel
from .storage import Array, gradient_of


class Module(TrainedModel):
    """A model that trains: calling it computes the loss and, in training mode, accumulates the gradients.

    In training mode gradients are added to ``parameter.grad`` until :meth:`lazy_reset_grad`, running statistics
    advance and dropout is active; in evaluation mode nothing changes.  Runs from several threads happen one after
    another; training from several at once is for the caller to order.  Large weights that are not trained stay in the
    model files, which may be replaced while this is in use, but not written into.

    Args:
        train_model_uri: the training model.
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
    """

    _kind = "training"

    def _begin(self) -> None:
        self._reset: Array | None = None
        self._reset_requested = False

    def _bind(self) -> None:
        """Bind both models to the state's arrays, and make the gradient buffers."""
        super()._bind()
        model = self._train_model
        for port in self.manifest.inputs_of("gradient_buffer"):
            stored = self._storage.parameter(port.parameter or "")
            model.bind(port.name, gradient_of(stored), stored.element_type)
        for port in self.manifest.inputs_of("reset"):
            self._reset = single(port, np.bool_)
            model.bind(port.name, self._reset, element_type_of("bool"))

    def __call__(self, *user_inputs: Any) -> Any:
        """Run the training or the evaluation model.

        Args:
            user_inputs: NumPy arrays, or OrtValues, in the order of :meth:`input_names`.

        Returns:
            The outputs in the order of :meth:`output_names`: one, or a tuple.  The loss is a rank-0 array.  OrtValues
            are returned when only OrtValues are given.

        Raises:
            FeedError: number, dtype, rank or shape of the inputs is wrong; nothing has changed.
            CheckpointError: the state is nominal and has no data yet.
            OnnxBlockError: there is no evaluation model, or the run failed, on a label out of range for example.
                Gradients and running statistics may then hold a part of the run.
        """
        if not self.training:
            return self._evaluate(user_inputs)
        if not self._is_bound:
            self._bind()
        if self._reset is not None:
            self._reset[...] = self._reset_requested
        elif self._reset_requested:
            self._clear_gradients()
        results = self._train(user_inputs)
        self._reset_requested = False
        self._storage.gradients_pending = True
        return results

    def _clear_gradients(self) -> None:
        for stored in self._storage.parameters.values():
            if stored.gradient is not None:
                stored.gradient.fill(0)

    def lazy_reset_grad(self) -> None:
        """Let the next training run overwrite the gradients instead of adding to them.

        Nothing else changes before: an optimizer step still applies the gradients that are there.
        """
        self._reset_requested = True
        self._storage.gradients_pending = False
