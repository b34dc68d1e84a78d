"""A block that is one node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from onnx import GraphProto

from ..block import Block
from ..errors import BlockBuildError
from ..graph.schemas import get_schema
from ..graph.value import Operand, Value


class Operator(Block):
    """One node of the operator ``op_type`` of the default domain.

    The constructor takes attributes by name, and inputs that every call gives alike (``axes=[1]``); the call takes the
    inputs in order (values, names, numbers, arrays, None for an absent one) or by name.  Both are checked when the
    block is called, against the operator's description at the opset of the graph; :class:`BlockBuildError` lists what
    does not fit.

    ``outputs`` is how many outputs to make.  Without it, as many as the operator cannot do without.  More than one are
    returned as a list.
    """

    op_type: ClassVar[str]
    _opens_scope = False

    def __init__(self, *, outputs: int | None = None, **attributes: Any) -> None:
        self._outputs = outputs
        self._attributes = attributes

    def build(self, *inputs: Any, **named: Any) -> Any:
        """Add the node and return its output, or the list of them."""
        twice = sorted(set(named) & set(self._attributes))
        if twice:
            raise BlockBuildError(f"{self.op_type}: {', '.join(twice)} given both to the constructor and to the call.")
        named.update(self._attributes)
        outputs = self._outputs
        if outputs is None:
            least = get_schema(self.op_type, self.graph.opset).min_output
            outputs = max(least, _natural_outputs(self.op_type, inputs, named))
        values = self.graph.add(self.op_type, inputs, named, outputs)
        return values[0] if outputs == 1 else values

    def _node(self, *inputs: Operand) -> Value:
        """Add the node with one output."""
        return self.graph.add(self.op_type, inputs, self._attributes)[0]


def _natural_outputs(op_type: str, inputs: Sequence[Any], named: Mapping[str, Any]) -> int:
    """The number of outputs that the arguments say: parts of a Split, results of the bodies of If, Loop and Scan."""
    if op_type == "Split":
        sizes = named.get("split", inputs[1] if len(inputs) > 1 else None)
        return len(sizes) if isinstance(sizes, list | tuple | np.ndarray) else int(named.get("num_outputs", 1))
    body = named.get("then_branch" if op_type == "If" else "body")
    if isinstance(body, GraphProto):
        return len(body.output) - (op_type == "Loop")
    return 1


def operator_block(op_type: str, module: str) -> type[Operator]:
    """The block class of an operator, as if it were written out in ``module``."""
    namespace = {
        "__module__": module,
        "__doc__": f"The operator {op_type}: https://onnx.ai/onnx/operators/onnx__{op_type}.html",
        "op_type": op_type,
    }
    return type(op_type, (Operator,), namespace)
