"""Gradients of the elementwise operators.  The engine undoes broadcasting and casts, so no rule here does."""

from __future__ import annotations

import functools
import math

from ... import names
from ...graph.arithmetic import cast_like, mask, widened
from ...graph.types import HALVES
from ...graph.value import Value
from ..registry import RuleResult, gradient, no_gradient
from ..rule import RuleContext

no_gradient("Ceil", "Floor", "Round", "Sign", reason="constant between its jumps")
no_gradient(
    *("And", "Or", "Xor", "Not", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "IsInf", "IsNaN"),
    reason="the result is true or false",
)
no_gradient(
    *("BitCast", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor"), reason="works on bits, not numbers"
)


# -- arithmetic


@gradient("Add")
def add(g: RuleContext) -> RuleResult:
    """d(a + b) = da + db."""
    return g.dy, g.dy


@gradient("Sub")
def sub(g: RuleContext) -> RuleResult:
    """d(a - b) = da - db."""
    return g.dy, -g.dy if g.wants(1) else None


@gradient("Mul")
def mul(g: RuleContext) -> RuleResult:
    """d(a b) = b da + a db."""
    a, b = g.inputs
    return g.dy * b if g.wants(0) else None, g.dy * a if g.wants(1) else None


@gradient("Div")
def div(g: RuleContext) -> RuleResult:
    """d(a / b) = da / b - (a / b) db / b."""
    quotient = g.dy / g.inputs[1]
    return quotient, -(quotient * g.y) if g.wants(1) else None


@gradient("Neg")
def neg(g: RuleContext) -> RuleResult:
    """d(-x) = -dx."""
    return -g.dy


@gradient("Sum")
def sum_(g: RuleContext) -> RuleResult:
    """d(a + b + ...) = da + db + ..."""
    return [g.dy] * len(g.inputs)


@gradient("Mean")
def mean(g: RuleContext) -> RuleResult:
    """d((a + b + ...) / n) = (da + db + ...) / n."""
    share = g.dy / len(g.inputs)
    return [share] * len(g.inputs)


@gradient("Mod")
def mod(g: RuleContext) -> RuleResult:
    """a mod b = a - k b with an integer k = (a - y) / b: da passes, and b gets -k."""
    a, b = g.inputs
    return g.dy, -(g.dy * ((a - g.y) / b)) if g.wants(1) else None


@gradient("Reciprocal")
def reciprocal(g: RuleContext) -> RuleResult:
    """d(1 / x) = -dx / x²."""
    return -(g.dy * g.y * g.y)


@gradient("Sqrt")
def sqrt(g: RuleContext) -> RuleResult:
    """d√x = dx / 2√x; infinite at 0, as in PyTorch."""
    return g.dy * 0.5 / g.y


@gradient("Abs")
def absolute(g: RuleContext) -> RuleResult:
    """d|x| = sign(x) dx; 0 at 0."""
    return g.dy * g.op.Sign(g.x)


@gradient("Pow")
def power(g: RuleContext) -> RuleResult:
    """d(x^p) = p x^(p-1) dx + x^p log(x) dp.

    As in PyTorch: p = 0 gives 0 to every base, zero included; a zero base gives 0 to p ≥ 0; a negative base gives NaN
    to p, since x^p is no number beside it.
    """
    x = g.x
    p = cast_like(g.inputs[1], x)
    dx = g.dy * _power_slope(g, x, p) if g.wants(0) else None
    if not g.wants(1):
        return dx, None
    op = g.op
    replaced = mask(op.And(op.Equal(x, 0), op.GreaterOrEqual(p, 0)), x)
    return dx, g.dy * g.y * op.Log(x + replaced)


def _power_slope(g: RuleContext, x: Value, p: Value) -> Value:
    known = g.constant(1)
    if known is not None and known.size == 1 and known.ndim <= (x.rank or 0):
        exponent = float(known.item())
        if exponent == 2:
            return x * 2
        if exponent == 3:
            return x * x * 3
        if exponent not in (0, 1):
            return (x ** (exponent - 1)) * exponent
    # p - 1, but 0 where p is 0: the power of a zero base would be infinite there.
    return (x ** (p - 1 + mask(g.op.Equal(p, 0), x))) * p


@gradient("RootOfSquares", domain=names.OWN_DOMAIN)
def root_of_squares(g: RuleContext) -> RuleResult:
    """d u^p = p u^p / u du for 0 < p < 1; 0 at 0, as for norms and deviations in PyTorch.

    Where u is 0, its own slope in what it is made of is 0 too, and infinity would make that NaN.
    """
    exponent: float = g.attr("exponent")
    if exponent == 0.5:
        return g.dy * 0.5 / (g.y + mask(g.op.Equal(g.y, 0), g.y))
    return g.dy * exponent * (g.y / (g.x + mask(g.op.Equal(g.x, 0), g.x)))


@gradient("Exp")
def exp(g: RuleContext) -> RuleResult:
    """d(e^x) = e^x dx."""
    return g.dy * g.y


@gradient("Log")
def log(g: RuleContext) -> RuleResult:
    """d log x = dx / x."""
    return g.dy / g.x


@gradient("Erf")
def erf(g: RuleContext) -> RuleResult:
    """d erf(x) = 2/√π e^(-x²) dx (Abramowitz & Stegun 7.1.19)."""
    return g.dy * (math.log(2 / math.sqrt(math.pi)) - g.x * g.x).exp()


# -- circular and hyperbolic functions


@gradient("Sin")
def sin(g: RuleContext) -> RuleResult:
    """d sin x = cos x dx."""
    return g.dy * g.op.Cos(g.x)


@gradient("Cos")
def cos(g: RuleContext) -> RuleResult:
    """d cos x = -sin x dx."""
    return -(g.dy * g.op.Sin(g.x))


@gradient("Tan")
def tan(g: RuleContext) -> RuleResult:
    """d tan x = (1 + tan²x) dx."""
    return g.dy * (1 + g.y * g.y)


@gradient("Asin")
def asin(g: RuleContext) -> RuleResult:
    """d arcsin x = dx / √(1 - x²)."""
    return g.dy / _root_of_one_minus_square(g.x)


@gradient("Acos")
def acos(g: RuleContext) -> RuleResult:
    """d arccos x = -dx / √(1 - x²)."""
    return -(g.dy / _root_of_one_minus_square(g.x))


def _root_of_one_minus_square(x: Value) -> Value:
    """√(1 - x²), without the loss of digits of the difference near 1."""
    return ((1 - x) * (1 + x)).sqrt()


@gradient("Atan")
def atan(g: RuleContext) -> RuleResult:
    """d arctan x = dx / (1 + x²)."""
    return g.dy / (1 + g.x * g.x)


@gradient("AtanOfQuotient", domain=names.OWN_DOMAIN)
def atan_of_quotient(g: RuleContext) -> RuleResult:
    """d arctan(y / x) = (x dy - y dx) / (x² + y²), also where x = 0; 0 where both are 0, as PyTorch's atan2."""
    y, x = g.inputs
    square = y * y + x * x
    d = g.dy / (square + mask(g.op.Equal(square, 0), square))
    return d * x if g.wants(0) else None, -(d * y) if g.wants(1) else None


@gradient("Sinh")
def sinh(g: RuleContext) -> RuleResult:
    """d sinh x = cosh x dx."""
    return g.dy * g.op.Cosh(g.x)


@gradient("Cosh")
def cosh(g: RuleContext) -> RuleResult:
    """d cosh x = sinh x dx."""
    return g.dy * g.op.Sinh(g.x)


@gradient("Asinh")
def asinh(g: RuleContext) -> RuleResult:
    """d arsinh x = dx / √(x² + 1)."""
    return g.dy / (g.x * g.x + 1).sqrt()


@gradient("Acosh")
def acosh(g: RuleContext) -> RuleResult:
    """d arcosh x = dx / √(x² - 1)."""
    return g.dy / ((g.x - 1) * (g.x + 1)).sqrt()


@gradient("Atanh")
def atanh(g: RuleContext) -> RuleResult:
    """d artanh x = dx / (1 - x²)."""
    return g.dy / ((1 - g.x) * (1 + g.x))


# -- selections


@gradient("Max")
def maximum(g: RuleContext) -> RuleResult:
    """The gradient goes to the largest; equal ones share it evenly, as in PyTorch."""
    return _extremum(g, "Greater", "GreaterOrEqual")


@gradient("Min")
def minimum(g: RuleContext) -> RuleResult:
    """The gradient goes to the smallest; equal ones share it evenly, as in PyTorch."""
    return _extremum(g, "Less", "LessOrEqual")


def _extremum(g: RuleContext, beats: str, ties: str) -> RuleResult:
    inputs = g.inputs
    if len(inputs) == 1:
        return g.dy
    if len(inputs) == 2:
        a, b = inputs if g.wants(0) else inputs[::-1]
        wins = [mask(getattr(g.op, comparison)(a, b), g.dy) for comparison in (beats, ties)]
        first = g.dy * ((wins[0] + wins[1]) * 0.5)
        return (first, g.dy - first) if g.wants(0) else (None, first)
    y = g.y
    if y.dtype in HALVES:
        inputs = [widened(x) for x in inputs]
        y = getattr(g.op, g.node.op_type)(*inputs)
    masks = [mask(g.op.Equal(x, y), g.dy) for x in inputs]
    share = g.dy / functools.reduce(lambda m, n: m + n, masks)
    return [share * m if g.wants(k) else None for k, m in enumerate(masks)]


@gradient("Where")
def where(g: RuleContext) -> RuleResult:
    """The gradient goes to the side that was taken.

    It selects, where others multiply by a mask: infinite and undefined cotangents of the other side must stay out.
    """
    taken, op = g.inputs[0], g.op
    return (
        None,
        op.Where(taken, g.dy, 0) if g.wants(1) else None,
        op.Where(taken, 0, g.dy) if g.wants(2) else None,
    )


@gradient("Clip")
def clip(g: RuleContext) -> RuleResult:
    """The gradient passes where low ≤ x ≤ high, and goes to the bound that was taken elsewhere, as in PyTorch.

    Where low > high, y = high everywhere.  Constant bounds of exactly 0 and 6 are what exporters write for ReLU6, whose
    gradient is 0 at both, as that of ReLU is at 0.
    """
    x, low, high, op = g.x, g.input(1), g.input(2), g.op
    dx = dlow = dhigh = None
    if g.wants(0):
        dx = g.dy * mask(_inside(g, low, high), g.dy)
    if low is not None and g.wants(1):
        below = op.Less(x, low)
        dlow = g.dy * mask(below if high is None else op.And(below, op.LessOrEqual(low, high)), g.dy)
    if high is not None and g.wants(2):
        above = op.Greater(x, high)
        dhigh = g.dy * mask(above if low is None else op.Or(above, op.Greater(low, high)), g.dy)
    return dx, dlow, dhigh


def _inside(g: RuleContext, low: Value | None, high: Value | None) -> Value:
    bounds = g.constant(1), g.constant(2)
    if bounds[0] == 0 and bounds[1] == 6:
        return g.op.And(g.op.Greater(g.y, 0), g.op.Less(g.y, 6))
    is_ordered = bounds[0] is not None and bounds[1] is not None and bounds[0] <= bounds[1]
    if (low is None or high is None or is_ordered) and g.y.dtype not in HALVES:
        return g.op.Equal(g.x, g.y)
    above = None if low is None else g.op.GreaterOrEqual(g.x, low)
    below = None if high is None else g.op.LessOrEqual(g.x, high)
    if above is None or below is None:
        return above or below or g.op.Equal(g.x, g.x if g.x.dtype in HALVES else g.y)
    return g.op.And(above, below)


# -- element types


@gradient("Cast", "CastLike")
def cast(g: RuleContext) -> RuleResult:
    """Between float types the gradient passes; the engine casts it back."""
    return g.dy, None
