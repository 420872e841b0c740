"""Faults found in other load generators, each as a test that the same mistake here would fail."""

from collections import deque
from typing import Any

import numpy as np
import pytest

from shapes.rates import build_rate
from shapes.schedule import Schedule

POISSON, FIXED = {"kind": "poisson"}, {"kind": "fixed"}


def offsets_s(rate: float | dict[str, Any], spacing: dict[str, Any], duration_s: float, seed: int = 0) -> np.ndarray:
    """All offsets in s."""
    spec = rate if isinstance(rate, dict) else {"kind": "constant", "rate_rps": rate}
    schedule = Schedule({"rate": spec, "spacing": spacing}, duration_s, seed)
    return np.concatenate([block.offsets_ns for block in schedule.blocks()] or [np.empty(0)]) / 1e9


def dispersion(times: np.ndarray, duration_s: int) -> float:
    """Index of dispersion of counts per second."""
    counts = np.bincount(times.astype(int), minlength=duration_s)
    return float(counts.var() / counts.mean())


@pytest.mark.parametrize("n_workers", [2, 4, 10])
def test_workers_do_not_repeat_each_other(n_workers: int) -> None:
    """One peer seeds every process alike: index of dispersion 2.3 with 2 processes, 9 with 10, and gaps that repeat. Here 1, and none.

    4,000 s at 50/s: the standard error of the index is 0.022; the bound is 4.5 of them.
    """
    schedule = Schedule({"rate": {"kind": "constant", "rate_rps": 50.0}, "spacing": POISSON}, 4000.0, 42)
    shares = [np.concatenate([part.offsets_ns for part in schedule.slot_blocks(slot, n_workers)]) for slot in range(n_workers)]
    times = np.sort(np.concatenate(shares)) / 1e9
    assert dispersion(times, 4000) == pytest.approx(1, abs=0.1)
    gaps = np.diff(times)
    assert (gaps[1:] == gaps[:-1]).mean() < 1e-4
    assert abs(np.corrcoef(gaps[1:], gaps[:-1])[0, 1]) < 0.01
    alike = np.sort(np.concatenate([offsets_s(50.0 / n_workers, POISSON, 4000.0, 42)] * n_workers))
    assert dispersion(alike, 4000) > 0.8 * n_workers  # the mistake itself: the test can see it


def test_constant_is_constant() -> None:
    """One peer's "constant" is exponential gaps put to scale (CV 1.01). Here CV is 0 but for the rounding to ns."""
    gaps = np.diff(offsets_s(50.0, FIXED, 400.0))
    assert gaps.std() / gaps.mean() < 1e-7
    assert gaps.size + 1 == 20_000


@pytest.mark.parametrize(
    ("rate_rps", "duration_s", "expected"), [(0.4, 2, 1), (0.9, 1, 1), (0.05, 10, 0), (0.05, 11, 1), (0.05, 400, 20), (2.5, 1, 2)]
)
def test_fractions_are_carried(rate_rps: float, duration_s: float, expected: int) -> None:
    """The same peer cuts rate * duration down stage by stage: 0.4/s for 2 s was nothing. Here the nearest whole number (a half: down)."""
    assert offsets_s(rate_rps, FIXED, duration_s).size == expected


def test_fractions_are_carried_over_steps() -> None:
    """A hundred steps of 0.4 arrivals each are 40 arrivals, not 0."""
    steps = {"kind": "steps", "steps": [{"rate_rps": 0.4 + 0.001 * (-1) ** i, "for_s": 1.0} for i in range(100)]}
    assert offsets_s(steps, FIXED, 100.0).size == 40
    assert offsets_s(steps, POISSON, 100.0).size == pytest.approx(40, abs=25)


@pytest.mark.parametrize("rate_rps", [0.5, 2.0])
def test_no_mass_on_whole_seconds(rate_rps: float) -> None:
    """Another peer draws a count for each second and puts what is left on its end: 43 % and 78 % on whole seconds. Here none, and IDC 1."""
    times = offsets_s(rate_rps, POISSON, 40_000.0)
    assert (np.abs(times - np.round(times)) < 1e-6).mean() < 1e-3
    assert dispersion(times, 40_000) == pytest.approx(1, abs=0.04)


@pytest.mark.parametrize(("low", "high", "expected"), [(1, 3, 40), (5, 15, 200), (50, 150, 2000)])
def test_ramps_have_their_integral(low: float, high: float, expected: int) -> None:
    """Another peer redraws the next gap every 100 ms of a Poisson ramp: 2.2 times too many at 1 to 3/s. Here the integral (5 standard errors)."""
    ramp = {"kind": "ramp", "from_rps": low, "to_rps": high, "over_s": 20.0}
    counts = [offsets_s(ramp, POISSON, 20.0, seed).size for seed in range(100)]
    assert np.mean(counts) == pytest.approx(expected, abs=5 * (expected / 100) ** 0.5)
    assert np.var(counts) == pytest.approx(expected, rel=0.75)


def test_a_ramp_is_linear_in_time() -> None:
    """A ramp by request number is not one by time (3, 9 and 28 instead of 26, 50 and 75/s at the quarters). Counts about the quarters agree."""
    ramp = {"kind": "ramp", "from_rps": 1.0, "to_rps": 100.0, "over_s": 400.0}
    times = offsets_s(ramp, FIXED, 400.0)
    found = [((times > middle - 4) & (times < middle + 4)).sum() / 8 for middle in (100, 200, 300)]
    assert found == pytest.approx([25.75, 50.5, 75.25], abs=0.3)


def test_lateness_does_not_add_up() -> None:
    """Relative sleeps drift by every overhead. Offsets here come from the start: after 1e7 arrivals at 1,000/s the last is where it belongs to 1 ns."""
    schedule = Schedule({"rate": {"kind": "constant", "rate_rps": 1000.0}, "spacing": FIXED}, 10_000.0, 0)
    (last,) = deque(schedule.blocks(), maxlen=1)
    assert abs(int(last.offsets_ns[-1]) - (10_000_000_000_000 - 500_000)) <= 1
    rate = build_rate({"kind": "constant", "rate_rps": 1000.0})
    assert float(rate.cumulative([10_000.0])[0]) == 1e7


def test_seed_zero_is_a_seed() -> None:
    """``seed or random()`` takes 0 for none. Here 0 is as good as 1: the same each time, and not the same as 1."""
    assert np.array_equal(offsets_s(50.0, POISSON, 60.0, 0), offsets_s(50.0, POISSON, 60.0, 0))
    assert not np.array_equal(offsets_s(50.0, POISSON, 60.0, 0)[:5], offsets_s(50.0, POISSON, 60.0, 1)[:5])
