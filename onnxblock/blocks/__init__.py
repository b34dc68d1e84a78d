"""Blocks that are one step: the primitive blocks, and every ONNX operator under its own name.

Blocks written by hand have constructors of their own.  Any other operator of the default domain is a block too, and its
constructor takes the operator's attributes by name: ``blocks.Softmax(axis=1)(x)``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..block import Block
from . import operators as _operators
from .conversion import Cast, LabelEncoder
from .elementwise import Abs, Add, Clip, Div, Log, Mul, Neg, Pow, Sigmoid, Sub
from .gradient import CustomGradient, StopGradient, StraightThrough
from .linear import Linear
from .operator import Operator
from .reduction import ReduceAllL2, ReduceMean, ReduceSum
from .structure import Constant, InputLike, PassThrough, SequenceConstruct

if TYPE_CHECKING:
    from .operators import *  # noqa: F403 - the stub declares one class per operator

__all__ = [
    "Abs",
    "Add",
    "Block",
    "Cast",
    "Clip",
    "Constant",
    "CustomGradient",
    "Div",
    "InputLike",
    "LabelEncoder",
    "Linear",
    "Log",
    "Mul",
    "Neg",
    "Operator",
    "PassThrough",
    "Pow",
    "ReduceAllL2",
    "ReduceMean",
    "ReduceSum",
    "SequenceConstruct",
    "Sigmoid",
    "StopGradient",
    "StraightThrough",
    "Sub",
]


def __getattr__(name: str) -> Any:
    return getattr(_operators, name)


def __dir__() -> list[str]:
    return sorted({*__all__, *dir(_operators)})
