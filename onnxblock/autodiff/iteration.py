"""The gradient of Loop and Scan: a Loop over the same iterations, from the last to the first.

Its states are the cotangents of the states, and the sums of the cotangents of the outer values that the body reads.
The forward node keeps what its states were before every iteration; the rest of an iteration is computed again, except
for what is random.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import GraphProto, TensorProto, TypeProto

from ..errors import UnsupportedOperatorError
from ..graph.arithmetic import reshape_like, shape_of, with_shape_of
from ..graph.dependencies import needed_nodes
from ..graph.loops import body_input_types, is_kept, shape_of_given
from ..graph.scatter import around
from ..graph.sequences import sum_of, zeros_like_value
from ..graph.subgraph import Subgraph
from ..graph.types import TensorType, innermost_dtype, is_sequence
from ..graph.value import Value
from .bodies import BodyGradient
from .kept import Kept, keep_collected, keep_in_sequence, keep_sequences
from .randomness import is_random
from .registry import Cotangents
from .rule import RuleContext
from .unsupported import live_values

_NUMBER, _FLAG = TensorType(TensorProto.INT64, ()), TensorType(TensorProto.BOOL, ())
_END = 2**62


@dataclass(frozen=True)
class Elements:
    """What a Scan takes, or a Loop or Scan puts out, one element an iteration."""

    name: str
    """The element in the body."""
    axis: int
    """Along which the elements lie."""
    backwards: bool
    """Whether the last element comes first."""


class Iteration:
    """A Loop or Scan node under differentiation.

    The body of a Loop takes the number of the iteration, a condition and the states, and gives a condition, the states
    and what is collected.  That of a Scan takes the states and elements, and gives the states and what is collected.
    """

    def __init__(self, g: RuleContext, body: GraphProto) -> None:
        self.g, self.graph, self.node, self.body = g, g.graph, g.node, body
        self.is_loop = g.node.op_type == "Loop"
        self.first = 2 if self.is_loop else 0
        self.count = len(g.node.input) - (2 if self.is_loop else g.attr("num_scan_inputs"))
        behind = self.first + self.count
        inputs, outputs = [v.name for v in body.input], [v.name for v in body.output][int(self.is_loop) :]
        self.given, self.state_in = inputs[: self.first], inputs[self.first : behind]
        self.state_out = outputs[: self.count]
        self.elements = self._elements(inputs[behind:], "scan_input")
        self.collected = self._elements(outputs[self.count :], "scan_output")
        self.initial, self.sequences = g.inputs[self.first : behind], g.inputs[behind:]
        types = self._input_types()
        self.work = BodyGradient(self.graph, body, types)
        self.fixed = [
            not self.is_loop or is_kept(self.graph, initial, types.get(name))
            for name, initial in zip(self.state_in, self.initial, strict=True)
        ]
        self.joint = self.work.joint
        if not self.is_loop:
            self._settle_states()

    def _settle_states(self) -> None:
        """A state of a Scan has the same shape in every iteration, so what is known after one is known before it."""
        for before, after in zip(self.state_in, self.state_out, strict=True):
            known, settled = self.joint.tensor_type(before), self.joint.type_proto(after)
            if settled is not None and (known is None or known.shape is None):
                self.joint.set_type(before, settled)

    def _elements(self, names: Sequence[str], what: str) -> list[Elements]:
        axes = self.g.attr(f"{what}_axes") or [0] * len(names)
        directions = self.g.attr(f"{what}_directions") or [0] * len(names)
        return [Elements(name, axis, bool(d)) for name, axis, d in zip(names, axes, directions, strict=True)]

    def _input_types(self) -> dict[str, TypeProto]:
        """What is known of the inputs of the body in every iteration."""
        if self.is_loop:
            return body_input_types(self.graph, self.node, self.body)
        types = {
            name: self.graph.type_proto(initial) for name, initial in zip(self.state_in, self.initial, strict=True)
        }
        for element, sequence in zip(self.elements, self.sequences, strict=True):
            known = sequence.type
            if known is not None and known.shape is not None:
                axis = element.axis % len(known.shape)
                known = TensorType(known.dtype, known.shape[:axis] + known.shape[axis + 1 :])
            types[element.name] = None if known is None else known.to_proto()
        return {name: proto for name, proto in types.items() if proto is not None}

    def _carried(
        self, d_final: Sequence[Value | None], d_collected: Sequence[Value | None], wanted: Sequence[int]
    ) -> tuple[list[str], list[int]]:
        """The values inside the body whose gradient is needed, and the states whose cotangents are.

        Those are the states that depend on what is needed and that an output with a cotangent depends on, in this
        iteration or in a later one.
        """
        nodes = self.joint.proto.node
        roots = {*self.g.captured, *(self.elements[k].name for k in wanted)}
        roots |= {name for k, name in enumerate(self.state_in) if self.g.wants(self.first + k)}
        active = {e.name for e, d in zip(self.collected, d_collected, strict=True) if d is not None}
        active |= {name for name, d in zip(self.state_out, d_final, strict=True) if d is not None}
        size = -1
        while size != len(roots) + len(active):
            size = len(roots) + len(active)
            live = live_values(self.joint, nodes, roots)
            _, needed = needed_nodes(nodes, active)
            for before, after in zip(self.state_in, self.state_out, strict=True):
                if after in live and self.joint.carries_gradient(before):
                    roots.add(before)
                if before in needed and before in roots:
                    active.add(after)
        carried = [k for k, name in enumerate(self.state_in) if name in roots and self.state_out[k] in active]
        return sorted(roots), carried

    # -- the gradient

    def gradient(self) -> Cotangents | None:
        """Build the gradient behind the node, and change the node so that it keeps what that needs."""
        g, joint = self.g, self.joint
        d_final, d_collected = g.grads[: self.count], g.grads[self.count :]
        wanted = [k for k in range(len(self.elements)) if g.wants(self.first + self.count + k)]
        roots, carried = self._carried(d_final, d_collected, wanted)
        # Inputs of the copy for what each iteration of the gradient is given.
        d_states = {k: joint.argument("d_state", joint.type_proto(self.state_out[k])) for k in carried}
        d_elements = [
            (element, d, joint.argument("d_element", joint.type_proto(element.name)))
            for element, d in zip(self.collected, d_collected, strict=True)
            if d is not None
        ]
        cotangents = [(self.state_out[k], d) for k, d in d_states.items()]
        cotangents += [(element.name, d) for element, _, d in d_elements]
        found = self.work.differentiate(cotangents, roots)
        captured = [name for name in g.captured if name in found]
        sums = {name: joint.argument("d_captured", joint.type_proto(name)) for name in captured}
        results = [found.get(self.state_in[k]) or self._no_cotangent(k, d) for k, d in d_states.items()]
        results += [sum_of(sums[name], found[name]) for name in captured]
        wanted_names = [self.elements[k].name for k in wanted]
        results += [found.get(name) or zeros_like_value(joint.value(name)) for name in wanted_names]
        if not results:
            return None
        trips, body = self._second_body(results, [*d_states.values(), *sums.values()], d_elements)
        start = [d_final[k] or zeros_like_value(self.initial[k] if self.fixed[k] else g.output(k)) for k in carried]
        start += [zeros_like_value(self.graph.value(name)) for name in captured]
        made = self.graph.add("Loop", [trips, True, *start], {"body": body.proto}, outputs=len(results))
        inputs: list[Value | None] = [None] * len(g.inputs)
        for k, d in zip(carried, made, strict=False):
            inputs[self.first + k] = _like(d, self.initial[k])
        for k, d in zip(wanted, made[len(start) :], strict=True):
            inputs[self.first + self.count + k] = self._in_order(d, k)
        of_captured = zip(captured, made[len(carried) : len(start)], strict=True)
        return Cotangents(inputs, {name: _like(d, self.graph.value(name)) for name, d in of_captured})

    def _no_cotangent(self, k: int, d: Value) -> Value:
        """Zeros like a state before the iteration; ``d`` is the cotangent of the one after it."""
        return zeros_like_value(d if self.fixed[k] else self.joint.value(self.state_in[k]))

    def _second_body(
        self, results: list[Value], states: Sequence[Value], d_elements: Sequence[tuple[Elements, Value, Value]]
    ) -> tuple[Value, Subgraph]:
        """The number of iterations, and the body that goes back through them."""
        split = self.work.split(results, functools.partial(is_random, self.joint))
        read = {*split.reads(), *map(str, results)}
        kept = {name: self._keep(name) for name in [*self.state_in, *split.kept] if name in read}
        trips = self._trips(kept.values(), d_elements)
        body = Subgraph(self.graph)
        back, running = body.argument("iteration", _NUMBER), body.argument("running", _FLAG)
        forth = body.op.Sub(trips, back + 1)
        names: dict[str, str] = {}
        for state in states:
            names[state] = body.argument("d", self.joint.type_proto(state))
        taken: list[tuple[Elements, Value, str]] = list(d_elements)
        taken += [(e, array, e.name) for e, array in zip(self.elements, self.sequences, strict=True) if e.name in read]
        for element, array, name in taken:
            names[name] = body.op.Gather(array, back if element.backwards else forth, axis=element.axis)
        for name, value in kept.items():
            names[name] = value.at(body, forth)
        # The body runs only where its condition holds.
        given = (forth, body.constant(np.array(True)))
        for declared, number in zip(self.body.input[: self.first], given, strict=False):
            shape = shape_of_given(declared)
            names[declared.name] = body.op.Reshape(number, shape) if shape else number
        self.work.fill(body, split, names)
        body.returns([running, *(names.get(value, value) for value in results)])
        return trips, body

    def _in_order(self, d: Value, k: int) -> Value:
        """What was collected from the last iteration to the first, as the elements lie in the k-th sequence."""
        element, sequence = self.elements[k], self.sequences[k]
        if not element.backwards:
            d = self.graph.op.Slice(d, [-1], [-_END], [0], [-1])
        if element.axis != 0:
            op = self.graph.op
            before, size, after = around(sequence, element.axis)
            parts = op.Reshape(d, op.Concat(size, before, after, axis=0), allowzero=1)
            d = reshape_like(op.Transpose(parts, perm=[1, 0, 2]), sequence)
        return with_shape_of(d, sequence)

    def _trips(self, kept: Iterable[Kept], d_elements: Sequence[tuple[Elements, Value, Value]]) -> Value:
        """The number of iterations that there were."""
        op = self.graph.op
        trips: Value
        for element, sequence in zip(self.elements, self.sequences, strict=True):
            trips = op.Gather(shape_of(sequence), element.axis)
            return trips
        for value in kept:
            return value.trips()
        for element, d, _ in d_elements:
            trips = op.Gather(shape_of(d), element.axis)
            return trips
        return self._keep(self.given[0]).trips()

    # -- what the forward node keeps

    def _keep(self, name: str) -> Kept:
        """Make the node put out a value of its body in every iteration.

        Values of one shape are collected along a new first axis; others are carried in a sequence.
        """
        proto, known = self.joint.type_proto(name), self.joint.tensor_type(name)
        dtype = innermost_dtype(proto)
        if dtype is None:
            raise UnsupportedOperatorError(
                f"{self.node.op_type} {self.node.name or self.node.output[0]!r}: the gradient needs {name!r} of every "
                "iteration, which is of unknown type.",
                "Say of what type it is in the value_info or the inputs of the body.",
            )
        place = (self.graph, self.node, self.body, name)
        if is_sequence(proto):
            return keep_sequences(*place, dtype)
        if self.is_loop and (known is None or known.shape is None or None in known.shape):
            return keep_in_sequence(*place, dtype)
        return keep_collected(*place, known or TensorType(dtype, None))


def _like(d: Value, x: Value) -> Value:
    known = x.graph.type_proto(x)
    if known is not None:
        x.graph.set_type(d, known)
    return d
