"""Blocks that say themselves how the gradient passes through them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from itertools import count
from typing import Any, TypeAlias

from onnx import FunctionProto, TypeProto, helper

from ..block import Block
from ..errors import BlockBuildError
from ..graph.function import make_function
from ..graph.graph import Graph
from ..graph.value import Value
from ..names import OWN_DOMAIN, backward_function

Results: TypeAlias = "Value | Sequence[Value]"
Cotangents: TypeAlias = "Value | Sequence[Value | None] | None"


class CustomGradient(Block):
    """A block with a backward pass of its own.

    A subclass writes :meth:`forward` and :meth:`backward`, both with blocks and arithmetic.  The graph then has one
    node, a call of a function whose body is the forward pass.  Training and ``onnxblock.gradients`` use the backward
    pass as its gradient, and put the body in place of the node in the models that they make.

    What is trained inside must come in as an input: weights that :meth:`forward` makes are constants.
    """

    _opens_scope = False

    @abstractmethod
    def forward(self, *inputs: Value) -> Results:
        """Compute the output, or several of them."""

    @abstractmethod
    def backward(self, inputs: Sequence[Value], outputs: Sequence[Value], cotangents: Sequence[Value]) -> Cotangents:
        """Compute the cotangent of each input: one value, or a sequence with None where there is no gradient.

        ``cotangents`` has one for each output, zeros where nothing depends on it.
        """

    def build(self, *inputs: Value) -> Any:
        """Add the node.  Raises :class:`BlockBuildError` where types are not known, or the two passes do not fit."""
        graph = self.graph
        given = {f"input{k}": _known_type(graph, x) for k, x in enumerate(inputs)}
        made: dict[str, TypeProto] = {}

        def forward(*values: Value) -> dict[str, Value]:
            outputs = {f"output{k}": v for k, v in enumerate(_as_list(self.forward(*values)))}
            made.update((name, _known_type(v.graph, v)) for name, v in outputs.items())
            return outputs

        def backward(*values: Value) -> dict[str, Value]:
            ends = (len(given), len(given) + len(made))
            results = self.backward(values[: ends[0]], values[ends[0] : ends[1]], values[ends[1] :])
            gradients = [results] if results is None or isinstance(results, Value) else list(results)
            if len(gradients) > len(given):
                raise BlockBuildError(
                    f"{type(self).__name__}.backward returned {len(gradients)} values for {len(given)} inputs."
                )
            return {f"gradient{k}": v for k, v in enumerate(gradients) if v is not None}

        name = type(self).__name__
        first = make_function(OWN_DOMAIN, name, graph.opset, given, forward)
        cotangents = {name.replace("output", "cotangent"): t for name, t in made.items()}
        second = make_function(OWN_DOMAIN, name, graph.opset, {**given, **made, **cotangents}, backward)
        outputs = _call(graph, _place(graph, first, second), inputs, list(made.values()))
        return outputs[0] if len(outputs) == 1 else outputs


class StopGradient(Block):
    """x, as a constant for whatever is differentiated."""

    _opens_scope = False

    def build(self, input_name: Value) -> Value:
        """Add the node.  Raises :class:`BlockBuildError` where the type of x is not known."""
        graph = self.graph
        type_ = _known_type(graph, input_name)
        if all((f.domain, f.name) != (OWN_DOMAIN, "StopGradient") for f in graph.model.functions):
            function = make_function(OWN_DOMAIN, "StopGradient", graph.opset, {"x": type_}, lambda x: {"y": x})
            graph.model.functions.append(function)
        return _call(graph, "StopGradient", [input_name], [type_])[0]


class StraightThrough(CustomGradient):
    """What ``block`` makes of its inputs, with the gradient of the first one as if it had passed unchanged.

    ``StraightThrough(blocks.Round())(x)`` rounds forward and is the identity backward (Bengio, Léonard and Courville
    2013).  The output has the shape of the first input.
    """

    def __init__(self, block: Block) -> None:
        self._block = block

    def forward(self, *inputs: Value) -> Results:
        """Call the block."""
        result: Results = self._block(*inputs)
        return result

    def backward(self, inputs: Sequence[Value], outputs: Sequence[Value], cotangents: Sequence[Value]) -> Cotangents:
        """The cotangent of the output, for the first input."""
        if len(outputs) != 1 or outputs[0].shape != inputs[0].shape:
            raise BlockBuildError(
                f"StraightThrough: the block makes {outputs[0].graph.describe(outputs)} of "
                f"{inputs[0].graph.describe(inputs[:1])}.",
                "It must have one output, of the shape of its first input.",
            )
        return cotangents[0]


def _as_list(results: Results) -> list[Value]:
    return [results] if isinstance(results, Value) else list(results)


def _known_type(graph: Graph, value: str) -> TypeProto:
    known = graph.type_proto(value)
    if known is None:
        raise BlockBuildError(
            f"the type of {str(value)!r} is not known, so no gradient can be declared for what is done with it.",
            "Give its type and shape in the model's value_info or inputs.",
        )
    return known


def _place(graph: Graph, forward: FunctionProto, backward: FunctionProto) -> str:
    """Add the two functions to the model, under a name that no other has; the same ones are added once."""
    base = forward.name
    known = {f.name: f for f in graph.model.functions if f.domain == OWN_DOMAIN}
    for k in count():
        forward.name = base if k == 0 else f"{base}_{k}"
        backward.name = backward_function(forward.name)
        if forward.name not in known:
            graph.model.functions.extend([forward, backward])
            break
        if (known[forward.name], known.get(backward.name)) == (forward, backward):
            break
    return forward.name


def _call(graph: Graph, function: str, inputs: Sequence[str], types: Sequence[TypeProto]) -> list[Value]:
    graph.import_domain(OWN_DOMAIN, 1)
    base = graph.unique(function)
    outputs = [base] if len(types) == 1 else [graph.unique(f"{function}.{k}") for k in range(len(types))]
    graph.proto.node.append(helper.make_node(function, list(inputs), outputs, name=base, domain=OWN_DOMAIN))
    graph.sync()
    for name, type_ in zip(outputs, types):
        graph.set_type(name, type_)
    return [graph.value(name) for name in outputs]
