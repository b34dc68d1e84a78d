"""Arithmetic on sequences of tensors."""

from __future__ import annotations

from collections.abc import Callable

from onnx import TensorProto

from .arithmetic import zeros_like
from .subgraph import Subgraph
from .types import TensorType, innermost_dtype, is_sequence
from .value import Value


def for_each(function: Callable[..., Value], *sequences: Value, dtype: int | None = None) -> Value:
    """The sequence of ``function(a[k], b[k], ...)``, tensors of type ``dtype`` (by default that of the first given)."""
    first = sequences[0]
    graph = first.graph
    body = Subgraph(graph)
    k = body.argument("k", TensorType(TensorProto.INT64, ()))
    running = body.argument("running", TensorType(TensorProto.BOOL, ()))
    empty = graph.op.SequenceEmpty(dtype=dtype or innermost_dtype(graph.type_proto(first)) or TensorProto.FLOAT)
    done = body.argument("done", graph.type_proto(empty))
    made = function(*(body.op.SequenceAt(sequence, k) for sequence in sequences))
    body.returns([running, body.op.SequenceInsert(done, made)])
    mapped: Value = graph.op.Loop(graph.op.SequenceLength(first), True, empty, body=body.proto)
    return mapped


def zeros_like_value(value: Value) -> Value:
    """Zeros of the type and shape of a tensor, or of every tensor of a sequence."""
    return for_each(zeros_like, value) if is_sequence(value.graph.type_proto(value)) else zeros_like(value)


def sum_of(a: Value, b: Value) -> Value:
    """The sum of two tensors, or of two sequences tensor by tensor."""
    total: Value = for_each(lambda x, y: x + y, a, b) if is_sequence(a.graph.type_proto(a)) else a + b
    return total
