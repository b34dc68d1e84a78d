"""Losses on classes: one of C for every sample, pixel or token."""

from __future__ import annotations

import numpy as np

from ..block import Block
from ..errors import BlockBuildError
from ..graph.types import shape_text
from ..graph.value import Value
from .reduction import as_reduction
from .target import Weights, float_dtype, labels_for, weights_like


class CrossEntropyLoss(Block):
    """-log softmax(scores) at the label, times the weight of the label's class, reduced.

    The scores are ``[N, C]``, or ``[N, C, d1, ...]`` with one label per pixel.  The labels are a new int64 input of the
    model with the shape of the scores without the axis of the classes.  ``class_axis=-1`` is for scores
    ``[N, ..., C]``, as language models give them.

    ``weight`` is an array of C.  A label equal to ``ignore_index``, which need not be a class, counts for nothing.
    ``reduction`` is ``"mean"`` (divided by the sum of the weights of the labels that count, so nan when there are
    none), ``"sum"`` or ``"none"``.  As ``torch.nn.CrossEntropyLoss``.
    """

    def __init__(
        self,
        weight: Weights = None,
        reduction: str = "mean",
        ignore_index: int | None = None,
        *,
        class_axis: int = 1,
    ) -> None:
        self._weight = weight
        self._reduction = as_reduction(reduction)
        self._ignore_index = ignore_index
        self._class_axis = class_axis

    def build(self, scores_input_name: Value, labels_name: str = "labels") -> Value:
        """Add the loss.

        Raises :class:`BlockBuildError` when the name of the labels is taken, and where the scores have no such axis or
        as many classes as there are weights.
        """
        scores, op = scores_input_name, self.graph.op
        float_dtype(scores)
        axis = self._axis(scores)
        weight = self._weights(scores, axis)
        labels = labels_for(scores, labels_name, axis)
        rows, flat = (scores, labels) if axis == 1 else (_rows(scores, axis), op.Reshape(labels, [-1]))
        loss = op.SoftmaxCrossEntropyLoss(
            rows, flat, weight, ignore_index=self._ignore_index, reduction=self._reduction
        )
        if axis == 1 or self._reduction != "none":
            return loss
        return op.Reshape(loss, op.Shape(labels))

    def _axis(self, scores: Value) -> int:
        rank, axis = scores.rank, self._class_axis
        if rank is None and axis >= 0:
            return axis
        if rank is None or not -rank <= axis < rank:
            raise BlockBuildError(
                f"CrossEntropyLoss: {str(scores)!r} has shape {shape_text(scores.shape)}, which has no axis {axis} of "
                "classes.",
                "Say with class_axis= which axis of the scores holds the classes.",
            )
        return axis % rank

    def _weights(self, scores: Value, axis: int) -> Value | None:
        weight = weights_like(self._weight, scores)
        if weight is None:
            return None
        classes = scores.shape[axis] if scores.shape is not None else None
        count = np.asarray(self._weight).size
        if weight.rank != 1 or (isinstance(classes, int) and classes != count):
            raise BlockBuildError(
                f"CrossEntropyLoss: weight has shape {shape_text(weight.shape)}, but axis {axis} of {str(scores)!r}, "
                f"whose shape is {shape_text(scores.shape)}, holds the classes.",
                "Give one weight per class.",
            )
        return weight


def _rows(scores: Value, axis: int) -> Value:
    """The scores as ``[samples, classes]``."""
    op, rank = scores.graph.op, scores.rank
    if rank is None or scores.shape is None:
        raise BlockBuildError(
            f"CrossEntropyLoss: the rank of {str(scores)!r} is not known, so its classes can only be on axis 1.",
            "Give its shape in the model.",
        )
    if axis != rank - 1:
        scores = scores.transpose(*(a for a in range(rank) if a != axis), axis)
    classes = scores.shape[-1] if scores.shape is not None else None
    if isinstance(classes, int) and classes > 0:
        return op.Reshape(scores, [-1, classes])
    return op.Reshape(scores, op.Concat([-1], op.Shape(scores, start=-1), axis=0))
