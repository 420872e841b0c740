"""Where the curve crosses the limit: exact on a straight line of 1 / percentile, an honest interval on a noisy one, and when it cannot tell."""

import math

import numpy as np
import pytest

from analysis.sweep_crossing import FEWEST, crossing

WALL, LIMIT_S = 100.0, 0.5
TRUE = 98.0  # 1 / p = (wall - rate), so p = 0.5 s two below the wall


def percentile_s(rate):
    """A curve whose reciprocal is a straight line."""
    return 1 / (WALL - np.asarray(rate, float))


def test_a_straight_line_is_met_exactly():
    """No noise: the crossing itself, and an interval of nothing."""
    rates = [93, 94, 95, 96, 97, 99]
    found = crossing(rates, percentile_s(rates), [20] * 6, LIMIT_S, 90, 99)
    assert found.rate_rps == pytest.approx(TRUE)
    assert found.share == pytest.approx(0, abs=1e-9)
    assert found.used == tuple(rates)


def test_the_interval_covers():
    """Noise of the same size in 1 / percentile at every rate: the 95 % interval holds the crossing in about 95 of 100."""
    rng, rates = np.random.default_rng(5), [93, 95, 96, 97, 97.5, 98.5, 99.5]
    held = []
    for _ in range(2000):
        found = crossing(
            rates, 1 / (WALL - np.array(rates) + rng.normal(0, 0.1, len(rates))), [20] * len(rates), LIMIT_S, 90, 99.9
        )
        held.append(abs(found.rate_rps - TRUE) <= found.share * found.rate_rps)
    assert 0.93 < np.mean(held) < 0.98


def test_longer_runs_count_for_more():
    """A run of four times the length draws the line as four runs would."""
    rates = np.array([94, 96, 97, 98.5, 99])
    values = percentile_s(rates) * np.array([1, 1.2, 1, 1, 1])
    once = crossing(rates, values, [80, 20, 20, 20, 20], LIMIT_S, 90, 99)
    again = crossing([94, 94, 94, *rates], [*values[[0, 0, 0]], *values], [20] * 8, LIMIT_S, 90, 99)
    assert once.rate_rps == pytest.approx(again.rate_rps)


def test_runs_far_below_are_left_out():
    """Where the curve bends, far from the limit, a run must not pull the line."""
    rates = [50, 60, 94, 96, 97, 99, 99.5]
    values = [*(0.5 * percentile_s([50, 60])), *percentile_s(rates[2:])]
    found = crossing(rates, values, [20] * 7, LIMIT_S, 50, 99.5)
    assert found.rate_rps == pytest.approx(TRUE)
    assert min(found.used) == 94


@pytest.mark.parametrize("rates", [[], [95], [95, 95], [70, 75, 80, 85, 88]])
def test_what_the_runs_do_not_tell(rates):
    """No run, one rate, or only rates from afar: somewhere in the bracket, and how near is not known."""
    found = crossing(rates, percentile_s(rates), [20] * len(rates), LIMIT_S, 90, 99)
    assert 90 <= found.rate_rps <= 99
    assert math.isinf(found.share)


def test_a_curve_that_falls_has_no_crossing():
    """Faster at more load is noise: the middle."""
    found = crossing([95, 96, 97, 98, 99], [0.5, 0.4, 0.3, 0.2, 0.1], [20] * FEWEST, LIMIT_S, 90, 99)
    assert (found.rate_rps, found.share) == (94.5, math.inf)
