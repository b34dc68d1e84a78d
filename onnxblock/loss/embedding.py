"""Losses on vectors: what belongs together shall be close, what does not shall be apart."""

from __future__ import annotations

from onnx import TensorProto

from ..block import Block
from ..errors import BlockBuildError
from ..graph.arithmetic import narrowed, widened
from ..graph.value import Value
from .formulas import least
from .reduction import as_reduction, reduce
from .target import float_dtype


class HingeEmbeddingLoss(Block):
    """x where the target is 1, max(0, margin - x) where it is -1; reduced.  As ``torch.nn.HingeEmbeddingLoss``.

    x is a distance; the target is a new input of the model with the element type and shape of x.
    """

    def __init__(self, margin: float = 1.0, reduction: str = "mean") -> None:
        self._margin, self._reduction = margin, as_reduction(reduction)

    def build(self, loss_input_name: Value, target_name: str = "target") -> Value:
        """Add the loss.  Raises :class:`BlockBuildError` when the name of the target is taken."""
        x = loss_input_name
        y = widened(x.graph.input(target_name, float_dtype(x), x.shape))
        x = widened(x)
        return reduce(_either(y, x, (self._margin - x).relu()), self._reduction, loss_input_name)


class CosineEmbeddingLoss(Block):
    """1 - cos(a, b) where the target is 1, max(0, cos(a, b) - margin) where it is -1; reduced.

    a and b are ``[N, D]``; the target is a new input of the model of shape ``[N]``, with the element type of a.  As
    ``torch.nn.CosineEmbeddingLoss``, whose 1e-12 beside the squared lengths is 1e-9 in float16, for finite gradients.
    """

    def __init__(self, margin: float = 0.0, reduction: str = "mean") -> None:
        self._margin, self._reduction = margin, as_reduction(reduction)

    def build(self, input_name1: Value, input_name2: Value, target_name: str = "target") -> Value:
        """Add the loss.  Raises :class:`BlockBuildError` when the name of the target is taken."""
        a, b = input_name1, input_name2
        y = widened(a.graph.input(target_name, float_dtype(a), None if a.shape is None else a.shape[:-1]))
        eps = least(a, 1e-12, 1e-9)
        a, b = widened(a), widened(b)
        norms = ((a * a).sum(-1) + eps) * ((b * b).sum(-1) + eps)
        cosine = (a * b).sum(-1) / norms.sqrt()
        return reduce(_either(y, 1 - cosine, (cosine - self._margin).relu()), self._reduction, input_name1)


class TripletMarginLoss(Block):
    """max(0, |a - p| - |a - n| + margin) for anchors a, positives p and negatives n of shape ``[N, D]``; reduced.

    The distances are Euclidean, with eps added to each difference.  ``swap`` takes |p - n| for |a - n| where it is
    smaller (Balntas et al. 2016).  As ``torch.nn.TripletMarginLoss``.
    """

    def __init__(self, margin: float = 1.0, eps: float = 1e-6, reduction: str = "mean", *, swap: bool = False) -> None:
        if not margin > 0:
            raise BlockBuildError(f"TripletMarginLoss: margin={margin!r} is not positive.")
        self._margin, self._eps, self._reduction, self._swap = margin, eps, as_reduction(reduction), swap

    def build(self, anchor_name: Value, positive_name: Value, negative_name: Value) -> Value:
        """Add the loss."""
        anchor, positive, negative = (widened(x) for x in (anchor_name, positive_name, negative_name))
        near, far = self._distance(anchor, positive), self._distance(anchor, negative)
        if self._swap:
            far = far.graph.op.Min(far, self._distance(positive, negative))
        return reduce((near - far + self._margin).relu(), self._reduction, anchor_name)

    def _distance(self, a: Value, b: Value) -> Value:
        return a.graph.op.ReduceL2(a - b + self._eps, [-1], keepdims=0)


class InfoNCELoss(Block):
    """Cross-entropy of finding, for each query, its own key among all keys of the batch, by cosine / temperature.

    Queries and keys are ``[N, D]``, and row k of one belongs to row k of the other.  With ``symmetric`` the mean of it
    and of the same with the roles exchanged (CLIP, Radford et al. 2021).  Vectors are divided by a length of at least
    1e-12, in float16 1e-4 / temperature, for finite gradients.  Van den Oord et al. 2018.
    """

    def __init__(self, temperature: float = 0.07, reduction: str = "mean", symmetric: bool = False) -> None:
        if not temperature > 0:
            raise BlockBuildError(f"InfoNCELoss: temperature={temperature!r} is not positive.")
        self._temperature, self._reduction, self._symmetric = temperature, as_reduction(reduction), symmetric

    def build(self, queries_name: Value, keys_name: Value) -> Value:
        """Add the loss."""
        length = least(queries_name, 1e-12, 1e-4 / self._temperature)
        queries, keys = (_normalized(widened(x), length) for x in (queries_name, keys_name))
        scores = queries @ keys.T / self._temperature
        losses = self._row_wise(scores)
        return narrowed((losses + self._row_wise(scores.T)) * 0.5 if self._symmetric else losses, queries_name)

    def _row_wise(self, scores: Value) -> Value:
        op = scores.graph.op
        labels = op.Range(0, op.Gather(op.Shape(scores), 0), 1).cast(TensorProto.INT64)
        return op.SoftmaxCrossEntropyLoss(scores, labels, reduction=self._reduction)


def _normalized(x: Value, least_length: float) -> Value:
    """x with rows of length 1, or shorter where they are shorter than ``least_length``."""
    return x / x.graph.op.Max(x.graph.op.ReduceL2(x, [-1], keepdims=1), least_length)


def _either(y: Value, positive: Value, negative: Value) -> Value:
    """``positive`` where y is 1, ``negative`` where it is -1."""
    return (y + 1) * 0.5 * positive + (1 - y) * 0.5 * negative
