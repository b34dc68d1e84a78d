"""Finite differences along random directions, and what came of comparing them with a gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .evaluators import Array, Function

_STEPS = {np.dtype(np.float64): (1e-3, 1e-5, 1e-7), np.dtype(np.float32): (1e-1, 1e-2, 1e-3)}
TOLERANCE = {np.dtype(np.float64): 1e-6, np.dtype(np.float32): 2e-2}


@dataclass(frozen=True)
class Comparison:
    """One directional derivative: with respect to ``value``, by the gradient and by finite differences.

    ``smooth`` is False where the derivatives of the two sides differ, as at the kink of a ReLU: there is no number that
    a gradient could be compared with.
    """

    value: str
    analytic: float
    numeric: float
    error: float
    smooth: bool


@dataclass(frozen=True)
class GradientCheck:
    """What was compared, in which element type, and what ran the models.

    ``evaluator`` is ``"onnxruntime"``, ``"onnx.reference"`` or the name of the function that was given; ``reason`` says
    why onnxruntime was not used.  ``error`` is the largest of ``comparisons``, relative to the size of the gradient.
    """

    comparisons: tuple[Comparison, ...]
    dtype: str
    evaluator: str
    reason: str | None
    tolerance: float

    @property
    def error(self) -> float:
        return max((c.error for c in self.comparisons), default=0.0)

    @property
    def passed(self) -> bool:
        return all(c.error <= self.tolerance for c in self.comparisons)

    def __str__(self) -> str:
        lines = [f"gradient against finite differences, {self.dtype} on {self.evaluator}"]
        if self.reason is not None:
            lines[0] += f" ({self.reason})"
        width = max((len(c.value) for c in self.comparisons), default=0)
        for c in self.comparisons:
            verdict = "" if c.error <= self.tolerance else " MISMATCH" if c.smooth else " MISMATCH, at a kink"
            numbers = f"gradient {c.analytic:+.9e}  differences {c.numeric:+.9e}  error {c.error:.1e}"
            lines.append(f"{c.value:{width}}  {numbers}{verdict}")
        return "\n".join(lines)


class Line:
    """A weighted sum of the outputs along straight lines through one point."""

    def __init__(self, run: Function, point: Mapping[str, Array], cotangents: Sequence[Array], dtype: np.dtype[Any]):
        self._run, self._point, self._cotangents = run, point, cotangents
        self._dtype = dtype
        self._epsilon = float(np.finfo(self._dtype).eps)

    def compare(self, name: str, gradient: Array, tolerance: float, rng: np.random.Generator) -> Comparison:
        """The derivative with respect to one value along one random direction, at the step that agrees best."""
        x = self._point[name]
        if x.size == 0:
            return Comparison(name, 0.0, 0.0, 0.0, smooth=True)
        direction = rng.standard_normal(x.shape)
        direction /= max(float(np.linalg.norm(direction)), 1e-30)
        exact = gradient.astype(np.float64)
        analytic = float(np.sum(exact * direction))
        scale = max(abs(analytic), float(np.linalg.norm(exact)) / np.sqrt(x.size))
        best: Comparison | None = None
        gaps = []
        for step in _STEPS[self._dtype]:
            numeric, gap, noise = self._derivative(name, direction, step)
            gaps.append((gap, noise))
            difference = abs(analytic - numeric)
            # Not a number on either side never agrees.
            error = max(0.0, difference - noise) / max(scale, abs(numeric), 1e-30) if difference < np.inf else np.inf
            if best is None or error < best.error:
                best = Comparison(name, analytic, numeric, error, smooth=True)
            if error <= tolerance:
                break
        assert best is not None
        smooth = len(gaps) < 2 or gaps[-1][0] <= max(0.2 * gaps[0][0], 100 * gaps[-1][1])
        return Comparison(name, best.analytic, best.numeric, best.error, smooth)

    def _derivative(self, name: str, direction: Array, step: float) -> tuple[float, float, float]:
        """The five-point difference; how far the derivatives of both sides are apart; the size of rounding errors."""
        f = {k: self._value(name, direction, k * step) for k in (-2, -1, 0, 1, 2)}
        at = {k: v[0] for k, v in f.items()}
        noise = 4 * self._epsilon * f[0][1] / step
        right = (4 * at[1] - 3 * at[0] - at[2]) / (2 * step)
        left = (3 * at[0] - 4 * at[-1] + at[-2]) / (2 * step)
        return (8 * (at[1] - at[-1]) - (at[2] - at[-2])) / (12 * step), abs(right - left), noise

    def _value(self, name: str, direction: Array, distance: float) -> tuple[float, float]:
        """The sum, and the sum of its absolute terms."""
        x = self._point[name]
        results = self._run({**self._point, name: np.asarray(x + distance * direction, x.dtype)})
        with np.errstate(all="ignore"):
            terms = [c.astype(np.float64) * y for c, y in zip(self._cotangents, results)]
        return sum(float(np.sum(t)) for t in terms), sum(float(np.sum(np.abs(t))) for t in terms)
