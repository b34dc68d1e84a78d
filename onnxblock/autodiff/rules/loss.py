"""Gradients of the two loss operators.

Neither builds a one-hot encoding or selects over all classes: what belongs to the targets is added at their places.
"""

from __future__ import annotations

from dataclasses import dataclass

from onnx import TensorProto

from ...graph.arithmetic import cast_like, element_count, mask, reshape_like, shape_of, size_of, with_shape_of
from ...graph.scatter import scatter_nd, zeros
from ...graph.types import FLOATS
from ...graph.value import Value
from ..registry import RuleResult, gradient
from ..rule import RuleContext


@gradient("NegativeLogLikelihoodLoss")
def negative_log_likelihood_loss(g: RuleContext) -> RuleResult:
    """L_n = -w[t_n] x[n, t_n], summed, averaged over the weights (mean) or neither: dx = -s_n at t_n.

    s_n is the weight of the sample times the cotangent of its loss.
    """
    samples = _samples(g)
    dx = None
    if g.wants(0):
        flat = zeros(g.op.Reshape(size_of(g.x), [1]), g.x)
        dx = reshape_like(scatter_nd(flat, samples.positions, -samples.scale, "none"), g.x)
    return dx, None, _weight_gradient(g, samples, g.x) if g.wants(2) else None


@gradient("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy_loss(g: RuleContext) -> RuleResult:
    """L_n = -w[t_n] ln p[n, t_n] with p the softmax over the classes: dx = s p, less s_n at t_n.

    A cotangent q of the output ln p adds q - p Σ q.
    """
    samples, log_prob = _samples(g), g.output(1)
    dx = None
    if g.wants(0):
        q = g.grad(1)
        p = log_prob.exp()
        if samples.alike and g.attr("reduction") != "none":
            scale = cast_like(samples.cotangent, p)
        else:
            scale = g.op.Unsqueeze(reshape_like(samples.scale, g.inputs[1]), [1])
        dense = p * scale if q is None else q + p * (scale - q.sum(1, keepdims=True))
        flat = g.op.Reshape(dense, [-1])
        dx = reshape_like(scatter_nd(flat, samples.positions, -samples.scale, "add"), g.x)
    return dx, None, _weight_gradient(g, samples, log_prob) if g.wants(2) else None


@dataclass(frozen=True)
class _Samples:
    """What belongs to each target, as vectors over all targets."""

    targets: Value
    """Its class."""
    counted: Value | None
    """1, or 0 where it is ignored; None where all count."""
    positions: Value
    """Where its score is among the flattened scores, as a column."""
    scale: Value
    """Its weight times the cotangent of its loss."""
    cotangent: Value
    """The cotangent of its weighted loss; a scalar for all, unless the reduction is "none"."""
    alike: bool
    """All have the weight 1."""


def _samples(g: RuleContext) -> _Samples:
    op, labels, ignored = g.op, g.op.Reshape(g.inputs[1], [-1]), g.attr("ignore_index")
    targets = labels if labels.dtype == TensorProto.INT64 else labels.cast(TensorProto.INT64)
    dtype = g.x.dtype if g.x.dtype in FLOATS else TensorProto.FLOAT
    # The number of samples and the sum of their weights do not fit float16.
    wide = TensorProto.DOUBLE if dtype == TensorProto.DOUBLE else TensorProto.FLOAT
    counted = None
    if ignored is not None:
        valid = op.Not(op.Equal(targets, ignored)).cast(TensorProto.INT64)
        # What is ignored may be no class at all, so it reads and writes class 0, with weight 0.
        targets, counted = targets * valid, valid.cast(wide)
    weights = g.input(2)
    weight = counted
    if weights is not None:
        picked = op.Gather(weights.cast(wide), targets)
        weight = picked if counted is None else picked * counted
    cotangent = op.Reshape(g.dy.cast(wide), [-1]) if g.attr("reduction") == "none" else g.dy.cast(wide)
    if g.attr("reduction") == "mean":
        total = element_count(targets, [0], cotangent) if weight is None else weight.sum()
        # Where nothing counts the mean is 0 / 0; its gradient is zero, as in PyTorch.
        cotangent /= max(total, 1.0) if isinstance(total, float) else total + mask(op.Equal(total, 0.0), total)
    scale = op.Expand(cotangent, shape_of(targets)) if weight is None else cotangent * weight
    scale = with_shape_of(scale.cast(dtype), targets)
    return _Samples(targets, counted, _positions(g, targets), scale, cotangent, alike=weight is None)


def _positions(g: RuleContext, targets: Value) -> Value:
    """Where target class t of sample n at place d is in scores [N, C, D], flattened: (n C + t) D + d."""
    op, shape = g.op, shape_of(g.x)
    classes, places = op.Gather(shape, 1), op.ReduceProd(op.Slice(shape, [2], [2**62]), keepdims=0)
    start: Value = op.Mul(op.Range(0, op.Gather(shape, 0), 1), op.Mul(classes, places))
    if g.x.rank != 2:
        start = op.Reshape(op.Add(op.Unsqueeze(start, [1]), op.Unsqueeze(op.Range(0, places, 1), [0])), [-1])
        targets = targets * places
    positions: Value = op.Unsqueeze(targets + start, [1])
    return positions


def _weight_gradient(g: RuleContext, samples: _Samples, log_prob: Value) -> Value:
    """dw_c = Σ -x[n, c] dL_n over the samples of class c; a mean also loses L for what each adds to its divisor."""
    weights = g.inputs[2]
    picked = g.op.GatherND(g.op.Reshape(log_prob, [-1]), samples.positions)
    loss = -cast_like(picked, samples.cotangent)
    if g.attr("reduction") == "mean":
        loss = loss - cast_like(g.y, loss)
    d = loss * samples.cotangent
    if samples.counted is not None:
        d = d * samples.counted
    total = zeros(shape_of(weights), weights)
    return scatter_nd(total, g.op.Unsqueeze(samples.targets, [1]), cast_like(d, weights), "add")
