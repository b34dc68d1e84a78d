"""A Scan in the form of a Loop."""

from __future__ import annotations

from onnx import GraphProto, NodeProto, TensorProto, helper

from .arithmetic import shape_of
from .node import NodeContext
from .value import Value

_END = 2**62


def scan_as_loop(n: NodeContext) -> list[Value]:
    """A Loop that computes what a Scan does, appended to its graph; returns what stands for the outputs."""
    graph, op = n.graph, n.op
    body = GraphProto()
    body.CopyFrom(next(a.g for a in n.node.attribute if a.name == "body"))
    taken = n.attr("num_scan_inputs")
    states = len(n.inputs) - taken
    collected = len(body.output) - states
    axes = n.attr("scan_input_axes") or [0] * taken
    directions = n.attr("scan_input_directions") or [0] * taken
    trips = op.Gather(shape_of(n.inputs[states]), axes[0])
    last = op.Sub(trips, 1)
    iteration, running, backwards, again = (graph.unique(name) for name in ("step", "running", "step_back", "go_on"))
    elements = [value.name for value in body.input[states:]]
    nodes = [NodeProto(op_type="Sub", name=backwards, input=[last, iteration], output=[backwards])]
    for name, sequence, axis, back in zip(elements, n.inputs[states:], axes, directions, strict=True):
        index = backwards if back else iteration
        nodes.append(helper.make_node("Gather", [sequence, index], [name], name=graph.unique(name), axis=axis))
    nodes += [*body.node, NodeProto(op_type="Identity", name=again, input=[running], output=[again])]
    given = [
        helper.make_tensor_value_info(iteration, TensorProto.INT64, []),
        helper.make_tensor_value_info(running, TensorProto.BOOL, []),
        *body.input[:states],
    ]
    outputs = [helper.make_tensor_value_info(again, TensorProto.BOOL, []), *body.output]
    loop = helper.make_graph(nodes, graph.unique("body"), given, outputs, list(body.initializer))
    made = graph.add("Loop", [trips, True, *n.inputs[:states]], {"body": loop}, outputs=states + collected)
    out_axes = n.attr("scan_output_axes") or [0] * collected
    out_directions = n.attr("scan_output_directions") or [0] * collected
    return made[:states] + [
        _laid_out(value, axis, bool(back))
        for value, axis, back in zip(made[states:], out_axes, out_directions, strict=True)
    ]


def _laid_out(steps: Value, axis: int, backwards: bool) -> Value:
    """What a Loop collected along its first axis, along another, from the last step to the first if so wanted."""
    op = steps.graph.op
    if backwards:
        steps = op.Slice(steps, [-1], [-_END], [0], [-1])
    if axis == 0:
        return steps
    count, element = op.Shape(steps, end=1), op.Shape(steps, start=1)
    # A negative axis counts from the back of the result, which has one more than an element has.
    place = [axis] if axis > 0 else [axis + 1 if axis < -1 else _END]
    before, after = op.Slice(element, [0], place), op.Slice(element, place, [_END])
    sizes = [op.ReduceProd(part, keepdims=1) for part in (before, after)]
    parts = op.Reshape(steps, op.Concat(count, *sizes, axis=0), allowzero=1)
    moved: Value = op.Reshape(op.Transpose(parts, perm=[1, 0, 2]), op.Concat(before, count, after, axis=0), allowzero=1)
    return moved
