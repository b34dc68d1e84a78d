"""What the forward node of an iteration keeps of every step for its gradient."""

from __future__ import annotations

from dataclasses import dataclass

from onnx import GraphProto, NodeProto, TensorProto, TypeProto, helper

from ..graph.arithmetic import shape_of
from ..graph.graph import Graph
from ..graph.subgraph import Subgraph
from ..graph.types import TensorType, is_sequence
from ..graph.value import Value
from .bodies import add_body_output, add_node_output, insert_before

_NUMBER, _FLAG = TensorType(TensorProto.INT64, ()), TensorType(TensorProto.BOOL, ())


@dataclass(frozen=True)
class Kept:
    """A value of the body in every step, outside of it.

    1. Tensors of one shape lie along the first axis of ``value``.  2. Others are the elements of ``value``, a sequence.
    3. Sequences are joined in ``value``, and ``counts`` says how many tensors each has.
    """

    value: Value
    counts: Value | None = None

    def trips(self) -> Value:
        """The number of steps."""
        op = self.value.graph.op
        if self.counts is None and is_sequence(self.value.graph.type_proto(self.value)):
            length: Value = op.SequenceLength(self.value)
            return length
        number: Value = op.Gather(shape_of(self.value if self.counts is None else self.counts), 0)
        return number

    def at(self, body: Subgraph, step: Value) -> Value:
        """The value of one step, in another body."""
        op = body.op
        if self.counts is not None:
            return self._part(body, step)
        pick = op.SequenceAt if is_sequence(body.type_proto(self.value)) else op.Gather
        found: Value = pick(self.value, step)
        return found

    def _part(self, body: Subgraph, step: Value) -> Value:
        op, whole = body.op, self.value
        kind = body.type_proto(whole)
        assert kind is not None
        first = op.ReduceSum(op.Slice(self.counts, [0], op.Unsqueeze(step, [0])), keepdims=0)
        inner = Subgraph(body)
        k, running = inner.argument("k", _NUMBER), inner.argument("running", _FLAG)
        found = inner.argument("found", kind)
        taken = inner.op.SequenceAt(whole, inner.op.Add(first, k))
        inner.returns([running, inner.op.SequenceInsert(found, taken)])
        empty = op.SequenceEmpty(dtype=kind.sequence_type.elem_type.tensor_type.elem_type)
        part: Value = op.Loop(op.Gather(self.counts, step), True, empty, body=inner.proto)
        return part


def keep_collected(graph: Graph, node: NodeProto, body: GraphProto, name: str, type_: TensorType) -> Kept:
    """Make a Loop or Scan put out a tensor of its body in every step, along a new first axis."""
    add_body_output(graph, body, name, type_.to_proto())
    for attribute in node.attribute:
        if attribute.name in {"scan_output_axes", "scan_output_directions"}:
            attribute.ints.append(0)
    shape = None if type_.shape is None else (None, *type_.shape)
    return Kept(add_node_output(graph, node, name, TensorType(type_.dtype, shape).to_proto()))


def keep_in_sequence(graph: Graph, node: NodeProto, body: GraphProto, name: str, dtype: int) -> Kept:
    """Make a Loop carry a sequence of the tensors that its body has in every step."""
    before, after, type_ = _begin_sequence(graph, node, body, name, dtype)
    body.node.append(helper.make_node("SequenceInsert", [before, name], [after], name=after))
    return Kept(_carry(graph, node, body, after, type_))


def keep_sequences(graph: Graph, node: NodeProto, body: GraphProto, name: str, dtype: int) -> Kept:
    """Make a Loop carry one sequence of all tensors that a sequence of its body has in every step."""
    before, after, type_ = _begin_sequence(graph, node, body, name, dtype)
    inside = Subgraph(graph, body)
    inside.set_type(name, type_)
    inner = Subgraph(inside)
    k, running, done = inner.argument("k", _NUMBER), inner.argument("running", _FLAG), inner.argument("done", type_)
    inner.returns([running, inner.op.SequenceInsert(done, inner.op.SequenceAt(inside.value(name), k))])
    count = inside.op.SequenceLength(inside.value(name))
    joined = inside.op.Loop(count, True, inside.value(before), body=inner.proto)
    body.node.append(helper.make_node("Identity", [joined], [after], name=after))
    whole = _carry(graph, node, body, after, type_)
    return Kept(whole, keep_collected(graph, node, body, str(count), _NUMBER).value)


def _begin_sequence(
    graph: Graph, node: NodeProto, body: GraphProto, name: str, dtype: int
) -> tuple[str, str, TypeProto]:
    """Give a Loop one more state, an empty sequence; returns its names in the body before and after a step."""
    type_ = helper.make_sequence_type_proto(helper.make_tensor_type_proto(dtype, None))
    empty, before, after = (graph.unique(f"{name}.{what}") for what in ("empty", "before", "after"))
    insert_before(graph, node, helper.make_node("SequenceEmpty", [], [empty], name=empty, dtype=dtype))
    graph.set_type(empty, type_)
    node.input.append(empty)
    body.input.append(helper.make_value_info(before, type_))
    return before, after, type_


def _carry(graph: Graph, node: NodeProto, body: GraphProto, after: str, type_: TypeProto) -> Value:
    """Make a value of the body the state after a step, and the last output of the node that is a state."""
    states = len(node.input) - 2
    body.output.insert(states, helper.make_value_info(after, type_))
    return add_node_output(graph, node, after, type_, position=states - 1)
