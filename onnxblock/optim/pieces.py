"""The formulas that optimizers are made of."""

from __future__ import annotations

from ..graph.value import Value
from .step import Step


def average(state: Value, sample: Value, decay: float) -> Value:
    """The exponential moving average: decay · state + (1 - decay) · sample."""
    return state * decay + sample * (1 - decay)


def bias_correction(step: Step, decay: float) -> Value:
    """1 - decayᵗ in step t: what an average that began at zero is divided by to be one of the samples alone."""
    return 1 - decay**step.count


def weight_decay(step: Step, rate: float) -> Value | None:
    """1 - learning rate · rate, the factor that shrinks a parameter in one step; None where it is 1."""
    return step.scalar(1 - step.learning_rate * rate) if rate else None
