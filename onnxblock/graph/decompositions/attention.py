"""Attention with everything around it fused in: projections, heads, rotary positions and masks.

Shapes: B examples, N heads, S queries, T keys, H the size of a head.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from onnx import TensorProto

from ...errors import UnsupportedOperatorError
from ..arithmetic import cast_like, mask, shape_of, with_shape_of
from ..decomposition import MICROSOFT, decomposition
from ..node import NodeContext
from ..types import TensorType
from ..value import Value
from .activation import with_bias

_FAR_BELOW = {int(TensorProto.FLOAT16): -3e4, int(TensorProto.DOUBLE): -1e300}
"""Numbers that take all weight from a score to which they are added, by type; -1e38 for the others."""


@decomposition("Attention", domain=MICROSOFT)
def attention(n: NodeContext) -> Sequence[Value | None]:
    """Self-attention of input [B, S, D] with its projections: softmax(scale Q Kᵀ + mask) V  (Vaswani et al. 2017)."""
    op, heads = n.op, n.attr("num_heads")
    if n.input(6) is not None or n.attr("do_rotary", 0):
        raise UnsupportedOperatorError("it rotates positions, or shares a buffer with its past")
    x, weights = n.inputs[:2]
    projected = with_bias(x @ weights, n.input(2))
    sizes = n.attr("qkv_hidden_sizes")
    width = None if weights.shape is None else weights.shape[1]
    if sizes is None and not isinstance(width, int):
        raise UnsupportedOperatorError("the width of its weights is not known")
    sizes = list(sizes) if sizes is not None else [width // 3] * 3 if isinstance(width, int) else []
    q, k, v = (_heads(part, heads) for part in op.Split(projected, np.array(sizes), axis=-1, outputs=3))
    present = None
    past = n.input(4)
    if past is not None:
        k, v = (
            op.Concat(op.Squeeze(old, [0]), new, axis=2)
            for old, new in zip(op.Split(past, np.array([1, 1]), axis=0, outputs=2), (k, v), strict=True)
        )
    if n.has_output(1):
        present = op.Concat(k.unsqueeze(0), v.unsqueeze(0), axis=0)
    masked = _padding(n, n.input(3), k)
    if n.attr("unidirectional", 0):
        masked = with_bias(_later(q, k) * _far_below(q), masked)
    scores = _scores(n, q, k, sizes[0] // heads)
    weights_of_keys = op.Softmax(with_bias(with_bias(scores, masked), n.input(5)), axis=-1)
    return _shaped(_merged(weights_of_keys @ v), x, sizes[2]), present


@decomposition("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(n: NodeContext) -> Sequence[Value | None]:
    """Attention of projected queries, keys and values, apart or packed side by side."""
    op, heads = n.op, n.attr("num_heads")
    if n.input(8) is not None or n.input(9) is not None:
        raise UnsupportedOperatorError("it decodes with a buffer shared with its past")
    q, k, v, width = _projected(n, heads)
    if n.input(6) is not None and n.input(7) is not None:
        k, v = op.Concat(n.inputs[6], k, axis=2), op.Concat(n.inputs[7], v, axis=2)
    masked = _padding(n, n.input(4), k)
    if n.attr("unidirectional", 0):
        masked = with_bias(_later(q, k) * _far_below(q), masked)
    size = q.shape[-1] if q.shape is not None else None
    scores = _scores(n, q, k, size if isinstance(size, int) else None)
    weights = op.Softmax(with_bias(with_bias(scores, masked), n.input(5)), axis=-1)
    return _shaped(_merged(weights @ v), n.x, width), k, v, None


def _projected(n: NodeContext, heads: int) -> tuple[Value, Value, Value, int | None]:
    """Queries, keys and values [B, N, ·, H], and the width of all heads of the values.

    Keys and values that come in this form, those of another sequence, have their biases in them.
    """
    op, query, key, value, bias = n.op, n.x, n.input(1), n.input(2), n.input(3)
    if query.rank == 5 or (key is not None and key.rank == 5):
        raise UnsupportedOperatorError("its queries, keys and values are packed")
    if key is None or value is None:
        raise UnsupportedOperatorError("it has no keys or values")
    if key.rank is None or value.rank is None:
        raise UnsupportedOperatorError("the rank of its keys or values is not known")
    parts: list[Value | None] = [None, None, None]
    if bias is not None:
        widths = [_width(query, heads), _width(key, heads), _width(value, heads)]
        parts = list(op.Split(bias, np.array(widths), axis=0, outputs=3))
    q, k, v = (
        x if x.rank == 4 else _heads(with_bias(x, b), heads) for x, b in zip((query, key, value), parts, strict=True)
    )
    last = v.shape[-1] if v.shape is not None else None
    return q, k, v, heads * last if isinstance(last, int) else None


def _width(x: Value, heads: int) -> int:
    last = x.shape[-1] if x.shape is not None else None
    if not isinstance(last, int):
        raise UnsupportedOperatorError(f"the width of its input {str(x)!r} is not known")
    return last * heads if x.rank == 4 else last


@decomposition("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(n: NodeContext) -> Sequence[Value | None]:
    """Causal attention in which groups of heads share keys and values  (Ainslie et al. 2023).

    Keys after the length of an example are not seen.  A past, of the same length in all examples, is put in front.
    """
    op, heads, shared = n.op, n.attr("num_heads"), n.attr("kv_num_heads")
    if any(n.input(k) is not None for k in range(12, 17)):
        raise UnsupportedOperatorError("it quantizes its past, normalises queries and keys, or packs queries")
    if n.attr("sliding_window_cache", 0):
        raise UnsupportedOperatorError("its past holds a window of the sequence only")
    q, k, v = _grouped_heads(n, heads, shared)
    past_key, past_value = n.input(3), n.input(4)
    if n.attr("do_rotary", 0):
        offset = None if past_key is None else op.Shape(past_key, start=2, end=3)
        cosine, sine = _rotation(n.inputs[7], n.inputs[8], _positions(n, q, offset, n.input(9)))
        q, k = (rotated(x, cosine, sine, bool(n.attr("rotary_interleaved", 0))) for x in (q, k))
    if past_key is not None and past_value is not None:
        k, v = op.Concat(past_key, k, axis=2), op.Concat(past_value, v, axis=2)
    scores = _grouped_scores(n, q, _repeated(k, heads // shared))
    sink = n.input(11)
    if sink is None and n.attr("smooth_softmax", 0) == 1:
        sink = n.graph.constant(np.zeros(heads), q.dtype)
    weights = _softmax_with_sink(scores, sink)
    y = _merged(weights @ _repeated(v, heads // shared))
    last = v.shape[-1] if v.shape is not None else None
    return _shaped(y, n.x, heads * last if isinstance(last, int) else None), k, v, None


def _grouped_heads(n: NodeContext, heads: int, shared: int) -> tuple[Value, Value, Value]:
    """Queries [B, N, S, H], keys and values [B, shared, S, H], apart or side by side on the last axis of the first."""
    key, value = n.input(1), n.input(2)
    if key is not None and value is not None:
        return _heads(n.x, heads), _heads(key, shared), _heads(value, shared)
    joined = _heads(n.x, heads + 2 * shared)
    q, k, v = n.op.Split(joined, np.array([heads, shared, shared]), axis=1, outputs=3)
    return q, k, v


def _grouped_scores(n: NodeContext, q: Value, k: Value) -> Value:
    """scale Q Kᵀ, capped, with what a query may not see far below everything."""
    size = q.shape[-1] if q.shape is not None else None
    scores = _scores(n, q, k, size if isinstance(size, int) else None)
    cap = n.attr("softcap", 0.0)
    if cap > 0:
        scores = (scores * (1 / cap)).tanh() * cap
    scores = with_bias(scores, n.input(10))
    if not n.attr("causal", 1):
        return scores
    keys = n.op.Range(0, n.op.Gather(shape_of(k), 2), 1)
    beyond = n.op.Greater(keys, n.op.Unsqueeze(n.op.Reshape(n.inputs[5].cast(TensorProto.INT64), [-1]), [1]))
    hidden = _later(q, k) + n.op.Unsqueeze(mask(beyond, q), [1, 2])
    window = n.attr("local_window_size", -1)
    if window > 0:
        hidden = hidden + mask(n.op.LessOrEqual(_distance(q, k), -window), q)
    return scores + hidden * _far_below(q)


def _repeated(x: Value, times: int) -> Value:
    """Every head of [B, N, T, H] ``times`` times in a row."""
    if times == 1:
        return x
    op = x.graph.op
    shape = op.Concat(op.Shape(x, end=2), [times], op.Shape(x, start=2), axis=0)
    merged = op.Concat([0], op.Mul(op.Shape(x, start=1, end=2), times), op.Shape(x, start=2), axis=0)
    return op.Reshape(op.Expand(x.unsqueeze(2), shape), merged)


def _softmax_with_sink(scores: Value, sink: Value | None) -> Value:
    """Softmax over the keys, with one more score for each head that takes its share of the weight and is dropped."""
    op = scores.graph.op
    if sink is None:
        return op.Softmax(scores, axis=-1)
    column = op.Expand(op.Reshape(sink, [1, -1, 1, 1]), op.Concat(op.Shape(scores, end=-1), [1], axis=0))
    return op.Slice(op.Softmax(op.Concat(scores, column, axis=-1), axis=-1), [0], [-1], [3])


# -- rotary positions


@decomposition("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding(n: NodeContext) -> Value:
    """Pairs of elements turned by an angle that depends on the position  (Su et al. 2021).

    The input is [B, S, N H] or [B, N, S, H]; the position of the first element, or all of them, are an input.  The
    attribute ``scale`` has no effect in onnxruntime's kernels, nor here.
    """
    positions, cosine, sine = n.inputs[1:4]
    if positions.rank is None:
        raise UnsupportedOperatorError("the rank of its positions is not known")
    split = _split_heads(n)
    where = positions if positions.rank == 2 else _positions(n, split, positions, None)
    return _rotated_like(n, split, *_rotation(cosine, sine, where))


@decomposition("MRotaryEmbedding", domain=MICROSOFT)
def rotary_embedding_of_sections(n: NodeContext) -> Value:
    """RotaryEmbedding in which each pair follows one of three positions [3, B, S]: in time, across and down.

    The pairs of the three lie in a row, or take turns  (Wang et al. 2024).  What is turned is multiplied by ``scale``.
    """
    cosine, sine = n.inputs[2:4]
    scale = n.attr("scale", 1.0)
    pairs, sections = _pairs(cosine), list(n.attr("mrope_section"))
    follows = np.repeat(np.arange(3), sections)
    if n.attr("mrope_layout", 0):
        follows = np.zeros(pairs, np.int64)
        for k in (1, 2):
            follows[k : 3 * sections[k] : 3] = k
    chosen = scale * (np.arange(3)[:, None] == follows).reshape(3, 1, 1, pairs)
    tables = (n.op.Gather(table, n.inputs[1]) for table in (cosine, sine))
    first, second = ((t * n.graph.constant(chosen, t.dtype)).sum(0).unsqueeze(1) for t in tables)
    return _rotated_like(n, _split_heads(n), first, second)


def _split_heads(n: NodeContext) -> Value:
    """The input of a rotary embedding as [B, N, S, H]."""
    x, heads = n.x, n.attr("num_heads", 0)
    if x.rank == 4:
        return x
    if x.rank != 3:
        raise UnsupportedOperatorError("the rank of its input is not known")
    if n.attr("rotary_embedding_dim", 0) and not heads:
        raise UnsupportedOperatorError("it turns a part of each head and does not say how many heads there are")
    size = -1 if heads else _pairs(n.inputs[2]) * 2
    return n.op.Reshape(x, [0, 0, heads or -1, size]).transpose(0, 2, 1, 3)


def _rotated_like(n: NodeContext, x: Value, cosine: Value, sine: Value) -> Value:
    """x [B, N, S, H] turned, in the shape of the node's input."""
    y = rotated(x, cosine, sine, bool(n.attr("interleaved", 0)))
    return with_shape_of(n.op.Reshape(y.transpose(0, 2, 1, 3), [0, 0, -1]) if n.x.rank == 3 else y, n.x)


