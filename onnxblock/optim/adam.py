"""Adam with decoupled weight decay, in the two forms that are in use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
from onnx import TensorProto

from .. import names
from ..block import Block
from ..errors import BlockBuildError, did_you_mean
from ..graph.types import Shape
from ..graph.value import Value
from .optimizer import Optimizer
from .parameters import Parameter
from .pieces import NO_LEARNING_RATE, average, bias_correction, check_adam, decay_factor
from .sequences import LEARNING_RATE, STEP, TENSORS, call_optimizer, declare, map_sequences
from .state import AVERAGE, LARGEST_SQUARES, SQUARES, State
from .step import Step, Update, begin

Variant = Literal["original", "torch"]
_VARIANTS = ("original", "torch")


@dataclass(frozen=True)
class AdamWRule:
    """The settings, and the update that they make.

    With m and v the moving averages of g and g², and step t:

    * original: p ← p - r m / (√v + eps) with r = learning rate · √(1 - β₂ᵗ) / (1 - β₁ᵗ), then
      p ← p (1 - learning rate · decay).  The epsilon is added to the uncorrected √v (Hugging Face's form, which
      onnxruntime-training has).
    * torch: p ← p (1 - learning rate · decay), then p ← p - learning rate · m̂ / (√v̂ + eps) with the corrected averages
      m̂ = m / (1 - β₁ᵗ), v̂ = v / (1 - β₂ᵗ) (Loshchilov and Hutter 2019, ``torch.optim.AdamW``).  Multiplied through by
      √(1 - β₂ᵗ), so that the corrections cost no pass over a tensor.

    With a third state, the largest v that there was, that is taken for v.
    """

    bias_correction: bool
    betas: tuple[float, float]
    eps: float
    decay: float
    variant: Variant

    def rule(self, step: Step) -> Update:
        beta1, beta2 = self.betas
        if self.variant == "original" and step.dtype == TensorProto.FLOAT:
            # The original keeps its settings in float32, where 1 - 0.999 is 1.3e-5 off.
            beta1, beta2 = float(np.float32(beta1)), float(np.float32(beta2))
        rate: Value = step.learning_rate
        eps: Value | float = self.eps
        if self.bias_correction:
            correction = bias_correction(step, beta2).sqrt()
            rate = rate * correction / bias_correction(step, beta1)
            if self.variant == "torch":
                eps = step.scalar(correction * self.eps)
        rate, keep = step.scalar(rate), decay_factor(step, self.decay)
        keep_before, keep_after = (keep, None) if self.variant == "torch" else (None, keep)

        def update(p: Value, g: Value, m: Value, v: Value, *largest: Value) -> list[Value]:
            m, v = average(m, g, beta1), average(v, g * g, beta2)
            largest = tuple(v.graph.op.Max(past, v) for past in largest)
            p = p if keep_before is None else p * keep_before
            p = p - m / ((largest[0] if largest else v).sqrt() + eps) * rate
            return [p if keep_after is None else p * keep_after, m, v, *largest]

        return update

    def attributes(self) -> dict[str, Any]:
        """The attributes of the node AdamWOptimizer of onnxruntime-training."""
        return {
            "alpha": self.betas[0],
            "beta": self.betas[1],
            "epsilon": self.eps,
            "weight_decay": self.decay,
            "correct_bias": int(self.bias_correction),
            "adam_mode": 0 if self.variant == "torch" else 1,
        }


def _settings(
    bias_correction: bool | None,
    betas: tuple[float, float],
    eps: float | None,
    weight_decay: float | None,
    variant: str,
) -> AdamWRule:
    eps, decay = 1e-6 if eps is None else eps, weight_decay or 0.0
    known = variant in _VARIANTS
    wrong = [] if known else [f"variant {variant!r} is not 'original' or 'torch'." + did_you_mean(variant, _VARIANTS)]
    if bias_correction not in (None, True, False) or isinstance(bias_correction, float):
        wrong.append(f"bias_correction = {bias_correction!r} is neither True nor False. {NO_LEARNING_RATE}")
    check_adam("AdamW", betas, eps, decay, wrong)
    correct = True if bias_correction is None else bool(bias_correction)
    return AdamWRule(correct, (betas[0], betas[1]), eps, decay, cast(Variant, variant))


class AdamW(Optimizer):
    """Adam with decoupled weight decay.

    ``variant`` is ``"original"``, the update of onnxruntime-training, or ``"torch"``, that of ``torch.optim.AdamW``;
    they differ in where epsilon is added and when the weights decay.  The states are the moving averages of the
    gradient (``momentum0``) and of its square (``momentum1``), with the decay rates ``betas``.  ``amsgrad`` takes, in
    each element, the largest average of the square that there was (Reddi, Kale and Kumar 2018), and keeps it as
    ``momentum2``.
    """

    elementwise = True

    def __init__(
        self,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        clip_grad: Block | None = None,
        *,
        variant: Variant = "original",
        amsgrad: bool = False,
    ) -> None:
        super().__init__(
            clip_grad,
            bias_correction=bias_correction,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            variant=variant,
            amsgrad=amsgrad,
        )
        self._amsgrad = amsgrad
        self._settings = _settings(bias_correction, betas, eps, weight_decay, variant)

    def states(self, shape: Shape) -> Sequence[State]:
        """The averages of the gradient and of its square, and the largest of the latter if that is taken."""
        kept = [State(shape, content=AVERAGE), State(shape, content=SQUARES)]
        return [*kept, State(shape, content=LARGEST_SQUARES)] if self._amsgrad else kept

    def rule(self, step: Step) -> Update:
        """Add what the tensors share, and return the function that updates one of them."""
        return self._settings.rule(step)

    def _build_sequences(self, parameters: Sequence[Parameter]) -> Value:
        if self._amsgrad:
            raise BlockBuildError(
                "AdamW with amsgrad has no form for onnxruntime-training.",
                "Leave runtime= at its default, 'onnxruntime', or the option out.",
            )
        if self._settings.variant == "torch" and not self._settings.bias_correction:
            raise BlockBuildError(
                "AdamW(variant='torch', bias_correction=False) has no form for onnxruntime-training, which always "
                "corrects this variant.",
                "Leave runtime= at its default, 'onnxruntime', or one of the options out.",
            )
        moments = [names.FIRST_MOMENTS_SEQUENCE, names.SECOND_MOMENTS_SEQUENCE]
        wanted = [names.PARAMETERS_SEQUENCE, names.GRADIENTS_SEQUENCE, *moments]
        rate, step, params, gradients, *states = declare(self.graph, parameters, wanted)
        clipped = gradients if self.clip_grad is None else self.clip_grad(gradients)
        s = self._settings
        node = AdamWOptimizer(s.bias_correction, s.betas, s.eps, s.decay, variant=s.variant)
        flag: Value = node(rate, step, params, clipped, *states)
        return flag


class AdamWOptimizer(Block):
    """The node AdamWOptimizer of onnxruntime-training, on sequences of float32 tensors.

    For optimizers written for the original, which make the sequence inputs themselves.  Stock onnxruntime runs the
    model too: it has a function of that name, and outputs ``<sequence>.updated`` with the new values.  The settings are
    those of :class:`AdamW`.
    """

    def __init__(
        self,
        bias_correction: bool | None = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float | None = 1e-6,
        weight_decay: float | None = 0.0,
        *,
        variant: Variant = "original",
    ) -> None:
        self._settings = _settings(bias_correction, betas, eps, weight_decay, variant)

    def build(
        self,
        learning_rate_name: str,
        step_name: str,
        parameter_sequence_name: str,
        gradient_sequence_name: str,
        first_order_moment_sequence_name: str,
        second_order_moment_sequence_name: str,
    ) -> Value:
        """Add the node and return its flag.  Raises :class:`BlockBuildError` where the names are not of sequences."""

        def body(rate: Value, count: Value, *sequences: Value) -> list[Value]:
            return map_sequences(sequences, 3, self._settings.rule(begin(rate, count, TensorProto.FLOAT)))

        inputs = {
            "learning_rate": (learning_rate_name, LEARNING_RATE),
            "step": (step_name, STEP),
            "weights": (parameter_sequence_name, TENSORS),
            "gradients": (gradient_sequence_name, TENSORS),
            "momentums_1": (first_order_moment_sequence_name, TENSORS),
            "momentums_2": (second_order_moment_sequence_name, TENSORS),
        }
        updated = {
            "updated_weights": parameter_sequence_name,
            "updated_momentums_1": first_order_moment_sequence_name,
            "updated_momentums_2": second_order_moment_sequence_name,
        }
        return call_optimizer(self.graph, "AdamWOptimizer", inputs, updated, body, self._settings.attributes())
