"""The fidelity experiment's sender and figures, against scipy, closed forms and made-up logs with known answers."""

from __future__ import annotations

import asyncio
import json

import numpy as np
import pytest
from scipy import stats

from benchmarks import fidelity_figures as figures
from benchmarks.fidelity_instants import accounted, instants_ns
from benchmarks.fidelity_production import BODY, Sender, instants

ALPHA = 0.001  # of each test below; seeds are fixed


def test_sender_plans_poisson_arrivals():
    """Gaps of the sender's Poisson traffic are exponential at the rate, by scipy's Kolmogorov-Smirnov test."""
    times = np.array(instants("poisson", 60.0, 600.0, seed=1))
    assert stats.kstest(np.diff(times, prepend=0.0), "expon", args=(0, 1 / 60)).pvalue > ALPHA
    assert times[-1] < 600


def test_sender_plans_gamma_gaps():
    """gamma:2 has gaps of a gamma law of CV 2 at the rate, by scipy's Kolmogorov-Smirnov test."""
    times = np.array(instants("gamma:2", 60.0, 600.0, seed=1))
    assert stats.kstest(np.diff(times, prepend=0.0), "gamma", args=(0.25, 0, 4 / 60)).pvalue > ALPHA


def test_sender_switches_between_two_rates():
    """on-off keeps the mean rate, and its counts per second have the index of dispersion of a two-phase modulated Poisson process.

    For exponential phases of mean m the rate's covariance is (swing rate)^2 exp(-2 t / m); over T = 1 s, m = 1 s this gives
    I = 1 + 2 rate swing^2 (m / 2) (1 - (1 - exp(-2 T / m)) / (2 T / m)).
    """
    times = np.array(instants("on-off", 60.0, 10_000.0, seed=1))
    assert len(times) / 10_000 == pytest.approx(60.0, rel=0.03)
    counts = np.bincount(times.astype(int), minlength=10_000)
    expected = 1 + 2 * 60 * 0.75**2 * 0.5 * (1 - (1 - np.exp(-2)) / 2)
    assert counts.var() / counts.mean() == pytest.approx(expected, rel=0.1)


def test_sender_refuses_other_laws():
    """A law that there is not is named, with those that there are."""
    with pytest.raises(ValueError, match="found the law 'pareto'; allowed are poisson, gamma:CV, on-off"):
        instants("pareto", 60.0, 1.0, seed=1)


