"""What the gradients of LSTM, GRU and RNN share.

Values over time are [time, direction, batch, features], with each direction in the order in which it runs, so that one
step takes both directions together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from onnx import TensorProto

from ..graph.arithmetic import mask, ones_row, shape_of, with_shape_of
from ..graph.scatter import zeros
from ..graph.subgraph import Subgraph, scan
from ..graph.types import TensorType
from ..graph.value import Value
from .gates import Activation, Gate, activation, clipped, with_parameters
from .rule import RuleContext

_END = 2**62

Step: TypeAlias = "Callable[[Sequence[Value], Sequence[Value]], tuple[list[Value], Value]]"
"""From the states and the prepared values of one step to the states of the next and what to collect."""


class RecurrentLayer:
    """A recurrent node, its inputs brought into one layout, and its steps backwards."""

    def __init__(self, g: RuleContext, gates: int, defaults: Sequence[str]) -> None:
        self.g, self.op, self.gates = g, g.op, gates
        direction = g.attr("direction", "forward")
        self.reversed = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}[direction]
        self.batch_first = g.attr("layout", 0) == 1
        self.hidden = int(g.attr("hidden_size") or g.inputs[2].shape[-1])  # type: ignore[index, arg-type]
        self.lengths = g.input(4)
        self._declare_ranks()
        x = self.op.Transpose(g.x, perm=[1, 0, 2]) if self.batch_first else g.x
        self.time, self.batch = (self.op.Slice(shape_of(x), [k], [k + 1]) for k in (0, 1))
        self.x = self._input_in_order(x)
        self.activations = self._activations(defaults)

    def _declare_ranks(self) -> None:
        """Say what rank the inputs and outputs have where it is not known: onnxruntime's Scan needs to be told."""
        ranks = [(0, 3), (1, 3), (2, 3), (3, 2), (5, 3), (6, 3), (7, 2)]
        values = [(self.g.input(k), rank) for k, rank in ranks] + [(self.g.output(0), 4)]
        for value, rank in values:
            if value is not None and value.shape is None and value.dtype is not None:
                self.g.graph.set_type(value, TensorType(value.dtype, (None,) * rank))

    # -- layout

    @property
    def directions(self) -> int:
        return len(self.reversed)

    def _flip(self, v: Value) -> Value:
        """[time, batch, features] from the last step to the first; sequences shorter than others stay at the start."""
        if self.lengths is None:
            flipped: Value = self.op.Slice(v, [-1], [-_END], [0], [-1])
            return flipped
        lengths = self.lengths.cast(TensorProto.INT64)
        return with_shape_of(self.op.ReverseSequence(v, lengths, time_axis=0, batch_axis=1), v)

    def _input_in_order(self, x: Value) -> Value:
        runs = [self._flip(x) if backwards else x for backwards in self.reversed]
        stacked = [self.op.Unsqueeze(v, [1]) for v in runs]
        return stacked[0] if len(stacked) == 1 else self.op.Concat(*stacked, axis=1)

    def in_order(self, v: Value) -> Value:
        """Each direction in the order in which it runs; the same again restores the order of the input."""
        if not any(self.reversed):
            return v
        parts = [v] if self.directions == 1 else self.op.Split(v, [1, 1], axis=1, outputs=2)
        turned = [
            self.op.Unsqueeze(self._flip(self.op.Squeeze(part, [1])), [1]) if backwards else part
            for part, backwards in zip(parts, self.reversed, strict=True)
        ]
        return turned[0] if len(turned) == 1 else self.op.Concat(*turned, axis=1)

    def initial(self, k: int) -> Value:
        """The k-th input as a state [direction, batch, features]; zeros where it is left out."""
        given = self.g.input(k)
        if given is None:
            return zeros(self.op.Concat([self.directions], self.batch, [self.hidden], axis=0), self.g.x)
        return self.op.Transpose(given, perm=[1, 0, 2]) if self.batch_first else given

    def final(self, k: int) -> Value:
        """The cotangent of the k-th output, a final state."""
        d = self.g.grad(k)
        if d is None:
            return zeros(self.op.Concat([self.directions], self.batch, [self.hidden], axis=0), self.g.x)
        if d.shape is None and d.dtype is not None:
            self.g.graph.set_type(d, TensorType(d.dtype, (None,) * 3))
        return self.op.Transpose(d, perm=[1, 0, 2]) if self.batch_first else d

    def to_initial(self, d: Value, k: int) -> Value | None:
        """The cotangent of an initial state in the layout of the k-th input."""
        given = self.g.input(k)
        if given is None:
            return None
        return with_shape_of(self.op.Transpose(d, perm=[1, 0, 2]) if self.batch_first else d, given)

    def _over_time(self, y: Value) -> Value:
        return self.in_order(self.op.Transpose(y, perm=[1, 2, 0, 3]) if self.batch_first else y)

    def hidden_states(self) -> Value:
        """The states that the node put out, added to it where only the last is used."""
        return self._over_time(self.g.output(0))

    def previous(self, states: Value, initial: Value) -> Value:
        """The state before each step."""
        every = self.op.Concat(self.op.Unsqueeze(initial, [0]), states, axis=0)
        before: Value = self.op.Slice(every, [0], [-1], [0])
        return with_shape_of(before, states)

    def split(self, v: Value, count: int | None = None) -> list[Value]:
        """The gates, or ``count`` parts of their size, which lie one behind the other."""
        count = count or self.gates
        parts: list[Value] = self.op.Split(v, [self.hidden] * count, axis=-1, outputs=count)
        return parts

    # -- products over all steps at once

    def _rows(self, v: Value) -> Value:
        """[time, direction, batch, features] as [direction, time · batch, features]; one direction as a matrix."""
        op, features, rows = self.op, self.op.Slice(shape_of(v), [3], [4]), self.op.Mul(self.time, self.batch)
        if self.directions == 1:
            return op.Reshape(v, op.Concat(rows, features, axis=0), allowzero=1)
        turned = op.Transpose(v, perm=[1, 0, 2, 3])
        return op.Reshape(turned, op.Concat([self.directions], rows, features, axis=0), allowzero=1)

    def _steps(self, rows: Value) -> Value:
        op, features = self.op, self.op.Slice(shape_of(rows), [-1], [_END])
        if self.directions == 1:
            return op.Reshape(rows, op.Concat(self.time, [1], self.batch, features, axis=0), allowzero=1)
        parted = op.Reshape(rows, op.Concat([self.directions], self.time, self.batch, features, axis=0), allowzero=1)
        return op.Transpose(parted, perm=[1, 0, 2, 3])

    def product(self, v: Value, weight: Value) -> Value:
        """``v weight'`` at every step."""
        if self.directions == 1:
            return self._steps(self.op.Gemm(self._rows(v), self.op.Squeeze(weight, [0]), transB=1))
        return self._steps(self._rows(v) @ self.op.Transpose(weight, perm=[0, 2, 1]))

    def biases(self) -> tuple[Value | None, Value | None]:
        """What is added to the product with the input and to that with the state, [direction, 1, features]."""
        bias = self.g.input(3)
        if bias is None:
            return None, None
        size = self.gates * self.hidden
        of_input, of_state = self.op.Split(self.op.Unsqueeze(bias, [1]), [size, size], axis=2, outputs=2)
        return of_input, of_state

    def pre_activations(self, h: Value) -> Value:
        """``x W' + h R' + b`` at every step."""
        total = self.product(self.x, self.g.inputs[1]) + self.product(h, self.g.inputs[2])
        of_input, of_state = self.biases()
        return total if of_input is None or of_state is None else total + (of_input + of_state)

    def weight_gradient(self, d: Value, v: Value) -> Value:
        """``Σ d' v`` over time and batch, for each direction."""
        op, rows = self.op, self._rows(d)
        if self.directions == 1:
            return op.Unsqueeze(op.Gemm(rows, self._rows(v), transA=1), [0])
        return op.Transpose(rows, perm=[0, 2, 1]) @ self._rows(v)

    def input_gradient(self, d: Value) -> Value:
        """The cotangent of X, from that of the products with it."""
        op, rows, weight = self.op, self._rows(d), self.g.inputs[1]
        product = op.Gemm(rows, op.Squeeze(weight, [0])) if self.directions == 1 else rows @ weight
        dx = self.in_order(self._steps(product))
        dx = op.Squeeze(dx, [1]) if self.directions == 1 else dx.sum(1)
        return with_shape_of(op.Transpose(dx, perm=[1, 0, 2]) if self.batch_first else dx, self.g.x)

    def gradients(
        self, d_input: Value, d_state: Value, recurrence: Callable[[], Value]
    ) -> tuple[Value | None, Value | None, Value | None, Value | None]:
        """The cotangents of X, W, R and B, from those of the products with the input and with the state."""
        g = self.g
        dx = self.input_gradient(d_input) if g.wants(0) else None
        dw = with_shape_of(self.weight_gradient(d_input, self.x), g.inputs[1]) if g.wants(1) else None
        dr = with_shape_of(recurrence(), g.inputs[2]) if g.wants(2) else None
        db = None
        if g.wants(3):
            of_input = self._sum_of_rows(d_input)
            of_state = of_input if d_state is d_input else self._sum_of_rows(d_state)
            db = with_shape_of(self.op.Concat(of_input, of_state, axis=-1), g.inputs[3])
        return dx, dw, dr, db

    def _sum_of_rows(self, d: Value) -> Value:
        op, rows = self.op, self._rows(d)
        total: Value = op.MatMul(ones_row(op.Gather(shape_of(rows), -2), rows), rows)
        return op.Unsqueeze(total, [0]) if self.directions == 1 else total

    # -- activations

    def _activations(self, defaults: Sequence[str]) -> list[Activation]:
        """One function for each kind of gate, which treats the directions as the node does."""
        g, count = self.g, len(defaults)
        names = [n.decode() for n in g.attr("activations", [])] or list(defaults) * self.directions
        found = with_parameters(names, g.attr("activation_alpha", []), g.attr("activation_beta", []))
        # The clip is for gates; the third function, of LSTM, gets the cell, which onnxruntime leaves as it is.
        limits = [g.attr("clip"), g.attr("clip"), None]
        return [self._for_directions(found[k::count], limits[k]) for k in range(count)]

    def _for_directions(
        self, chosen: Sequence[tuple[str, float | None, float | None]], limit: float | None
    ) -> Activation:
        functions = [activation(*one) for one in chosen]
        if limit:
            functions = [clipped(function, limit) for function in functions]
        if len(set(chosen)) == 1:
            return functions[0]

        def apply(x: Value) -> Gate:
            axis, op = -3, x.graph.op
            parts = op.Split(x, [1, 1], axis=axis, outputs=2)
            gates = [function(part) for function, part in zip(functions, parts, strict=True)]
            values, slopes = zip(*gates, strict=True)
            return Gate(op.Concat(*values, axis=axis), op.Concat(*slopes, axis=axis))

        return apply

    # -- step by step

    def forward_steps(
        self, step: Callable[[Value, Sequence[Value]], Value], initial: Value, prepared: Sequence[Value]
    ) -> Value:
        """A state after every step."""
        body = Subgraph(self.g.graph)
        state = body.argument("state", initial.type)
        at = [_at_step(body, v) for v in prepared]
        after = step(state, at)
        sequences = list(prepared)
        if self.lengths is not None:
            running = self._running()
            after = _keep_finished(_at_step(body, running), after, state)
            sequences.append(running)
        body.returns([after, after])
        _, collected = scan(self.g.graph, body, [initial], sequences)
        return collected

    def backward_steps(
        self, step: Step, final: Sequence[Value], prepared: Sequence[Value]
    ) -> tuple[Value, list[Value]]:
        """Run ``step`` from the last step to the first, on the cotangents of the states.

        The first state is the hidden one, to which the cotangent of the output of the step is added.  Returns what the
        steps collected, and the cotangents of the initial states.
        """
        body = Subgraph(self.g.graph)
        states = [body.argument("state", v.type) for v in final]
        at = [_at_step(body, v) for v in prepared]
        sequences = list(prepared)
        dy, reached = self.g.grad(0), list(states)
        if dy is not None:
            sequences.append(self._over_time(with_shape_of(dy, self.g.output(0))))
            reached[0] = states[0] + _at_step(body, sequences[-1])
        before, collected = step(reached, at)
        if self.lengths is not None:
            sequences.append(self._running())
            running = _at_step(body, sequences[-1])
            before = [_keep_finished(running, b, s) for b, s in zip(before, states, strict=True)]
            collected = collected * running
        body.returns([*before, collected])
        *initial, total = scan(self.g.graph, body, final, sequences, reverse=True)
        return total, initial

    def _running(self) -> Value:
        """1 for the steps that a sequence has, 0 behind its end: [time, 1, batch, 1]."""
        op = self.op
        assert self.lengths is not None
        number = op.Reshape(op.Range(0, op.Squeeze(self.time, [0]), 1), [-1, 1, 1, 1])
        length = op.Reshape(self.lengths.cast(TensorProto.INT64), [1, 1, -1, 1])
        return mask(op.Less(number, length), self.g.x)


def _at_step(body: Subgraph, v: Value) -> Value:
    known = v.type
    return body.argument("step", None if known is None else TensorType(known.dtype, known.shape and known.shape[1:]))


def _keep_finished(running: Value, new: Value, old: Value) -> Value:
    kept: Value = new * running + old * (1.0 - running)
    return kept
