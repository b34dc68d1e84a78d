"""ONNX's own Attention operator: softmax(scale Q Kᵀ + mask) V  (Vaswani et al. 2017).

Shapes: B examples, N heads of queries, G heads of keys and values, S queries, T keys, H the size of a head.  Where N is
a multiple of G, each head of keys serves a group of heads of queries: the queries of a group are taken as one longer
list, so that nothing is repeated.

A query that may see no key at all has an output of zeros.  Masked scores are far below the others, but finite: the
gradient of the softmax of nothing but -inf is not a number.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from onnx import TensorProto

from ..arithmetic import cast_like, mask, shape_of
from ..decomposition import decomposition
from ..node import NodeContext
from ..types import HALVES
from ..value import Value

_FAR_BELOW = {int(TensorProto.DOUBLE): -1e300}
"""A number that takes all weight from a score to which it is added, by type; -1e38 for the others."""


@decomposition("Attention", domain="")
def attention(n: NodeContext) -> Sequence[Value | None]:
    """The output, the keys and values with their past, and the scores at the stage that the node asks for."""
    op = n.op
    is_merged = n.x.rank == 3 if n.x.rank is not None else n.attr("q_num_heads") is not None
    q, k, v = n.inputs[:3]
    if is_merged:
        heads = n.attr("q_num_heads"), n.attr("kv_num_heads"), n.attr("kv_num_heads")
        q, k, v = (_split_heads(x, count) for x, count in zip((q, k, v), heads, strict=True))
    past_key, past_value = n.input(4), n.input(5)
    if past_key is not None and past_value is not None:
        k, v = op.Concat(past_key, k, axis=2), op.Concat(past_value, v, axis=2)
    scores = _ungrouped(_grouped(q * _scale(n, q), k) @ op.Transpose(k, perm=[0, 1, 3, 2]), q)
    products, cap = scores, n.attr("softcap", 0.0)
    if cap:
        scores = (scores * (1.0 / cap)).tanh() * cap
    hidden, added, may_hide_all = _masks(n, q, k, scores)
    weights = cast_like(_softmax(n, scores, hidden, added, may_hide_all), q)
    y = _ungrouped(_grouped(weights, v) @ v, q)
    stage = None
    if n.has_output(3):
        mode = n.attr("qk_matmul_output_mode", 0)
        stage = _masked(scores, hidden, added) if mode == 2 else (products, scores, None, weights)[mode]
    return _merge_heads(y) if is_merged else y, k, v, stage


# -- heads


def _split_heads(x: Value, heads: int) -> Value:
    """[B, S, N H] as [B, N, S, H]."""
    op = x.graph.op
    return op.Transpose(op.Reshape(x, [0, 0, heads, -1]), perm=[0, 2, 1, 3])


def _merge_heads(x: Value) -> Value:
    """[B, N, S, H] as [B, S, N H]."""
    op = x.graph.op
    return op.Reshape(op.Transpose(x, perm=[0, 2, 1, 3]), [0, 0, -1])


def _size(x: Value, axis: int) -> int | None:
    size = x.shape[axis] if x.shape is not None else None
    return size if isinstance(size, int) else None


def _grouped(x: Value, k: Value) -> Value:
    """[B, N, S, ·] as [B, G, N/G S, ·], with k of G heads."""
    if x.shape is not None and k.shape is not None and x.shape[1] == k.shape[1] is not None:
        return x
    op = x.graph.op
    shape = op.Concat(op.Shape(x, end=1), op.Shape(k, start=1, end=2), [-1], op.Shape(x, start=3), axis=0)
    grouped: Value = op.Reshape(x, shape)
    return grouped


def _ungrouped(x: Value, q: Value) -> Value:
    """[B, G, N/G S, ·] as [B, N, S, ·], the first three axes those of q."""
    if x.shape is not None and q.shape is not None and x.shape[1] == q.shape[1] is not None:
        return x
    op = x.graph.op
    shape = op.Concat(op.Shape(q, end=3), op.Shape(x, start=3), axis=0)
    ungrouped: Value = op.Reshape(x, shape)
    return ungrouped


def _scale(n: NodeContext, q: Value) -> Value | float:
    given, size = n.attr("scale"), _size(q, 3)
    if given is not None:
        return float(given)
    if size is not None:
        return 1 / math.sqrt(size)
    root = n.op.Gather(shape_of(q), 3).cast(TensorProto.FLOAT).sqrt()
    return cast_like(1.0 / root, q)


# -- masks


def _masks(n: NodeContext, q: Value, k: Value, scores: Value) -> tuple[Value | None, Value | None, bool]:
    """Where a query does not see a key, what is added to the scores elsewhere, and whether a query may see no key."""
    op, given = n.op, n.input(3)
    hidden, may_hide_all = _hidden_by_position(n, q, k)
    if given is None:
        return hidden, None, may_hide_all
    given = _as_long_as_keys(given, k)
    added = None
    if given.dtype == TensorProto.BOOL:
        nowhere = op.Not(given)
    else:
        added = cast_like(given, scores)
        nowhere = op.Equal(added, -math.inf)
    return nowhere if hidden is None else op.Or(hidden, nowhere), added, True


def _hidden_by_position(n: NodeContext, q: Value, k: Value) -> tuple[Value | None, bool]:
    """Keys behind a query or outside of its window, and padding."""
    op, past, length = n.op, n.input(4), n.input(6)
    queries, keys = (op.Gather(shape_of(x), 2) for x in (q, k))
    column = op.Unsqueeze(op.Range(0, keys, 1), [0])
    row = op.Unsqueeze(op.Range(0, queries, 1), [1])
    left, right = n.attr("left_window_size", -1), n.attr("right_window_size", -1)
    conditions = []
    if length is not None:
        length = op.Reshape(length.cast(TensorProto.INT64), [-1, 1, 1, 1])
        conditions.append(op.GreaterOrEqual(column, length))
    if past is not None:
        row = op.Add(row, op.Gather(shape_of(past), 2))
    elif length is not None:
        row = op.Add(row, op.Sub(length, queries))
    if n.attr("is_causal", 0):
        conditions.append(op.Greater(column, row))
    if left >= 0:
        conditions.append(op.Less(column, op.Sub(row, left)))
    if right >= 0:
        conditions.append(op.Greater(column, op.Add(row, right)))
    if not conditions:
        return None, False
    return functools.reduce(op.Or, conditions), length is not None or left >= 0


def _as_long_as_keys(given: Value, k: Value) -> Value:
    """The mask with what it leaves out at the end of the keys hidden."""
    op = given.graph.op
    last, count = (x.shape[axis] if x.shape is not None else None for x, axis in ((given, -1), (k, 2)))
    if last == count is not None:
        return given
    missing = op.Sub(op.Shape(k, start=2, end=3), op.Shape(given, start=-1))
    hidden = False if given.dtype == TensorProto.BOOL else -math.inf
    padded: Value = op.Pad(given, op.Concat([0], missing, axis=0), hidden, [-1])
    return padded


def _softmax(n: NodeContext, scores: Value, hidden: Value | None, added: Value | None, may_hide_all: bool) -> Value:
    op, precision = n.op, n.attr("softmax_precision")
    if scores.dtype in HALVES:
        precision = precision if precision == TensorProto.DOUBLE else TensorProto.FLOAT
    if precision is not None and precision not in HALVES:
        scores = scores.cast(precision)
    if hidden is None:
        return op.Softmax(scores, axis=-1)
    far = _FAR_BELOW.get(scores.dtype or 0, -1e38)
    bias = mask(hidden, scores) * far if added is None else op.Where(hidden, far, cast_like(added, scores))
    weights = op.Softmax(scores + bias, axis=-1)
    if may_hide_all:
        weights = weights * op.ReduceMax(mask(op.Not(hidden), scores), [-1], keepdims=1)
    return weights


def _masked(scores: Value, hidden: Value | None, added: Value | None) -> Value:
    """The scores with -inf at what is hidden."""
    if hidden is None:
        return scores
    rest = scores.graph.constant(0.0, scores.dtype) if added is None else added
    masked: Value = scores + scores.graph.op.Where(hidden, -math.inf, rest)
    return masked
