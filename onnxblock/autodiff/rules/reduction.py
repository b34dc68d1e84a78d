"""Gradients of the reductions, of running sums and products, and of sorting."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...graph.arithmetic import cast_like, element_count, expand_like, mask, shape_of, widened, zeros_like
from ...graph.value import Value
from ..registry import RuleResult, gradient, no_gradient
from ..rule import RuleContext

no_gradient("ArgMax", "ArgMin", reason="the result is a position")


class _Reduction:
    """The axes of a reduction, and its output and cotangent with those axes put back as size 1."""

    def __init__(self, g: RuleContext) -> None:
        self.g = g
        self.axes = g.input(1)
        self.options = {"noop_with_empty_axes": g.attr("noop_with_empty_axes"), "keepdims": 1}
        self.dy = self._restored(g.dy)

    @property
    def y(self) -> Value:
        return self._restored(self.g.y)

    def sum(self, x: Value) -> Value:
        """The sum over the same axes, which stay as size 1."""
        total: Value = self.g.op.ReduceSum(x, self.axes, **self.options)
        return total

    def of(self, op_type: str, x: Value) -> Value:
        """Another reduction over the same axes, which stay as size 1."""
        reduced: Value = getattr(self.g.op, op_type)(x, self.axes, **self.options)
        return reduced

    def operands(self) -> tuple[Value, Value, Value]:
        """x, and the cotangent and the result with the axes put back, for a comparison of x with the result.

        In half precision all are float32, and the result is computed again: see :func:`~.arithmetic.widened`.
        """
        x = widened(self.g.x)
        return x, widened(self.dy), self.y if x == self.g.x else self.of(self.g.node.op_type, x)

    def _restored(self, value: Value) -> Value:
        """As with keepdims=1.  A reduction over everything gives a scalar, which broadcasts as it is."""
        if self.g.attr("keepdims") or self.axes is None:
            return value
        restored: Value = self.g.op.Unsqueeze(value, self.axes)
        return restored

    @property
    def count(self) -> Value | float:
        """How many elements go into one of the output, to divide by."""
        g, known = self.g, self.g.constant(1)
        if self.axes is None or (known is not None and known.size == 0):
            if self.options["noop_with_empty_axes"]:
                return 1.0
            if g.x.rank is not None:
                return element_count(g.x, list(range(g.x.rank)), g.dy)
        elif known is not None:
            return element_count(g.x, [int(axis) for axis in known], g.dy)
        sizes = [g.op.ReduceProd(shape_of(v), keepdims=0) for v in (g.x, g.y)]
        return cast_like(g.op.Div(sizes[0], g.op.Max(sizes[1], np.array(1, np.int64))), g.dy)


@gradient("ReduceSum")
def reduce_sum(g: RuleContext) -> RuleResult:
    """Every element gets the cotangent of its sum."""
    return expand_like(_Reduction(g).dy, g.x)


@gradient("ReduceMean")
def reduce_mean(g: RuleContext) -> RuleResult:
    """Every element gets an equal share of the cotangent of its mean."""
    r = _Reduction(g)
    return expand_like(r.dy / r.count, g.x)


@gradient("ReduceMax", "ReduceMin")
def reduce_extremum(g: RuleContext) -> RuleResult:
    """The gradient goes to the largest (smallest) element; equal ones share it, as in PyTorch's amax and amin."""
    r = _Reduction(g)
    x, dy, y = r.operands()
    taken = mask(g.op.Equal(x, y), dy)
    return taken * (dy / r.sum(taken))


@gradient("ReduceProd")
def reduce_prod(g: RuleContext) -> RuleResult:
    """dx_k = dy Π_{i≠k} x_i, without a division by zero.

    Let P be the product of the elements that are not 0.  With no zero, every element gets P / x; with one zero, that
    element gets P and the others nothing; with more, nobody gets anything.
    """
    r = _Reduction(g)
    zero = mask(g.op.Equal(g.x, 0), g.x)
    safe = g.x + zero
    return r.dy * r.of("ReduceProd", safe) / safe * mask(g.op.Equal(r.sum(zero), zero), g.x)


@gradient("ReduceL1")
def reduce_l1(g: RuleContext) -> RuleResult:
    """d Σ|x| = Σ sign(x) dx; 0 at 0."""
    return _Reduction(g).dy * g.op.Sign(g.x)


@gradient("ReduceL2")
def reduce_l2(g: RuleContext) -> RuleResult:
    """d √Σx² = Σ x dx / y; 0 where y = 0."""
    r = _Reduction(g)
    return g.x * (r.dy / (r.y + mask(g.op.Equal(r.y, 0), r.dy)))


@gradient("ReduceSumSquare")
def reduce_sum_square(g: RuleContext) -> RuleResult:
    """d Σx² = Σ 2x dx."""
    return g.x * (_Reduction(g).dy * 2)


@gradient("ReduceLogSum")
def reduce_log_sum(g: RuleContext) -> RuleResult:
    """d log Σx = Σ dx / e^y."""
    r = _Reduction(g)
    return expand_like(r.dy * (-r.y).exp(), g.x)


@gradient("ReduceLogSumExp")
def reduce_log_sum_exp(g: RuleContext) -> RuleResult:
    """d log Σe^x = Σ e^(x-y) dx; x never exceeds y, so nothing overflows."""
    x, dy, y = _Reduction(g).operands()
    return dy * (x - y).exp()


# -- running sums and products


@gradient("CumSum")
def cumsum(g: RuleContext) -> RuleResult:
    """The running sum of the cotangents, from the other end."""
    return _from_the_other_end(g, g.dy), None


@gradient("CumProd")
def cumprod(g: RuleContext) -> RuleResult:
    """dx_k = Σ_{i≥k} dy_i y_i / x_k, without a division by zero.

    Before the first zero of a row that is the formula.  The first zero gets the sum of dy_i times the products with
    that zero replaced by 1.  What comes later gets nothing.
    """
    x, axis, op = g.x, g.inputs[1], g.op
    direction = {"reverse": g.attr("reverse")}
    zero = mask(op.Equal(x, 0), x)
    zeros_so_far = op.CumSum(zero, axis, **direction)
    before = mask(op.Equal(zeros_so_far, 0), x)
    first = zero * mask(op.Equal(zeros_so_far, 1), x)
    without_first = op.CumProd(x + first, axis, exclusive=g.attr("exclusive"), **direction)
    dx = _from_the_other_end(g, g.dy * g.y) * before + _from_the_other_end(g, g.dy * without_first) * first
    return dx / (x + zero), None


def _from_the_other_end(g: RuleContext, x: Value) -> Value:
    total: Value = g.op.CumSum(x, g.inputs[1], exclusive=g.attr("exclusive"), reverse=1 - g.attr("reverse"))
    return total


# -- sorting


@gradient("TopK")
def topk(g: RuleContext) -> RuleResult:
    """Each value's cotangent goes back to where the value came from."""
    options: dict[str, Any] = {"axis": g.attr("axis")}
    return g.op.ScatterElements(zeros_like(g.x), g.output(1), g.dy, **options), None
