"""Integer arithmetic on values that are already known: what shapes are made of.

Only integers and booleans of small size are followed.  Weights are floats, so nothing trainable is ever taken for a
constant here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from onnx import NodeProto, TensorProto, helper, numpy_helper

from .types import TensorType, numpy_dtype

LARGEST = 4096
"""The number of elements up to which a known value is followed."""

Array: TypeAlias = "npt.NDArray[Any]"
Attributes: TypeAlias = "dict[str, Any]"


def fold(op_type: str, inputs: Sequence[Array | None], attributes: Attributes) -> Array | None:
    """The value of a node with known inputs, or None where it is not followed."""
    function = _FOLDABLE.get(op_type)
    if function is None or any(x is not None and (x.size > LARGEST or x.dtype.kind not in "iub") for x in inputs):
        return None
    try:
        result = function(list(inputs), attributes)
    except (ValueError, IndexError, ZeroDivisionError, TypeError):
        return None
    return result if result is not None and result.size <= LARGEST else None


def fold_shape(op_type: str, known: TensorType | None, attributes: Attributes) -> Array | None:
    """The value of Shape or Size of a tensor of this type, or None where some of its sizes that count are not known."""
    if known is None or known.shape is None:
        return None
    dims = known.shape
    if op_type == "Shape":
        dims = dims[slice(attributes.get("start", 0), attributes.get("end"))]
    if not all(isinstance(d, int) for d in dims):
        return None
    array = np.array(dims, np.int64)
    return array if op_type == "Shape" else np.array(np.prod(array, dtype=np.int64), np.int64)


def constant_node_value(node: NodeProto) -> Array | None:
    """The numbers in a node Constant, or None where they are too many to follow, text or not in the model itself.

    Other nodes, and those of the same name in another domain, have none.
    """
    if node.op_type != "Constant" or node.domain not in ("", "ai.onnx"):
        return None
    attribute = node.attribute[0]
    if attribute.name == "value":
        if attribute.t.data_type == TensorProto.STRING or attribute.t.data_location == TensorProto.EXTERNAL:
            return None
        if np.prod(attribute.t.dims, dtype=np.int64) > LARGEST:
            return None
        return numpy_helper.to_array(attribute.t)
    content = helper.get_attribute_value(attribute)
    if attribute.name in ("value_float", "value_floats"):
        return np.asarray(content, np.float32)
    if attribute.name in ("value_int", "value_ints"):
        return np.asarray(content, np.int64)
    return None


def _required(x: Array | None) -> Array:
    if x is None:
        raise ValueError
    return x


def _binary(function: Callable[[Array, Array], Any]) -> Callable[[list[Array | None], Attributes], Array]:
    def apply(inputs: list[Array | None], _: Attributes) -> Array:
        return np.asarray(function(_required(inputs[0]), _required(inputs[1])))

    return apply


def _divide(a: Array, b: Array) -> Array:
    if not np.all(b):
        raise ZeroDivisionError
    quotient = np.abs(a) // np.abs(b)
    return np.asarray(np.sign(a) * np.sign(b) * quotient, a.dtype)


def _gather(inputs: list[Array | None], attributes: Attributes) -> Array:
    return np.take(_required(inputs[0]), _required(inputs[1]), axis=attributes.get("axis", 0))


def _concat(inputs: list[Array | None], attributes: Attributes) -> Array:
    return np.concatenate([_required(x) for x in inputs], axis=attributes["axis"])


def _unsqueeze(inputs: list[Array | None], _: Attributes) -> Array:
    x, axes = _required(inputs[0]), _required(inputs[1])
    rank = x.ndim + axes.size
    for axis in sorted(int(a) % rank for a in axes):
        x = np.expand_dims(x, axis)
    return x


def _squeeze(inputs: list[Array | None], _: Attributes) -> Array:
    x = _required(inputs[0])
    axes = inputs[1] if len(inputs) > 1 else None
    return np.squeeze(x) if axes is None else np.squeeze(x, tuple(int(a) for a in axes))


def _slice(inputs: list[Array | None], _: Attributes) -> Array:
    x, starts, ends = (_required(v) for v in inputs[:3])
    axes = inputs[3] if len(inputs) > 3 and inputs[3] is not None else np.arange(starts.size)
    steps = inputs[4] if len(inputs) > 4 and inputs[4] is not None else np.ones(starts.size, np.int64)
    index: list[slice] = [slice(None)] * x.ndim
    for axis, start, end, step in zip(axes.tolist(), starts.tolist(), ends.tolist(), steps.tolist()):
        past_the_first = step < 0 and end < -x.shape[axis]
        index[axis] = slice(start, None if past_the_first else end, step)
    return x[tuple(index)]


def _reshape(inputs: list[Array | None], attributes: Attributes) -> Array:
    x, shape = _required(inputs[0]), _required(inputs[1])
    if attributes.get("allowzero", 0):
        return x.reshape(shape)
    return x.reshape([x.shape[k] if d == 0 else int(d) for k, d in enumerate(shape)])


def _reduce(function: Callable[..., Any]) -> Callable[[list[Array | None], Attributes], Array | None]:
    def apply(inputs: list[Array | None], attributes: Attributes) -> Array | None:
        x = _required(inputs[0])
        axes = inputs[1] if len(inputs) > 1 else None
        if (axes is None or axes.size == 0) and attributes.get("noop_with_empty_axes", 0):
            return x
        over = None if axes is None or axes.size == 0 else tuple(int(a) for a in axes)
        return np.asarray(function(x, axis=over, keepdims=bool(attributes.get("keepdims", 1))), x.dtype)

    return apply


def _cast(inputs: list[Array | None], attributes: Attributes) -> Array | None:
    to = numpy_dtype(attributes["to"])
    return _required(inputs[0]).astype(to) if to.kind in "iub" else None


def _where(inputs: list[Array | None], _: Attributes) -> Array:
    return np.where(_required(inputs[0]), _required(inputs[1]), _required(inputs[2]))


def _range(inputs: list[Array | None], _: Attributes) -> Array:
    start, limit, delta = (_required(x) for x in inputs)
    return np.arange(start.item(), limit.item(), delta.item(), dtype=start.dtype)


def _nonzero(inputs: list[Array | None], _: Attributes) -> Array:
    return np.asarray(np.nonzero(np.atleast_1d(_required(inputs[0]))), np.int64)


_FOLDABLE: dict[str, Callable[[list[Array | None], Attributes], Array | None]] = {
    "Identity": lambda inputs, _: _required(inputs[0]),
    "Add": _binary(np.add),
    "Sub": _binary(np.subtract),
    "Mul": _binary(np.multiply),
    "Div": _binary(_divide),
    "Min": lambda inputs, _: np.minimum.reduce(np.broadcast_arrays(*[_required(x) for x in inputs])),
    "Max": lambda inputs, _: np.maximum.reduce(np.broadcast_arrays(*[_required(x) for x in inputs])),
    "Equal": _binary(np.equal),
    "Greater": _binary(np.greater),
    "Less": _binary(np.less),
    "And": _binary(np.logical_and),
    "Or": _binary(np.logical_or),
    "Not": lambda inputs, _: np.logical_not(_required(inputs[0])),
    "Neg": lambda inputs, _: np.negative(_required(inputs[0])),
    "Abs": lambda inputs, _: np.abs(_required(inputs[0])),
    "Gather": _gather,
    "Concat": _concat,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Slice": _slice,
    "Reshape": _reshape,
    "Expand": lambda inputs, _: np.array(
        _required(inputs[0]) * np.ones(_required(inputs[1]), _required(inputs[0]).dtype)
    ),
    "ReduceProd": _reduce(np.prod),
    "ReduceSum": _reduce(np.sum),
    "ReduceMax": _reduce(np.max),
    "ReduceMin": _reduce(np.min),
    "Cast": _cast,
    "Where": _where,
    "Range": _range,
    "NonZero": _nonzero,
    "Size": lambda inputs, _: np.array(_required(inputs[0]).size, np.int64),
}
