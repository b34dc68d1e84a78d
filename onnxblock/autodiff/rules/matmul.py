"""Gradients of the matrix products."""

from __future__ import annotations

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
    op = x.graph.op
    shape = op.Shape(x)
    matrices = op.Reshape(x, op.Concat([-1], op.Slice(shape, [-2], [2**62]), axis=0))
    turned = op.Concat(op.Slice(shape, [0], [-2]), op.Slice(shape, [-1], [2**62]), op.Slice(shape, [-2], [-1]), axis=0)
    return op.Reshape(op.Transpose(matrices, perm=[0, 2, 1]), turned)


@gradient("Gemm")
def gemm(g: RuleContext) -> RuleResult:
    """Y = alpha op(A) op(B) + beta C: dA = alpha dY op(B)', dB = alpha op(A)' dY, each transposed as its input is;
    dC = beta dY."""
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
