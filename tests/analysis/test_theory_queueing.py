"""Queueing formulas against the lesson's figures, each other, and simulation."""

import math

import numpy as np
import pytest

from analysis import queueing
from analysis.batching import BatchRule, BatchTime, poisson_arrivals_s, simulate

MU_50 = 0.02


@pytest.mark.parametrize(("rate", "mean_ms", "p99_ms", "inside", "wait_ms"), [(25, 40, 184, 1, 20), (45, 200, 921, 9, 180)])
def test_mm1_gives_the_lessons_figures(rate, mean_ms, p99_ms, inside, wait_ms):
    """W, p99, L and Wq of M/M/1 at mu = 50 are those of the lesson."""
    steady = queueing.mm1(rate, MU_50)
    assert steady.response_mean_s * 1e3 == pytest.approx(mean_ms)
    assert steady.wait_mean_s * 1e3 == pytest.approx(wait_ms)
    assert steady.in_system_mean == pytest.approx(inside)
    assert round(queueing.mm1_quantile_s(0.99, rate, MU_50) * 1e3) == p99_ms


def test_mm1_at_160_per_second():
    """mu = 200 and W = 25 ms is lambda = 160/s with p95 = 75 ms."""
    assert queueing.mm1(160, 1 / 200).response_mean_s == pytest.approx(0.025)
    assert queueing.mm1_quantile_s(0.95, 160, 1 / 200) * 1e3 == pytest.approx(75, abs=0.2)


def test_constant_service_halves_the_wait():
    """M/D/1 at 45/s waits 90 ms, half of M/M/1's 180."""
    assert queueing.md1(45, MU_50).wait_mean_s == pytest.approx(0.090)


def test_general_formulas_reduce_to_the_special_ones():
    """M/G/1 with cv 1 is M/M/1; M/M/c with c = 1 too, mean and quantile; Allen-Cunneen is exact for M/M/c and M/G/1."""
    mm1 = queueing.mm1(45, MU_50)
    assert queueing.mg1(45, MU_50, 1.0).wait_mean_s == pytest.approx(mm1.wait_mean_s)
    assert queueing.mmc(45, MU_50, 1).wait_mean_s == pytest.approx(mm1.wait_mean_s)
    assert queueing.mmc_quantile_s(0.99, 45, MU_50, 1) == pytest.approx(queueing.mm1_quantile_s(0.99, 45, MU_50))
    assert queueing.ggc(120, MU_50, 4, 1, 1).wait_mean_s == pytest.approx(queueing.mmc(120, MU_50, 4).wait_mean_s)
    ggc = queueing.ggc(45, MU_50, 1, 1, 0.5)
    assert ggc.wait_mean_s == pytest.approx(queueing.mg1(45, MU_50, 0.5).wait_mean_s)
    assert not ggc.exact
    assert "approximation" in ggc.source


@pytest.mark.parametrize(("servers", "offered", "published"), [(2, 1.0, 1 / 3), (5, 4.0, 0.5541), (10, 8.0, 0.4092)])
def test_erlang_c_against_published_values(servers, offered, published):
    """Erlang C: 1/3 by hand for two servers at 1 Erlang; table values for 5 at 4 and 10 at 8."""
    assert queueing.erlang_c(servers, offered) == pytest.approx(published, abs=5e-5)


def test_erlang_c_against_the_sum_that_defines_it():
    """The recursion agrees with a^c / c! / ((1 - rho) sum + a^c / c!) where that does not overflow; 5000 servers work too."""
    for c, a in ((3, 2.5), (20, 17.0), (100, 90.0)):
        top = a**c / math.factorial(c)
        rest = sum(a**k / math.factorial(k) for k in range(c))
        assert queueing.erlang_c(c, a) == pytest.approx(top / ((1 - a / c) * rest + top))
    assert 0 < queueing.erlang_c(5000, 4990.0) < 1