def _pairs(cosine: Value) -> int:
    last = cosine.shape[-1] if cosine.shape is not None else None
    if not isinstance(last, int):
        raise UnsupportedOperatorError(f"the width of its input {str(cosine)!r} is not known")
    return last


def _positions(n: NodeContext, x: Value, offset: Value | None, given: Value | None) -> Value:
    """The positions [B, S], or [1, S], of the S elements of x [B, N, S, H]."""
    op = n.op
    if given is not None:
        return given
    steps = op.Range(0, op.Gather(shape_of(x), 2), 1)
    return op.Unsqueeze(steps if offset is None else op.Add(steps, op.Reshape(offset, [1])), [0])


def _rotation(cosine: Value, sine: Value, positions: Value) -> tuple[Value, Value]:
    """Rows of the tables at the positions, [B, 1, S, pairs]."""
    op = positions.graph.op
    first, second = (op.Gather(table, positions).unsqueeze(1) for table in (cosine, sine))
    return first, second


def rotated(x: Value, cosine: Value, sine: Value, interleaved: bool) -> Value:
    """(a cos - b sin, b cos + a sin) of the pairs (a, b) of x [B, N, S, H].

    The pairs are neighbours, or the elements of two halves.  What is wider than the tables stays as it is.
    """
    op, pairs = x.graph.op, _pairs(cosine)
    width = x.shape[-1] if x.shape is not None else None
    turned, rest = x, None
    if width != 2 * pairs:
        turned = op.Slice(x, [0], [2 * pairs], [-1])
        rest = op.Slice(x, [2 * pairs], [np.iinfo(np.int64).max], [-1])
    if interleaved:
        parted = op.Reshape(turned, [0, 0, 0, pairs, 2])
        a, b = (op.Gather(parted, k, axis=4) for k in (0, 1))
        both = op.Concat((a * cosine - b * sine).unsqueeze(4), (b * cosine + a * sine).unsqueeze(4), axis=4)
        y = op.Reshape(both, [0, 0, 0, -1])
    else:
        a, b = op.Split(turned, np.array([pairs, pairs]), axis=-1, outputs=2)
        y = op.Concat(a * cosine - b * sine, b * cosine + a * sine, axis=-1)
    return y if rest is None else op.Concat(y, rest, axis=-1)


