"""Model-local functions, written as graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from onnx import FunctionProto, GraphProto, TypeProto, ValueInfoProto, helper

from .context import building
from .graph import Graph
from .passes.own_functions import inline_own_functions
from .passes.prune import prune
from .value import Value


def make_function(
    domain: str,
    name: str,
    opset: int,
    inputs: Mapping[str, TypeProto],
    build: Callable[..., Mapping[str, Value]],
    attributes: Sequence[str] = (),
) -> FunctionProto:
    """The function ``domain::name`` whose body is what ``build(*inputs)`` adds to an empty graph.

    ``inputs`` gives the types that the body is built for; ``build``, which may call blocks, returns the outputs by
    name; ``attributes`` are the names of the attributes that a call may carry.
    """
    model = helper.make_model(GraphProto(name=name), opset_imports=[helper.make_opsetid("", opset)])
    model.graph.input.extend(ValueInfoProto(name=n, type=t) for n, t in inputs.items())
    graph = Graph(model)
    with building(graph):
        results = build(*(graph.value(n) for n in inputs))
    named: dict[str, Value] = {}
    for output, result in results.items():
        named[result] = graph.rename(graph.op.Identity(named[result]) if result in named else result, output)
        model.graph.output.append(ValueInfoProto(name=output))
    inline_own_functions(model)
    prune(model)
    constants = [helper.make_node("Constant", [], [t.name], value=t) for t in model.graph.initializer]
    return helper.make_function(
        domain,
        name,
        list(inputs),
        list(results),
        [*constants, *model.graph.node],
        opset_imports=list(model.opset_import),
        attributes=list(attributes),
    )
