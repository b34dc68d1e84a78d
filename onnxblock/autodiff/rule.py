"""What a gradient rule sees of one node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
from onnx import NodeProto, helper

from ..graph.arithmetic import zeros_like
from ..graph.graph import Graph
from ..graph.op import Operators
from ..graph.schemas import attribute_default, find_schema
from ..graph.value import Value


@dataclass(frozen=True)
class RuleContext:
    """A forward node, its values, and the cotangent of each of its outputs.

    ``grads[k]`` is the cotangent of output k, None where nothing depends on it; at least one is there.  Cotangents have
    the element type and shape of their value.
    """

    graph: Graph
    node: NodeProto
    grads: Sequence[Value | None]
    wanted: Sequence[bool]

    @property
    def op(self) -> Operators:
        """The operators of the graph: ``g.op.Exp(x)``."""
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

    @property
    def x(self) -> Value:
        """The first input."""
        return Value(self.node.input[0], self.graph)

    @property
    def y(self) -> Value:
        """The first output."""
        return Value(self.node.output[0], self.graph)

    @property
    def dy(self) -> Value:
        """The cotangent of the first output; zeros where only other outputs have one."""
        return self.grads[0] if self.grads[0] is not None else zeros_like(self.y)

    def grad(self, k: int) -> Value | None:
        """The cotangent of the k-th output, or None where it is absent or unused."""
        return self.grads[k] if k < len(self.grads) else None

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

    def wants(self, k: int) -> bool:
        """Whether the gradient of the k-th input is needed: build nothing costly for nobody."""
        return k < len(self.wanted) and self.wanted[k]

    def output(self, k: int) -> Value:
        """The k-th output, added to the forward node where it is optional and left out."""
        return self.graph.add_optional_output(self.node, k)

    def constant(self, k: int) -> npt.NDArray[Any] | None:
        """The elements of the k-th input where they are known while building, else None."""
        return self.graph.constant_value(self.input(k))
