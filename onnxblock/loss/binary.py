"""Losses on yes-or-no questions, each element one question."""

from __future__ import annotations

from collections.abc import Sequence

from ..block import Block
from ..blocks.gradient import CustomGradient
from ..errors import BlockBuildError
from ..graph.value import Value
from .formulas import least, softplus
from .reduction import as_reduction, reduce
from .target import Weights, weights_like, widened_pair


class BCEWithLogitsLoss(Block):
    """Binary cross-entropy on logits: w [(1 - y) x + (1 + (p - 1) y) log(1 + exp(-x))], reduced.

    x is the logit and y the target in [0, 1], a new input of the model with the element type and shape of x.
    ``weight`` (w) and ``pos_weight`` (p, the weight of positive answers) are arrays that broadcast to x.  ``reduction``
    is ``"mean"``, ``"sum"`` or ``"none"``; the mean divides by the number of elements, whatever the weights.  The value
    and its gradient stay finite for logits of any size.  As ``torch.nn.BCEWithLogitsLoss``.
    """

    def __init__(self, weight: Weights = None, reduction: str = "mean", pos_weight: Weights = None) -> None:
        self._weight, self._pos_weight = weight, pos_weight
        self._reduction = as_reduction(reduction)

    def build(self, loss_input_name: Value, target_name: str = "target") -> Value:
        """Add the loss.  Raises :class:`BlockBuildError` when the name of the target is taken."""
        x, y = widened_pair(loss_input_name, target_name)
        losses = _cross_entropy(x, y, weights_like(self._pos_weight, x))
        weight = weights_like(self._weight, x)
        return reduce(losses if weight is None else losses * weight, self._reduction, loss_input_name)


class BCELoss(Block):
    """Binary cross-entropy on probabilities: -w [y log x + (1 - y) log(1 - x)], reduced.

    x is a probability in [0, 1] and y the target, a new input of the model with the element type and shape of x;
    ``weight`` (w) is an array that broadcasts to x.  Logarithms count as at least -100, and the derivative
    (x - y) / (x (1 - x)) has a denominator of at least 1e-12, in float16 2e-5.  As ``torch.nn.BCELoss``; on logits, use
    :class:`BCEWithLogitsLoss`, which loses nothing.
    """

    def __init__(self, weight: Weights = None, reduction: str = "mean") -> None:
        self._weight = weight
        self._reduction = as_reduction(reduction)

    def build(self, loss_input_name: Value, target_name: str = "target") -> Value:
        """Add the loss.  Raises :class:`BlockBuildError` when the name of the target is taken."""
        x, y = widened_pair(loss_input_name, target_name)
        losses: Value = _ProbabilityCrossEntropy(least(loss_input_name, 1e-12, 2e-5))(x, y)
        weight = weights_like(self._weight, x)
        return reduce(losses if weight is None else losses * weight, self._reduction, loss_input_name)


class _ProbabilityCrossEntropy(CustomGradient):
    """The derivative of the logarithms themselves is infinite at 0 and 1; here it has a least denominator."""

    def __init__(self, denominator: float) -> None:
        self._denominator = denominator

    def forward(self, *inputs: Value) -> Value:
        x, y = inputs
        op = x.graph.op
        return -(y * op.Max(x.log(), -100.0) + (1 - y) * op.Max((1 - x).log(), -100.0))

    def backward(
        self,
        inputs: Sequence[Value],
        outputs: Sequence[Value],  # noqa: ARG002 - the derivative is a function of the inputs
        cotangents: Sequence[Value],
    ) -> Sequence[Value | None]:
        x, y = inputs
        return [cotangents[0] * (x - y) / x.graph.op.Max((1 - x) * x, self._denominator), None]


class FocalLoss(Block):
    """Binary cross-entropy on logits that counts less where the answer is right: a (1 - q)^gamma · loss, reduced.

    q is the probability given to the true answer, and a is ``alpha`` for positive targets, 1 - ``alpha`` for negative
    ones, or 1 for both with ``alpha=None``.  The target, 0 or 1, is a new input of the model with the element type and
    shape of the logits.  Lin et al. 2017.
    """

    def __init__(self, alpha: float | None = 0.25, gamma: float = 2.0, reduction: str = "mean") -> None:
        if not gamma >= 0:
            raise BlockBuildError(f"FocalLoss: gamma={gamma!r} is negative.")
        self._alpha, self._gamma = alpha, gamma
        self._reduction = as_reduction(reduction)

    def build(self, loss_input_name: Value, target_name: str = "target") -> Value:
        """Add the loss.  Raises :class:`BlockBuildError` when the name of the target is taken."""
        x, y = widened_pair(loss_input_name, target_name)
        sign = y * 2 - 1
        # The probability of the wrong answer, 1 - q, without a difference of two numbers close to 1.
        losses = _cross_entropy(x, y, None) * (-x * sign).sigmoid() ** self._gamma
        if self._alpha is not None:
            losses = losses * (y * (2 * self._alpha - 1) + (1 - self._alpha))
        return reduce(losses, self._reduction, loss_input_name)


def _cross_entropy(x: Value, y: Value, pos_weight: Value | None) -> Value:
    positive = softplus(-x)
    if pos_weight is not None:
        positive = positive * ((pos_weight - 1) * y + 1)
    return (1 - y) * x + positive
