"""Intervals, the too-short rule, sample sizes and the warm-up alarm. Seeds are fixed, and alpha is stated where it matters."""

import math

import numpy as np
import pytest
from scipy import stats

from analysis import intervals, sample_size, warmup

P99 = 990_000


def mm1_response(rho, n, rng):
    """Response times of n requests of a stationary M/M/1 queue with unit service (Lindley's recursion, vectorised)."""
    gaps, work = rng.exponential(1 / rho, n), rng.exponential(1.0, n)
    first = 0.0 if rng.random() < 1 - rho else rng.exponential(1 / (1 - rho))
    walk = np.concatenate([[0.0], np.cumsum(work[:-1] - gaps[1:])])
    return walk + np.maximum(first, -np.minimum.accumulate(walk)) + work


def test_independent_values_are_covered():
    """2000 exponentials, 400 runs: the interval covers the true p99 in at least 93 % (95 % nominal, three standard errors)."""
    rng, truth = np.random.default_rng(1), math.log(100)
    found = [intervals.percentile_interval(rng.exponential(1, 2000), P99) for _ in range(400)]
    assert np.mean([i.low <= truth <= i.high for i in found]) >= 0.93
    assert np.mean([i.two_sided for i in found]) > 0.8


def test_queueing_values_are_covered_where_the_binomial_interval_is_not():
    """M/M/1 at 0.5, 20,000 requests, 150 runs: false claims at most 10 %; the binomial interval misses more than 30 %."""
    rng, truth = np.random.default_rng(2), math.log(100) / 0.5
    false = naive = 0
    low, high = intervals.independent_ranks(20_000, P99)
    for _ in range(150):
        x = mm1_response(0.5, 20_000, rng)
        i = intervals.percentile_interval(x, P99)
        false += i.two_sided and not i.low <= truth <= i.high
        ordered = np.sort(x)
        naive += not ordered[low - 1] <= truth <= ordered[high - 1]
    assert false / 150 <= 0.10
    assert naive / 150 > 0.30


def test_a_short_loaded_run_claims_nothing():
    """M/M/1 at 0.9 with 5,000 requests: at most 2 of 60 runs claim two sides; the lower end holds in at least 90 %."""
    rng, truth = np.random.default_rng(3), math.log(100) / 0.1
    found = [intervals.percentile_interval(mm1_response(0.9, 5000, rng), P99) for _ in range(60)]
    assert sum(i.two_sided for i in found) <= 2
    assert np.mean([i.low <= truth for i in found]) >= 0.9
    short = found[0]
    assert "needs about" in short.text()
    assert short.needed_n > 5000
    assert short.high == math.inf


def test_long_run_variance_of_a_known_process():
    """AR(1) with coefficient 0.8 has long-run variance 1 / (1 - 0.8)^2 = 25: the mean of 200 estimates is within 15 %."""
    rng = np.random.default_rng(4)
    found = []
    for _ in range(200):
        noise = rng.normal(size=8000)
        x = np.empty(8000)
        x[0] = noise[0] / 0.6
        for t in range(1, 8000):
            x[t] = 0.8 * x[t - 1] + noise[t]
        found.append(intervals.long_run_variance(x, 0.0))
    assert np.mean(found) == pytest.approx(25, rel=0.15)


def test_von_neumann_is_standard_normal_under_independence():
    """4000 independent series: mean 0 and standard deviation 1 within 0.06 (alpha about 1e-3)."""
    rng = np.random.default_rng(5)
    z = np.array([intervals.von_neumann_z(rng.normal(size=320)) for _ in range(4000)])
    assert abs(z.mean()) < 0.06
    assert z.std() == pytest.approx(1, abs=0.06)
    assert intervals.von_neumann_z(np.repeat([0.0, 1.0], 160)) > 3


def test_the_percentile_is_the_nearest_rank():
    """97 x 12 ms + 3 x 400 ms: p99 is 400 ms and no two-sided claim is made from 100 requests."""
    i = intervals.percentile_interval(np.array([12.0] * 97 + [400.0] * 3), P99)
    assert i.value == 400
    assert not i.two_sided


def test_failures_are_infinite():
    """With 2 % failures p99 is infinite; with 0.1 % spread evenly it is not, and the upper end is finite."""
    rng = np.random.default_rng(6)
    x = rng.exponential(1, 50_000)
    x[::50] = np.inf
    assert intervals.percentile_interval(x, P99).value == math.inf
    x = rng.exponential(1, 50_000)
    x[::1000] = np.inf
    i = intervals.percentile_interval(x, P99)
    assert i.two_sided
    assert i.low < i.value < i.high < math.inf


def test_what_an_interval_claims_about_a_limit():
    """True above the upper end, False below the lower end, None between; never True from a run too short."""
    i = intervals.percentile_interval(np.random.default_rng(7).exponential(1, 20_000), P99)
    assert i.two_sided
    assert i.claims(6) is True
    assert i.claims(3) is False
    assert i.claims(i.value) is None
    short = intervals.percentile_interval(np.random.default_rng(7).exponential(1, 200), P99)
    assert short.claims(100) is None
    assert short.claims(0.1) is False


