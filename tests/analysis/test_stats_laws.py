"""Sanity laws, the arrivals' certificate and the comparison of runs; fixed seeds."""

import math

import numpy as np
import pytest
from scipy import stats

from analysis import certify, compare, littles_law
from analysis.batching import BatchRule, BatchTime, poisson_arrivals_s, simulate
from shapes.arrival_tests import ArrivalTest
from truetail.records import OK, RECORD


def served(rate=400, n=20_000, seed=1, network_s=0.001):
    """Records of the lesson's batcher with a constant network time before and no other overhead."""
    at = poisson_arrivals_s(rate, n, seed)
    seen = simulate(at, BatchTime(0.01, 0.0005), BatchRule(16, 0.002))
    records = np.zeros(n, RECORD)
    records["k"] = np.arange(n)
    records["intended_ns"] = records["sent_ns"] = np.rint(at * 1e9)
    records["done_ns"] = np.rint((at + seen.response_s + network_s) * 1e9)
    records["outcome"], records["batch"] = OK, seen.batch
    records["inference_us"] = (0.01 + 0.0005 * seen.batch) * 1e6
    records["queue_us"] = seen.response_s * 1e6 - records["inference_us"]
    for stage in ("preprocess_us", "postprocess_us", "dependency_us"):
        records[stage] = np.nan
    return records


@pytest.mark.parametrize(("rate", "response_ms", "inside"), [(200, 50, 10), (300, 80, 24), (400, 30, 12)])
def test_littles_law_gives_the_lessons_figures(rate, response_ms, inside):
    """Evenly spaced requests of constant duration: the integral of the number in flight is rate x duration."""
    begin = (np.arange(rate * 20) * 1e9 / rate).astype(np.int64)
    law = littles_law.littles_law(begin, begin + response_ms * 1_000_000, (5_000_000_000, 15_000_000_000))
    assert law.in_flight == pytest.approx(inside, rel=1e-3)
    assert law.product == pytest.approx(inside, rel=1e-3)
    assert law.holds


def test_littles_law_notices_wrong_clocks():
    """Ends that lie before their beginnings are no edge effect; a window shorter than the responses is; no arrivals, no law."""
    records = served()
    begin, end = records["intended_ns"], records["done_ns"]
    window = (1_000_000_000, 40_000_000_000)
    assert littles_law.littles_law(begin, end, window).holds
    stepped = np.where(np.arange(len(end)) % 5 == 0, end - 100_000_000, end)
    assert not littles_law.littles_law(begin, stepped, window).holds
    short = littles_law.littles_law(begin, end, (10_000_000_000, 10_010_000_000))
    assert short.holds
    assert short.edge_share > 0.5
    assert littles_law.littles_law(begin, end, (10**15, 2 * 10**15)) is None


def test_in_flight_series_against_counting():
    """The integral per step equals a count on a grid of 1 ms, within 1 %."""
    records = served(n=4000)
    begin, end = records["intended_ns"], records["done_ns"]
    starts, inside = littles_law.in_flight_series(begin, end, (0, 5_000_000_000))
    grid = np.arange(0, 5_000_000_000, 1_000_000)
    counted = np.searchsorted(np.sort(begin), grid, "right") - np.searchsorted(np.sort(end), grid, "right")
    assert len(starts) == 5
    assert inside == pytest.approx(counted.reshape(5, -1).mean(axis=1), rel=0.01)


def test_the_rest_of_the_client_time_is_the_network():
    """Client time minus stages is the millisecond that was put in; stages longer than the client's time are impossible."""
    records = served()
    account = littles_law.stage_account(records)
    assert account.outside_mean_s == pytest.approx(0.001, abs=2e-5)
    assert set(account.mean_s) == {"queue", "inference"}
    assert account.holds
    records["inference_us"][:100] += 1e6
    assert not littles_law.stage_account(records).holds
    for stage in ("queue_us", "inference_us"):
        records[stage] = np.nan
    assert littles_law.stage_account(records) is None


