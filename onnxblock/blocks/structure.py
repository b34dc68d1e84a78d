"""Constants, inputs, sequences: values that are put into the graph or passed on unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ValueInfoProto

from ..block import Block
from ..errors import BlockBuildError
from ..graph.value import Number, Operand, Value
from .operator import Operator


class Constant(Block):
    """A number or an array as a value of the graph.

    A number has rank 0 and takes the element type of the first typed operand it meets.  An array keeps its own element
    type and shape; a list of floats becomes float32, of integers int64.  It is no weight, as ``graph.parameter`` makes.
    """

    _opens_scope = False

    def __init__(self, value_float: Number | np.generic | npt.NDArray[Any] | Sequence[Any]) -> None:
        if np.asarray(value_float).dtype.kind not in "fiub":
            raise BlockBuildError(f"Constant takes a number or an array of numbers, not {value_float!r}.")
        self._content = value_float

    def build(self) -> Value:
        """Add the constant."""
        if isinstance(self._content, int | float):
            return self.graph.literal(self._content)
        return self.graph.constant(self._content)


class InputLike(Block):
    """A new input of the model with the element type and shape of the value ``like``."""

    _opens_scope = False

    def __init__(self, like: str) -> None:
        self._like = like

    def build(self, input_name: str | None = None) -> Value:
        """Add the input, under a name of its own where none is given.

        Raises :class:`UnknownNameError` when the graph has no value ``like``, :class:`BlockBuildError` when the name is
        taken or the type of ``like`` is not known.
        """
        graph = self.graph
        known = graph.type_proto(graph.value(self._like))
        if known is None:
            raise BlockBuildError(f"the type of {self._like!r} is not known, so no input can be made like it.")
        if input_name is None:
            name = graph.unique("input")
        elif input_name in graph:
            raise BlockBuildError(
                f"the model already has a value called {str(input_name)!r}, so it cannot be a new input.",
                "Choose another name: InputLike(like)(name).",
            )
        else:
            name = str(input_name)
        graph.model.graph.input.append(ValueInfoProto(name=name, type=known))
        graph.sync()
        return graph.value(name)


class PassThrough(Block):
    """The inputs, unchanged: a block that lets a model be trained on a loss it computes itself."""

    _opens_scope = False

    def build(self, *input_names: Operand) -> Value | tuple[Value, ...]:
        """Add an Identity for each input; several are returned as a tuple."""
        op = self.graph.op
        outputs = tuple(op.Identity(name) for name in input_names)
        return outputs[0] if len(outputs) == 1 else outputs


class SequenceConstruct(Operator):
    """A sequence of the inputs, which have one element type."""

    op_type = "SequenceConstruct"

    def build(self, *sequence_input_names: Operand) -> Value:
        """Add the node."""
        return self._node(*sequence_input_names)
