"""Percentiles: exact, merged, never averaged; held against other implementations and against exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from scipy.optimize import brentq

from analysis import percentiles
from analysis.metrics import INFINITE_NS
from analysis.result import Result, analyse
from analysis.run_folder import open_run
from tests.analysis.run_folders import Plan, fail, rows_of, snapshot_of, write_run
from truetail.ranks import to_ppm
from truetail.records import DROPPED, FAILED, TIMED_OUT


def analysed(folder: Path, plan: Plan, rows: Any, **more: Any) -> Result:
    return analyse(open_run(write_run(folder, plan, rows, **more)))


def test_97_fast_and_3_slow(tmp_path: Path) -> None:
    """The lesson's first table: mean 23.6, p50 12, p95 12, p99 400 ms, through a whole run folder of two workers."""
    plan = Plan(rate_rps=100, duration_s=1)
    service = np.where(np.isin(np.arange(100), [10, 50, 81]), 400.0, 12.0)
    found = analysed(tmp_path / "run", plan, rows_of(plan, service, lateness_us=0)).percentiles.response
    assert found.n == 100
    assert found.mean_s == pytest.approx((97 * 0.012 + 3 * 0.4) / 100, abs=1e-12)
    assert (found.all_s["50"], found.all_s["95"], found.all_s["99"]) == (0.012, 0.012, 0.4)


def test_mean_of_p99s_is_shown_to_be_wrong(tmp_path: Path) -> None:
    """The lesson's sample of two replicas (970 requests with p99 46 ms, 30 with p99 636 ms): mean of p99s 341, true p99 239 ms.

    By nearest rank p99 of 30 is the largest of them, and p99 of 1000 the eleventh largest: the 20th of B when all of A is faster. B is an
    exponential shifted so that its midpoint quantiles 20 and 30 are 239 and 636 ms; a plain exponential cannot have both.
    """
    a = 46 / math.log(1 - 960.5 / 970) * np.log1p(-(np.arange(970) + 0.5) / 970)
    depth = -np.log1p(-(np.arange(30) + 0.5) / 30)
    b = 239 + (636 - 239) * (depth - depth[19]) / (depth[29] - depth[19])
    service, replica = np.empty(1000), np.where(np.arange(1000) % 100 < 3, 2, 1)
    service[replica == 1], service[replica == 2] = a, b
    found = _two_replicas(tmp_path / "run", Plan(rate_rps=100, duration_s=10), service, replica)
    assert [group.response.all_s["99"] for group in found.by_replica] == pytest.approx([0.046, 0.636], abs=5e-4)
    assert percentiles.mean_of_p99s(found.by_replica) == pytest.approx(0.341, abs=5e-4)
    assert found.response.all_s["99"] == pytest.approx(0.239, abs=5e-4)


def test_merged_p99_is_that_of_the_mixture(tmp_path: Path) -> None:
    """97 % exponential with p99 46 ms, 3 % with p99 636 ms, 10^5 requests: p99 of all solves the mixture's equation (151.7 ms)."""
    n, means = 100_000, {1: 46 / math.log(100), 2: 636 / math.log(100)}
    replica = np.where(np.arange(n) % 100 < 3, 2, 1)
    service = np.empty(n)
    for which, mean in means.items():
        size = int((replica == which).sum())
        service[replica == which] = -mean * np.log1p(-(np.arange(size) + 0.5) / size)
    found = _two_replicas(tmp_path / "run", Plan(rate_rps=10_000, duration_s=10), service, replica)
    truth = brentq(lambda x: 0.97 * math.exp(-x / means[1]) + 0.03 * math.exp(-x / means[2]) - 0.01, 1, 1000)
    assert found.response.all_s["99"] == pytest.approx(truth / 1e3, rel=1e-3)
    assert percentiles.mean_of_p99s(found.by_replica) == pytest.approx(0.341, rel=0.01)


def _two_replicas(folder: Path, plan: Plan, service: Any, replica: Any) -> percentiles.Percentiles:
    rows = rows_of(plan, service, lateness_us=0)
    rows["replica"] = replica
    return analysed(folder, plan, rows, names={"name": ["predict"], "replica": ["A", "B"], "error": []}).percentiles


@pytest.mark.parametrize("n", [1, 2, 3, 10, 59, 60, 99, 100, 101, 333, 1000, 1001])
def test_nearest_rank_against_duckdb_and_fractions(n: int) -> None:
    """Every percentile shown equals duckdb's quantile_disc and the value at ceil(q n) worked out in fractions."""
    values = np.random.default_rng(n).permutation(n).astype(np.int64) * 1_000_000
    found = percentiles.distribution(values).all_s
    ordered = sorted(values.tolist())
    for q in percentiles.SHOWN:
        by_duckdb = duckdb.sql(
            f"SELECT quantile_disc(i, {q} / 100.0::DECIMAL(18,6)) FROM unnest({values.tolist()}) t(i)"
        ).fetchall()
        rank = max(1, math.ceil(Fraction(q) / 100 * n))
        assert found[q] == ordered[rank - 1] / 1e9
        assert found[q] == by_duckdb[0][0] / 1e9


