"""Gradients of LSTM, GRU and RNN.

Everything that does not depend on the step behind it is computed for all steps at once: the gates, from the inputs and
from the outputs of the forward node; what each step back multiplies by; and, afterwards, the gradients of the weights,
as one matrix product over all steps.  The steps back are one Scan.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...graph.arithmetic import zeros_like
from ...graph.value import Value
from ..recurrence import RecurrentLayer
from ..registry import RuleResult, gradient
from ..rule import RuleContext


@gradient("LSTM")
def lstm(g: RuleContext) -> RuleResult:
    """With gates i, o, f and candidate n, c' = f c + i n and h' = o tanh(c').

    A step back from (dh, dc) adds dh o tanh'(c') to dc, gives the pre-activations da_i = dc n i', da_f = dc c f',
    da_o = dh tanh(c') o', da_n = dc i n', and goes on with dh = da R and dc = dc f.  Peepholes p see c in i and f, and
    c' in o: da_o p_o is added to dc, da_i p_i + da_f p_f to what goes on.  With ``input_forget``, f = 1 - i.
    """
    layer = RecurrentLayer(g, gates=4, defaults=("Sigmoid", "Tanh", "Tanh"))
    sigmoid, tanh, squash = layer.activations
    op, coupled = g.op, bool(g.attr("input_forget"))
    c0 = layer.initial(6)
    h = layer.previous(layer.hidden_states(), layer.initial(5))
    a_i, a_o, a_f, a_n = layer.split(layer.pre_activations(h))
    weights = g.input(7)
    p_i = p_o = p_f = None
    if weights is not None:
        p_i, p_o, p_f = layer.split(op.Unsqueeze(weights, [1]), 3)
    n = tanh(a_n)

    def next_cell(c: Value, at: Sequence[Value]) -> Value:
        a_i, a_f, n = at
        i = sigmoid(_peep(a_i, p_i, c)).value
        f = 1.0 - i if coupled else sigmoid(_peep(a_f, p_f, c)).value
        return f * c + i * n

    def next_cell_prepared(c: Value, at: Sequence[Value]) -> Value:
        added, kept = at
        return kept * c + added

    if weights is None:
        i = sigmoid(a_i)
        f = None if coupled else sigmoid(a_f)
        kept = 1.0 - i.value if f is None else f.value
        c = layer.forward_steps(next_cell_prepared, c0, [i.value * n.value, kept])
        before = layer.previous(c, c0)
    else:
        c = layer.forward_steps(next_cell, c0, [a_i, a_f, n.value])
        before = layer.previous(c, c0)
        i = sigmoid(_peep(a_i, p_i, before))
        f = None if coupled else sigmoid(_peep(a_f, p_f, before))
        kept = 1.0 - i.value if f is None else f.value
    o, squashed = sigmoid(_peep(a_o, p_o, c)), squash(c)

    to_i = (n.value if f is not None else n.value - before) * i.slope
    to_f = zeros_like(to_i) if f is None else before * f.slope
    to_o, to_n, to_c = squashed.value * o.slope, i.value * n.slope, o.value * squashed.slope
    if p_i is not None:
        to_c = to_c + to_o * p_o
        kept = kept + to_i * p_i + to_f * p_f
    to_gates = op.Concat(to_i, to_o, to_f, to_n, axis=-1)

    def step(states: Sequence[Value], at: Sequence[Value]) -> tuple[list[Value], Value]:
        (dh, dc), (to_c, to_gates, kept) = states, at
        dc = dc + dh * to_c
        da = dc.graph.op.Concat(dc, dh, dc, dc, axis=-1) * to_gates
        return [da @ g.inputs[2], dc * kept], da

    da, (dh, dc) = layer.backward_steps(step, [layer.final(1), layer.final(2)], [to_c, to_gates, kept])
    dp = None
    if g.wants(7):
        d_i, d_o, d_f, _ = layer.split(da)
        dp = op.ReduceSum(op.Concat(d_i * before, d_o * c, d_f * before, axis=-1), [0, 2], keepdims=0)
    dx, dw, dr, db = layer.gradients(da, da, lambda: layer.weight_gradient(da, h))
    return dx, dw, dr, db, None, layer.to_initial(dh, 5), layer.to_initial(dc, 6), dp


def _peep(a: Value, p: Value | None, c: Value) -> Value:
    return a if p is None else a + c * p


@gradient("GRU")
def gru(g: RuleContext) -> RuleResult:
    """With gates z, r and candidate n, h' = (1 - z) n + z h.

    A step back from dh gives da_z = dh (h - n) z' and da_n = dh (1 - z) n'.  Where r multiplies q = h R_n + b
    (``linear_before_reset``), da_r = da_n q r' and da_n r reaches q.  Where it multiplies h, s = da_n R_n reaches r h,
    and da_r = s h r'.
    """
    layer = RecurrentLayer(g, gates=3, defaults=("Sigmoid", "Tanh"))
    sigmoid, tanh = layer.activations
    op, size, recurrence = g.op, layer.hidden, g.inputs[2]
    h = layer.previous(layer.hidden_states(), layer.initial(5))
    w_bias, r_bias = layer.biases()
    x_z, x_r, x_n = layer.split(_plus(layer.product(layer.x, g.inputs[1]), w_bias))
    r_zr, r_n = op.Split(recurrence, [2 * size, size], axis=1, outputs=2)
    b_zr, b_n = (None, None) if r_bias is None else op.Split(r_bias, [2 * size, size], axis=2, outputs=2)
    h_z, h_r = layer.split(_plus(layer.product(h, r_zr), b_zr), 2)
    z, r = sigmoid(x_z + h_z), sigmoid(x_r + h_r)
    reset_after = bool(g.attr("linear_before_reset"))
    q = _plus(layer.product(h if reset_after else r.value * h, r_n), b_n)
    n = tanh(x_n + (r.value * q if reset_after else q))
    to_z, to_n = (h - n.value) * z.slope, (1.0 - z.value) * n.slope

    def step_reset_after(states: Sequence[Value], at: Sequence[Value]) -> tuple[list[Value], Value]:
        (dh,), (to_state, z) = states, at
        d_state = dh.graph.op.Concat(dh, dh, dh, axis=-1) * to_state
        return [dh * z + d_state @ recurrence], dh

    def step_reset_before(states: Sequence[Value], at: Sequence[Value]) -> tuple[list[Value], Value]:
        (dh,), (to_z, to_r, to_n, r, z) = states, at
        d_n = dh * to_n
        reached = d_n @ r_n
        d_zr = dh.graph.op.Concat(dh * to_z, reached * to_r, axis=-1)
        return [dh * z + reached * r + d_zr @ r_zr], dh.graph.op.Concat(d_zr, d_n, axis=-1)

    if reset_after:
        to_r = to_n * q * r.slope
        to_state = op.Concat(to_z, to_r, to_n * r.value, axis=-1)
        reached, (dh,) = layer.backward_steps(step_reset_after, [layer.final(1)], [to_state, z.value])
        d_state = op.Concat(reached, reached, reached, axis=-1) * to_state
        d_input = op.Concat(reached * to_z, reached * to_r, reached * to_n, axis=-1)
        results = layer.gradients(d_input, d_state, lambda: layer.weight_gradient(d_state, h))
    else:
        prepared = [to_z, h * r.slope, to_n, r.value, z.value]
        da, (dh,) = layer.backward_steps(step_reset_before, [layer.final(1)], prepared)

        def to_recurrence() -> Value:
            d_zr, d_n = op.Split(da, [2 * size, size], axis=-1, outputs=2)
            both = layer.weight_gradient(d_zr, h), layer.weight_gradient(d_n, r.value * h)
            joined: Value = op.Concat(*both, axis=1)
            return joined

        results = layer.gradients(da, da, to_recurrence)
    return *results, None, layer.to_initial(dh, 5)


def _plus(v: Value, bias: Value | None) -> Value:
    return v if bias is None else v + bias


@gradient("RNN")
def rnn(g: RuleContext) -> RuleResult:
    """With h' = tanh(a), a = x W' + h R' + b: a step back from dh gives da = dh tanh'(a), and goes on with da R."""
    layer = RecurrentLayer(g, gates=1, defaults=("Tanh",))
    h = layer.previous(layer.hidden_states(), layer.initial(5))
    slope = layer.activations[0](layer.pre_activations(h)).slope

    def step(states: Sequence[Value], at: Sequence[Value]) -> tuple[list[Value], Value]:
        da = states[0] * at[0]
        return [da @ g.inputs[2]], da

    da, (dh,) = layer.backward_steps(step, [layer.final(1)], [slope])
    return *layer.gradients(da, da, lambda: layer.weight_gradient(da, h)), None, layer.to_initial(dh, 5)