def test_offered_against_completed():
    """Below capacity the service keeps up; at 1000/s against 889/s it does not, and the backlog's slope is the difference."""
    window = (2_000_000_000, 18_000_000_000)
    assert littles_law.throughput(served(400), window).keeps_up
    over = littles_law.throughput(served(1000, 20_000), window)
    assert not over.keeps_up
    assert over.growth_per_s == pytest.approx(1000 - 889, rel=0.1)


def poisson_ns(rate, duration_s, seed):
    """Poisson arrivals in ns."""
    at = poisson_arrivals_s(rate, int(rate * duration_s * 1.2), seed)
    return np.rint(at[at < duration_s] * 1e9).astype(np.int64)


def rejecting(points, total):
    """A test that always rejects: what is left to decide are the effects."""
    return [ArrivalTest("always", 9.0, 0.0, "none", 0.0, False)]


def certificate(scheduled, sent_k, sent_ns, tests=rejecting):
    """Certify against 1000/s for 20 s."""
    return certify.certify(scheduled, (sent_k, sent_ns), lambda t: 1000 * np.asarray(t), 20.0, tests)


def test_good_arrivals_are_certified():
    """A Poisson schedule sent 0.1 ms late: certified even if tests reject, since no effect is beyond its tolerance."""
    scheduled = poisson_ns(1000, 20, 1)
    found = certificate(scheduled, np.arange(len(scheduled)), scheduled + 100_000)
    assert found.given, found.faults
    assert found.scheduled.scv == pytest.approx(1, abs=0.1)
    assert found.scheduled.idc == pytest.approx(1, abs=0.2)


def test_the_six_tests_are_asked_by_default():
    """A Poisson schedule passes them before and after; one of 4 workers with the same seed does not, and the effect is beyond."""
    scheduled = poisson_ns(1000, 20, 1)
    found = certify.certify(scheduled, (np.arange(len(scheduled)), scheduled), lambda t: 1000 * np.asarray(t), 20.0)
    assert found.given
    assert len(found.achieved_tests) == 6
    doubled = np.sort(np.repeat(poisson_ns(250, 20, 3), 4))
    copies = certify.certify(doubled, (np.arange(len(doubled)), doubled), lambda t: 1000 * np.asarray(t), 20.0)
    assert any("SCV" in fault and "Lewis" in fault for fault in copies.faults)


def test_missing_doubled_late_and_strange_arrivals():
    """Each fault of the matching is named with its count."""
    scheduled = poisson_ns(1000, 20, 2)
    k = np.arange(len(scheduled))
    lost = certificate(scheduled, k[10:], scheduled[10:])
    assert any("10 of" in fault for fault in lost.faults)
    twice = certificate(scheduled, np.append(k, [5, 7]), np.append(scheduled, scheduled[[5, 7]]))
    assert any("2 arrivals were sent more than once" in fault for fault in twice.faults)
    strange = certificate(scheduled, np.append(k, len(k) + 3), np.append(scheduled, 0))
    assert any("1 requests belong to no" in fault for fault in strange.faults)
    late = certificate(scheduled, k, scheduled + np.where(k % 50 == 0, 300_000_000, 0))
    assert {"lateness p99", "lateness max"} <= {fault[:12] for fault in late.faults}


def test_a_schedule_that_is_not_what_it_says():
    """Fixed spacing declared as Poisson: the gaps' SCV of 0 is beyond tolerance. Without rejection effects alone do not fail."""
    fixed = (np.arange(20_000) * 1_000_000).astype(np.int64)
    found = certificate(fixed, np.arange(20_000), fixed)
    assert any("SCV" in fault for fault in found.faults)
    quiet = certificate(
        fixed, np.arange(20_000), fixed, lambda points, total: [ArrivalTest("never", 0.0, 1.0, "none", 0.0, True)]
    )
    assert quiet.given


