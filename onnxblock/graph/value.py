"""A value of a graph: its ONNX name, with what is known of it, and the operators of arithmetic."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast, overload

import numpy as np
import numpy.typing as npt

from .types import Shape, TensorType, element_type

if TYPE_CHECKING:
    from .graph import Graph

Number: TypeAlias = "int | float | bool"
Operand: TypeAlias = "Value | str | Number | np.generic | npt.NDArray[Any] | Sequence[int] | Sequence[float] | None"
"""What an operator takes as an input: a value or its name, a number, an array, or None for an absent input."""


class Value(str):
    """The name of a value in one graph.

    It *is* the ONNX name, so it goes wherever a name goes (protobuf fields, dictionary keys, string formatting), and it
    knows its ``graph``, ``dtype`` and ``shape``.  Arithmetic adds nodes to the graph: ``((a - b) ** 2).mean()``.
    An operation whose other operand is a plain ``str`` stays a string operation: ``value + "_grad"``.
    """

    graph: Graph

    __array_ufunc__ = None
    """NumPy arrays and numbers on the left leave the operation to the value on the right."""

    def __new__(cls, name: str, graph: Graph) -> Value:
        value = str.__new__(cls, name)
        value.graph = graph
        return value

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)

    # -- what is known

    @property
    def type(self) -> TensorType | None:
        """Element type and shape; None for a sequence or when nothing is known."""
        return self.graph.tensor_type(self)

    @property
    def dtype(self) -> int | None:
        """Element type as ``onnx.TensorProto.DataType``, or None when unknown."""
        known = self.type
        return None if known is None else known.dtype

    @property
    def shape(self) -> Shape:
        """Dimensions (numbers, symbols or None), or None when the rank is unknown."""
        known = self.type
        return None if known is None else known.shape

    @property
    def rank(self) -> int | None:
        known = self.type
        return None if known is None else known.rank

    @property
    def is_static(self) -> bool:
        """Whether every dimension is a known number."""
        known = self.type
        return known is not None and known.is_static

    # -- arithmetic

    def _binary(self, op_type: str, other: Any, reflected: bool = False) -> Value:
        operands = (other, self) if reflected else (self, other)
        return cast(Value, getattr(self.graph.op, op_type)(*operands))

    @overload  # type: ignore[override]
    def __add__(self, other: Value | Number | np.generic | npt.NDArray[Any]) -> Value: ...
    @overload
    def __add__(self, other: str) -> str: ...
    def __add__(self, other: Any) -> Any:
        return str.__add__(self, other) if _is_text(other) else self._binary("Add", other)

    @overload
    def __radd__(self, other: Value | Number | np.generic | npt.NDArray[Any]) -> Value: ...
    @overload
    def __radd__(self, other: str) -> str: ...
    def __radd__(self, other: Any) -> Any:
        return str.__add__(other, self) if _is_text(other) else self._binary("Add", other, reflected=True)

    def __mul__(self, other: Any) -> Value:
        return NotImplemented if _is_text(other) else self._binary("Mul", other)

    def __rmul__(self, other: Any) -> Value:
        return NotImplemented if _is_text(other) else self._binary("Mul", other, reflected=True)

    def __sub__(self, other: Any) -> Value:
        return NotImplemented if _is_text(other) else self._binary("Sub", other)

    def __rsub__(self, other: Any) -> Value:
        return NotImplemented if _is_text(other) else self._binary("Sub", other, reflected=True)

    def __truediv__(self, other: Any) -> Value:
        return NotImplemented if _is_text(other) else self._binary("Div", other)

    def __rtruediv__(self, other: Any) -> Value:
        return NotImplemented if _is_text(other) else self._binary("Div", other, reflected=True)

    def __pow__(self, other: Any) -> Value:
        return NotImplemented if _is_text(other) else self._binary("Pow", other)

    def __rpow__(self, other: Any) -> Value:
        return NotImplemented if _is_text(other) else self._binary("Pow", other, reflected=True)

    def __matmul__(self, other: Any) -> Value:
        return NotImplemented if _is_text(other) else self._binary("MatMul", other)

    def __rmatmul__(self, other: Any) -> Value:
        return NotImplemented if _is_text(other) else self._binary("MatMul", other, reflected=True)

    def __neg__(self) -> Value:
        return self.graph.op.Neg(self)

    def __abs__(self) -> Value:
        return self.abs()

    # -- what a string would do, and a tensor does otherwise

    def __getitem__(self, key: Any) -> Any:
        raise _not_of_names("[...]", "Slice or Gather")

    def __mod__(self, other: Any) -> Any:
        raise _not_of_names("%", "Mod")

    def __lt__(self, other: Any) -> bool:
        """The order of names, in which they are sorted."""
        return str.__lt__(self, other if isinstance(other, Value) else _text(other, "<", "Less"))

    def __le__(self, other: Any) -> bool:
        return str.__le__(self, _text(other, "<=", "LessOrEqual"))

    def __gt__(self, other: Any) -> bool:
        return str.__gt__(self, _text(other, ">", "Greater"))

    def __ge__(self, other: Any) -> bool:
        return str.__ge__(self, _text(other, ">=", "GreaterOrEqual"))

    # -- reductions

    def mean(self, axes: int | Sequence[int] | None = None, keepdims: bool = False) -> Value:
        """The mean over ``axes`` (all of them by default)."""
        return self.graph.op.ReduceMean(self, _axes(axes), keepdims=int(keepdims))

    def sum(self, axes: int | Sequence[int] | None = None, keepdims: bool = False) -> Value:
        """The sum over ``axes`` (all of them by default)."""
        return self.graph.op.ReduceSum(self, _axes(axes), keepdims=int(keepdims))

    def max(self, axes: int | Sequence[int] | None = None, keepdims: bool = False) -> Value:
        """The largest element over ``axes`` (all of them by default)."""
        return self.graph.op.ReduceMax(self, _axes(axes), keepdims=int(keepdims))

    def min(self, axes: int | Sequence[int] | None = None, keepdims: bool = False) -> Value:
        """The smallest element over ``axes`` (all of them by default)."""
        return self.graph.op.ReduceMin(self, _axes(axes), keepdims=int(keepdims))

    # -- elementwise functions

    def abs(self) -> Value:
        return self.graph.op.Abs(self)

    def exp(self) -> Value:
        return self.graph.op.Exp(self)

    def log(self) -> Value:
        return self.graph.op.Log(self)

    def sqrt(self) -> Value:
        return self.graph.op.Sqrt(self)

    def relu(self) -> Value:
        return self.graph.op.Relu(self)

    def sigmoid(self) -> Value:
        return self.graph.op.Sigmoid(self)

    def tanh(self) -> Value:
        return self.graph.op.Tanh(self)

    def softmax(self, axis: int = -1) -> Value:
        return self.graph.op.Softmax(self, axis=axis)

    def clip(self, minimum: Operand = None, maximum: Operand = None) -> Value:
        """Every element limited to ``[minimum, maximum]``; None leaves that side open."""
        return self.graph.op.Clip(self, minimum, maximum)

    # -- layout

    @property
    def T(self) -> Value:  # noqa: N802 - the usual name of the transpose
        """The last two axes exchanged."""
        return self.transpose(*range(self._known_rank() - 2), -1, -2)

    def transpose(self, *permutation: int) -> Value:
        """The axes in the order given; reversed when none is given."""
        rank = self._known_rank()
        order = [axis % rank for axis in permutation] if permutation else list(reversed(range(rank)))
        return self.graph.op.Transpose(self, perm=order)

    def reshape(self, *shape: int) -> Value:
        """The same elements in another shape; -1 stands for the size that is left."""
        return self.graph.op.Reshape(self, np.array(shape, np.int64))

    def unsqueeze(self, *axes: int) -> Value:
        """With an axis of size 1 put in at each of ``axes``."""
        return self.graph.op.Unsqueeze(self, np.array(axes, np.int64))

    def squeeze(self, *axes: int) -> Value:
        """Without the axes of size 1 named in ``axes`` (all of them when none is given)."""
        return self.graph.op.Squeeze(self, np.array(axes, np.int64) if axes else None)

    def cast(self, dtype: int | npt.DTypeLike) -> Value:
        """As another element type, an ONNX one (``onnx.TensorProto.DataType``) or as NumPy spells it."""
        return self.graph.op.Cast(self, to=element_type(dtype))

    def _known_rank(self) -> int:
        if self.rank is None:
            from ..errors import BlockBuildError

            raise BlockBuildError(
                f"the rank of {str(self)!r} is not known, so its axes cannot be named.",
                "Give its shape in the model, or use graph.op.Transpose(value, perm=...).",
            )
        return self.rank


def _not_of_names(what: str, operators: str) -> TypeError:
    return TypeError(
        f"{what} is not defined for a value of a graph. Add a node instead: value.graph.op.{operators};"
        " == and != compare names."
    )


def _text(other: object, what: str, operator: str) -> str:
    if not _is_text(other):
        raise _not_of_names(what, operator)
    return cast(str, other)


def _is_text(other: object) -> bool:
    return isinstance(other, str) and not isinstance(other, Value)


def _axes(axes: int | Sequence[int] | None) -> npt.NDArray[np.int64] | None:
    if axes is None:
        return None
    return np.array([axes] if isinstance(axes, builtins.int) else axes, np.int64)
