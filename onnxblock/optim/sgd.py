"""Gradient descent, with and without momentum."""

from __future__ import annotations

from collections.abc import Sequence

from onnx import TensorProto

from .. import names
from ..block import Block
from ..errors import BlockBuildError
from ..graph.types import Shape
from ..graph.value import Value
from .optimizer import Optimizer
from .parameters import Parameter
from .pieces import check_settings, decayed
from .sequences import LEARNING_RATE, TENSORS, call_optimizer, declare, map_sequences
from .state import MOMENTUM, State
from .step import Step, Update


class SGD(Optimizer):
    """p ← p - learning rate · d, where d is the gradient g.

    With ``momentum``, b ← momentum · b + (1 - dampening) · g, and d = b, or g + momentum · b with ``nesterov``; the
    first step takes b = g, and the state ``momentum0`` is b.  ``weight_decay`` adds weight_decay · p to g.  As
    ``torch.optim.SGD``; without options also as the original's.
    """

    elementwise = True
    sparse = True

    def __init__(
        self,
        clip_grad: Block | None = None,
        *,
        momentum: float = 0.0,
        dampening: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(
            clip_grad, momentum=momentum, dampening=dampening, nesterov=nesterov, weight_decay=weight_decay
        )
        wrong = ["nesterov needs a momentum and no dampening"] if nesterov and (not momentum or dampening) else []
        settings = {"momentum": momentum, "dampening": dampening, "weight_decay": weight_decay}
        check_settings("SGD", not_negative=settings, problems=wrong)
        self._momentum, self._dampening, self._nesterov = momentum, dampening, nesterov
        self._decay = weight_decay
        self.sparse = type(self).sparse and not (momentum or weight_decay)

    def states(self, shape: Shape) -> Sequence[State]:
        """The momentum, if there is any."""
        return [State(shape, content=MOMENTUM)] if self._momentum else []

    def rule(self, step: Step) -> Update:
        """Add what the tensors share, and return the function that updates one of them."""
        rate, momentum = step.scalar(step.learning_rate), self._momentum
        share: Value | None = None
        if momentum and self._dampening:
            first = rate.graph.op.Equal(step.count, 1.0).cast(TensorProto.DOUBLE)
            share = step.scalar(first * self._dampening + (1 - self._dampening))

        def update(p: Value, g: Value, *state: Value) -> list[Value]:
            g = decayed(g, p, self._decay)
            if not state:
                return [p - g * rate]
            b = state[0] * momentum + (g if share is None else g * share)
            d = g + b * momentum if self._nesterov else b
            return [p - d * rate, b]

        return update

    def _build_sequences(self, parameters: Sequence[Parameter]) -> Value:
        if self._momentum or self._decay:
            raise BlockBuildError(
                "SGD with momentum or weight decay has no form for onnxruntime-training.",
                "Leave runtime= at its default, 'onnxruntime', or the options out.",
            )
        wanted = [names.PARAMETERS_SEQUENCE, names.GRADIENTS_SEQUENCE, names.FIRST_MOMENTS_SEQUENCE]
        rate, _, params, gradients, _ = declare(self.graph, parameters, wanted)
        clipped = gradients if self.clip_grad is None else self.clip_grad(gradients)
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