def test_other_laws_are_held_against_their_schedule():
    """Fixed spacing declared as such is certified; sent in bursts of 10 it is not."""
    fixed = (np.arange(20_000) * 1_000_000).astype(np.int64)
    k = np.arange(20_000)
    assert certificate(fixed, k, fixed + 50_000, None).given
    bunched = certificate(fixed, k, (k // 10 + 1) * 10_000_000 - 1_000_000, None)
    assert any("SCV" in fault for fault in bunched.faults)


def runs(scale, seeds, n=4000):
    """Independent exponential runs: p99 = scale x ln 100."""
    return [np.random.default_rng(seed).exponential(scale, n) for seed in seeds]


def test_welch_against_scipy():
    """Ratio, interval and p of Welch's test agree with scipy's ttest_ind to 1e-10; unequal sizes and variances."""
    rng = np.random.default_rng(3)
    a, b = rng.normal(0, 1, 5), rng.normal(0.3, 3, 7)
    ratio, low, high, p = compare.welch(a, b, 0.05)
    reference = stats.ttest_ind(b, a, equal_var=False)
    interval = reference.confidence_interval(0.95)
    assert p == pytest.approx(reference.pvalue, rel=1e-10)
    assert (math.log(low), math.log(high)) == pytest.approx((interval.low, interval.high), rel=1e-10)
    assert math.log(ratio) == pytest.approx(b.mean() - a.mean())


def test_permutation_against_scipy():
    """The exact p over all 252 divisions is scipy's permutation_test's."""
    rng = np.random.default_rng(4)
    a, b = rng.normal(0, 1, 5), rng.normal(1, 1, 5)
    reference = stats.permutation_test((a, b), lambda x, y: abs(x.mean() - y.mean()), n_resamples=np.inf, alternative="greater")
    assert compare.permutation_p(a, b) == pytest.approx(reference.pvalue)


def test_a_slower_candidate_is_worse_and_an_equal_one_the_same():
    """Five runs an arm: +30 % is worse with an interval around 1.3, -30 % is better, equal tails are the same within 20 %."""
    base = runs(1.0, range(5))
    worse = compare.compare(base, runs(1.3, range(10, 15)), 990_000)
    assert worse.verdict == "worse"
    assert worse.low < 1.3 < worse.high
    assert compare.compare(base, runs(0.7, range(10, 15)), 990_000).verdict == "better"
    same = compare.compare(base, runs(1.0, range(10, 15)), 990_000, margin=0.2)
    assert same.verdict == "same"
    assert same.permutation_p > 0.05


def test_too_wide_an_interval_cannot_say():
    """Two noisy runs an arm with a slowdown of 15 % neither show nor rule out a regression."""
    found = compare.compare(runs(1.0, range(2), 400), runs(1.15, range(5, 7), 400), 990_000)
    assert found.verdict == "cannot say"


def test_a_single_pair_is_indicative():
    """One run an arm gives a ratio with the runs' own errors, and says that it is only indicative."""
    found = compare.compare(runs(1.0, [1], 20_000), runs(1.5, [2], 20_000), 990_000)
    assert found.indicative
    assert found.low < 1.5 < found.high
    assert "indicative" in found.text
    short = compare.compare(runs(1.0, [1], 200), runs(1.5, [2], 200), 990_000)
    assert short.verdict == "cannot say"
    assert short.high == math.inf


def test_runs_are_cut_to_equal_length():
    """p99 of a short run is biased low, so all are cut to the shortest."""
    found = compare.compare(runs(1.0, range(3), 5000), runs(1.0, range(5, 8), 3000), 990_000)
    assert found.n_each == 3000
    with pytest.raises(ValueError, match="at least one run"):
        compare.compare([], runs(1.0, [1]), 990_000)
    with pytest.raises(ValueError, match="no requests"):
        compare.compare([np.array([])], runs(1.0, [1]), 990_000)


def test_failed_tails_and_equal_runs_do_not_break():
    """An infinite p99 (failures) or identical runs give a verdict, not a NaN or a division by zero."""
    failed = [np.where(np.arange(1000) % 20 == 0, np.inf, 1.0)] * 3
    assert compare.compare(failed, runs(1.0, range(3), 1000), 990_000).verdict == "cannot say"
    equal = [np.ones(1000)] * 3
    assert compare.compare(equal, equal, 990_000).verdict == "same"
