"""The formulas that optimizers are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real

from ..errors import BlockBuildError, listed
from ..graph.value import Value
from .step import Step


def average(state: Value, sample: Value, decay: float) -> Value:
    """The exponential moving average: decay · state + (1 - decay) · sample."""
    return state * decay + sample * (1 - decay)


def bias_correction(step: Step, decay: float) -> Value:
    """1 - decayᵗ in step t: what an average that began at zero is divided by to be one of the samples alone."""
    return 1 - decay**step.count


def decay_factor(step: Step, rate: float) -> Value | None:
    """1 - learning rate · rate, the factor that shrinks a parameter in one step; None where it is 1."""
    return step.scalar(1 - step.learning_rate * rate) if rate else None


def decayed(gradient: Value, parameter: Value, rate: float) -> Value:
    """The gradient of the loss plus rate/2 · |p|²: weight decay that goes through the optimizer (L2 regularisation)."""
    return gradient + parameter * rate if rate else gradient


def is_number(given: object) -> bool:
    """Whether ``given`` is a real number, of Python or of NumPy."""
    return isinstance(given, Real)


NO_LEARNING_RATE = "The learning rate is no setting here: artifacts.api.Optimizer.set_learning_rate."


def check_settings(
    optimizer: str,
    *,
    fractions: Mapping[str, float] | None = None,
    not_negative: Mapping[str, float] | None = None,
    problems: Sequence[str] = (),
) -> None:
    """Raise :class:`BlockBuildError` that lists what is no number, outside of [0, 1) or below 0, and ``problems``."""
    fractions, not_negative = fractions or {}, not_negative or {}
    given: dict[str, object] = {**fractions, **not_negative}
    others = {name for name, x in given.items() if not is_number(x)}
    found = [f"{name} = {given[name]!r} is not a number" for name in given if name in others]
    found += [
        f"{name} = {x!r} is not in [0, 1)" for name, x in fractions.items() if name not in others and not 0 <= x < 1
    ]
    found += [f"{name} = {x!r} is negative" for name, x in not_negative.items() if name not in others and not x >= 0]
    found += problems
    if found:
        raise BlockBuildError(f"{optimizer}: {listed(found)}")


def check_adam(
    optimizer: str, betas: tuple[float, float], eps: float, decay: float, problems: Sequence[str] = ()
) -> None:
    """:func:`check_settings` for what the family of Adam has in common."""
    given: object = betas
    is_pair = isinstance(given, (tuple, list)) and len(given) == 2
    check_settings(
        optimizer,
        fractions={"beta1": betas[0], "beta2": betas[1]} if is_pair else {},
        not_negative={"eps": eps, "weight_decay": decay},
        problems=[*problems, *([] if is_pair else [f"betas = {given!r} is not a pair of numbers"])],
    )
