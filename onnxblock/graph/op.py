"""``graph.op.Softmax(x, axis=1)``: every operator of the opset as a method that adds one node."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .schemas import get_schema, operator_names
from .value import Operand, Value

if TYPE_CHECKING:
    from .graph import Graph
    from .op_signatures import Signatures
else:
    Signatures = object


class Operators(Signatures):
    """The operators of a graph's opset.

    Inputs are positional (values, names, numbers, arrays, None for an absent one), attributes are keywords.  What is an
    attribute in one opset and an input in another can always be given by name.  The result is one :class:`Value`, or a
    list of them with ``outputs=k`` for k > 1.  ``op_signatures.pyi`` declares them for editors and type checkers;
    ``tools/make_stubs.py`` writes it.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def __getattr__(self, op_type: str) -> Callable[..., Any]:
        if op_type.startswith("__"):
            raise AttributeError(op_type)
        graph = self._graph
        get_schema(op_type, graph.opset)

        def add(*inputs: Operand, outputs: int = 1, **attributes: Any) -> Value | list[Value]:
            values = graph.add(op_type, inputs, attributes, outputs=outputs)
            return values[0] if outputs == 1 else values

        add.__name__ = op_type
        return add

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *operator_names(self._graph.opset)]
