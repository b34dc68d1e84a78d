"""Gradients of the two loss operators.

Neither builds a one-hot encoding or selects over all classes: what belongs to the targets is added at their places.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from ...graph.arithmetic import cast_like, expand_like, mask, scaled, shape_of, size_of, with_shape_of
from ...graph.inplace import after
from ...graph.scatter import LARGE, scatter_elements, zeros
from ...graph.types import FLOATS
from ...graph.value import Value
from ..registry import RuleResult, gradient
from ..rule import RuleContext

_WRITTEN_DOWN = 1024
"""The number of labels up to which what each takes off its score is a constant of the graph."""


@gradient("NegativeLogLikelihoodLoss")
def negative_log_likelihood_loss(g: RuleContext) -> RuleResult:
    """L_n = -w[t_n] x[n, t_n], summed, averaged over the weights (mean) or neither: dx = -s_n at t_n.

    s_n is the weight of the sample times the cotangent of its loss.
    """
    samples = _samples(g)
    dx = None
    if g.wants(0):
        dx = scatter_elements(zeros(shape_of(g.x), g.x), samples.index, samples.removed, 1, "none")
    return dx, None, _weight_gradient(g, samples, g.x) if g.wants(2) else None


@gradient("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy_loss(g: RuleContext) -> RuleResult:
    """L_n = -w[t_n] ln p[n, t_n] with p the softmax over the classes: dx = s p, less s_n at t_n.

    A cotangent q of the output ln p adds q - p Σ q.
    """
    samples, log_prob = _samples(g), g.output(1)
    dx = None
    if g.wants(0):
        q, p = g.grad(1), log_prob.exp()
        scale = cast_like(_after_loss(g, samples.scale), p) if samples.alike else samples.scale.unsqueeze(1)
        dense = p * scale if q is None else q + p * (scale - q.sum(1, keepdims=True))
        dx = scatter_elements(dense, samples.index, samples.removed, 1, "add")
    return dx, None, _weight_gradient(g, samples, log_prob) if g.wants(2) else None


def _after_loss(g: RuleContext, cotangent: Value) -> Value:
    """The cotangent, known once the loss is: that reads ln p too, all of which would be kept if it came last."""
    small = g.x.is_static and math.prod(n for n in g.x.shape or () if isinstance(n, int)) < LARGE
    return cotangent if small else after(cotangent, g.y)


@dataclass(frozen=True)
class _Samples:
    """What belongs to each target, in the shape of the labels."""

    targets: Value
    """Its class."""
    counted: Value | None
    """1, or 0 where it is ignored; None where all count."""
    scale: Value
    """Its weight times the cotangent of its loss; a scalar where that is the same for all."""
    cotangent: Value
    """The cotangent of its weighted loss; a scalar for all, unless the reduction is "none"."""
    alike: bool
    """Whether that scalar is the scale of all."""

    @property
    def index(self) -> Value:
        """Where its score is, along the axis of the classes."""
        return self.targets.unsqueeze(1)

    @property
    def removed(self) -> Value:
        """What its score is lowered by, in the shape of the index."""
        lowered = scaled(self.scale, -1.0)
        if not self.alike:
            return lowered.unsqueeze(1)
        graph, index = lowered.graph, self.index
        known, shape = graph.constant_value(lowered), graph.constant_value(shape_of(index))
        if known is not None and shape is not None and math.prod(shape.tolist()) <= _WRITTEN_DOWN:
            return graph.constant(np.full(shape, known))
        return expand_like(lowered, index)


def _samples(g: RuleContext) -> _Samples:
    op, labels, ignored, reduction = g.op, g.inputs[1], g.attr("ignore_index"), g.attr("reduction")
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
    cotangent = g.dy if g.dy.dtype == wide else g.dy.cast(wide)
    if reduction == "mean":
        total = size_of(targets).cast(wide) if weight is None else weight.sum()
        if weight is None and targets.is_static:
            cotangent = scaled(cotangent, 1 / max(1, math.prod(n for n in targets.shape or () if isinstance(n, int))))
        else:
            # Where nothing counts the mean is 0 / 0; its gradient is zero, as in PyTorch.
            cotangent /= total + mask(op.Equal(total, 0.0), total)
    alike = weight is None and reduction != "none"
    scale = cotangent if weight is None else cotangent * weight
    scale = scale if dtype == wide else scale.cast(dtype)
    return _Samples(targets, counted, scale if alike else with_shape_of(scale, targets), cotangent, alike)


def _weight_gradient(g: RuleContext, samples: _Samples, log_prob: Value) -> Value:
    """dw_c = Σ -x[n, c] dL_n over the samples of class c; a mean also loses L for what each adds to its divisor."""
    weights, op = g.inputs[2], g.op
    picked = op.Squeeze(op.GatherElements(log_prob, samples.index, axis=1), [1])
    loss = -cast_like(picked, samples.cotangent)
    if g.attr("reduction") == "mean":
        loss = loss - cast_like(g.y, loss)
    d = loss * samples.cotangent
    if samples.counted is not None:
        d = d * samples.counted
    flat, places = op.Reshape(cast_like(d, weights), [-1]), op.Reshape(samples.targets, [-1])
    return scatter_elements(zeros(shape_of(weights), weights), places, flat, 0, "add")
