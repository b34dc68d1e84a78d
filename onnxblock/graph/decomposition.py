"""Operators that are a composition of others: what they mean, in the operators of the standard domain.

Exporters and graph optimizers write operators that ONNX does not define, such as ``com.microsoft::FastGelu``.  Their
decomposition tells the types of their results, and the gradient goes through it.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from onnx import (
    AttributeProto,
    GraphProto,
    NodeProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
    helper,
    numpy_helper,
)

from ..errors import ArgumentError, DuplicateRuleError, OnnxBlockError, RuleError
from .graph import Graph
from .node import NodeContext
from .value import Value

DecompositionResult: TypeAlias = "Value | Sequence[Value | None]"
DecompositionFunction: TypeAlias = "Callable[[NodeContext], DecompositionResult]"

MICROSOFT = "com.microsoft"
"""The domain of the operators that onnxruntime adds to the standard ones."""


@dataclass(frozen=True)
class Decomposition:
    """How an operator is made of others: a function from a node to the outputs that it builds."""

    op_type: str
    domain: str
    function: DecompositionFunction
    where: str


_NAME = re.compile(r"\w+|\*")
"""Of an operator, or the mark that stands for all others of a domain."""

_entries: dict[tuple[str, str], Decomposition] = {}

_OF_ONE_TYPE = {(MICROSOFT, "Inverse")}
"""Operators that no standard ones compose, whose result has the type of their input."""


def require_operator_names(decorator: str, op_types: Sequence[object]) -> None:
    """Raise :class:`ArgumentError` when ``decorator`` was not given the names of operators."""
    wrong = [repr(name) for name in op_types if not isinstance(name, str) or not _NAME.fullmatch(name)]
    if wrong or not op_types:
        raise ArgumentError(
            f"{decorator} takes the names of operators, not {', '.join(wrong) or 'nothing'}.",
            f"Write {decorator}('Operator', domain='my.domain'); the domain is named.",
        )


def decomposition(*op_types: str, domain: str) -> Callable[[DecompositionFunction], DecompositionFunction]:
    """Register a function that builds what operators of ``domain`` compute out of other operators.

    The function is given a :class:`NodeContext` ``n`` and returns the outputs in order: one value, or a sequence with
    None for an output that it cannot build.  It raises :class:`UnsupportedOperatorError` for a node that it cannot
    express.  Raises :class:`DuplicateRuleError` when an operator already has a decomposition, and
    :class:`ArgumentError` for what is no name of an operator.
    """
    require_operator_names("decomposition", op_types)

    def register(function: DecompositionFunction) -> DecompositionFunction:
        where = f"{function.__code__.co_filename}:{function.__code__.co_firstlineno}"
        for op_type in op_types:
            known = _entries.get((domain, op_type))
            if known is not None:
                raise DuplicateRuleError(
                    f"{op_type} of domain {domain!r} already has a decomposition, at {known.where}; {where} adds a "
                    "second one."
                )
            _entries[domain, op_type] = Decomposition(op_type, domain, function, where)
        return function

    return register


def find(op_type: str, domain: str) -> Decomposition | None:
    """The decomposition of an operator, or None where nobody wrote one."""
    importlib.import_module(".decompositions", __package__)
    return _entries.get(("" if domain == "ai.onnx" else domain, op_type))


def entries() -> list[Decomposition]:
    """Every decomposition, in the order of domain and name."""
    importlib.import_module(".decompositions", __package__)
    return [_entries[key] for key in sorted(_entries)]


def decompose(graph: Graph, node: NodeProto, entry: Decomposition) -> list[Value | None]:
    """Append to ``graph`` what ``node`` is made of, and return what stands for each of its outputs."""
    with graph.scope(node.name or node.output[0]):
        results = entry.function(NodeContext(graph, node))
    if isinstance(results, Value):
        return [results]
    if not isinstance(results, list | tuple) or any(not isinstance(r, Value | None) for r in results):
        raise RuleError(
            f"the decomposition of {node.op_type} {node.name or node.output[0]!r} returns {results!r}.",
            "Return a value for each output, None for one that is not there.",
        )
    return list(results)


def infer_by_decomposition(graph: Graph, node: NodeProto) -> dict[str, TypeProto]:
    """The types of the outputs of a node that ONNX does not know, as far as its decomposition tells them."""
    entry = find(node.op_type, node.domain)
    if entry is None:
        kept = graph.type_proto(node.input[0]) if (node.domain, node.op_type) in _OF_ONE_TYPE else None
        return {} if kept is None else {node.output[0]: kept}
    types = _inferred(
        entry,
        tuple(attribute.SerializeToString(deterministic=True) for attribute in node.attribute),
        tuple(_known(graph, name) if name else None for name in node.input),
        tuple(bool(name) for name in node.output),
        tuple((imported.domain, imported.version) for imported in graph.model.opset_import),
    )
    return {name: known for name, known in zip(node.output, types) if name and known is not None}


def _known(graph: Graph, name: str) -> tuple[bool, bytes]:
    """Whether a value is known while building, and its elements or its type."""
    content = graph.constant_value(name)
    if content is not None:
        return True, numpy_helper.from_array(content).SerializeToString(deterministic=True)
    return False, (graph.type_proto(name) or TypeProto()).SerializeToString(deterministic=True)


@functools.lru_cache(maxsize=1024)
def _inferred(
    entry: Decomposition,
    attributes: tuple[bytes, ...],
    inputs: tuple[tuple[bool, bytes] | None, ...],
    outputs: tuple[bool, ...],
    imports: tuple[tuple[str, int], ...],
) -> tuple[TypeProto | None, ...]:
    """The types of the outputs; the layers of a model have the same nodes, so they are inferred once."""
    node = NodeProto(op_type=entry.op_type, domain=entry.domain, name=entry.op_type)
    node.attribute.extend(AttributeProto.FromString(attribute) for attribute in attributes)
    node.input.extend("" if given is None else f"input{k}" for k, given in enumerate(inputs))
    node.output.extend(f"output{k}" if named else "" for k, named in enumerate(outputs))
    imported = [helper.make_opsetid(domain, version) for domain, version in imports]
    model = helper.make_model(GraphProto(name=entry.op_type), opset_imports=imported)
    for name, given in zip(node.input, inputs):
        if given is not None and given[0]:
            model.graph.initializer.append(TensorProto.FromString(given[1]))
            model.graph.initializer[-1].name = name
        elif given is not None:
            model.graph.input.append(ValueInfoProto(name=name, type=TypeProto.FromString(given[1])))
    graph = Graph(model)
    try:
        results = decompose(graph, node, entry)
    except OnnxBlockError:
        return (None,) * len(outputs)
    return tuple(None if result is None else graph.type_proto(result) for result in results)
