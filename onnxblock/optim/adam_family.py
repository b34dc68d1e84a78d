"""Relatives of Adam: averages of the gradient and of its size, put together in other ways."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..block import Block
from ..graph.types import Shape
from ..graph.value import Value
from .adam import AdamWRule
from .optimizer import Optimizer
from .pieces import average, bias_correction, check_adam, decay_factor, decayed
from .state import AVERAGE, LARGEST_SQUARES, SQUARES, State
from .step import Step, Update


class _AdamLike(Optimizer):
    def __init__(
        self,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        clip_grad: Block | None = None,
    ) -> None:
        super().__init__(clip_grad, betas=betas, eps=eps, weight_decay=weight_decay)
        check_adam(type(self).__name__, betas, eps, weight_decay)
        self._betas, self._eps, self._decay = betas, eps, weight_decay

    def states(self, shape: Shape) -> Sequence[State]:
        """The averages of the gradient and of its square."""
        return State(shape, content=AVERAGE), State(shape, content=SQUARES)


class Adam(_AdamLike):
    """p ← p - learning rate · m̂ / (√v̂ + eps), with m̂ and v̂ the corrected averages of g and g².

    Kingma and Ba 2015.  ``weight_decay`` adds weight_decay · p to g.  ``amsgrad`` takes, in each element, the largest v
    that there was (Reddi, Kale and Kumar 2018), and keeps it as a third state.  As ``torch.optim.Adam``.
    """

    elementwise = True

    def __init__(
        self,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        clip_grad: Block | None = None,
        *,
        amsgrad: bool = False,
    ) -> None:
        super().__init__(betas, eps, weight_decay, clip_grad)
        self.settings["amsgrad"] = self._amsgrad = amsgrad

    def states(self, shape: Shape) -> Sequence[State]:
        """The averages of the gradient and of its square, and the largest of the latter if that is taken."""
        kept = super().states(shape)
        return [*kept, State(shape, content=LARGEST_SQUARES)] if self._amsgrad else kept

    def rule(self, step: Step) -> Update:
        """Add what the tensors share, and return the function that updates one of them."""
        undecayed = AdamWRule(True, self._betas, self._eps, 0.0, "torch").rule(step)

        def update(p: Value, g: Value, *states: Value) -> Sequence[Value]:
            return undecayed(p, decayed(g, p, self._decay), *states)

        return update


class Adamax(_AdamLike):
    """p ← p - learning rate · m̂ / u, with u ← max(β₂ u, |g| + eps) in place of the root of an average.

    Kingma and Ba 2015, section 7.1.  ``weight_decay`` adds weight_decay · p to g.  As ``torch.optim.Adamax``.
    """

    elementwise = True

    def states(self, shape: Shape) -> Sequence[State]:
        """The average of the gradient, and u."""
        return State(shape, content=AVERAGE), State(shape, content="decaying maximum of |g|")

    def rule(self, step: Step) -> Update:
        """Add what the tensors share, and return the function that updates one of them."""
        beta1, beta2 = self._betas
        rate = step.scalar(step.learning_rate / bias_correction(step, beta1))

        def update(p: Value, g: Value, m: Value, u: Value) -> list[Value]:
            g = decayed(g, p, self._decay)
            m = average(m, g, beta1)
            u = u.graph.op.Max(u * beta2, g.abs() + self._eps)
            return [p - m / u * rate, m, u]

        return update


class NAdam(_AdamLike):
    """Adam with Nesterov's momentum: p ← p - learning rate · (a g + b m) / (√v̂ + eps).

    With μₜ = β₁ (1 - 0.96^(t · momentum_decay) / 2) and Πₜ their product up to t, a = (1 - μₜ) / (1 - Πₜ) and
    b = μₜ₊₁ / (1 - Πₜ₊₁).  Dozat 2016.  ``weight_decay`` adds weight_decay · p to g.  As ``torch.optim.NAdam``.
    """

    elementwise = True

    def __init__(
        self,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        clip_grad: Block | None = None,
        *,
        momentum_decay: float = 0.004,
    ) -> None:
        super().__init__(betas, eps, weight_decay, clip_grad)
        self.settings["momentum_decay"] = self._momentum_decay = momentum_decay

    def rule(self, step: Step) -> Update:
        """Add what the tensors share, and return the function that updates one of them."""
        beta1, beta2 = self._betas
        op, t = step.count.graph.op, step.count
        # Beyond this many factors the product is below the precision of float64.
        most = math.ceil(math.log(1e-20) / math.log(beta1)) if beta1 else 1
        factors = self._momentum(op.Range(1.0, op.Min(t, float(most)) + 1, 1.0))
        # onnxruntime 1.18 multiplies no float64 numbers with each other, but adds them
        product = op.Exp(op.ReduceSum(op.Log(factors), keepdims=0))
        now, following = self._momentum(t), self._momentum(t + 1)
        correction = bias_correction(step, beta2).sqrt()
        rate = step.learning_rate * correction
        of_gradient = step.scalar(rate * (1 - now) / (1 - product))
        of_momentum = step.scalar(rate * following / (1 - product * following))
        eps = step.scalar(correction * self._eps)

        def update(p: Value, g: Value, m: Value, v: Value) -> list[Value]:
            g = decayed(g, p, self._decay)
            m, v = average(m, g, beta1), average(v, g * g, beta2)
            return [p - (g * of_gradient + m * of_momentum) / (v.sqrt() + eps), m, v]

        return update

    def _momentum(self, t: Value) -> Value:
        return self._betas[0] * (1 - 0.5 * 0.96 ** (t * self._momentum_decay))


class RAdam(_AdamLike):
    """Adam whose adaptive part sets in once its variance is known well enough: p ← p - learning rate · m̂ · q.

    With ρ∞ = 2 / (1 - β₂) - 1 and ρₜ = ρ∞ - 2 t β₂ᵗ / (1 - β₂ᵗ), q is 1 while ρₜ ≤ 5, then r / (√v + eps) · √(1 - β₂ᵗ)
    with r² = (ρₜ - 4) (ρₜ - 2) ρ∞ / ((ρ∞ - 4) (ρ∞ - 2) ρₜ).  Liu et al. 2020.  ``weight_decay`` adds
    weight_decay · p to g.  As ``torch.optim.RAdam``.
    """

    elementwise = True

    def rule(self, step: Step) -> Update:
        """Add what the tensors share, and return the function that updates one of them."""
        beta1, beta2 = self._betas
        op, t = step.count.graph.op, step.count
        correction = bias_correction(step, beta2)
        limit = 2 / (1 - beta2) - 1
        length = limit - 2 * t * beta2**t / correction
        adaptive = op.Greater(length, 5.0)
        # Kept at 5 below it, so that the root is one of a positive number where it does not count either.
        safe = op.Max(length, 5.0)
        r = ((safe - 4) * (safe - 2) * limit / ((limit - 4) * (limit - 2) * safe)).sqrt()
        rate = step.learning_rate / bias_correction(step, beta1)
        rate = step.scalar(op.Where(adaptive, rate * r * correction.sqrt(), rate))
        # The denominator is √v + eps, or 1.
        root = step.scalar(op.Cast(adaptive, to=t.dtype or 1))
        rest = step.scalar(op.Where(adaptive, self._eps, 1.0).cast(t.dtype or 1))

        def update(p: Value, g: Value, m: Value, v: Value) -> list[Value]:
            g = decayed(g, p, self._decay)
            m, v = average(m, g, beta1), average(v, g * g, beta2)
            return [p - m / (v.sqrt() * root + rest) * rate, m, v]

        return update


class LAMB(_AdamLike):
    """AdamW whose step has, in every tensor, a length in proportion to the parameter's.

    u = m̂ / (√v̂ + eps) + weight_decay · p, and p ← p - learning rate · |p| / |u| · u, with |p| / |u| taken as 1 where
    either is zero.  You et al. 2020.
    """

    def __init__(
        self,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        clip_grad: Block | None = None,
    ) -> None:
        super().__init__(betas, eps, weight_decay, clip_grad)

    def rule(self, step: Step) -> Update:
        """Add what the tensors share, and return the function that updates one of them."""
        beta1, beta2 = self._betas
        correction = bias_correction(step, beta2).sqrt()
        scale = step.scalar(correction / bias_correction(step, beta1))
        eps, rate = step.scalar(correction * self._eps), step.scalar(step.learning_rate)

        def update(p: Value, g: Value, m: Value, v: Value) -> list[Value]:
            op = p.graph.op
            m, v = average(m, g, beta1), average(v, g * g, beta2)
            u = decayed(m / (v.sqrt() + eps) * scale, p, self._decay)
            length, step_length = op.ReduceL2(p, keepdims=0), op.ReduceL2(u, keepdims=0)
            usable = op.And(op.Greater(length, 0.0), op.Greater(step_length, 0.0))
            trust = op.Where(usable, length / op.Where(usable, step_length, 1.0), 1.0)
            return [p - u * (trust * rate), m, v]

        return update


class Lion(Optimizer):
    """p ← p - learning rate · (sign(β₁ m + (1 - β₁) g) + weight_decay · p), then m ← β₂ m + (1 - β₂) g.

    Chen et al. 2023.  The state ``momentum0`` is m.
    """

    elementwise = True

    def __init__(
        self, betas: tuple[float, float] = (0.9, 0.99), weight_decay: float = 0.0, clip_grad: Block | None = None
    ) -> None:
        super().__init__(clip_grad, betas=betas, weight_decay=weight_decay)
        check_adam("Lion", betas, 0.0, weight_decay)
        self._betas, self._decay = betas, weight_decay

    def states(self, shape: Shape) -> Sequence[State]:
        """The average of the gradient."""
        return [State(shape, content=AVERAGE)]

    def rule(self, step: Step) -> Update:
        """Add what the tensors share, and return the function that updates one of them."""
        beta1, beta2 = self._betas
        rate, keep = step.scalar(step.learning_rate), decay_factor(step, self._decay)

        def update(p: Value, g: Value, m: Value) -> list[Value]:
            op = p.graph.op
            # The old m is read once, so that the new one can be written over it: β₂ m is made from β₁ m.
            if beta1:
                part = m * beta1
                direction, new = op.Sign(part + g * (1 - beta1)), part * (beta2 / beta1) + g * (1 - beta2)
            else:
                direction, new = op.Sign(g), average(m, g, beta2)
            return [(p if keep is None else p * keep) - direction * rate, new]

        return update
