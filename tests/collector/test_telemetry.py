"""Telemetry as analysed: series on the run's axis, counters over resets, histograms, energy; from files alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from analysis import telemetry_figures as figures
from analysis.telemetry import clock_of, read
from analysis.telemetry_panels import mean_times
from analysis.telemetry_series import (
    Series,
    histogram_increase,
    increase,
    increases,
    integral,
    intervals,
    mean_by_bin,
    merge,
    quantile_bounds,
    rate,
)

S = 10**9
EPOCH = 1_800_000_000 * S


def series(values: list[float], step_ns: int = S, counter: bool = False) -> Series:
    """Samples from 0 on."""
    return Series(np.arange(len(values), dtype=np.int64) * step_ns, np.array(values, float), counter)


def write(path: Path, *lines: dict[str, Any] | str) -> None:
    """A collector's file; strings are written as they are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))


def header(source: str = "nvml", **more: Any) -> dict[str, Any]:
    """A file's first line."""
    base = {"format": "truetail-collector/1", "content": "samples", "source": source, "name": "h", "host": "h", "boot_id": "b"}
    return {**base, "period_ns": S, **more}


def anchor(wall_ns: int, mono_ns: int, uncertainty_ns: int = 100) -> dict[str, Any]:
    """An anchor line."""
    return {"anchor": {"wall_ns": wall_ns, "mono_ns": mono_ns, "uncertainty_ns": uncertainty_ns}}


def sample(mono_ns: int, wall_ns: int = 0, gpu: int | None = 0, **values: Any) -> dict[str, Any]:
    """A sample line."""
    return {"wall_ns": wall_ns, "mono_ns": mono_ns, **({} if gpu is None else {"gpu": gpu}), "values": values}


@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=30), st.integers(1, 28))
def test_resets_lose_nothing(steps: list[float], reset_at: int) -> None:
    """A counter that restarts from zero anywhere shows the same increases as one that does not, when it restarted at a sample."""
    whole = np.cumsum(steps)
    cut = min(reset_at, len(steps) - 1)
    broken = np.concatenate([whole[:cut], whole[cut:] - whole[cut - 1]])
    if broken[cut] < broken[cut - 1]:  # otherwise the fall cannot be seen by anybody
        np.testing.assert_allclose(increases(broken), increases(whole), rtol=1e-9, atol=1e-3)


