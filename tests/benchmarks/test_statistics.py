from __future__ import annotations

import numpy as np
import pytest

from benchmarks.statistics import FEWEST_ROUNDS, Ratio, median, ratio


def test_a_ratio_is_taken_round_by_round():
    # A slow machine in half of the rounds hits both: the ratio stays 2 in each, though the medians alone say 20 / 1.
    reference = [1.0] * 8 + [10.0] * 7
    times = [2.0 * one for one in reference]
    found = ratio(times, reference)
    assert found == Ratio(2.0, 0.0, 15)


def test_a_ratio_is_the_median_and_the_interquartile_range_of_the_quotients():
    found = ratio([1.0, 2.0, 3.0, 4.0, 5.0], [1.0] * 5)
    assert (found.median, found.spread, found.rounds) == (3.0, 2.0, 5)


def test_the_median_of_a_ratio_ignores_an_outlier():
    assert ratio([1.0] * 15 + [900.0], [1.0] * 16) == Ratio(1.0, 0.0, 16)


def test_a_ratio_and_its_inverse_have_inverse_medians():
    random = np.random.default_rng(0)
    a, b = random.uniform(1, 2, 15).tolist(), random.uniform(1, 2, 15).tolist()
    assert ratio(a, b).median == pytest.approx(1 / ratio(b, a).median)


@pytest.mark.parametrize(("times", "reference"), [([], []), ([1.0], [1.0, 2.0])])
def test_rounds_that_do_not_match_are_no_ratio(times, reference):
    with pytest.raises(ValueError, match="cannot be compared"):
        ratio(times, reference)


@pytest.mark.parametrize(
    ("median_ratio", "spread", "bar", "met"),
    [
        (1.0, 0.0, 1.0, True),  # at the bar
        (1.05, 0.1, 1.0, True),  # half the spread is taken off
        (1.06, 0.1, 1.0, False),
        (1.1, 0.1, 1.0, False),  # the whole spread is not
        (0.9, 0.0, 0.8, False),
    ],
)
def test_a_bar_is_met_when_the_median_less_half_its_spread_is_not_above_it(median_ratio, spread, bar, met):
    assert Ratio(median_ratio, spread, FEWEST_ROUNDS).meets(bar) is met


def test_a_bar_is_not_met_by_few_rounds():
    assert FEWEST_ROUNDS == 15
    assert Ratio(0.1, 0.0, 15).meets(1.0)
    assert not Ratio(0.1, 0.0, 14).meets(1.0)


def test_median():
    assert median([3.0, 1.0, 2.0]) == 2.0
    with pytest.raises(ValueError, match="nothing"):
        median([])