def test_sender_is_open_loop():
    """Answers that take 0.3 s hold nothing up: requests 20 ms apart arrive long before the first answer, each one once."""
    seen = []

    async def answer(reader, writer):
        while head := await reader.readuntil(b"\r\n\r\n"):
            assert await reader.readexactly(len(BODY)) == BODY
            seen.append((asyncio.get_running_loop().time(), head.split(b" ", 2)[1]))
            await asyncio.sleep(0.3)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    async def exchange():
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        sender = Sender(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/predict")
        begun = asyncio.get_running_loop().time()
        await sender.send_all([0.02 * number for number in range(10)])
        took = asyncio.get_running_loop().time() - begun
        server.close()
        return sender, took

    sender, took = asyncio.run(exchange())
    assert (sender.answered, sender.failed, len(seen)) == (10, 0, 10)
    assert {path for _, path in seen} == {b"/predict"}
    assert took < 10 * 0.3, "one after the other they would have taken 3 s"


def _log(tmp_path, lines):
    path = tmp_path / "access.jsonl"
    base = {"method": "POST", "path": "/predict", "status": 200, "arrival": None}
    path.write_text("".join(json.dumps(base | line) + "\n" for line in lines))
    return path


def test_log_is_read_in_order_of_arrival(tmp_path):
    """A log is written in order of answers: requests come out in order of arrival, and other paths are left out."""
    lines = [
        {"arrived_wall_ns": 1_800_000_000_500_000_000, "duration_us": 12_000},
        {"arrived_wall_ns": 1_800_000_000_000_000_000, "duration_us": 900_000},
        {"arrived_wall_ns": 1_800_000_000_700_000_000, "duration_us": 1, "path": "/version"},
    ]
    served = figures.read_log(_log(tmp_path, lines))
    assert served.arrived_s.tolist() == [0.0, 0.5]
    assert served.duration_s.tolist() == [0.9, 0.012]


def test_log_with_a_failure_is_refused(tmp_path):
    """A production or replay in which a request failed proves nothing."""
    lines = [{"arrived_wall_ns": 1, "duration_us": 1}, {"arrived_wall_ns": 2, "duration_us": 1, "status": 503}]
    with pytest.raises(ValueError, match="2 requests, 1 of them not answered with 200"):
        figures.read_log(_log(tmp_path, lines))


def test_ideal_queue_meets_theory():
    """One at a time, 12 ms fixed, Poisson at 60/s: the exact queue's mean response is Pollaczek and Khinchine's."""
    arrived = np.array(instants("poisson", 60.0, 4_000.0, seed=4))
    rho = 0.72
    expected_s = 0.012 * (1 + rho / (1 - rho) / 2)
    assert figures.ideal(arrived, 0.012, 0.0, 1, 0.0).duration_s.mean() == pytest.approx(expected_s, rel=0.04)


def _served(seed, n=12_000, scale=1.0):
    random = np.random.default_rng(seed)
    return figures.Served(np.cumsum(random.exponential(1 / 60, n)), scale * random.exponential(0.01, n))


def test_ratio_interval_covers():
    """Between runs that differ by chance alone, 95 % intervals hold 1 about that often (40 pairs; below 33 has P < 0.001 at 0.95)."""
    pairs = [(_served(2 * number, 4_000), _served(2 * number + 1, 4_000)) for number in range(40)]
    held = sum(low <= 1 <= high for _, low, high in (figures.ratio(ours, theirs, 95, False, 200) for ours, theirs in pairs))
    assert held >= 33


def test_paired_ratio_is_sharp():
    """A replay of the same instants that is 3 % slower is seen as such although independent runs of this length differ by more."""
    production = _served(1)
    value, low, high = figures.ratio(figures.Served(production.arrived_s, 1.03 * production.duration_s), production, 99, True)
    assert value == pytest.approx(1.03)
    assert (low, high) == pytest.approx((1.03, 1.03))
    _, low, high = figures.ratio(_served(2, scale=1.03), production, 99, False)
    assert high - low > 0.05


def test_short_runs_have_no_ratio_interval():
    """Nine blocks of 5 s say nothing of how far a p99 can be off."""
    _, low, high = figures.ratio(_served(1, n=2_500), _served(2, n=2_500), 99, False)
    assert (low, high) == (0.0, np.inf)


def test_arrivals_are_told_apart():
    """Poisson arrivals pass the six tests; the same number at fixed intervals fail, with no dispersion and no CV."""
    poisson = figures.arrivals(_served(1), 60.0)
    assert poisson.verdict == "Poisson"
    assert poisson.dispersion_1s == pytest.approx(1.0, abs=0.3)
    fixed = figures.arrivals(figures.Served(np.arange(12_000) / 60, np.ones(12_000)), 60.0)
    assert fixed.verdict.endswith("of 6 reject")
    assert (fixed.gap_cv, fixed.dispersion_1s) == pytest.approx((0.0, 0.0), abs=0.01)


def test_strayed_needs_equal_counts():
    """Arrivals are compared by rank, the common shift aside; with one missing, ranks say nothing and it refuses."""
    production = _served(1)
    late = figures.Served(production.arrived_s + 0.25, production.duration_s)
    assert figures.strayed_s(late, production).max() == pytest.approx(0.0, abs=1e-9)
    with pytest.raises(ValueError, match="11999 arrivals were replayed of 12000"):
        figures.strayed_s(figures.Served(late.arrived_s[1:], late.duration_s[1:]), production)


def test_instants_of_a_trace(tmp_path):
    """Seven digits of a second survive, rows out of order are sorted, compression divides, the window cuts."""
    trace = tmp_path / "trace.csv"
    rows = ["2023-11-16 18:15:46.6805900,1,2", "2023-11-16 18:15:50.0000001,1,2", "2023-11-16 18:15:46.7805900,1,2"]
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "\n".join(rows) + "\n")
    assert instants_ns(trace, 60, 1).tolist() == [0, 100_000_000, 3_319_410_100]
    assert instants_ns(trace, 1, 1).tolist() == [0, 100_000_000]
    assert instants_ns(trace, 1, 10).tolist() == [0, 10_000_000, 331_941_010]


def test_arrivals_are_accounted_for():
    """One arrival missing at the server, one sent twice and one number that nobody planned are each counted."""
    names = ["k", "intended_ns", "sent_ns"]
    rows = np.rec.fromarrays([np.arange(4), np.arange(4) * 1000, np.arange(4) * 1000 + 500], names=names)
    found = accounted(np.arange(4) * 1000, rows, ["0", "1", "1", "3", "9"])
    assert (found["server_missing"], found["server_doubled"], found["server_strange"]) == (1, 1, 1)
    assert (found["records_missing"], found["records_doubled"], found["intended_off_max_ns"]) == (0, 0, 0)
    assert found["late_p99_ms"] == pytest.approx(0.0005)