# -- heads, scores and masks


def _heads(x: Value, heads: int) -> Value:
    """[B, S, N H] as [B, N, S, H]."""
    last = x.shape[-1] if x.shape is not None else None
    size = last // heads if isinstance(last, int) else -1
    return x.graph.op.Reshape(x, [0, 0, heads, size]).transpose(0, 2, 1, 3)


def _merged(x: Value) -> Value:
    """[B, N, S, H] as [B, S, N H]."""
    sizes = x.shape[1::2] if x.shape is not None else (None, None)
    width = math.prod(d for d in sizes if isinstance(d, int)) if all(isinstance(d, int) for d in sizes) else -1
    return x.graph.op.Reshape(x.transpose(0, 2, 1, 3), [0, 0, width])


def _scores(n: NodeContext, q: Value, k: Value, size: int | None) -> Value:
    """scale Q Kᵀ, the scale 1/√H unless the node says otherwise."""
    scale = n.attr("scale", 0.0)
    if scale:
        factor: Value | float = scale
    elif size is not None:
        factor = 1 / math.sqrt(size)
    else:
        factor = 1.0 / cast_like(n.op.Gather(shape_of(q), 3), q).sqrt()
    scores: Value = (q * factor) @ k.transpose(0, 1, 3, 2)
    return scores


