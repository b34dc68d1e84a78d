"""Gradient descent."""

from __future__ import annotations

from collections.abc import Sequence

from .. import names
from ..block import Block
from ..graph.value import Value
from .optimizer import Optimizer
from .parameters import Parameter
from .sequences import LEARNING_RATE, TENSORS, call_optimizer, declare, map_sequences
from .step import Step, Update


class SGD(Optimizer):
    """p ← p - learning rate · g."""

    def rule(self, step: Step) -> Update:
        """Add what the tensors share, and return the function that updates one of them."""
        rate = step.scalar(step.learning_rate)

        def update(p: Value, g: Value) -> list[Value]:
            return [p - g * rate]

        return update

    def _build_sequences(self, parameters: Sequence[Parameter]) -> Value:
        wanted = [names.PARAMETERS_SEQUENCE, names.GRADIENTS_SEQUENCE, names.FIRST_MOMENTS_SEQUENCE]
        rate, _, params, gradients, _ = declare(self.graph, parameters, wanted)
        clipped = gradients if self._clip_grad is None else self._clip_grad(gradients)
        flag: Value = SGDOptimizer()(rate, clipped, params)
        return flag


class SGDOptimizer(Block):
    """The node SGDOptimizerV2 of onnxruntime-training, on sequences of float32 tensors: p ← p - learning rate · g.

    For optimizers written for the original, which make the sequence inputs themselves.  Stock onnxruntime runs the
    model too: it has a function of that name, and an output ``<params>.updated`` with the new values.
    """

    def build(self, learning_rate_name: str, gradients_name: str, params_name: str) -> Value:
        """Add the node and return its flag.  Raises :class:`BlockBuildError` where the names are not of sequences."""

        def body(rate: Value, params: Value, gradients: Value) -> list[Value]:
            scalar = rate.reshape()
            return map_sequences([params, gradients], 1, lambda p, g: [p - g * scalar])

        inputs = {
            "learning_rate": (learning_rate_name, LEARNING_RATE),
            "weights": (params_name, TENSORS),
            "gradients": (gradients_name, TENSORS),
        }
        return call_optimizer(self.graph, "SGDOptimizerV2", inputs, {"updated_weights": params_name}, body, {})
