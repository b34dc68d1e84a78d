"""Whether the values of a model fit together by name: the first thing that is asked of a user's model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from onnx import GraphProto, ModelProto, NodeProto

from ..errors import InvalidModelError, did_you_mean
from .dependencies import reads, topological_order

_SHOWN = 10


def settle_structure(model: ModelProto, what: str) -> None:
    """Put the nodes of ``model`` into topological order, in place; ``what`` names the model in messages.

    A graph without a name, which onnxruntime runs and the checker of ONNX refuses, gets one.

    Raises:
        InvalidModelError: a value that is read is made by nothing, two values or two nodes share a name, or nodes
            depend on each other in a circle.  All such problems are listed.
    """
    model.graph.name = model.graph.name or "graph"
    problems = list(_problems(model.graph))
    if not problems and not _is_sorted(model.graph):
        ordered = topological_order(model.graph.node)
        del model.graph.node[:]
        model.graph.node.extend(ordered)
        if not _is_sorted(model.graph):
            problems = ["some of its nodes depend on each other in a circle."]
    if problems:
        hidden = len(problems) - _SHOWN
        shown = problems[:_SHOWN] + ([f"and {hidden} more problems."] if hidden > 0 else [])
        raise InvalidModelError(
            f"{what} is not valid:\n    " + "\n    ".join(shown), "Export it again; onnx.checker says more."
        )


def _given(graph: GraphProto) -> list[str]:
    """The names of inputs and initializers; an initializer may be the default value of an input."""
    inputs = [v.name for v in graph.input]
    known = set(inputs)
    weights = [t.name for t in graph.initializer] + [t.values.name for t in graph.sparse_initializer]
    return [*inputs, *(name for name in weights if name not in known)]


def _problems(graph: GraphProto) -> Iterator[str]:
    counts = Counter(_given(graph))
    for node in graph.node:
        counts.update(name for name in node.output if name)
    if "" in counts:
        yield "an input or a weight has no name."
    yield from (f"{count} values are called {name!r}." for name, count in counts.items() if count > 1)
    nodes = Counter(node.name for node in graph.node if node.name)
    yield from (f"{count} nodes are called {name!r}." for name, count in nodes.items() if count > 1)
    for node in graph.node:
        for name in sorted(name for name in reads(node) if name not in counts):
            yield f"{_shown(node)} reads {name!r}, which nothing makes.{did_you_mean(name, counts)}"
    for value in graph.output:
        if value.name not in counts:
            yield f"the output {value.name!r} is made by nothing.{did_you_mean(value.name, counts)}"


def _is_sorted(graph: GraphProto) -> bool:
    known = {*_given(graph), ""}
    for node in graph.node:
        if not known.issuperset(reads(node)):
            return False
        known.update(node.output)
    return True


def _shown(node: NodeProto) -> str:
    return f"{node.op_type} node {node.name!r}" if node.name else f"{node.op_type} node of {', '.join(node.output)!r}"
