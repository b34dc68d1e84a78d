"""What the gradients of LSTM, GRU and RNN share.

Values over time are [time, direction, features, batch], with each direction in the order in which it runs, so that one
step takes both directions together.  The batch comes last because of the product of every step: onnxruntime packs the
second operand of a product before it multiplies, which costs little for a state and as much as the product itself for
the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from onnx import TensorProto, helper

from ..graph.arithmetic import mask, shape_of, with_shape_of
from ..graph.scatter import zeros
from ..graph.subgraph import Subgraph, scan
from ..graph.types import TensorType
from ..graph.value import Value
from .gates import Activation, activation, clipped, with_parameters
from .rule import RuleContext

_END = 2**62

Step: TypeAlias = "Callable[[Sequence[Value], Sequence[Value]], tuple[Sequence[Value], Sequence[Value]]]"
"""From the states and the prepared values of one step to the states of the next and what to collect."""


class RecurrentLayer:
    """A recurrent node, its inputs brought into one layout, and its steps forwards and backwards."""

    def __init__(self, g: RuleContext, gates: int, defaults: Sequence[str]) -> None:
        self.g, self.op, self.gates = g, g.op, gates
        self._built = len(g.graph.proto.node)
        direction = g.attr("direction", "forward")
        self.reversed = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}[direction]
        self.batch_first = g.attr("layout", 0) == 1
        self.hidden = int(g.attr("hidden_size") or g.inputs[2].shape[-1])  # type: ignore[index, arg-type]
        self.lengths = g.input(4)
        self._declare_ranks()
        x = self.op.Transpose(g.x, perm=[1, 0, 2]) if self.batch_first else g.x
        self.time, self.batch, features = (self.op.Slice(shape_of(x), [k], [k + 1]) for k in range(3))
        # A reshape apart, so that onnxruntime does not make one slow transposition of this one and one before.
        rows = self.op.Reshape(x, self.op.Concat(self.op.Mul(self.time, self.batch), features, axis=0), allowzero=1)
        x = self.op.Reshape(rows, self.op.Concat(self.time, self.batch, features, axis=0), allowzero=1)
        self.x = _batch_exchanged(self._input_in_order(x))
        if g.input(3) is not None:
            self.x = self.op.Pad(self.x, [0, 0, 0, 0, 0, 0, 1, 0], 1.0)
        self.activations = self._activations(defaults)

    def _declare_ranks(self) -> None:
        """Say what rank the inputs and outputs have where it is not known: onnxruntime's Scan needs to be told."""
        ranks = [(0, 3), (1, 3), (2, 3), (3, 2), (5, 3), (6, 3), (7, 2)]
        values = [(self.g.input(k), rank) for k, rank in ranks]
        values += [(value, 4 - (k > 0)) for k, value in enumerate(self.g.outputs) if value]
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

    def _in_order(self, v: Value) -> Value:
        """[time, direction, batch, features] with each direction in the order in which it runs, and back again."""
        if not any(self.reversed):
            return v
        parts = [v] if self.directions == 1 else self.op.Split(v, [1, 1], axis=1, outputs=2)
        turned = [
            self.op.Unsqueeze(self._flip(self.op.Squeeze(part, [1])), [1]) if backwards else part
            for part, backwards in zip(parts, self.reversed, strict=True)
        ]
        return turned[0] if len(turned) == 1 else self.op.Concat(*turned, axis=1)

    def _to_state(self, given: Value | None) -> Value:
        """An initial state or the cotangent of a final one as [direction, features, batch]; zeros if absent."""
        if given is None:
            nothing: Value = zeros(self.op.Concat([self.directions, self.hidden], self.batch, axis=0), self.g.x)
            return nothing
        turned: Value = self.op.Transpose(given, perm=[1, 2, 0] if self.batch_first else [0, 2, 1])
        return turned

    def _from_state(self, state: Value) -> Value:
        turned: Value = self.op.Transpose(state, perm=[2, 0, 1] if self.batch_first else [0, 2, 1])
        return turned

    def initial(self, k: int) -> Value:
        """The k-th input as a state; zeros where it is left out."""
        return self._to_state(self.g.input(k))

    def final(self, k: int) -> Value:
        """The cotangent of the k-th output, a final state; zeros where nothing depends on it."""
        return self._to_state(self.g.grad(k))

    def to_initial(self, d: Value, k: int) -> Value | None:
        """The cotangent of an initial state in the layout of the k-th input."""
        given = self.g.input(k)
        return None if given is None else with_shape_of(self._from_state(d), given)

    def _from_sequence(self, y: Value) -> Value:
        """The first output, or its cotangent, over time."""
        return _batch_exchanged(self._in_order(self.op.Transpose(y, perm=[1, 2, 0, 3]) if self.batch_first else y))

    def _to_sequence(self, h: Value) -> Value:
        y = self._in_order(_batch_exchanged(h))
        return self.op.Transpose(y, perm=[2, 0, 1, 3]) if self.batch_first else y

    def split(self, v: Value, count: int | None = None) -> list[Value]:
        """The gates, or ``count`` parts of their size, which lie one behind the other."""
        return self.parts(v, [1] * (count or self.gates))

    def parts(self, v: Value, gates: Sequence[int]) -> list[Value]:
        """Parts of so many gates each."""
        parts: list[Value] = v.graph.op.Split(v, [self.hidden * n for n in gates], axis=-2, outputs=len(gates))
        return parts

    # -- products over all steps at once

    def biases(self) -> tuple[Value | None, Value | None]:
        """What is added to the product with the input and to that with the state, [direction, features, 1]."""
        bias = self.g.input(3)
        if bias is None:
            return None, None
        size = self.gates * self.hidden
        of_input, of_state = self.op.Split(self.op.Unsqueeze(bias, [2]), [size, size], axis=1, outputs=2)
        return of_input, of_state

    def input_weights(self, bias: Value | None) -> Value:
        """W, and behind it the bias, which is the weight of the ones behind the input."""
        weights = self.g.inputs[1]
        return weights if bias is None else self.op.Concat(weights, bias, axis=2)

    def joined_weights(self) -> Value:
        """The weights of the input, the bias and R side by side, for the product with [x, 1, h]."""
        of_input, of_state = self.biases()
        bias = [] if of_input is None or of_state is None else [of_input + of_state]
        joined: Value = self.op.Concat(self.g.inputs[1], *bias, self.g.inputs[2], axis=2)
        return joined

    def _columns(self, v: Value) -> Value:
        """[direction, features, time · batch]."""
        op, features = self.op, self.op.Slice(shape_of(v), [2], [3])
        shape = op.Concat([self.directions], features, op.Mul(self.time, self.batch), axis=0)
        columns: Value = op.Reshape(op.Transpose(v, perm=[1, 2, 0, 3]), shape, allowzero=1)
        return columns

    def weight_gradient(self, d: Value, v: Value) -> Value:
        """``Σ d v'`` over time and batch, for each direction."""
        return self._columns(d) @ transposed(self._columns(v))

    def _input_gradient(self, d: Value) -> Value:
        """The cotangent of X, from that of the products with it."""
        op, weights = self.op, self.g.inputs[1]
        product = transposed(self._columns(d)) @ weights
        features = op.Slice(shape_of(weights), [2], [3])
        shape = op.Concat([self.directions], self.time, self.batch, features, axis=0)
        dx = self._in_order(op.Transpose(op.Reshape(product, shape, allowzero=1), perm=[1, 0, 2, 3]))
        dx = op.Squeeze(dx, [1]) if self.directions == 1 else dx.sum(1)
        return with_shape_of(op.Transpose(dx, perm=[1, 0, 2]) if self.batch_first else dx, self.g.x)

    def _of_weights(self, d: Value, behind: Sequence[int]) -> list[Value]:
        """The gradient of W parted from those of what stands behind it, of so many columns each."""
        features = self.op.Slice(shape_of(self.g.inputs[1]), [2], [3])
        parts: list[Value] = self.op.Split(d, self.op.Concat(features, behind, axis=0), axis=2, outputs=1 + len(behind))
        return parts

    def gradients_of_joined(self, da: Value, v: Value) -> tuple[Value | None, ...]:
        """The cotangents of X, W, R and B, from that of the product with ``v`` = [x, 1, h]."""
        g = self.g
        dx = self._input_gradient(da) if g.wants(0) else None
        if not any(map(g.wants, (1, 2, 3))):
            return dx, None, None, None
        of_bias = [1] * (g.input(3) is not None)
        dw, *db, dr = self._of_weights(self.weight_gradient(da, v), [*of_bias, self.hidden])
        return dx, dw, dr, self._both_biases(db[0], db[0]) if db else None

    def gradients(self, d_input: Value, d_state: Value, dr: Callable[[], Value]) -> tuple[Value | None, ...]:
        """The cotangents of X, W, R and B, from those of the products with the input and with the state."""
        g = self.g
        dx = self._input_gradient(d_input) if g.wants(0) else None
        dw = db = None
        if g.wants(1) or g.wants(3):
            dw = self.weight_gradient(d_input, self.x)
            if g.input(3) is not None:
                dw, of_input = self._of_weights(dw, [1])
                of_state = of_input if d_state is d_input else self.op.ReduceSum(self._columns(d_state), [2])
                db = self._both_biases(of_input, of_state)
        return dx, dw, dr() if g.wants(2) else None, db

    def _both_biases(self, of_input: Value, of_state: Value) -> Value:
        both: Value = self.op.Squeeze(self.op.Concat(of_input, of_state, axis=1), [2])
        return both

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

        def each(what: Callable[[Activation, Value], Value]) -> Callable[[Value], Value]:
            def apply(x: Value) -> Value:
                parts = x.graph.op.Split(x, [1, 1], axis=-3, outputs=2)
                made: Value = x.graph.op.Concat(*map(what, functions, parts), axis=-3)
                return made

            return apply

        # The functions may differ in what tells their slopes, so the input is kept.
        return Activation(each(lambda f, x: f.function(x)), each(lambda f, x: f.slope(f.kept(x, f.function(x)))))

    # -- step by step

    def run(self, step: Step, initial: Sequence[Value], prepared: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        """Run ``step`` from the first step to the last; returns the final states and what the steps collected."""
        body = Subgraph(self.g.graph)
        states = [body.argument("state", v.type) for v in initial]
        at = [_at_step(body, v) for v in prepared]
        after, collected = step(states, at)
        sequences = list(prepared)
        if self.lengths is not None:
            sequences.append(self._running())
            after = _kept_when_finished(_at_step(body, sequences[-1]), after, states)
        body.returns([*after, *collected])
        made = scan(self.g.graph, body, initial, sequences)
        return made[: len(initial)], made[len(initial) :]

    def after(self, before: Value, final: Value) -> Value:
        """A state after every step, from those before the steps and the last."""
        every = self.op.Concat(before, self.op.Unsqueeze(final, [0]), axis=0)
        after: Value = self.op.Slice(every, [1], [_END], [0])
        return after

    def stand_in(self, before: Value, final: Sequence[Value]) -> None:
        """Put what was built so far in the place of the node, whose kernel puts out too little for the gradient.

        ``before`` ends in the hidden state before every step; ``final`` are the states after the last.
        """
        op, graph, node = self.op, self.g.graph, self.g.node
        h = op.Slice(before, [-self.hidden], [_END], [2])
        h = self.after(h, final[0])
        y = self._to_sequence(h if self.lengths is None else h * self._running())
        for name, result in zip(node.output, [y, *map(self._from_state, final)], strict=False):
            if name:
                graph.proto.node.append(helper.make_node("Identity", [result], [name], name=graph.unique("Identity")))
        graph.replace(node, self._built)

    def run_back(
        self, step: Step, final: Sequence[Value], prepared: Sequence[Value]
    ) -> tuple[list[Value], list[Value]]:
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
            sequences.append(self._from_sequence(dy))
            reached[0] = states[0] + _at_step(body, sequences[-1])
        before, collected = step(reached, at)
        if self.lengths is not None:
            sequences.append(self._running())
            running = _at_step(body, sequences[-1])
            before = _kept_when_finished(running, before, states)
            collected = [v * running for v in collected]
        body.returns([*before, *collected])
        made = scan(self.g.graph, body, final, sequences, reverse=True)
        return made[len(final) :], made[: len(final)]

    def _running(self) -> Value:
        """1 for the steps that a sequence has, 0 behind its end: [time, 1, 1, batch]."""
        op = self.op
        assert self.lengths is not None
        number = op.Reshape(op.Range(0, op.Squeeze(self.time, [0]), 1), [-1, 1, 1, 1])
        length = op.Reshape(self.lengths.cast(TensorProto.INT64), [1, 1, 1, -1])
        return mask(op.Less(number, length), self.g.x)


def transposed(matrices: Value) -> Value:
    """The matrix of each direction transposed."""
    turned: Value = matrices.graph.op.Transpose(matrices, perm=[0, 2, 1])
    return turned


def _batch_exchanged(v: Value) -> Value:
    """[time, direction, batch, features] from [time, direction, features, batch], and back again."""
    turned: Value = v.graph.op.Transpose(v, perm=[0, 1, 3, 2])
    return turned


def _at_step(body: Subgraph, v: Value) -> Value:
    known = v.type
    return body.argument("step", None if known is None else TensorType(known.dtype, known.shape and known.shape[1:]))


def _kept_when_finished(running: Value, new: Sequence[Value], old: Sequence[Value]) -> list[Value]:
    return [n * running + o * (1.0 - running) for n, o in zip(new, old, strict=True)]
