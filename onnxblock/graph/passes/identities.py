"""Remove nodes that change nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, TensorProto, numpy_helper

from ..types import TensorType
from ..waiting import is_waiting
from .renaming import rename_reads
from .types import Types, unknown


def remove_identities(model: ModelProto, types: Types = unknown) -> bool:
    """Remove nodes whose result is what they are given.

    1. Identity.  2. Sum, Max, Min, Mean and Concat of one input.  3. Transpose that keeps every axis.  4. Cast to the
    type that is there, and back from one that holds all numbers of it.  5. Reshape and its kind where the shape stays.
    6. Adding 0 and multiplying by 1.  7. Pad by nothing, and Slice of everything.

    A node whose output is an output of the graph stays: its name is part of the interface.  So does a view that makes
    what reads it wait (:mod:`~onnxblock.graph.waiting`).
    """
    graph = model.graph
    outputs = {o.name for o in graph.output}
    constants = _Constants(graph.initializer)
    widened: dict[str, str] = {}
    replaced: dict[str, str] = {}
    kept = []
    for node in graph.node:
        if replaced:
            rename_reads(node, replaced)
        if node.op_type == "Constant":
            constants.take(node)
        if node.op_type == "Cast" and _widens(node, types):
            widened[node.output[0]] = node.input[0]
        same = _unchanged(node, types, constants, widened) if node.op_type in _CANDIDATES else None
        if same is None or node.output[0] in outputs:
            kept.append(node)
        else:
            replaced[node.output[0]] = same
    if not replaced:
        return False
    del graph.node[:]
    graph.node.extend(kept)
    return True


_VIEWS = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze"})
_SAME_IF_SHAPE_STAYS = frozenset({"Expand", "Tile", *_VIEWS})
_VARIADIC = frozenset({"Sum", "Max", "Min", "Mean", "Concat"})
_NEUTRAL = {"Add": 0, "Sub": 0, "Mul": 1, "Div": 1}
_CANDIDATES = _SAME_IF_SHAPE_STAYS | _VARIADIC | {"Cast", "Identity", "Pad", "Slice", "Transpose", *_NEUTRAL}
_WIDENING: frozenset[tuple[int | None, int]] = frozenset(
    {
        (TensorProto.FLOAT, TensorProto.DOUBLE),
        (TensorProto.FLOAT16, TensorProto.FLOAT),
        (TensorProto.FLOAT16, TensorProto.DOUBLE),
        (TensorProto.BFLOAT16, TensorProto.FLOAT),
        (TensorProto.BFLOAT16, TensorProto.DOUBLE),
        (TensorProto.INT32, TensorProto.INT64),
        (TensorProto.INT32, TensorProto.DOUBLE),
    }
)
_LONGEST = 16
"""Number of elements of the longest constants that are looked at: paddings of eight axes."""


class _Constants:
    """The short constants of a graph, by name."""

    def __init__(self, initializers: Iterable[TensorProto]) -> None:
        self._tensors = {t.name: t for t in initializers if _is_short(t)}
        self._compared: dict[tuple[str, int], bool] = {}

    def take(self, node: NodeProto) -> None:
        """Take in what a node Constant holds."""
        self._tensors.update((node.output[0], a.t) for a in node.attribute if a.name == "value" and _is_short(a.t))

    def content(self, name: str) -> npt.NDArray[Any] | None:
        """The elements; None where ``name`` is no short constant."""
        tensor = self._tensors.get(name)
        return None if tensor is None else numpy_helper.to_array(tensor)

    def is_all(self, name: str, number: int) -> bool:
        """Whether this is a short constant all elements of which are ``number``."""
        if name not in self._tensors:
            return False
        key = (name, number)
        if key not in self._compared:
            self._compared[key] = bool(np.all(numpy_helper.to_array(self._tensors[name]) == number))
        return self._compared[key]


def _unchanged(node: NodeProto, types: Types, constants: _Constants, widened: Mapping[str, str]) -> str | None:
    """The value that the result of ``node``, one of the candidates, equals, or None.

    It is an input, or what was ``widened`` to one.
    """
    if node.domain or not node.input or len(node.output) != 1:
        return None
    op_type = node.op_type
    if op_type in _NEUTRAL:
        return _beside_neutral(node, types, constants)
    first = str(node.input[0])
    if op_type == "Identity":
        return first
    if op_type in _VARIADIC:
        return first if len(node.input) == 1 else None
    if op_type == "Transpose":
        order = next((list(a.ints) for a in node.attribute if a.name == "perm"), None)
        return first if order is not None and order == sorted(order) else None
    if op_type == "Cast":
        sources = (first, widened[first]) if first in widened else (first,)
        return next((name for name in sources if _dtype(types, name) == _target(node)), None)
    before, after = types(first), types(node.output[0])
    if op_type == "Pad":
        return first if len(node.input) > 1 and constants.is_all(node.input[1], 0) else None
    if op_type == "Slice":
        forwards = len(node.input) < 5 or constants.is_all(node.input[4], 1)
        return first if forwards and _same_size(before, after) else None
    same = _same_size(before, after) or (_refuses_nothing(node, constants) and _same_but_for_one(before, after))
    return first if same and not is_waiting(node) else None


def _target(cast: NodeProto) -> int:
    return int(next(a.i for a in cast.attribute if a.name == "to"))


def _dtype(types: Types, name: str) -> int | None:
    known = types(name)
    return None if known is None else known.dtype


def _widens(cast: NodeProto, types: Types) -> bool:
    """Whether the type that a Cast gives holds all numbers of the one that it takes."""
    return (_dtype(types, cast.input[0]), _target(cast)) in _WIDENING


def _beside_neutral(node: NodeProto, types: Types, constants: _Constants) -> str | None:
    """The operand that the other one, 0 in a sum or 1 in a product, leaves as it is; None where there is no such."""
    a, b = node.input
    pairs = ((a, b), (b, a)) if node.op_type in ("Add", "Mul") else ((a, b),)
    for data, other in pairs:
        if constants.is_all(other, _NEUTRAL[node.op_type]) and _same_size(types(data), types(node.output[0])):
            return str(data)
    return None


def _same_size(a: TensorType | None, b: TensorType | None) -> bool:
    """Whether both are of one shape, every size of which is known."""
    if a is None or b is None or a.shape is None:
        return False
    return a.shape == b.shape and all(isinstance(size, int) for size in a.shape)


def _refuses_nothing(node: NodeProto, constants: _Constants) -> bool:
    """Whether a node is a view that leaves a size open, and so checks none."""
    if node.op_type != "Reshape":
        return node.op_type in _VIEWS
    sizes = constants.content(node.input[1])
    return sizes is not None and -1 in sizes


def _same_but_for_one(before: TensorType | None, after: TensorType | None) -> bool:
    """Whether both shapes are the same if their numbers of elements are: all sizes are known and equal but for one."""
    if before is None or after is None or before.shape is None or after.shape is None:
        return False
    if len(before.shape) != len(after.shape):
        return False
    known = [
        a == b for a, b in zip(before.shape, after.shape, strict=True) if isinstance(a, int) and isinstance(b, int)
    ]
    return False not in known and len(known) >= len(before.shape) - 1 and 0 not in before.shape


def _is_short(tensor: TensorProto) -> bool:
    return bool(prod(tensor.dims) <= _LONGEST)
