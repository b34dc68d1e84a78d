"""The form of the discontinued onnxruntime-training: tensors in sequences, one node of the domain com.microsoft.

That runtime has kernels for the nodes, which work in place.  Stock onnxruntime has none and runs the model-local
functions of the same names, which are made here from the same formulas as the form with one input per tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
from onnx import TensorProto, TypeProto, ValueInfoProto, helper

from .. import names
from ..errors import BlockBuildError, ParameterError
from ..graph.function import make_function
from ..graph.graph import Graph
from ..graph.subgraph import Subgraph
from ..graph.types import TensorType, dtype_name
from ..graph.value import Value
from .parameters import Parameter

DOMAIN, _VERSION = "com.microsoft", 1

TENSORS = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
"""A sequence of float32 tensors, the only kind that onnxruntime-training trains."""

LEARNING_RATE = helper.make_tensor_type_proto(TensorProto.FLOAT, [1])
STEP = helper.make_tensor_type_proto(TensorProto.INT64, [1])
_FLAG = helper.make_tensor_type_proto(TensorProto.BOOL, [1])

_wanted: ContextVar[bool] = ContextVar("onnxblock_sequence_form", default=False)


@contextmanager
def sequence_form() -> Iterator[None]:
    """Make optimizers build the form of onnxruntime-training, which stock onnxruntime runs too, but slowly."""
    token = _wanted.set(True)
    try:
        yield
    finally:
        _wanted.reset(token)


def wants_sequences() -> bool:
    """Whether the caller is inside :func:`sequence_form`."""
    return _wanted.get()


def declare(graph: Graph, parameters: Sequence[Parameter], sequences: Sequence[str]) -> list[Value]:
    """Add the inputs ``learning_rate``, ``step`` and the sequences, as onnxruntime-training wants them.

    Raises :class:`ParameterError` for parameters that are not float32.
    """
    others = [f"{p.name!r} ({dtype_name(p.dtype)})" for p in parameters if p.dtype != TensorProto.FLOAT]
    if others:
        raise ParameterError(
            f"onnxruntime-training trains float32 parameters only, not {', '.join(others)}.",
            "Leave runtime= at its default, 'onnxruntime'.",
        )
    types = {names.LEARNING_RATE: LEARNING_RATE, names.STEP: STEP, **dict.fromkeys(sequences, TENSORS)}
    graph.model.graph.input.extend(ValueInfoProto(name=name, type=type_) for name, type_ in types.items())
    graph.sync()
    return [graph.value(name) for name in types]


def require_sequences(graph: Graph, *sequences: str) -> None:
    """Raise :class:`BlockBuildError` unless every value is a sequence of float32 tensors."""
    for name in sequences:
        known = graph.type_proto(graph.value(name))
        element = known.sequence_type.elem_type.tensor_type.elem_type if known is not None else TensorProto.UNDEFINED
        if element != TensorProto.FLOAT:
            raise BlockBuildError(
                f"{str(name)!r} is not a sequence of float32 tensors, which is what this optimizer block takes.",
                "Give the names of sequence inputs, or use an optimizer like optim.AdamW, which makes its own inputs.",
            )


def call(
    graph: Graph,
    op_type: str,
    inputs: Mapping[str, tuple[str, TypeProto]],
    outputs: Mapping[str, tuple[str, TypeProto]],
    build: Callable[..., Sequence[Value]],
    attributes: Mapping[str, Any],
) -> list[Value]:
    """Add a node ``com.microsoft::op_type``, with a function of that name whose body ``build`` makes.

    ``inputs`` and ``outputs`` map the names inside the function to (name outside, type).
    """
    if all((f.domain, f.name) != (DOMAIN, op_type) for f in graph.model.functions):
        types = {formal: type_ for formal, (_, type_) in inputs.items()}

        def body(*values: Value) -> dict[str, Value]:
            return dict(zip(outputs, build(*values)))

        graph.model.functions.append(make_function(DOMAIN, op_type, graph.opset, types, body, list(attributes)))
    graph.import_domain(DOMAIN, _VERSION)
    given, made = [n for n, _ in inputs.values()], [n for n, _ in outputs.values()]
    graph.model.graph.node.append(
        helper.make_node(op_type, given, made, name=graph.unique(op_type), domain=DOMAIN, **attributes)
    )
    graph.sync()
    for name, type_ in outputs.values():
        graph.set_type(name, type_)
    return [graph.value(name) for name in made]


def call_optimizer(
    graph: Graph,
    op_type: str,
    inputs: Mapping[str, tuple[str, TypeProto]],
    updated: Mapping[str, str],
    build: Callable[..., Sequence[Value]],
    attributes: Mapping[str, Any],
) -> Value:
    """Add an optimizer node, declare the new sequences as outputs of the model, and return the flag.

    ``updated`` maps the node's outputs after the flag to the sequences that they replace.  ``build`` returns the new
    sequences.
    """
    require_sequences(graph, *updated.values())
    outputs = {"flag": (graph.unique(f"{op_type}.flag"), _FLAG)}
    outputs.update((formal, (names.updated(old), TENSORS)) for formal, old in updated.items())

    def with_flag(*values: Value) -> list[Value]:
        return [values[0].graph.constant(np.array([True])), *build(*values)]

    flag, *sequences = call(graph, op_type, inputs, outputs, with_flag, attributes)
    graph.model.graph.output.extend(ValueInfoProto(name=name, type=TENSORS) for name in sequences)
    return flag


def for_each(
    sequences: Sequence[Value], carried: Sequence[Value], body: Callable[[list[Value], list[Value]], Sequence[Value]]
) -> list[Value]:
    """Run ``body(elements, carried)`` for every position of the sequences and return what is carried at the end."""
    graph = sequences[0].graph
    inner = Subgraph(graph)
    index = inner.argument("position", TensorType(TensorProto.INT64, ()))
    going = inner.argument("going", TensorType(TensorProto.BOOL, ()))
    state = [inner.argument("carried", graph.type_proto(c)) for c in carried]
    elements = [inner.op.SequenceAt(sequence, index) for sequence in sequences]
    inner.returns([going, *body(elements, state)])
    count = graph.op.SequenceLength(sequences[0])
    return graph.add("Loop", [count, None, *carried], {"body": inner.proto}, outputs=len(carried))


def map_sequences(sequences: Sequence[Value], results: int, function: Callable[..., Sequence[Value]]) -> list[Value]:
    """Apply ``function(*elements)`` at every position; one new sequence for each of its results."""
    op = sequences[0].graph.op
    empty = [op.SequenceEmpty(dtype=TensorProto.FLOAT) for _ in range(results)]

    def body(elements: list[Value], made: list[Value]) -> list[Value]:
        op = elements[0].graph.op
        return [op.SequenceInsert(sequence, new) for sequence, new in zip(made, function(*elements))]

    return for_each(sequences, empty, body)