def test_rate_and_increase() -> None:
    """Rates sit between samples in units per second; the increase over a part of a step is in proportion; outside it is not told."""
    counter = series([0, 10, 30, 5, 15], counter=True)
    np.testing.assert_allclose(rate(counter).values, [10, 20, 5, 10])
    assert rate(counter).at_ns.tolist() == [S // 2, 3 * S // 2, 5 * S // 2, 7 * S // 2]
    assert increase(counter, 0, 4 * S) == pytest.approx(45)
    assert increase(counter, S // 2, 3 * S // 2) == pytest.approx(5 + 10)
    assert increase(counter, -1, S) is None
    assert increase(counter, 0, 4 * S + 1) is None


def test_integral_is_exact_for_straight_lines() -> None:
    """The integral of a sampled straight line over any interval is the closed form."""
    power = series([100 + 2 * t for t in range(11)])
    low, high = 1.25, 8.75
    assert integral(power, low * S, high * S) == pytest.approx(100 * (high - low) + (high**2 - low**2))
    assert integral(power, 5 * S, 11 * S) is None


def test_intervals() -> None:
    """A state lasts until the sample that no longer shows it; a gap in the samples ends it; an open one ends at the last sample."""
    at = [0, 1, 2, 3, 10, 11]
    assert intervals(at, [False, True, True, False, True, True], 2) == [(1, 3), (10, 11)]
    assert intervals(at, [True] * 6, 2) == [(0, 3), (10, 11)]
    assert intervals([], [], 2) == []


def test_mean_by_bin_against_numpy() -> None:
    """Means by second equal numpy's on the same samples; an empty second is NaN."""
    rng = np.random.default_rng(3)
    at = np.sort(rng.integers(0, 10 * S, 200))
    at = at[(at < 4 * S) | (at >= 5 * S)]
    values = rng.normal(size=len(at))
    edges = np.arange(11, dtype=np.int64) * S
    means = mean_by_bin(Series(at, values), edges)
    for second in range(10):
        inside = values[(at >= second * S) & (at < (second + 1) * S)]
        assert np.isnan(means[second]) if second == 4 else means[second] == pytest.approx(inside.mean())


def test_histograms_merge_by_adding() -> None:
    """Two servers' buckets add up to the histogram of all observations, whose quantile lies in the bounds that are told."""
    rng = np.random.default_rng(5)
    bounds = [0.01, 0.1, 1.0, float("inf")]
    observed = [rng.exponential(0.05, 400), rng.exponential(0.3, 100)]
    told = [{b: series([7, 7 + float((x <= b).sum())], counter=True) for b in bounds} for x in observed]
    parts = [histogram_increase(t, 0, S) for t in told]
    both = np.concatenate(observed)
    merged = merge(part for part in parts if part)
    assert merged == {b: float((both <= b).sum()) for b in bounds}
    low, high = quantile_bounds(merged, 0.95) or (0, 0)
    assert low <= np.quantile(both, 0.95, method="inverted_cdf") <= high
    with pytest.raises(ValueError, match="different buckets"):
        merge([{1.0: 1}, {2.0: 1}])


def test_stepped_wall_clock_moves_nothing(tmp_path: Path) -> None:
    """The wall clock jumps by an hour in mid-run: samples stay where the monotonic clock has them; the error stays small."""
    lines = [header(), anchor(EPOCH - 1 * S, 4 * S), anchor(EPOCH + 9 * S, 14 * S), anchor(EPOCH + 3619 * S, 24 * S)]
    write(tmp_path / "gpu/h.jsonl", *lines, *(sample((5 + t) * S, gpu=0, power_w=t) for t in range(20)))
    source = read(tmp_path, EPOCH).sources[0]
    assert source.series["power_w"].at_ns.tolist() == [t * S for t in range(20)]
    steady = clock_of([(EPOCH - S, 4 * S, 100), (EPOCH + 9 * S, 14 * S, 50), (EPOCH + 19 * S, 24 * S + 30, 60)], EPOCH)
    assert steady
    assert steady.error_ns == 100 + 30


def test_each_boot_has_its_clock(tmp_path: Path) -> None:
    """After a reboot the monotonic clock starts anew: both halves lie right on the axis, in time with the wall clock."""
    write(
        tmp_path / "gpu/h.jsonl",
        header(boot_id="one"), anchor(EPOCH, 900 * S), sample(901 * S, power_w=1), '{"wall_ns":1,"mono',
        header(boot_id="two"), anchor(EPOCH + 60 * S, 5 * S), sample(6 * S, power_w=2),
    )  # fmt: skip
    telemetry = read(tmp_path, EPOCH)
    assert sorted(int(s.series["power_w"].at_ns[0]) for s in telemetry.sources) == [1 * S, 61 * S]
    assert any("1 lines could not be read" in note for note in telemetry.notes)


def test_hostile_files(tmp_path: Path) -> None:
    """Wrong types, huge numbers, NaN, foreign formats, links, markup and times without end cost only their own lines."""
    write(
        tmp_path / "gpu/h.jsonl", sample(1, power_w=1), header(period_ns="x", name="<script>alert(1)</script>"), anchor(EPOCH, 0),
        {"anchor": {"wall_ns": "x"}}, {"anchor": 5}, {"anchor": {"wall_ns": 10**40, "mono_ns": 0, "uncertainty_ns": 0}},
        "[1,2]", "null", "{" * 100_000, '{"mono_ns":' + "9" * 400 + ',"gpu":0,"values":{"power_w":1}}',
        {"mono_ns": True, "gpu": 0, "values": {"power_w": 1}}, {"mono_ns": 1.5, "values": {}}, {"mono_ns": 2, "values": [1]},
        sample(S, power_w="NaN", clock_sm_mhz="+Inf", temperature_gpu_celsius=True, x=None, y={"a": 1}, big=10**400, ok=1.0),
        sample(2 * S, power_w=5.0, name="\x1b[31m<b>$x^2$"), sample(2 * S, power_w=6.0), sample(S, power_w=7.0),
    )  # fmt: skip
    write(tmp_path / "gpu/other.jsonl", {"format": "else/9"}, sample(1, power_w=1))
    (tmp_path / "gpu/link.jsonl").symlink_to("/etc/passwd")
    telemetry = read(tmp_path, EPOCH)
    assert [s.name for s in telemetry.sources] == ["<script>alert(1)</script>"], "escaped where it is shown"
    got = telemetry.sources[0].series
    assert got["power_w"].values.tolist() == [5.0], "one sample an instant, times only rise"
    assert set(got) == {"power_w", "ok"}
    assert "\x1b" not in telemetry.sources[0].about["name"]
    assert any("else/9" in note for note in telemetry.notes)


def test_counters_are_known_by_type(tmp_path: Path) -> None:
    """A server's TYPE decides what is a counter, not the name; Triton's counters have no ``_total`` at the end."""
    types = {"nv_inference_count": "counter", "odd_total": "gauge", "h": "histogram"}
    values = {'nv_inference_count{m="a"}': 1, "odd_total": 1, 'h_bucket{le="1"}': 1, "h_sum": 1, "plain": 1}
    write(tmp_path / "server/t.jsonl", header("prometheus"), anchor(EPOCH, 0), {"types": types}, sample(1, gpu=None, **values))
    got = read(tmp_path, EPOCH).sources[0].series
    assert {name for name, s in got.items() if s.counter} == {'nv_inference_count{m="a"}', 'h_bucket{le="1"}', "h_sum"}


def test_mean_times_of_triton_and_histograms(tmp_path: Path) -> None:
    """Mean queue times are the duration's increase over the requests' increase, over a restart of the server too."""
    t = {"nv_inference_queue_duration_us": "counter", "nv_inference_request_success": "counter", "q_queue": "histogram"}
    rows = [
        (0, 0, 0.0, 0),
        (20_000, 10, 1.0, 10),
        (20_000, 10, 1.0, 10),
        (5_000, 5, 0.5, 1),
    ]  # the third: no request; then a restart
    lines = [
        sample(i * S, gpu=None, nv_inference_queue_duration_us=a, nv_inference_request_success=b, q_queue_sum=c, q_queue_count=d)
        for i, (a, b, c, d) in enumerate(rows)
    ]
    write(tmp_path / "server/t.jsonl", header("prometheus"), anchor(EPOCH, 0), {"types": t}, *lines)
    means = dict(mean_times(read(tmp_path, EPOCH).sources[0]))
    assert means["nv_inference_queue_duration_us"].values.tolist() == pytest.approx([2.0, 1.0])
    assert means["q_queue_sum"].values.tolist() == pytest.approx([100.0, 500.0])


def test_energy_by_counter_and_by_power(tmp_path: Path) -> None:
    """Energy by the counter (over a driver reload) and by integrating the power agree; requests and tokens in the window divide it."""
    lines = [sample(t * S, gpu=0, energy_mj_total=(t if t < 6 else t - 6) * 200_000, power_w=200.0) for t in range(11)]
    lines += [sample(t * S, gpu=1, power_w=100.0) for t in range(11)]
    write(tmp_path / "gpu/h.jsonl", header(), anchor(EPOCH, 0), *lines)
    one, two = read(tmp_path, EPOCH).of("gpu")
    done = np.arange(0, 10 * S, S // 2)
    tokens = np.full(len(done), 4.0)
    by_power = figures.energy(two, (2 * S, 5 * S), done, tokens)
    by_counter = figures.energy(one, (2 * S, 5 * S), done, tokens)
    assert by_power
    assert by_counter
    assert (by_counter.joules, by_power.joules) == (pytest.approx(600), pytest.approx(300))
    assert (by_counter.requests, by_counter.tokens, by_counter.covered) == (6, 24, 1)
    assert by_counter.per_request_j == pytest.approx(100)
    assert by_counter.per_token_j == pytest.approx(25)
    assert "counter" in by_counter.how
    assert "power" in by_power.how
    (total,) = figures.together([by_counter, by_power])
    assert total.joules == pytest.approx(900)
    reloaded = figures.energy(one, (4 * S, 8 * S), done, tokens)
    assert reloaded
    assert reloaded.joules == pytest.approx(600), "what was used between the last sample and the reload cannot be known"
    partly = figures.energy(one, (-10 * S, 10 * S), done, tokens)
    assert partly
    assert partly.covered == pytest.approx(0.5)


def test_simulated_is_never_summed_with_measured() -> None:
    """Sums are made of GPUs or of simulated devices, not of both."""

    def part(simulated: bool) -> figures.Energy:
        return figures.Energy("x", simulated, 10.0, 5.0, 1.0, 2, 0, "how")

    assert figures.together([part(False), part(True)]) == []
    titles = [e.title for e in figures.together([part(False), part(False), part(True), part(True)])]
    assert titles == ["all 2 GPUs", "all 2 simulated devices"]


def test_throttling_is_not_idling(tmp_path: Path) -> None:
    """Idle and set clocks are no throttling; a power cap and an unknown reason are, each with its own periods."""
    told = [["gpu_idle"], ["sw_power_cap"], ["sw_power_cap", "unknown_0x800"], ["applications_clocks_setting"], []]
    write(tmp_path / "gpu/h.jsonl", header(), anchor(EPOCH, 0), *(sample(t * S, event_reasons=r) for t, r in enumerate(told)))
    found = figures.throttled(read(tmp_path, EPOCH).sources[0])
    assert found == [(S, 3 * S, "sw_power_cap"), (2 * S, 3 * S, "unknown_0x800")]
    named = read(tmp_path, EPOCH).named()
    assert named["gpu/h:devices.0.throttling"].values.tolist() == [0, 1, 1, 0, 0]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=10, max_size=60))
def test_spearman_against_scipy(points: list[tuple[int, int]]) -> None:
    """Rank correlation with many ties equals scipy's."""
    x, y = np.array(points, float).T
    ours = figures.spearman(x, y)
    if ours is None:
        assert np.ptp(x) == 0 or np.ptp(y) == 0
    else:
        assert ours == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-9)