def test_nearest_rank_against_numpy_where_numpy_is_right() -> None:
    """numpy's inverted_cdf agrees wherever its floating rank is exact (it is one too high for p99.9 of 1000)."""
    for n in range(1, 400):
        values = np.random.default_rng(n).integers(0, 10**9, n)
        found = percentiles.distribution(values).all_s
        for q in ("50", "90", "95", "99"):
            assert found[q] == np.quantile(values, Fraction(to_ppm(q), 10**6).__float__(), method="inverted_cdf") / 1e9
    thousand = np.arange(1, 1001) * 10**9
    assert percentiles.distribution(thousand).all_s["99.9"] == 999.0


def test_one_slow_request_of_sixty_is_the_p99() -> None:
    """60 requests, one of 1.9 s: p99 is 1.9 s. Tools that round ranks say 10 ms."""
    values = np.full(60, 10_000_000)
    values[17] = 1_900_000_000
    assert percentiles.distribution(values).all_s["99"] == 1.9


def test_failures_are_infinitely_slow_beside_successes(tmp_path: Path) -> None:
    """2 % of failures make p99 of all infinite, while p99 of successes stays; both with their n."""
    plan = Plan(rate_rps=100, duration_s=10)
    rows = rows_of(plan, 10.0, lateness_us=0)
    for outcome, which in ((FAILED, slice(0, 10)), (TIMED_OUT, slice(10, 15)), (DROPPED, slice(15, 20))):
        fail(rows, which, outcome)
    found = analysed(tmp_path / "run", plan, rows).percentiles.response
    assert (found.n, found.failed) == (1000, 20)
    assert found.all_s["99"] == math.inf
    assert found.all_s["95"] == found.successes_s["99"] == 0.01
    assert found.to_json()["all_s"]["p99"] is None
    assert "p99" in found.to_json()["infinite"]


def test_nothing_is_said_to_be_nothing() -> None:
    """No values: no percentile, mean or maximum."""
    found = percentiles.distribution(np.empty(0, np.int64))
    assert (found.n, found.mean_s, found.max_s, found.all_s["99"]) == (0, None, None, None)


def test_only_failures_have_no_percentile_of_successes() -> None:
    """All failed: all is infinite, successes are no data."""
    found = percentiles.distribution(np.full(5, INFINITE_NS))
    assert (found.all_s["50"], found.successes_s["50"], found.failed) == (math.inf, None, 5)


def test_groups_are_the_merged_records_split(tmp_path: Path) -> None:
    """By name, replica and worker, each group's figures equal those of its own records; warm-up left out."""
    plan = Plan(rate_rps=200, duration_s=20, workers=3, warmup_s=5, spacing={"kind": "poisson"})
    n = plan.schedule.count()
    rng = np.random.default_rng(5)
    rows = rows_of(plan, rng.exponential(20, n), lateness_us=0)
    rows["name"], rows["replica"] = rng.integers(1, 4, n), rng.integers(0, 3, n)
    names = {"name": ["a", "b", "c"], "replica": ["r1", "r2"], "error": []}
    found = analysed(tmp_path / "run", plan, rows, names=names).percentiles
    kept = rows[rows["intended_ns"] >= 5e9]
    response = kept["done_ns"] - kept["intended_ns"]
    assert found.response.n == len(kept)
    kinds = (
        (found.by_name, kept["name"], {"a": 1, "b": 2, "c": 3}),
        (found.by_replica, kept["replica"], {"(not told)": 0, "r1": 1, "r2": 2}),
        (found.by_worker, kept["k"] % 3, {f"worker-{i}": i for i in range(3)}),
    )
    for groups, column, texts in kinds:
        assert {group.label for group in groups} == set(texts)
        for group in groups:
            mine = np.sort(response[column == texts[group.label]])
            assert group.response.n == len(mine)
            assert group.response.all_s["99"] == mine[math.ceil(Fraction(99, 100) * len(mine)) - 1] / 1e9


def test_histograms_stand_in_for_lost_records_within_their_bound(tmp_path: Path) -> None:
    """A worker's records are gone: its snapshot's histogram gives the fleet's percentiles, at most 0.1 % too high."""
    plan = Plan(rate_rps=500, duration_s=10)
    rows = rows_of(plan, np.random.default_rng(1).lognormal(3, 0.6, 5000), lateness_us=0)
    folder = write_run(tmp_path / "run", plan, rows)
    truth = percentiles.distribution(rows["done_ns"] - rows["intended_ns"])
    for slot in (0, 1):
        mine = rows[rows["k"] % 2 == slot]
        snapshot_of(folder, f"worker-{slot}", mine, len(mine))
    assert percentiles.of_run(open_run(folder)).estimate is None
    (folder / "records" / "worker-1.rec").unlink()
    estimate = percentiles.of_run(open_run(folder)).estimate
    assert estimate is not None
    assert estimate.n == 5000
    for q, value in truth.all_s.items():
        found = estimate.all_s[q]
        assert value is not None
        assert found is not None
        assert value <= found <= value * (1 + estimate.bound) + 1e-6