def test_mmc_against_the_simulator():
    """Mean and p99 of M/M/4 at 0.8 within 5 % of 400,000 requests served by four exponential servers."""
    rng = np.random.default_rng(11)
    arrivals = np.cumsum(rng.exponential(1 / 160, 400_000))
    work = rng.exponential(MU_50, 400_000)
    free = [0.0] * 4
    response = np.empty(400_000)
    for i, (at, need) in enumerate(zip(arrivals.tolist(), work.tolist(), strict=True)):
        j = free.index(min(free))
        free[j] = max(free[j], at) + need
        response[i] = free[j] - at
    assert response.mean() == pytest.approx(queueing.mmc(160, MU_50, 4).response_mean_s, rel=0.05)
    assert np.quantile(response, 0.99) == pytest.approx(queueing.mmc_quantile_s(0.99, 160, MU_50, 4), rel=0.05)


def test_mmc_tail_is_smooth_where_the_two_rates_meet():
    """Where c mu - lambda = mu the closed form divides zero by zero; its value must lie between its neighbours."""
    at = [queueing.mmc_exceeds(0.05, rate, MU_50, 3) for rate in (99.999, 100.0, 100.001)]
    assert at[0] < at[1] < at[2]
    assert at[2] - at[0] < 1e-4


def _crommelin(rho, x):
    """The classical alternating series for P(wait <= x services), exact enough at low rho and short x."""
    return (1 - rho) * sum((-rho * (x - k)) ** k / math.factorial(k) * math.exp(rho * (x - k)) for k in range(int(x) + 1))


@pytest.mark.parametrize("rho", [0.3, 0.7, 0.9])
def test_md1_distribution_against_crommelins_series(rho):
    """Two different exact formulas for M/D/1's wait agree to 1e-9 where the alternating one has digits left."""
    cdf = queueing.md1_wait_cdf(rho, 12)
    for x in (0.0, 0.4, 1.0, 2.5, 7.3, 10.0):
        assert cdf(x) == pytest.approx(_crommelin(rho, x), abs=1e-9)


def test_md1_mean_is_the_integral_of_its_tail():
    """The exact distribution's mean is Pollaczek-Khinchine's, at 0.9 within 0.1 %."""
    cdf = queueing.md1_wait_cdf(0.9, 150)
    x = np.linspace(0, 149, 14_901)
    assert np.trapezoid([1 - cdf(v) for v in x], x) * MU_50 == pytest.approx(0.090, rel=1e-3)


def test_md1_quantile():
    """At rho = 0.9 the p99 agrees with 400,000 simulated requests within 5 %, is exact when idle, and holds near the wall."""
    response = simulate(poisson_arrivals_s(45, 400_000, 5), BatchTime(MU_50, 0), BatchRule(1)).response_s
    assert queueing.md1_quantile_s(0.99, 45, MU_50) == pytest.approx(np.quantile(response, 0.99), rel=0.05)
    assert queueing.md1_quantile_s(0.5, 10, MU_50) == MU_50
    # Near saturation the wait is exponential with twice M/M/1's decay (heavy traffic).
    near = queueing.md1_quantile_s(0.99, 0.998 / MU_50, MU_50)
    assert near == pytest.approx(math.log(100) * MU_50 / (2 * 0.002), rel=0.01)


@pytest.mark.parametrize(
    "call",
    [
        lambda: queueing.mm1(50, MU_50),
        lambda: queueing.md1_quantile_s(0.99, 60, MU_50),
        lambda: queueing.mmc(200, MU_50, 4),
        lambda: queueing.mg1(51, MU_50, 0.3),
    ],
)
def test_saturation_is_refused(call):
    """At utilisation 1 or above there is no steady state, and the error says so with the capacity."""
    with pytest.raises(queueing.Unstable, match="grows without bound"):
        call()


def test_nonsense_is_refused():
    """Negative rates, NaN, quantiles outside (0, 1) are errors, not numbers."""
    for call in (
        lambda: queueing.mm1(-1, MU_50),
        lambda: queueing.mm1(math.nan, MU_50),
        lambda: queueing.mm1_quantile_s(1.0, 25, MU_50),
        lambda: queueing.mmc(10, MU_50, 0),
    ):
        with pytest.raises(ValueError, match=r"needs|quantile"):
            call()
