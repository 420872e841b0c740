"""The claim that a percentile lies below its limit: false claims against M/M/1's closed form, and what a short run may say."""

import math

import numpy as np
import pytest
from scipy.stats import beta

from analysis.claim import below, upper_bound
from analysis.sample_size import fewest_n


def mm1(rho, n, rng):
    """Stationary FCFS M/M/1 response times, mu = 1 (Lindley by running minima); P(T > t) = exp(-(1 - rho) t)."""
    gaps, service = rng.exponential(1 / rho, n), rng.exponential(1, n)
    first = 0.0 if rng.random() > rho else rng.exponential(1 / (1 - rho))
    steps = np.cumsum(np.concatenate([[first], service[:-1] - gaps[1:]]))
    return steps - np.minimum(np.minimum.accumulate(steps), 0) + service


def test_bound_is_clopper_pearsons():
    """Against scipy's beta distribution, for whole and effective numbers; everything beyond: 1."""
    assert upper_bound(3, 500, 0.95) == pytest.approx(beta.ppf(0.95, 4, 497))
    assert upper_bound(0, 299, 0.95) == pytest.approx(1 - 0.05 ** (1 / 299))
    assert upper_bound(5, 5) == 1.0


def test_room_to_spare_lets_a_run_be_short():
    """Nothing beyond the limit: 2,950 requests at the least assumed VIF of 8 show p99, 2,900 do not; more room changes nothing."""
    values = np.linspace(0.001, 0.01, 2960)
    rng = np.random.default_rng(1)
    rng.shuffle(values)
    assert below(values, 1.0, 990_000).supported
    short = below(values[:2900], 1.0, 990_000)
    assert not short.supported
    assert 2900 < short.needed_n < 3600
    assert "too short" in short.text("99")


def test_missed_limits_and_failures_are_never_claimed():
    """A share beyond the limit above 1 % is no claim at any n; failures (infinite) lie beyond every limit."""
    values = np.full(100_000, 0.01)
    values[::50] = math.inf
    found = below(values, 5.0, 990_000)
    assert not found.supported
    assert found.needed_n == 0
    assert found.beyond == 2000


@pytest.mark.parametrize(("rho", "n"), [(0.5, 10_000), (0.7, 10_000), (0.9, 10_000)])
def test_false_claims_stay_below_seven_percent(rho, n):
    """Limit at the true p99, so that every claim is false: at most 7 % of 120 runs (plus 3 standard errors of a rate of 5 %), fixed seed."""
    rng = np.random.default_rng(int(rho * 10))
    limit = math.log(100) / (1 - rho)
    false = sum(below(mm1(rho, n, rng), limit, 990_000).supported for _ in range(120))
    assert false / 120 <= 0.07 + 3 * math.sqrt(0.05 * 0.95 / 120)


def test_claims_are_made_where_they_are_true():
    """With the limit half as high again and 30,000 requests at half load most runs may claim."""
    rng = np.random.default_rng(3)
    limit = 1.5 * math.log(100) / 0.5
    assert sum(below(mm1(0.5, 30_000, rng), limit, 990_000).supported for _ in range(30)) >= 22


@pytest.mark.parametrize(("percentile", "ppm", "fewest"), [(95, 950_000, 576), (99, 990_000, 2937), (99.9, 999_000, 29497)])
def test_the_number_told_beforehand_is_the_number_judged_by(percentile, ppm, fewest):
    """`truetail check`, docs and the verdict count alike: so many independent requests below the limit support the claim, one fewer do not."""
    assert fewest_n(percentile) == fewest
    values = np.random.default_rng(1).permutation(np.linspace(0.1, 0.9, fewest))
    assert below(values, 1.0, ppm).supported
    assert not below(values[:-1], 1.0, ppm).supported
