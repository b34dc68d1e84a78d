"""Loop, Scan, LSTM, GRU and RNN straight from their definitions, in NumPy, for float64.

``onnx.reference`` runs Scan in one direction only, joins what a Loop collects along the wrong axis, and knows few
of the options of the recurrent operators.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx.reference.op_run import OpRun

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Function = Callable[[np.ndarray], np.ndarray]


class Loop(OpRun):
    def need_context(self):
        return True

    def _run(self, trips, condition, *states, context=None, **_):
        names_in, names_out = self.body.input_names, self.body.output_names
        count, collected = len(states), [[] for _ in names_out[1 + len(states) :]]
        number, running = 0, condition is None or bool(condition)
        while running and (trips is None or number < trips):
            given = [np.array(number), np.array(True), *states]
            running, *results = self.body.run(None, {**(context or {}), **dict(zip(names_in, given, strict=True))})
            states = results[:count]
            for kept, result in zip(collected, results[count:], strict=True):
                kept.append(result)
            number += 1
        return (*states, *(np.stack(kept) if kept else np.zeros(0) for kept in collected))


class Scan(OpRun):
    def need_context(self):
        return True

    def _run(self, *args, context=None, num_scan_inputs=None, **attributes):
        names_in, names_out = self.body.input_names, self.body.output_names
        count = len(args) - num_scan_inputs
        states, sequences = list(args[:count]), args[count:]

        def each(what: str, length: int) -> Any:
            axes = attributes.get(f"{what}_axes") or [0] * length
            return zip(axes, attributes.get(f"{what}_directions") or [0] * length, strict=True)

        moved = [
            np.moveaxis(x, axis, 0)[:: -1 if backwards else 1]
            for x, (axis, backwards) in zip(sequences, each("scan_input", num_scan_inputs), strict=True)
        ]
        collected: list[list[np.ndarray]] = [[] for _ in names_out[count:]]
        for elements in zip(*moved, strict=True):
            feeds = {**(context or {}), **dict(zip(names_in, [*states, *elements], strict=True))}
            results = self.body.run(None, feeds)
            states = results[:count]
            for kept, result in zip(collected, results[count:], strict=True):
                kept.append(result)
        stacked = [
            np.moveaxis(np.stack(kept[:: -1 if backwards else 1]), 0, axis)
            for kept, (axis, backwards) in zip(collected, each("scan_output", len(collected)), strict=True)
        ]
        return (*states, *stacked)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


# The function of (x, alpha, beta), and how many of the two it takes.
_ACTIVATIONS: dict[str, tuple[Callable[..., np.ndarray], int]] = {
    "Relu": (lambda x, a, b: np.maximum(x, 0), 0),
    "Tanh": (lambda x, a, b: np.tanh(x), 0),
    "Sigmoid": (lambda x, a, b: _sigmoid(x), 0),
    "Softsign": (lambda x, a, b: x / (1 + np.abs(x)), 0),
    "Softplus": (lambda x, a, b: np.log1p(np.exp(x)), 0),
    "LeakyRelu": (lambda x, a, b: np.where(x < 0, a * x, x), 1),
    "ThresholdedRelu": (lambda x, a, b: np.where(x > a, x, 0), 1),
    "Elu": (lambda x, a, b: np.where(x > 0, x, a * np.expm1(np.minimum(x, 0))), 1),
    "Affine": (lambda x, a, b: a * x + b, 2),
    "ScaledTanh": (lambda x, a, b: a * np.tanh(b * x), 2),
    "HardSigmoid": (lambda x, a, b: np.clip(a * x + b, 0, 1), 2),
}


def _activations(names: Sequence[str], alphas: Sequence[float], betas: Sequence[float]) -> list[Function]:
    left, right, found = list(alphas), list(betas), []
    for name in names:
        function, takes = _ACTIVATIONS[name]
        a = left.pop(0) if takes > 0 else None
        b = right.pop(0) if takes > 1 else None
        found.append(lambda x, f=function, a=a, b=b: f(x, a, b))
    return found


class _Recurrent(OpRun):
    """One direction and one sequence of the batch at a time."""

    gates: int
    defaults: tuple[str, ...]

    def _run(self, x, w, r, b=None, lengths=None, h0=None, c0=None, p=None, **a):
        directions, size = r.shape[0], r.shape[2]
        x = x.swapaxes(0, 1) if a.get("layout") else x
        steps, batch = x.shape[:2]
        b = np.zeros((directions, 2 * self.gates * size)) if b is None else b
        p = np.zeros((directions, 3 * size)) if p is None else p
        lengths = [steps] * batch if lengths is None else lengths
        first = [np.zeros((directions, batch, size)) if s is None else s for s in (h0, c0)]
        if a.get("layout"):
            first = [s.swapaxes(0, 1) if given is not None else s for s, given in zip(first, (h0, c0), strict=True)]
        names = a.get("activations") or list(self.defaults) * directions
        functions = _activations(names, a.get("activation_alpha") or [], a.get("activation_beta") or [])
        y = np.zeros((steps, directions, batch, size))
        last = np.stack(first)
        for d in range(directions):
            weights = (w[d], r[d], *np.split(b[d], 2), p[d])
            chosen = functions[d * len(self.defaults) : (d + 1) * len(self.defaults)]
            for k, length in enumerate(lengths):
                order = range(length)[:: -1 if d == 1 or a.get("direction") == "reverse" else 1]
                h, c = first[0][d, k], first[1][d, k]
                for t in order:
                    h, c = self.step(x[t, k], h, c, weights, chosen, a)
                    y[t, d, k] = h
                last[:, d, k] = h, c
        if a.get("layout"):
            y, last = y.transpose(2, 0, 1, 3), last.swapaxes(1, 2)
        return (y, *last) if self.gates == 4 else (y, last[0])

    def step(self, x, h, c, weights, functions, a):
        raise NotImplementedError


def _limited(x: np.ndarray, a: dict[str, Any]) -> np.ndarray:
    return np.clip(x, -a["clip"], a["clip"]) if a.get("clip") else x


class RNN(_Recurrent):
    gates, defaults = 1, ("Tanh",)

    def step(self, x, h, c, weights, functions, a):
        w, r, wb, rb, _ = weights
        return functions[0](_limited(w @ x + wb + r @ h + rb, a)), c


class GRU(_Recurrent):
    gates, defaults = 3, ("Sigmoid", "Tanh")

    def step(self, x, h, c, weights, functions, a):
        w, r, wb, rb, _ = weights
        of_x, of_h, b = (np.split(v, 3) for v in (w @ x + wb, r @ h, rb))
        z, reset = (functions[0](_limited(of_x[k] + of_h[k] + b[k], a)) for k in (0, 1))
        inner = reset * (of_h[2] + b[2]) if a.get("linear_before_reset") else np.split(r, 3)[2] @ (reset * h) + b[2]
        return (1 - z) * functions[1](_limited(of_x[2] + inner, a)) + z * h, c


class LSTM(_Recurrent):
    gates, defaults = 4, ("Sigmoid", "Tanh", "Tanh")

    def step(self, x, h, c, weights, functions, a):
        w, r, wb, rb, p = weights
        of_i, of_o, of_f, of_n = np.split(w @ x + wb + r @ h + rb, 4)
        p_i, p_o, p_f = np.split(p, 3)
        i = functions[0](_limited(of_i + p_i * c, a))
        f = 1 - i if a.get("input_forget") else functions[0](_limited(of_f + p_f * c, a))
        c = f * c + i * functions[1](_limited(of_n, a))
        return functions[0](_limited(of_o + p_o * c, a)) * functions[2](c), c