@pytest.mark.parametrize("values", [[1.0], [1.0] * 50, [3.0] * 10_000, [math.inf] * 1000])
def test_degenerate_runs_do_not_break(values):
    """One value, few, all equal, all failed: a value and ends in order, no NaN."""
    i = intervals.percentile_interval(np.array(values), P99)
    assert i.value == values[0]
    assert i.low <= i.value <= i.high
    assert not math.isnan(i.vif)


def test_nan_and_nothing_are_refused():
    """A NaN among the latencies, no latencies, or the maximum as a percentile: an error."""
    for values, ppm in (([1.0, math.nan], P99), ([], P99), ([1.0, 2.0], 1_000_000)):
        with pytest.raises(ValueError, match=r"NaN|no values|maximum"):
            intervals.percentile_interval(np.array(values), ppm)


@pytest.mark.parametrize("n", [100, 367, 368, 1000, 20_000])
def test_binomial_ranks_against_scipy(n):
    """Each side of the documented iid interval errs at most 2.5 %, as scipy's binomial says, and could not be narrower."""
    low, high = intervals.independent_ranks(n, P99)
    binomial = stats.binom(n, 0.99)
    assert low == 0 or binomial.cdf(low - 1) <= 0.025
    assert binomial.cdf(low) > 0.025
    if high <= n:
        assert binomial.sf(high - 1) <= 0.025
        assert binomial.sf(high - 2) > 0.025


def test_two_sided_p99_needs_368_independent_values():
    """The binomial interval first has both ends at n = 368 (with tails of 2.5 %)."""
    assert intervals.independent_ranks(367, P99)[1] == 368
    assert intervals.independent_ranks(368, P99)[1] == 368


def test_zero_exceedance_floors():
    """299 and 459 for p99 at 95 and 99 %, 2995 and 4603 for p99.9: q^n <= 1 - confidence."""
    assert [sample_size.zero_exceedance_n(99, c) for c in (0.95, 0.99)] == [299, 459]
    assert [sample_size.zero_exceedance_n(99.9, c) for c in (0.95, 0.99)] == [2995, 4603]
    assert 0.99**299 <= 0.05 < 0.99**298


@pytest.mark.parametrize(
    ("rho", "claim_n", "precise_n"),
    [(0.3, 3e3, 6e3), (0.5, 8e3, 14e3), (0.7, 27e3, 49e3), (0.8, 74e3, 132e3), (0.9, 276e3, 495e3)],
)
def test_planned_sizes_are_those_of_the_simulations(rho, claim_n, precise_n):
    """n for a claim and for +-10 % at the utilisations of the research table, within 11 % (its VIFs are rounded)."""
    plan = sample_size.plan(99, rho)
    assert plan.claim_n == pytest.approx(claim_n, rel=0.01)
    assert plan.precise_n == pytest.approx(precise_n, rel=0.11)
    assert plan.n == max(plan.claim_n, plan.precise_n)


def test_half_width_by_a_second_derivation():
    """With the planned n of independent exponentials, p99 estimates scatter by 10 % at 1.96 standard deviations (within 10 %)."""
    plan = sample_size.plan(99, 0.0)
    rng = np.random.default_rng(8)
    p99 = np.quantile(rng.exponential(1, (2000, plan.precise_n)), 0.99, axis=1, method="inverted_cdf")
    assert 1.96 * p99.std() / math.log(100) == pytest.approx(0.10, rel=0.10)


def test_inflation_grows_with_load_and_is_refused_beyond():
    """VIF rises with utilisation, also past the table; 0.995 is refused."""
    grid = [sample_size.inflation(99, rho) for rho in (0, 0.1, 0.4, 0.6, 0.85, 0.93, 0.97)]
    assert grid == sorted(grid)
    assert grid[0] == 1
    with pytest.raises(ValueError, match="between 0 and 99%"):
        sample_size.inflation(99, 0.995)


def test_mser5_against_its_definition():
    """The vectorised cut is the argmin of the definition, computed term by term."""
    x = np.concatenate([np.linspace(10, 1, 200), np.ones(800)]) + np.random.default_rng(9).normal(0, 0.3, 1000)
    y = x.reshape(-1, 5).mean(axis=1)
    error = [((y[d:] - y[d:].mean()) ** 2).sum() / (len(y) - d) ** 2 for d in range(len(y) // 2)]
    assert warmup.mser5(x) == 5 * int(np.argmin(error))
    assert 150 <= warmup.mser5(x) <= 250


def test_the_warm_up_alarm():
    """A cold start that lasts past the warm-up alarms; independent and constant values do not; nor do failures count."""
    rng = np.random.default_rng(10)
    warm = rng.exponential(1, 20_000)
    assert not warmup.alarm(warm).alarm
    cold = warm * (1 + 3 * np.exp(-np.arange(20_000) / 1000))
    assert warmup.alarm(cold).alarm
    assert warmup.alarm(cold).excess > 0.5
    assert not warmup.alarm(np.ones(1000)).alarm
    assert not warmup.alarm(np.full(1000, np.inf)).alarm