def test_latency_by_second_is_nearest_rank() -> None:
    """p50 and p99 of each second are x_(ceil(qn)), failures infinite, empty seconds NaN."""
    intended = np.concatenate([np.arange(100) * S // 100, [2 * S, 2 * S + 1]])
    response = np.concatenate([np.arange(1, 101) / 100, [0.5, np.inf]])
    seconds = figures.latency_by_second(intended, response, 3 * S)
    assert seconds.n.tolist() == [100, 0, 2]
    assert seconds.median_s[0] == pytest.approx(0.50)
    assert seconds.p99_s[0] == pytest.approx(0.99)
    assert np.isnan(seconds.p99_s[1])
    assert np.isinf(seconds.p99_s[2])
    assert seconds.median_s[2] == pytest.approx(0.5)


def test_memory_is_bounded_by_thinning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the bound every second sample is let go, again and again; a counter's increase stays right, and it is said."""
    monkeypatch.setattr("analysis.telemetry.MOST_POINTS", 100)
    write(tmp_path / "gpu/h.jsonl", header(), anchor(EPOCH, 0), *(sample(t * S, energy_mj_total=10 * t) for t in range(1000)))
    telemetry = read(tmp_path, EPOCH)
    kept = telemetry.sources[0].series["energy_mj_total"]
    assert len(kept) <= 101
    assert kept.values[-1] - kept.values[0] == pytest.approx(10 * (kept.at_ns[-1] - kept.at_ns[0]) / S)
    assert any("of 1000 samples" in note for note in telemetry.notes)