def _distance(q: Value, k: Value) -> Value:
    """How far each key [T] stands behind each query [S], the last of which is as late as the last key."""
    op = q.graph.op
    queries, keys = (op.Gather(shape_of(x), 2) for x in (q, k))
    first = op.Sub(keys, queries)
    row, column = op.Range(first, keys, 1), op.Range(0, keys, 1)
    return op.Sub(op.Unsqueeze(column, [0]), op.Unsqueeze(row, [1]))


def _later(q: Value, k: Value) -> Value:
    """1 where a key stands behind a query, 0 elsewhere, [S, T]."""
    return mask(q.graph.op.Greater(_distance(q, k), 0), q)


def _far_below(x: Value) -> float:
    """A number of the type of ``x`` that takes all weight from a score to which it is added."""
    return _FAR_BELOW.get(x.dtype or 0, -1e38)


def _padding(n: NodeContext, given: Value | None, k: Value) -> Value | None:
    """What a padding mask adds to the scores.

    The mask is [B, T] or [B, S, T] with zeros at padding, or says where padding begins: the ends [B], or the ends and
    then the starts [2 B], of what is not padding.
    """
    if given is None:
        return None
    op, far = n.op, n.attr("mask_filter_value", -10000.0)
    if given.rank in (2, 3):
        visible = op.Greater(given, 0)
        hidden = mask(op.Not(visible), k)
        added: Value = op.Unsqueeze(hidden, [1, 2] if given.rank == 2 else [1]) * far
        return added
    if given.rank != 1:
        raise UnsupportedOperatorError("its mask is of an unknown or unusual rank")
    known, examples = (given.shape or (None,))[0], (k.shape or (None,))[0]
    if isinstance(known, int) and isinstance(examples, int) and known not in (examples, 2 * examples):
        raise UnsupportedOperatorError(f"its mask has {known} elements for {examples} examples")
    batch = op.Shape(k, end=1)
    ends, starts = op.Slice(given, [0], batch, [0]), None
    if known != examples or known is None:
        none = op.Expand(n.graph.constant(np.array([0], np.int32)), batch)
        starts = op.Slice(op.Concat(given, none, axis=0), batch, op.Mul(batch, 2), [0])
    places = op.Cast(op.Range(0, op.Gather(shape_of(k), 2), 1), to=TensorProto.INT32)
    outside = op.GreaterOrEqual(places, ends.unsqueeze(1))
    if starts is not None:
        outside = op.Or(outside, op.Less(places, starts.unsqueeze(1)))
    beyond: Value = op.Unsqueeze(mask(outside, k), [1, 2]) * far
    return beyond


def _shaped(y: Value, x: Value, width: int | None) -> Value:
    """``y``, known to be [B, S, width] where x is [B, S, ·]."""
    if y.type is not None and x.shape is not None and len(x.shape) == 3:
        last = width if width is not None else y.shape[-1] if y.shape is not None else None
        y.graph.set_type(y, TensorType(y.type.dtype, (*x.shape[:2], last)))
    return y
