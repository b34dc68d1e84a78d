"""The activation functions of the recurrent operators, each with its slope."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from ..errors import UnsupportedOperatorError, did_you_mean
from ..graph.arithmetic import full_like, mask
from ..graph.value import Value


class Gate(NamedTuple):
    """The value of an activation and its derivative at the same point."""

    value: Value
    slope: Value


Activation: TypeAlias = "Callable[[Value], Gate]"


def activation(name: str, alpha: float | None, beta: float | None) -> Activation:
    """The activation that ONNX calls ``name``, in any case, with defaults where ``alpha`` or ``beta`` is None."""
    function, defaults = _FUNCTIONS[name.lower()]
    given = [default if number is None else number for number, default in zip((alpha, beta), defaults, strict=False)]
    return lambda x: function(x, *given)


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


def clipped(function: Activation, limit: float) -> Activation:
    """``function`` of an input limited to [-limit, limit]; the slope is zero outside."""

    def apply(x: Value) -> Gate:
        value, slope = function(x.clip(-limit, limit))
        return Gate(value, slope * mask(x.graph.op.LessOrEqual(x.abs(), limit), x))

    return apply


def _relu(x: Value) -> Gate:
    return Gate(x.relu(), mask(x.graph.op.Greater(x, 0.0), x))


def _tanh(x: Value) -> Gate:
    y = x.tanh()
    return Gate(y, 1.0 - y * y)


def _sigmoid(x: Value) -> Gate:
    y = x.sigmoid()
    return Gate(y, y * (1.0 - y))


def _affine(x: Value, alpha: float, beta: float) -> Gate:
    return Gate(x * alpha + beta, full_like(x, alpha))


def _leaky_relu(x: Value, alpha: float) -> Gate:
    slope = mask(x.graph.op.Less(x, 0.0), x) * (alpha - 1.0) + 1.0
    return Gate(x * slope, slope)


def _thresholded_relu(x: Value, alpha: float) -> Gate:
    slope = mask(x.graph.op.Greater(x, alpha), x)
    return Gate(x * slope, slope)


def _scaled_tanh(x: Value, alpha: float, beta: float) -> Gate:
    y = (x * beta).tanh()
    return Gate(y * alpha, (1.0 - y * y) * (alpha * beta))


def _hard_sigmoid(x: Value, alpha: float, beta: float) -> Gate:
    op, line = x.graph.op, x * alpha + beta
    inside = op.And(op.Greater(line, 0.0), op.Less(line, 1.0))
    return Gate(line.clip(0.0, 1.0), mask(inside, x) * alpha)


def _elu(x: Value, alpha: float) -> Gate:
    below = x.clip(None, 0.0).exp() * alpha
    positive = mask(x.graph.op.Greater(x, 0.0), x)
    return Gate(x.relu() + below - alpha, positive + below * (1.0 - positive))


def _softsign(x: Value) -> Gate:
    width = x.abs() + 1.0
    return Gate(x / width, 1.0 / (width * width))


def _softplus(x: Value) -> Gate:
    return Gate(x.graph.op.Softplus(x), x.sigmoid())


# The function, and onnxruntime's defaults of what it takes: alpha, beta.
_FUNCTIONS: dict[str, tuple[Callable[..., Gate], tuple[float, ...]]] = {
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
