"""Gradients of the operators on sequences and optional values.

The cotangent of a sequence is a sequence of as many tensors, that of an optional value the cotangent of what is in it.
"""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from ...graph.arithmetic import shape_of, zeros_like
from ...graph.sequences import for_each, zeros_like_value
from ...graph.value import Value
from ..registry import RuleResult, gradient, no_gradient
from ..rule import RuleContext


@gradient("SequenceConstruct")
def sequence_construct(g: RuleContext) -> RuleResult:
    """Each input is one tensor of the sequence."""
    return [g.op.SequenceAt(g.dy, k) if g.wants(k) else None for k in range(len(g.inputs))]


@gradient("SequenceAt")
def sequence_at(g: RuleContext) -> RuleResult:
    """The cotangent of the sequence is zero but for dy at the position."""
    position = _counted_from_start(g.x, g.inputs[1])
    others = g.op.SequenceErase(zeros_like_value(g.x), position)
    return g.op.SequenceInsert(others, g.dy, position)


@gradient("SequenceInsert")
def sequence_insert(g: RuleContext) -> RuleResult:
    """The tensor that was put in is at its position; the rest of the sequence is the one before."""
    given = g.input(2)
    position = g.graph.constant(-1) if given is None else _counted_from_start(g.x, given)
    return (
        g.op.SequenceErase(g.dy, position) if g.wants(0) else None,
        g.op.SequenceAt(g.dy, position) if g.wants(1) else None,
    )


@gradient("SequenceErase")
def sequence_erase(g: RuleContext) -> RuleResult:
    """The tensor that was taken out has a cotangent of zeros."""
    given = g.input(1)
    if given is None:
        return g.op.SequenceInsert(g.dy, zeros_like(g.op.SequenceAt(g.x, -1)))
    position = _counted_from_start(g.x, given)
    return g.op.SequenceInsert(g.dy, zeros_like(g.op.SequenceAt(g.x, position)), position)


def _counted_from_start(sequence: Value, position: Value) -> Value:
    """``position`` without a negative sign: -1 is the last of the sequence."""
    op = sequence.graph.op
    position = position.cast(TensorProto.INT64)
    counted: Value = op.Where(op.Less(position, 0), position + op.SequenceLength(sequence), position)
    return counted


@gradient("SplitToSequence")
def split_to_sequence(g: RuleContext) -> RuleResult:
    """The parts are put together again."""
    new_axis = g.input(1) is None and not g.attr("keepdims")
    return g.op.ConcatFromSequence(g.dy, axis=g.attr("axis"), new_axis=int(new_axis))


@gradient("ConcatFromSequence")
def concat_from_sequence(g: RuleContext) -> RuleResult:
    """The whole is taken apart again."""
    axis = g.attr("axis")
    if g.attr("new_axis"):
        return g.op.SplitToSequence(g.dy, axis=axis, keepdims=0)
    sizes = for_each(lambda x: x.graph.op.Gather(shape_of(x), np.array([axis])), g.x, dtype=TensorProto.INT64)
    return g.op.SplitToSequence(g.dy, g.op.ConcatFromSequence(sizes, axis=0), axis=axis)


@gradient("Optional", "OptionalGetElement")
def optional(g: RuleContext) -> RuleResult:
    """What is in the optional value is the value itself."""
    return g.dy


no_gradient("SequenceEmpty", reason="it has no input")
no_gradient("SequenceLength", reason="its output is an integer")
no_gradient("OptionalHasElement", reason="its output is a boolean")
