"""The inputs that a loss adds to the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from ..errors import BlockBuildError
from ..graph.arithmetic import shape_of, widened
from ..graph.context import current_graph
from ..graph.graph import Graph
from ..graph.types import FLOATS, HALVES, Shape, TensorType, dtype_name, element_type, is_sequence
from ..graph.value import Value

Weights: TypeAlias = "npt.NDArray[Any] | Sequence[float] | float | None"
"""Fixed weights of a loss: anything NumPy takes for an array of numbers, or None for none."""


def target_like(prediction: Value, name: str) -> Value:
    """A new input with the element type and shape of ``prediction``.

    Raises :class:`BlockBuildError` when the name is taken, or ``prediction`` is not a float tensor.
    """
    dtype = float_dtype(prediction)
    target = prediction.graph.input(name, dtype, prediction.shape)
    return target if prediction.is_static else held_to(target, shape_of(prediction), prediction.shape)


def widened_pair(prediction: Value, name: str) -> tuple[Value, Value]:
    """``prediction`` and its :func:`target_like`, both in float32 where they are in half precision."""
    target = target_like(prediction, name)
    return widened(prediction), widened(target)


def class_labels(graph: Graph, name: str, shape: Shape, labels_type: npt.DTypeLike) -> Value:
    """A new input of whole numbers, as int64, whatever integer type ``labels_type`` it is fed as.

    Raises :class:`BlockBuildError` unless that is int64 or int32, or when the name is taken.
    """
    dtype = element_type(labels_type)
    if dtype not in (TensorProto.INT64, TensorProto.INT32):
        raise BlockBuildError(f"labels_type={labels_type!r} is neither int64 nor int32.")
    labels = graph.input(name, dtype, shape)
    return labels if dtype == TensorProto.INT64 else labels.cast(TensorProto.INT64)


def labels_for(scores: Value, name: str, axis: int, labels_type: npt.DTypeLike = np.int64) -> Value:
    """New labels, as int64, with the shape of ``scores`` without the axis of the classes."""
    shape: Shape = scores.shape
    if shape is not None:
        shape = (*shape[:axis], *shape[axis + 1 :])
    labels = class_labels(scores.graph, name, shape, labels_type)
    if scores.is_static or (scores.rank is None and axis < 0):
        return labels
    sizes, op = shape_of(scores), scores.graph.op
    axis = axis if scores.rank is None else axis % scores.rank
    left = op.Concat(op.Slice(sizes, [0], [axis]), op.Slice(sizes, [axis + 1], [2**62]), axis=0)
    return held_to(labels, left, shape)


def held_to(given: Value, shape: Value, known: Shape) -> Value:
    """``given`` as ``shape``, so that another number of elements is an error and not broadcast."""
    held: Value = given.graph.op.Reshape(given, shape, allowzero=1)
    if given.dtype is not None:
        given.graph.set_type(held, TensorType(given.dtype, known))
    return held


def float_dtype(name: str) -> int:
    """The element type of a float tensor, float32 where it is unknown; raises :class:`BlockBuildError` for others.

    Raises :class:`UnknownNameError` for what is no value of the graph.
    """
    value = name if isinstance(name, Value) else current_graph().value(name)
    if is_sequence(value.graph.type_proto(value)):
        raise BlockBuildError(
            f"a loss needs a float tensor, but {str(value)!r} is a sequence.",
            "Name another output or value in loss_input_names, or take a tensor out first: blocks.SequenceAt.",
        )
    if value.dtype is None:
        return TensorProto.FLOAT
    if value.dtype not in FLOATS:
        raise BlockBuildError(
            f"a loss needs a float tensor, but {str(value)!r} is {dtype_name(value.dtype)}.",
            "Name another output, or cast it first: blocks.Cast(to=onnx.TensorProto.FLOAT)(value).",
        )
    return value.dtype


def weights_like(weights: Weights, value: Value) -> Value | None:
    """``weights`` as a constant in the element type that the losses of ``value`` are computed in."""
    if weights is None:
        return None
    try:
        array = np.asarray(weights, np.float64)
    except (TypeError, ValueError):
        raise BlockBuildError(
            f"the weights of a loss are {weights!r}, where numbers are expected.", "Give an array, or None for none."
        ) from None
    dtype = float_dtype(value)
    return value.graph.constant(array, TensorProto.FLOAT if dtype in HALVES else dtype)
