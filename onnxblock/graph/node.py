"""One node of a graph, with its inputs and attributes at hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
from onnx import NodeProto, helper

from .graph import Graph
from .op import Operators
from .schemas import attribute_default, find_schema
from .value import Value


@dataclass(frozen=True)
class NodeContext:
    """What a function that is given a node works with: its values and attributes, and the operators of its graph."""

    graph: Graph
    node: NodeProto

    @property
    def op(self) -> Operators:
        """The operators of the graph: ``n.op.Exp(x)``."""
        return self.graph.op

    @property
    def inputs(self) -> list[Value]:
        """The inputs that are there; raises nothing for absent ones but leaves them out only at the end of the list."""
        return [Value(name, self.graph) for name in self.node.input]

    @property
    def outputs(self) -> list[Value]:
        return [Value(name, self.graph) for name in self.node.output]

    def input(self, k: int) -> Value | None:
        """The k-th input, or None where the node leaves it out."""
        present = k < len(self.node.input) and self.node.input[k]
        return Value(self.node.input[k], self.graph) if present else None

    def has_output(self, k: int) -> bool:
        """Whether the node gives its k-th output a name."""
        return k < len(self.node.output) and bool(self.node.output[k])

    @property
    def x(self) -> Value:
        """The first input."""
        return Value(self.node.input[0], self.graph)

    @property
    def y(self) -> Value:
        """The first output."""
        return Value(self.node.output[0], self.graph)

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute; the schema's default where the node leaves it out, then ``default``.  Strings are ``str``."""
        for attribute in self.node.attribute:
            if attribute.name == name:
                found = helper.get_attribute_value(attribute)
                return found.decode() if isinstance(found, bytes) else found
        schema = find_schema(self.node.op_type, self.graph.opset, self.node.domain)
        found = None if schema is None else attribute_default(schema, name)
        if found is None:
            return default
        return found.decode() if isinstance(found, bytes) else found

    def constant(self, k: int) -> npt.NDArray[Any] | None:
        """The elements of the k-th input where they are known while building, else None."""
        return self.graph.constant_value(self.input(k))
