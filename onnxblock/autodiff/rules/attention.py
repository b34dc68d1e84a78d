"""Gradient of RotaryEmbedding.  Attention is differentiated through what it is made of."""

from __future__ import annotations

from ...graph.scatter import scatter_along
from ...graph.value import Value
from ..registry import RuleResult, gradient
from ..rule import RuleContext


@gradient("RotaryEmbedding")
def rotary_embedding(g: RuleContext) -> RuleResult:
    """Pairs (a, b) become (a c - b s, b c + a s): their cotangents are turned back, by (c, -s).

    The tables have dc = Σ a da + b db and ds = Σ a db - b da over the heads, added up where a position occurs twice.
    """
    cosine, sine, positions = g.inputs[1], g.inputs[2], g.input(3)
    names = ("interleaved", "num_heads", "rotary_embedding_dim")
    attributes = {name: g.attr(name) for name in names if g.attr(name)}
    dx = g.op.RotaryEmbedding(g.dy, cosine, -sine, positions, **attributes) if g.wants(0) else None
    if not (g.wants(1) or g.wants(2)):
        return dx, None, None, None
    (a, b), (da, db) = _pairs(g, g.x), _pairs(g, g.dy)
    d_cosine, d_sine = (a * da + b * db).sum(2), (a * db - b * da).sum(2)
    if positions is not None:
        d_cosine = scatter_along(cosine, positions, d_cosine, 0)
        d_sine = scatter_along(sine, positions, d_sine, 0)
    return dx, d_cosine, d_sine, None


def _pairs(g: RuleContext, x: Value) -> tuple[Value, Value]:
    """The first and second elements of the pairs that are turned, [batch, position, head, pair]."""
    op = g.op
    merged = g.x.rank == 3 if g.x.rank is not None else g.attr("num_heads") is not None
    heads = op.Reshape(x, [0, 0, g.attr("num_heads"), -1]) if merged else op.Transpose(x, perm=[0, 2, 1, 3])
    count = op.Shape(g.inputs[1], start=-1)
    turned = op.Slice(heads, [0], op.Mul(count, 2), [-1])
    interleaved = bool(g.attr("interleaved"))
    parted = op.Reshape(turned, op.Concat([0, 0, 0], *((count, [2]) if interleaved else ([2], count)), axis=0))
    first, second = (op.Gather(parted, k, axis=-1 if interleaved else -2) for k in (0, 1))
    return first, second
