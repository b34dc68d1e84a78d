"""Optimizers that divide the gradient by the root of what its squares add up to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..block import Block
from ..graph.arithmetic import size_of
from ..graph.types import Shape
from ..graph.value import Value
from .optimizer import Optimizer
from .pieces import average, check_settings, decay_factor, decayed
from .state import AVERAGE, MOMENTUM, SQUARES, State
from .step import Step, Update


class RMSprop(Optimizer):
    """p ← p - learning rate · d, with d = g / (√v + eps) and v the average of g².

    ``centered`` takes v - a² for v, with a the average of g; ``momentum`` takes b ← momentum · b + d for d.
    Tieleman and Hinton 2012, Graves 2013.  ``weight_decay`` adds weight_decay · p to g.  The states are v, then a, then
    b, as far as they are used.  As ``torch.optim.RMSprop``.
    """

    elementwise = True

    def __init__(
        self,
        *,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        clip_grad: Block | None = None,
    ) -> None:
        super().__init__(
            clip_grad, alpha=alpha, eps=eps, weight_decay=weight_decay, momentum=momentum, centered=centered
        )
        others = {"eps": eps, "weight_decay": weight_decay, "momentum": momentum}
        check_settings("RMSprop", fractions={"alpha": alpha}, not_negative=others)
        self._alpha, self._eps, self._decay = alpha, eps, weight_decay
        self._momentum, self._centered = momentum, centered

    def states(self, shape: Shape) -> Sequence[State]:
        """The average of g², then what the options need."""
        used = {SQUARES: True, AVERAGE: self._centered, MOMENTUM: bool(self._momentum)}
        return [State(shape, content=content) for content, is_used in used.items() if is_used]

    def rule(self, step: Step) -> Update:
        """Add what the tensors share, and return the function that updates one of them."""
        rate = step.scalar(step.learning_rate)

        def update(p: Value, g: Value, v: Value, *rest: Value) -> list[Value]:
            g = decayed(g, p, self._decay)
            v = average(v, g * g, self._alpha)
            states, variance = [v], v
            if self._centered:
                mean = average(rest[0], g, self._alpha)
                # Rounding can put it just below zero.
                states, variance = [v, mean], (v - mean * mean).relu()
            d = g / (variance.sqrt() + self._eps)
            if self._momentum:
                d = rest[-1] * self._momentum + d
                states.append(d)
            return [p - d * rate, *states]

        return update


class Adagrad(Optimizer):
    """p ← p - r · g / (√s + eps), with s the sum of all g² and r = learning rate / (1 + (t - 1) · lr_decay) in step t.

    Duchi, Hazan and Singer 2011.  ``weight_decay`` adds weight_decay · p to g.  The state ``momentum0`` is s, which
    begins at ``initial_accumulator_value``.  As ``torch.optim.Adagrad``.
    """

    elementwise = True
    sparse = True

    def __init__(
        self,
        *,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        clip_grad: Block | None = None,
    ) -> None:
        super().__init__(
            clip_grad,
            lr_decay=lr_decay,
            weight_decay=weight_decay,
            initial_accumulator_value=initial_accumulator_value,
            eps=eps,
        )
        settings = {"lr_decay": lr_decay, "weight_decay": weight_decay, "eps": eps}
        check_settings("Adagrad", not_negative={**settings, "initial_accumulator_value": initial_accumulator_value})
        self._lr_decay, self._decay, self._initial, self._eps = lr_decay, weight_decay, initial_accumulator_value, eps
        # without eps, which may be too small for a float32, an element that never had a gradient becomes nan
        self.sparse = type(self).sparse and float(np.float32(eps)) > 0 and not weight_decay

    def states(self, shape: Shape) -> Sequence[State]:
        """The sum of the squares."""
        return [State(shape, self._initial, "sum of g²")]

    def rule(self, step: Step) -> Update:
        """Add what the tensors share, and return the function that updates one of them."""
        rate = step.scalar(step.learning_rate / ((step.count - 1) * self._lr_decay + 1))

        def update(p: Value, g: Value, s: Value) -> list[Value]:
            g = decayed(g, p, self._decay)
            s = s + g * g
            return [p - g / (s.sqrt() + self._eps) * rate, s]

        return update


class Adadelta(Optimizer):
    """p ← p - learning rate · d, with d = √(u + eps) / √(v + eps) · g.

    v is the average of g² and u that of d², up to the step before.  Zeiler 2012.  ``weight_decay`` adds
    weight_decay · p to g.  The states are v and u.  As ``torch.optim.Adadelta``, whose usual learning rate is 1.
    """

    elementwise = True

    def __init__(
        self, *, rho: float = 0.9, eps: float = 1e-6, weight_decay: float = 0.0, clip_grad: Block | None = None
    ) -> None:
        super().__init__(clip_grad, rho=rho, eps=eps, weight_decay=weight_decay)
        check_settings("Adadelta", fractions={"rho": rho}, not_negative={"eps": eps, "weight_decay": weight_decay})
        self._rho, self._eps, self._decay = rho, eps, weight_decay

    def states(self, shape: Shape) -> Sequence[State]:
        """The averages of g² and of d²."""
        return State(shape, content=SQUARES), State(shape, content="average of d²")

    def rule(self, step: Step) -> Update:
        """Add what the tensors share, and return the function that updates one of them."""
        rate = step.scalar(step.learning_rate)

        def update(p: Value, g: Value, v: Value, u: Value) -> list[Value]:
            g = decayed(g, p, self._decay)
            v = average(v, g * g, self._rho)
            d = (u + self._eps).sqrt() / (v + self._eps).sqrt() * g
            return [p - d * rate, v, average(u, d * d, self._rho)]

        return update


class Adafactor(Optimizer):
    """An optimizer whose states are, for a matrix, one row and one column.

    The average of g² is kept as that of its rows' means R ``[..., r, 1]`` and columns' means C ``[..., 1, c]``, and
    taken as V = R C / mean(R); for a vector it is kept whole.  With decay rate 1 - t^beta2_decay, u = g / √V,
    u ← u / max(1, rms(u) / d), and step size max(eps[1], rms(p)) · min(learning rate, 1/√t): p ← p (1 - learning rate ·
    weight_decay) - step size · u.  Shazeer and Stern 2018.  As ``torch.optim.Adafactor``, whose usual learning rate is
    0.01; an eps[0] of None is the machine epsilon.
    """

    def __init__(
        self,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        clip_grad: Block | None = None,
    ) -> None:
        super().__init__(clip_grad, beta2_decay=beta2_decay, eps=eps, d=d, weight_decay=weight_decay)
        wrong = [] if beta2_decay <= 0 else [f"beta2_decay = {beta2_decay!r} is positive"]
        wrong += [] if d > 0 else [f"d = {d!r} is not positive"]
        settings = {"eps[0]": eps[0] or 0.0, "eps[1]": eps[1], "weight_decay": weight_decay}
        check_settings("Adafactor", not_negative=settings, problems=wrong)
        self._beta2_decay, self._eps, self._d, self._decay = beta2_decay, eps, d, weight_decay

    def states(self, shape: Shape) -> Sequence[State]:
        """The rows' means and the columns' means of the average of g², or that average itself."""
        if shape is None or len(shape) < 2:
            return [State(shape, content=SQUARES)]
        rows, columns = (*shape[:-1], 1), (*shape[:-2], 1, shape[-1])
        return State(rows, content="row means of g²"), State(columns, content="column means of g²")

    def rule(self, step: Step) -> Update:
        """Add what the tensors share, and return the function that updates one of them."""
        op, t = step.count.graph.op, step.count
        share, keep = step.scalar(t**self._beta2_decay), step.scalar(1 - t**self._beta2_decay)
        rate = step.scalar(op.Min(step.learning_rate, 1 / t.sqrt()))
        shrink = decay_factor(step, self._decay)

        def blend(state: Value, sample: Value) -> Value:
            return state * keep + sample * share

        def update(p: Value, g: Value, *states: Value) -> list[Value]:
            op, square = p.graph.op, g * g
            tiny = float(np.finfo(np.float64 if step.dtype == t.dtype else np.float32).eps)
            floor = tiny if self._eps[0] is None else self._eps[0]
            if len(states) == 1:
                variance = blend(states[0], square)
                new = [variance]
            else:
                rows = blend(states[0], square.mean(-1, keepdims=True))
                columns = blend(states[1], square.mean(-2, keepdims=True))
                new, variance = [rows, columns], rows @ columns / op.Max(rows.mean(-2, keepdims=True), floor)
            u = g / op.Max(variance, floor * floor).sqrt()
            size = op.Max(_rms(p), self._eps[1]) * rate
            u = u * (size / op.Max(_rms(u) / self._d, 1.0))
            return [(p if shrink is None else p * shrink) - u, *new]

        return update


def _rms(x: Value) -> Value:
    """The root of the mean of the squares of all elements."""
    op = x.graph.op
    return op.ReduceL2(x, keepdims=0) / op.Sqrt(size_of(x).cast(x.dtype or 1))
