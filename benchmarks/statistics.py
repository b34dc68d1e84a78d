"""Ratios of times that were measured in alternating rounds, and when a bar is met."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

FEWEST_ROUNDS = 15


@dataclass(frozen=True)
class Ratio:
    """The median of a ratio over the rounds, its interquartile range, and how many rounds there were."""

    median: float
    spread: float
    rounds: int

    def meets(self, bar: float) -> bool:
        """Whether the median less half its interquartile range is at or below ``bar``, over enough rounds."""
        return self.rounds >= FEWEST_ROUNDS and self.median - self.spread / 2 <= bar

    def __str__(self) -> str:
        return f"{self.median:.2f} ± {self.spread / 2:.2f}"


def ratio(times: Sequence[float], reference: Sequence[float]) -> Ratio:
    """Divide round by round: a disturbance that lasts longer than a round hits both, and cancels.

    Raises ValueError when the numbers of rounds differ, or there is none.
    """
    if len(times) != len(reference) or not times:
        raise ValueError(f"{len(times)} rounds cannot be compared with {len(reference)}")
    quotients = np.asarray(times, np.float64) / np.asarray(reference, np.float64)
    low, middle, high = np.percentile(quotients, [25, 50, 75])
    return Ratio(float(middle), float(high - low), len(times))


def median(values: Sequence[float]) -> float:
    """The median; ValueError when there are none."""
    if not values:
        raise ValueError("there is no median of nothing")
    return float(np.median(values))
