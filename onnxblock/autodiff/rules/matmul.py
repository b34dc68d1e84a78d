"""Gradients of the matrix products."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from ...graph.arithmetic import cast_like, reshape_like, shape_of
from ...graph.value import Value
from ..registry import RuleResult, gradient
from ..rule import RuleContext


@gradient("MatMul")
def matmul(g: RuleContext) -> RuleResult:
    """dA = dY B', dB = A' dY; a vector counts as one row of A or one column of B.

    Where B is one matrix and A a batch of rows, dB is a single product over all rows: a batched product followed by a
    sum over the batch is several times slower.
    """
    a, b = g.inputs
    if a.rank is None or b.rank is None:
        return _matmul_of_unknown_rank(g)
    op, dy = g.op, g.dy
    row, column = a.rank == 1, b.rank == 1
    if row:
        a, dy = a.unsqueeze(0), dy.unsqueeze(-1 if column else -2)
    if column:
        b, dy = b.unsqueeze(1), dy.unsqueeze(-1)
    da = dy @ _transposed(b) if g.wants(0) else None
    db = _weight_gradient(g, a, b, dy) if g.wants(1) else None
    return (
        op.Squeeze(da, [-2]) if row and da is not None else da,
        op.Squeeze(db, [-1]) if column and db is not None else db,
    )


def _matmul_of_unknown_rank(g: RuleContext) -> RuleResult:
    """The same, where vectors are told from matrices when the graph runs."""
    op = g.op
    (a, b), dy = g.inputs, g.dy
    one, zero, two = (np.array([n], np.int64) for n in (1, 0, 2))
    shapes = [op.Shape(x) for x in (a, b)]
    # No axis where the operand is a matrix, one of size 1 where it is a vector.
    missing = [op.Max(op.Sub(two, op.Shape(shape)), zero) for shape in shapes]
    row, column = (op.Expand(one, count) for count in missing)
    a = op.Reshape(a, op.Concat(row, shapes[0], axis=0), allowzero=1)
    b = op.Reshape(b, op.Concat(shapes[1], column, axis=0), allowzero=1)
    wide = op.Concat(op.Shape(dy), column, axis=0)
    batch, columns = op.Slice(wide, [0], [-1]), op.Slice(wide, [-1], [2**62])
    dy = op.Reshape(dy, op.Concat(batch, row, columns, axis=0), allowzero=1)
    da = dy @ _transposed(b) if g.wants(0) else None
    if not g.wants(1):
        return da, None
    db = _transposed(a) @ dy
    kept = op.Slice(op.Shape(db), zero, op.Sub(op.Shape(op.Shape(db)), missing[1]))
    return da, op.Reshape(db, kept, allowzero=1)


def _weight_gradient(g: RuleContext, a: Value, b: Value, dy: Value) -> Value:
    if b.rank == 2 and a.rank is not None and a.rank > 2 and b.shape is not None:
        inner, columns = b.shape
        if isinstance(inner, int) and isinstance(columns, int) and inner > 0 and columns > 0:
            rows, cotangents = g.op.Reshape(a, [-1, inner]), g.op.Reshape(dy, [-1, columns])
            return g.op.Gemm(rows, cotangents, transA=1)
    if a.rank == 2 and b.rank == 2:
        return g.op.Gemm(a, dy, transA=1)
    return _transposed(a) @ dy


def _transposed(x: Value) -> Value:
    """The last two axes exchanged, whatever the rank."""
    if x.rank is not None:
        return x.T
    turned: Value = x.graph.op.Einsum(x, equation="...ij->...ji")
    return turned


@gradient("Gemm")
def gemm(g: RuleContext) -> RuleResult:
    """Y = α op(A) op(B) + β C: dA = α dY op(B)', dB = α op(A)' dY, dC = β dY; transposed as the input is."""
    a, b = g.inputs[:2]
    alpha, ta, tb = g.attr("alpha"), g.attr("transA"), g.attr("transB")
    da = db = dc = None
    if g.wants(0):
        da = (
            g.op.Gemm(b, g.dy, alpha=alpha, transA=tb, transB=1)
            if ta
            else g.op.Gemm(g.dy, b, alpha=alpha, transB=1 - tb)
        )
    if g.wants(1):
        db = (
            g.op.Gemm(g.dy, a, alpha=alpha, transA=1, transB=ta)
            if tb
            else g.op.Gemm(a, g.dy, alpha=alpha, transA=1 - ta)
        )
    if g.wants(2):
        dc = g.dy if g.attr("beta") == 1 else g.dy * g.attr("beta")
    return da, db, dc


@gradient("Det")
def det(g: RuleContext) -> RuleResult:
    """d det X = Σ C dX with the matrix of cofactors C, which are determinants themselves (Jacobi's formula).

    Exact for singular matrices too, where det(X) X⁻¹' is not defined.  The minor of row i leaves that row out: its
    k-th row is k, or k + 1 from i on; its columns likewise.
    """
    op = g.op
    n = op.Shape(g.x, start=-1)
    every = op.Range(0, op.Squeeze(n), 1)
    left = op.Slice(every, [0], [-1])
    kept = op.Add(left, op.Cast(op.Not(op.Less(left, op.Unsqueeze(every, [1]))), to=TensorProto.INT64))
    rows, columns = op.Unsqueeze(kept, [1, 3]), op.Unsqueeze(kept, [0, 2])
    square, smaller = op.Mul(n, n), op.Max(op.Sub(n, 1), 0)
    minors = op.Reshape(op.Add(op.Mul(rows, n), columns), op.Concat(square, smaller, smaller, axis=0), allowzero=1)
    elements = op.Reshape(g.x, op.Concat(op.Slice(shape_of(g.x), [0], [-2]), square, axis=0), allowzero=1)
    cofactors = reshape_like(op.Det(op.Gather(elements, minors, axis=-1)), g.x)
    diagonals = op.Add(op.Unsqueeze(every, [1]), every)
    is_odd = op.Sub(diagonals, op.Mul(op.Div(diagonals, 2), 2))
    return cofactors * op.Unsqueeze(g.dy, [-1, -2]) * cast_like(op.Sub(1, op.Mul(is_odd, 2)), g.x)
