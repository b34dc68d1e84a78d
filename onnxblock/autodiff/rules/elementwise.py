"""Gradients of the elementwise operators.  The engine undoes broadcasting, so no rule here does."""

from __future__ import annotations

from ..registry import RuleResult, gradient
from ..rule import RuleContext


@gradient("Add")
def add(g: RuleContext) -> RuleResult:
    """d(a + b) = da + db"""
    return g.dy, g.dy


@gradient("Sub")
def sub(g: RuleContext) -> RuleResult:
    """d(a - b) = da - db"""
    return g.dy, -g.dy if g.wants(1) else None


@gradient("Mul")
def mul(g: RuleContext) -> RuleResult:
    """d(a b) = b da + a db"""
    a, b = g.inputs
    return g.dy * b if g.wants(0) else None, g.dy * a if g.wants(1) else None


@gradient("Div")
def div(g: RuleContext) -> RuleResult:
    """d(a / b) = da / b - (a / b) db / b"""
    quotient = g.dy / g.inputs[1]
    return quotient, -(quotient * g.y) if g.wants(1) else None


@gradient("Neg")
def neg(g: RuleContext) -> RuleResult:
    """d(-x) = -dx"""
    return -g.dy
