"""Gradients of LSTM, GRU and RNN.

A Scan takes the place of the node and puts out what each step back multiplies by: there it is made of values that are
still in the processor's cache, and need not be kept.  The steps back are a second Scan.  The gradients of the weights
come after, as one matrix product over all steps.

In LSTM and RNN, which read input, bias and state in sums alone, each step multiplies [W, b, R] by [x, 1, h].
"""

from __future__ import annotations

from collections.abc import Sequence

from ...graph.arithmetic import zeros_like
from ...graph.value import Value
from ..recurrence import RecurrentLayer, transposed
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
    op, coupled, weights = g.op, bool(g.attr("input_forget")), g.input(7)
    p_i, p_o, p_f = (None,) * 3 if weights is None else layer.split(op.Unsqueeze(weights, [2]), 3)
    joined = layer.joined_weights()

    def step(states: Sequence[Value], at: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        (h, c), (x,) = states, at
        v = h.graph.op.Concat(x, h, axis=-2)
        a_i, a_o, a_f, a_n = layer.split(h.graph.op.MatMul(joined, v))
        a_i, a_f = _peep(a_i, p_i, c), _peep(a_f, p_f, c)
        i, n = sigmoid.function(a_i), tanh.function(a_n)
        f = 1.0 - i if coupled else sigmoid.function(a_f)
        after = f * c + i * n
        a_o = _peep(a_o, p_o, after)
        o, s = sigmoid.function(a_o), squash.function(after)
        to_i = sigmoid.back(n - c if coupled else n, a_i, i)
        to_f = zeros_like(to_i) if coupled else sigmoid.back(c, a_f, f)
        to_o, to_n = sigmoid.back(s, a_o, o), tanh.back(i, a_n, n)
        to_c, carried = squash.back(o, after, s), f
        if p_i is not None:
            to_c = to_c + to_o * p_o
            carried = carried + to_i * p_i + to_f * p_f
        to_gates = h.graph.op.Concat(to_i, to_o, to_f, to_n, axis=-2)
        return [o * s, after], [v, to_c, to_gates, carried, *([c] if g.wants(7) else [])]

    final, (v, *factors) = layer.run(step, [layer.initial(5), layer.initial(6)], [layer.x])
    layer.stand_in(v, final)
    back = transposed(g.inputs[2])

    def step_back(states: Sequence[Value], at: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        (dh, dc), (to_c, to_gates, carried) = states, at
        dc = dc + dh * to_c
        da = dc.graph.op.Concat(dc, dh, dc, dc, axis=-2) * to_gates
        return [dc.graph.op.MatMul(back, da), dc * carried], [da]

    (da,), (dh, dc) = layer.run_back(step_back, [layer.final(1), layer.final(2)], factors[:3])
    dp = None
    if g.wants(7):
        d_i, d_o, d_f, _ = layer.split(da)
        c, after = factors[3], layer.after(factors[3], final[1])
        dp = op.ReduceSum(op.Concat(d_i * c, d_o * after, d_f * c, axis=-2), [0, 3], keepdims=0)
    return *layer.gradients_of_joined(da, v), None, layer.to_initial(dh, 5), layer.to_initial(dc, 6), dp


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
    op, reset_after = g.op, bool(g.attr("linear_before_reset"))
    r_zr, r_n = layer.parts(g.inputs[2], [2, 1])
    bias, b_n = _gru_biases(layer, reset_after)
    x_zr, x_n = layer.parts(layer.input_weights(bias) @ layer.x, [2, 1])

    def step(states: Sequence[Value], at: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        (h,), (x_zr, x_n) = states, at
        product = h.graph.op.MatMul
        if reset_after:
            h_zr, q = layer.parts(product(g.inputs[2], h), [2, 1])
            q = q if b_n is None else q + b_n
        else:
            h_zr = product(r_zr, h)
        a = x_zr + h_zr
        zr = sigmoid.function(a)
        z, r = layer.split(zr, 2)
        reset = r * (q if reset_after else h)
        a_n = x_n + (reset if reset_after else product(r_n, reset))
        n = tanh.function(a_n)
        join = h.graph.op.Concat
        to_n = tanh.back(1.0 - z, a_n, n)
        to_zr = sigmoid.back(join(h - n, to_n * q if reset_after else h, axis=-2), a, zr)
        factors = [join(to_zr, to_n * r, axis=-2), to_n, z] if reset_after else [to_zr, to_n, z, r, reset]
        return [n + z * (h - n)], [h, *factors]

    final, (h, *factors) = layer.run(step, [layer.initial(5)], [x_zr, x_n])
    layer.stand_in(h, final)
    back, back_n = transposed(g.inputs[2] if reset_after else r_zr), transposed(r_n)

    def step_back_reset_after(states: Sequence[Value], at: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        (dh,), (to_state, to_n, z) = states, at
        d_state = dh.graph.op.Concat(dh, dh, dh, axis=-2) * to_state
        return [dh * z + dh.graph.op.MatMul(back, d_state)], [d_state, dh * to_n]

    def step_back_reset_before(states: Sequence[Value], at: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        (dh,), (to_zr, to_n, z, r) = states, at
        d_n = dh * to_n
        reached = dh.graph.op.MatMul(back_n, d_n)
        d_zr = dh.graph.op.Concat(dh, reached, axis=-2) * to_zr
        return [dh * z + reached * r + dh.graph.op.MatMul(back, d_zr)], [d_zr, d_n]

    if reset_after:
        (d_state, d_n), (dh,) = layer.run_back(step_back_reset_after, [layer.final(1)], factors)
        d_zr, _ = layer.parts(d_state, [2, 1])
        d_input = op.Concat(d_zr, d_n, axis=-2)
        results = layer.gradients(d_input, d_state, lambda: layer.weight_gradient(d_state, h))
    else:
        *factors, reset = factors
        (d_zr, d_n), (dh,) = layer.run_back(step_back_reset_before, [layer.final(1)], factors)
        da = op.Concat(d_zr, d_n, axis=-2)

        def to_recurrence() -> Value:
            joined: Value = op.Concat(layer.weight_gradient(d_zr, h), layer.weight_gradient(d_n, reset), axis=1)
            return joined

        results = layer.gradients(da, da, to_recurrence)
    return *results, None, layer.to_initial(dh, 5)


def _gru_biases(layer: RecurrentLayer, reset_after: bool) -> tuple[Value | None, Value | None]:
    """What is added to the product with the input, and to q where the reset gate multiplies it."""
    of_input, of_state = layer.biases()
    if of_input is None or of_state is None:
        return None, None
    if not reset_after:
        return of_input + of_state, None
    of_gates, of_q = layer.parts(of_state, [2, 1])
    return of_input + layer.op.Concat(of_gates, zeros_like(of_q), axis=1), of_q


@gradient("RNN")
def rnn(g: RuleContext) -> RuleResult:
    """With h' = tanh(a), a = x W' + h R' + b: a step back from dh gives da = dh tanh'(a), and goes on with da R."""
    layer = RecurrentLayer(g, gates=1, defaults=("Tanh",))
    (function,) = layer.activations
    joined = layer.joined_weights()

    def step(states: Sequence[Value], at: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        (h,), (x,) = states, at
        v = h.graph.op.Concat(x, h, axis=-2)
        a = h.graph.op.MatMul(joined, v)
        h = function.function(a)
        return [h], [v, function.kept(a, h)]

    final, (v, kept) = layer.run(step, [layer.initial(5)], [layer.x])
    layer.stand_in(v, final)
    back = transposed(g.inputs[2])

    def step_back(states: Sequence[Value], at: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        da = states[0] * at[0]
        return [da.graph.op.MatMul(back, da)], [da]

    (da,), (dh,) = layer.run_back(step_back, [layer.final(1)], [function.slope(kept)])
    return *layer.gradients_of_joined(da, v), None, layer.to_initial(dh, 5)
