"""Linear maps that act on one axis at a time, such as average pooling and resizing.

Such a map is a matrix ``[n, m]`` for each axis: the result of the operator itself on the rows of an identity.  Every
attribute and every rounding rule of the kernel that runs is in it, and its adjoint is the product with its transpose.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnx import TensorProto

from .types import FLOATS
from .value import Value


def identity(size: Value, dtype: int | None) -> Value:
    """The identity matrix ``[n, n]``; ``size`` is an int64 vector of one element.

    It is computed when a session is made, not kept in the model.
    """
    op = size.graph.op
    zeros = op.ConstantOfShape(op.Concat(size, size, axis=0))
    # The CPU provider makes identities of float32 and float64 only.
    made: Value = op.EyeLike(zeros, dtype=TensorProto.DOUBLE if dtype == TensorProto.DOUBLE else TensorProto.FLOAT)
    return made.cast(dtype) if dtype is not None and dtype != made.dtype and dtype in FLOATS else made


def along_axis(x: Value, matrix: Value, axis: int, rank: int) -> Value:
    """``x`` with its ``axis`` of size m taken to size n by ``matrix`` ``[n, m]``."""
    op = x.graph.op
    if axis == rank - 1:
        return x @ op.Transpose(matrix, perm=[1, 0])
    if axis == rank - 2:
        return matrix @ x
    before, size, after = (
        op.Shape(x, end=axis),
        op.Shape(matrix, end=1),
        op.Shape(x, start=axis + 1),
    )
    behind = op.ReduceProd(after, keepdims=1)
    rows = op.Reshape(x, op.Concat(op.Shape(x, end=axis + 1), behind, axis=0), allowzero=1)
    return op.Reshape(matrix @ rows, op.Concat(before, size, after, axis=0), allowzero=1)


def along_axes(x: Value, matrices: Sequence[Value], axes: Sequence[int], rank: int) -> Value:
    """``x`` with each of ``axes`` taken through its matrix, the last axis first."""
    for axis, matrix in sorted(zip(axes, matrices, strict=True), key=lambda pair: -pair[0]):
        x = along_axis(x, matrix, axis, rank)
    return x
