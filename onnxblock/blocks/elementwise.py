"""Arithmetic, element by element.  Operands broadcast as in NumPy."""

from __future__ import annotations

from ..graph.value import Operand, Value
from .operator import Operator


class _Binary(Operator):
    def build(self, input_name1: Operand, input_name2: Operand) -> Value:
        """Add the node; a number takes the element type of the other operand."""
        return self._node(input_name1, input_name2)


class _Unary(Operator):
    def build(self, input_name: Operand) -> Value:
        """Add the node."""
        return self._node(input_name)


class Add(_Binary):
    """The sum a + b."""

    op_type = "Add"


class Sub(_Binary):
    """The difference a - b."""

    op_type = "Sub"


class Mul(_Binary):
    """The product a b, element by element."""

    op_type = "Mul"


class Div(_Binary):
    """The quotient a / b."""

    op_type = "Div"


class Neg(_Unary):
    """The negative of x."""

    op_type = "Neg"


class Abs(_Unary):
    """The absolute value of x."""

    op_type = "Abs"


class Log(_Unary):
    """The natural logarithm of x."""

    op_type = "Log"


class Sigmoid(_Unary):
    """The logistic function 1 / (1 + exp(-x))."""

    op_type = "Sigmoid"


class Pow(Operator):
    """x to the power of ``exponent``: a number, an array, or a value of the graph."""

    op_type = "Pow"

    def __init__(self, exponent: Operand) -> None:
        super().__init__()
        self._exponent = exponent

    def build(self, pow_input_name: Operand) -> Value:
        """Add the node."""
        return self._node(pow_input_name, self._exponent)


class Clip(Operator):
    """x limited to ``[clip_min, clip_max]``; None leaves that side open."""

    op_type = "Clip"

    def __init__(self, clip_min: Operand = None, clip_max: Operand = None) -> None:
        super().__init__()
        self._limits = (clip_min, clip_max)

    def build(self, clip_input_name: Operand) -> Value:
        """Add the node."""
        return self._node(clip_input_name, *self._limits)
