"""The bodies of If, Loop and Scan: graphs that see the values of the graph around them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy.typing as npt
from onnx import GraphProto, TypeProto, ValueInfoProto

from .graph import Graph
from .literals import Literal
from .types import TensorType
from .value import Operand, Value


class Subgraph(Graph):
    """A body under construction.

    Values of ``parent`` are visible here by name, with what is known of them; what is added here is not visible there.
    Constants and weights are kept in the outermost graph.  ``proto`` is what goes into the attribute of the node, once
    :meth:`returns` has said what the outputs are.
    """

    def __init__(
        self, parent: Graph, body: GraphProto | None = None, types: Mapping[str, TypeProto] | None = None
    ) -> None:
        """A new body, or a view of an existing one; ``types`` adds to what is known of its inputs."""
        self.parent = parent
        index = parent.index.inner()
        index.types.update(types or {})
        proto = GraphProto(name=parent.unique("body")) if body is None else body
        self._begin(parent.model, proto, index, parent.weights, parent.path)

    def argument(self, name: str, type_: TypeProto | TensorType | None) -> Value:
        """A new input; a number is added to the name if it is taken."""
        info = ValueInfoProto(name=self.unique(name))
        if type_ is not None:
            info.type.CopyFrom(type_.to_proto() if isinstance(type_, TensorType) else type_)
        self.proto.input.append(info)
        self.sync()
        return Value(info.name, self)

    def returns(self, outputs: Iterable[str]) -> None:
        """Make these values the outputs of the body, in this order.

        An input, a value from outside and a value that is already an output pass through an Identity: runtimes take
        only what a node of the body computes.
        """
        computed = {name for node in self.proto.node for name in node.output if name}
        infos = []
        for output in outputs:
            name = str(output) if output in computed else str(self.op.Identity(self.value(output)))
            computed.discard(name)
            info = ValueInfoProto(name=name)
            known = self.type_proto(name)
            if known is not None:
                info.type.CopyFrom(known)
            infos.append(info)
        del self.proto.output[:]
        self.proto.output.extend(infos)

    def constant(self, content: Operand, dtype: int | None = None) -> Value:
        return Value(self.parent.constant(content, dtype), self)

    def literal(self, content: Literal) -> Value:
        return Value(self.parent.literal(content), self)

    def parameter(self, name: str, array: npt.NDArray[Any]) -> Value:
        return Value(self.parent.parameter(name, array), self)


def scan(
    graph: Graph,
    body: Subgraph,
    states: Sequence[Value],
    sequences: Sequence[Value],
    *,
    reverse: bool = False,
) -> list[Value]:
    """Run ``body`` over the first axis of ``sequences``, from the last element to the first with ``reverse``.

    Returns the final states, then what the body put out at each step, in the order of the elements.
    """
    collected = len(body.proto.output) - len(states)
    return graph.add(
        "Scan",
        [*states, *sequences],
        {
            "body": body.proto,
            "num_scan_inputs": len(sequences),
            "scan_input_directions": [int(reverse)] * len(sequences),
            "scan_output_directions": [int(reverse)] * collected,
        },
        outputs=len(body.proto.output),
    )
