"""Losses on classes: one of C for every sample, pixel or token."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import numpy.typing as npt

from ..block import Block
from ..errors import BlockBuildError
from ..graph.arithmetic import mask, narrowed, widened
from ..graph.types import shape_text
from ..graph.value import Value
from .reduction import as_reduction, reduce
from .target import Weights, float_dtype, labels_for, weights_like, widened_pair


class _Classification(Block):
    """What losses with labels have in common: where the classes are, and what counts how much."""

    def __init__(
        self,
        weight: Weights,
        reduction: str,
        ignore_index: int | None,
        class_axis: int,
        labels_type: npt.DTypeLike,
    ) -> None:
        self._weight = weight
        self._labels_type = labels_type
        self._reduction = as_reduction(reduction)
        self._ignore_index = ignore_index
        self._class_axis = class_axis

    def build(self, scores_input_name: Value, labels_name: str = "labels") -> Value:
        """Add the loss.

        Raises :class:`BlockBuildError` when the name of the labels is taken, and where the scores have no such axis or
        not as many classes as there are weights.
        """
        scores, op = scores_input_name, self.graph.op
        float_dtype(scores)
        axis = self._axis(scores)
        weight = self._class_weights(scores, axis)
        labels = labels_for(scores, labels_name, axis, self._labels_type)
        scores = widened(scores)
        if axis == 1:
            return narrowed(self._of(scores, labels, weight), scores_input_name)
        losses = self._of(_rows(scores, axis), op.Reshape(labels, [-1]), weight)
        losses = op.Reshape(losses, op.Shape(labels)) if self._reduction == "none" else losses
        return narrowed(losses, scores_input_name)

    @abstractmethod
    def _of(self, scores: Value, labels: Value, weight: Value | None) -> Value:
        """The loss for classes on axis 1."""

    def _axis(self, scores: Value) -> int:
        rank, axis = scores.rank, self._class_axis
        if rank is None and axis >= 0:
            return axis
        if rank is None or not -rank <= axis < rank:
            raise BlockBuildError(
                f"{type(self).__name__}: {str(scores)!r} has shape {shape_text(scores.shape)}, which has no axis "
                f"{axis} of classes.",
                "Say with class_axis= which axis of the scores holds the classes.",
            )
        return axis % rank

    def _class_weights(self, scores: Value, axis: int) -> Value | None:
        weight = weights_like(self._weight, scores)
        if weight is None:
            return None
        classes = scores.shape[axis] if scores.shape is not None else None
        count = np.asarray(self._weight).size
        if weight.rank != 1 or (isinstance(classes, int) and classes != count):
            raise BlockBuildError(
                f"{type(self).__name__}: weight has shape {shape_text(weight.shape)}, but axis {axis} of "
                f"{str(scores)!r}, whose shape is {shape_text(scores.shape)}, holds the classes.",
                "Give one weight per class.",
            )
        return weight


class CrossEntropyLoss(_Classification):
    """-log softmax(scores) at the label, times the weight of the label's class, reduced.

    The scores are ``[N, C]``, or ``[N, C, d1, ...]`` with one label per pixel.  The labels are a new input of the model
    with the shape of the scores without the axis of the classes, int64 or, with ``labels_type``, int32.
    ``class_axis=-1`` is for scores ``[N, ..., C]``, as language models give them.

    ``weight`` is an array of C.  A label equal to ``ignore_index``, which need not be a class, counts for nothing;
    PyTorch's default of -100 has to be given.  ``reduction`` is ``"mean"`` (divided by the sum of the weights of the
    labels that count, so nan when there are none), ``"sum"`` or ``"none"``.  ``label_smoothing`` gives that share of
    the target to all classes alike.  With ``soft_labels`` the labels are probabilities, of the element type and shape
    of the scores, and the mean is over the samples.
    As ``torch.nn.CrossEntropyLoss``.
    """

    def __init__(
        self,
        weight: Weights = None,
        reduction: str = "mean",
        ignore_index: int | None = None,
        *,
        class_axis: int = 1,
        label_smoothing: float = 0.0,
        soft_labels: bool = False,
        labels_type: npt.DTypeLike = np.int64,
    ) -> None:
        super().__init__(weight, reduction, ignore_index, class_axis, labels_type)
        if not 0 <= label_smoothing <= 1:
            raise BlockBuildError(f"CrossEntropyLoss: label_smoothing={label_smoothing!r} is not in [0, 1].")
        if soft_labels and ignore_index is not None:
            raise BlockBuildError("CrossEntropyLoss: soft_labels are no classes, so ignore_index cannot be one.")
        self._smoothing, self._soft = label_smoothing, soft_labels

    def build(self, scores_input_name: Value, labels_name: str = "labels") -> Value:
        """Add the loss.

        Raises :class:`BlockBuildError` when the name of the labels is taken, and where the scores have no such axis or
        not as many classes as there are weights.
        """
        if not self._soft:
            return super().build(scores_input_name, labels_name)
        scores = scores_input_name
        axis = self._axis(scores)
        weight = self._class_weights(scores, axis)
        scores, targets = widened_pair(scores, labels_name)
        if self._smoothing:
            targets = targets * (1 - self._smoothing) + self._smoothing / _count(scores, axis)
        return reduce(_against(scores, targets, weight, axis), self._reduction, scores_input_name)

    def _of(self, scores: Value, labels: Value, weight: Value | None) -> Value:
        op = scores.graph.op
        ignored = self._ignore_index
        if not self._smoothing:
            return op.SoftmaxCrossEntropyLoss(scores, labels, weight, ignore_index=ignored, reduction=self._reduction)
        losses = op.SoftmaxCrossEntropyLoss(scores, labels, weight, ignore_index=ignored, reduction="none")
        uniform = _against(scores, None, weight, 1) / _count(scores, 1)
        counted = None if ignored is None else op.Not(op.Equal(labels, ignored))
        if counted is not None:
            uniform = op.Where(counted, uniform, 0.0)
        losses = losses * (1 - self._smoothing) + uniform * self._smoothing
        if self._reduction != "mean" or (weight is None and counted is None):
            return reduce(losses, self._reduction, scores)
        shares = mask(counted, losses) if counted is not None else None
        if weight is not None:
            of_label = op.Gather(weight, labels if counted is None else op.Where(counted, labels, 0))
            shares = of_label if shares is None else of_label * shares
        assert shares is not None
        return _over(losses.mean(), shares.mean())


class NLLLoss(_Classification):
    """-scores at the label, times the weight of the label's class, reduced: cross-entropy after LogSoftmax.

    Scores, labels and arguments are those of :class:`CrossEntropyLoss`.  As ``torch.nn.NLLLoss``.
    """

    def __init__(
        self,
        weight: Weights = None,
        reduction: str = "mean",
        ignore_index: int | None = None,
        *,
        class_axis: int = 1,
        labels_type: npt.DTypeLike = np.int64,
    ) -> None:
        super().__init__(weight, reduction, ignore_index, class_axis, labels_type)

    def _of(self, scores: Value, labels: Value, weight: Value | None) -> Value:
        return scores.graph.op.NegativeLogLikelihoodLoss(
            scores, labels, weight, ignore_index=self._ignore_index, reduction=self._reduction
        )


def _against(scores: Value, targets: Value | None, weight: Value | None, axis: int) -> Value:
    """-Σ weight · target · log softmax(scores) over the classes, with targets 1 where none are given."""
    terms = scores.graph.op.LogSoftmax(scores, axis=axis)
    if targets is not None:
        terms = terms * targets
    if weight is not None:
        behind = _known_rank(scores) - axis - 1
        terms = terms * (weight.unsqueeze(*range(1, behind + 1)) if behind else weight)
    return -terms.sum(axis)


def _over(total: Value, weight: Value) -> Value:
    """total / weight; nan where the weight is 0, with a gradient of 0 and not nan."""
    op = total.graph.op
    nothing = op.Equal(weight, 0.0)
    return op.Where(nothing, np.nan, total / op.Where(nothing, 1.0, weight))


def _count(scores: Value, axis: int) -> Value | float:
    """The number of classes."""
    classes = scores.shape[axis] if scores.shape is not None else None
    if isinstance(classes, int):
        return float(classes)
    op = scores.graph.op
    return op.Gather(op.Shape(scores), axis).cast(float_dtype(scores))


def _known_rank(scores: Value) -> int:
    if scores.rank is None:
        raise BlockBuildError(
            f"the rank of {str(scores)!r} is not known, so its classes can only be on axis 1, without class weights.",
            "Give its shape in the model.",
        )
    return scores.rank


def _rows(scores: Value, axis: int) -> Value:
    """The scores as ``[samples, classes]``."""
    op, rank = scores.graph.op, _known_rank(scores)
    if axis != rank - 1:
        scores = scores.transpose(*(a for a in range(rank) if a != axis), axis)
    classes = scores.shape[-1] if scores.shape is not None else None
    if isinstance(classes, int) and classes > 0:
        return op.Reshape(scores, [-1, classes])
    return op.Reshape(scores, op.Concat([-1], op.Shape(scores, start=-1), axis=0))
