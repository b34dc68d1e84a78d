"""The activation functions of the recurrent operators, each with its slope."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..errors import UnsupportedOperatorError, did_you_mean
from ..graph.arithmetic import full_like, mask, narrowed, widened
from ..graph.value import Value


@dataclass(frozen=True)
class Activation:
    """A function, and its slope as a function of what is kept of a step: the input, or the value if ``of_value``.

    ``scaled`` is the slope times a factor, where there is something better than a product of the two.
    """

    function: Callable[[Value], Value]
    slope: Callable[[Value], Value]
    of_value: bool = False
    scaled: Callable[[Value, Value], Value] | None = None

    def kept(self, x: Value, y: Value) -> Value:
        """Which of the input and the value is kept."""
        return y if self.of_value else x

    def back(self, d: Value, x: Value, y: Value) -> Value:
        """The cotangent of the input ``x`` from that of the value ``y``."""
        kept = self.kept(x, y)
        return d * self.slope(kept) if self.scaled is None else self.scaled(d, kept)


def activation(name: str, alpha: float | None, beta: float | None) -> Activation:
    """The activation that ONNX calls ``name``, in any case, with defaults where ``alpha`` or ``beta`` is None."""
    make, defaults = _FUNCTIONS[name.lower()]
    return make(*(default if number is None else number for number, default in zip((alpha, beta), defaults)))


def with_parameters(
    names: Sequence[str], alphas: Sequence[float], betas: Sequence[float]
) -> list[tuple[str, float | None, float | None]]:
    """Each name with its alpha and beta, which are handed out in order to the activations that take them.

    Raises :class:`UnsupportedOperatorError` for an activation that ONNX does not have.
    """
    left_alphas, left_betas, found = list(alphas), list(betas), []
    for name in names:
        if name.lower() not in _FUNCTIONS:
            known = sorted(_FUNCTIONS)
            raise UnsupportedOperatorError(
                f"there is no activation {name!r} of recurrent operators." + did_you_mean(name.lower(), known),
                f"There are {', '.join(known)}.",
            )
        takes = len(_FUNCTIONS[name.lower()][1])
        alpha = left_alphas.pop(0) if takes >= 1 and left_alphas else None
        beta = left_betas.pop(0) if takes >= 2 and left_betas else None
        found.append((name.lower(), alpha, beta))
    return found


def clipped(inner: Activation, limit: float) -> Activation:
    """``inner`` of an input limited to [-limit, limit]; the slope is zero outside."""

    def slope(x: Value) -> Value:
        limited = x.clip(-limit, limit)
        kept = inner.function(limited) if inner.of_value else limited
        return inner.slope(kept) * mask(x.graph.op.LessOrEqual(x.abs(), limit), x)

    return Activation(lambda x: inner.function(x.clip(-limit, limit)), slope)


def _relu() -> Activation:
    return Activation(lambda x: x.relu(), lambda y: mask(y.graph.op.Greater(y, 0.0), y), of_value=True)


def _tanh() -> Activation:
    return Activation(lambda x: x.tanh(), lambda y: 1.0 - y * y, True, lambda d, y: d - d * y * y)


def _sigmoid() -> Activation:
    # Written so that the product is one that a recurrent layer computes anyway.
    return Activation(lambda x: x.sigmoid(), lambda y: y * (1.0 - y), True, lambda d, y: y * d - y * d * y)


def _affine(alpha: float, beta: float) -> Activation:
    return Activation(lambda x: x * alpha + beta, lambda x: full_like(x, alpha))


def _leaky_relu(alpha: float) -> Activation:
    def slope(x: Value) -> Value:
        return mask(x.graph.op.Less(x, 0.0), x) * (alpha - 1.0) + 1.0

    return Activation(lambda x: x * slope(x), slope)


def _thresholded_relu(alpha: float) -> Activation:
    def slope(x: Value) -> Value:
        return mask(x.graph.op.Greater(x, alpha), x)

    return Activation(lambda x: x * slope(x), slope)


def _scaled_tanh(alpha: float, beta: float) -> Activation:
    def slope(x: Value) -> Value:
        y = (x * beta).tanh()
        return (1.0 - y * y) * (alpha * beta)

    return Activation(lambda x: (x * beta).tanh() * alpha, slope)


def _hard_sigmoid(alpha: float, beta: float) -> Activation:
    def slope(y: Value) -> Value:
        op = y.graph.op
        return mask(op.And(op.Greater(y, 0.0), op.Less(y, 1.0)), y) * alpha

    return Activation(lambda x: (x * alpha + beta).clip(0.0, 1.0), slope, of_value=True)


def _elu(alpha: float) -> Activation:
    def below(x: Value) -> Value:
        return x.clip(None, 0.0).exp() * alpha

    def slope(x: Value) -> Value:
        positive = mask(x.graph.op.Greater(x, 0.0), x)
        return positive + below(x) * (1.0 - positive)

    return Activation(lambda x: x.relu() + below(x) - alpha, slope)


def _softsign() -> Activation:
    def slope(y: Value) -> Value:
        below = 1.0 - y.abs()
        return below * below

    return Activation(lambda x: x / (x.abs() + 1.0), slope, of_value=True)


def _softplus() -> Activation:
    return Activation(lambda x: narrowed(x.graph.op.Softplus(widened(x)), x), lambda x: x.sigmoid())


# What makes the function, and onnxruntime's defaults of what that takes: alpha, beta.
_FUNCTIONS: dict[str, tuple[Callable[..., Activation], tuple[float, ...]]] = {
    "affine": (_affine, (0.0, 0.0)),
    "elu": (_elu, (1.0,)),
    "hardsigmoid": (_hard_sigmoid, (0.2, 0.5)),
    "leakyrelu": (_leaky_relu, (0.01,)),
    "relu": (_relu, ()),
    "scaledtanh": (_scaled_tanh, (0.0, 0.0)),
    "sigmoid": (_sigmoid, ()),
    "softplus": (_softplus, ()),
    "softsign": (_softsign, ()),
    "tanh": (_tanh, ()),
    "thresholdedrelu": (_thresholded_relu, (0.0,)),
}
