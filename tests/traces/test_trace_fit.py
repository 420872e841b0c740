"""Fitting: known processes give back what they were made with; a fit of a fit stays the same process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shapes.schedule import Planned, Schedule
from shapes.traces.fit import Fit, arrivals_snippet, fit, joined, spacing_cv
from shapes.traces.rows import Rows

S = 10**9


def fitted(seconds: np.ndarray[Any, Any], window_s: float | None = None, length_s: float = 0.0) -> Fit:
    times = np.rint(np.sort(seconds) * S).astype(np.int64)
    blocks = [Rows(part, {}, np.arange(len(part)), "start") for part in np.array_split(times, 7) if len(part)]
    return fit(blocks, window_s, lambda n, last: round(length_s * S) or last + last // (n - 1))


@pytest.mark.parametrize("seed", range(10))
def test_a_poisson_process_is_one_piece_with_cv_1(seed: int) -> None:
    """20,000 arrivals at 50/s: one piece (3 at most, by chance); rate, CV and dispersion (360 degrees of freedom) within 5
    standard errors.
    """
    seconds = np.cumsum(np.random.default_rng(seed).exponential(0.02, 20_000))
    found = fitted(seconds)
    assert len(found.rates_rps) <= 3
    assert abs(found.mean_rps - 50) < 5 * 50 / 20_000**0.5
    assert found.gap_cv == pytest.approx(1, abs=0.05)
    assert found.dispersion == pytest.approx(1, abs=5 * (2 / 360) ** 0.5)
    assert found.cv == pytest.approx(1, abs=2.5 * (2 / 360) ** 0.5 + 0.02)


@pytest.mark.parametrize("cv", [0.2, 0.5, 2.0, 4.0])
def test_gamma_gaps_give_their_cv(cv: float) -> None:
    """100,000 gamma gaps of known CV at 100/s: gap CV within 5 %, the CV from dispersion within 15 %."""
    gaps = np.random.default_rng(1).gamma(1 / cv**2, 0.01 * cv**2, 100_000)
    found = fitted(np.cumsum(gaps))
    assert found.gap_cv == pytest.approx(cv, rel=0.05)
    assert found.cv == pytest.approx(cv, rel=0.15)


def test_a_trend_does_not_pass_for_burstiness() -> None:
    """A Poisson process whose rate steps 10, 100, 30/s: steps found where they are, and CV 1 although the raw gaps have far
    more.
    """
    random = np.random.default_rng(4)
    parts = [
        start + np.sort(random.uniform(0, 300, random.poisson(rate * 300))) for start, rate in ((0, 10), (300, 100), (600, 30))
    ]
    seconds = np.concatenate(parts)
    found = fitted(seconds, length_s=900.0)
    gaps = np.diff(seconds)
    assert gaps.std() / gaps.mean() > 1.5
    assert found.gap_cv == pytest.approx(1, abs=0.05)
    assert {0.0, 300.0, 600.0, 900.0} <= set(found.edges_s.tolist())
    assert len(found.rates_rps) <= 6
    assert float((np.diff(found.edges_s) * found.rates_rps).sum()) == pytest.approx(len(seconds))


def test_joining_keeps_what_is_drawn_from_doubling_its_variance() -> None:
    """Counts per window of a replayed Poisson trace: with each window's own count for its rate they would have dispersion 2,
    not 1.

    Twenty replays of 500 windows: the standard error of the mean dispersion is sqrt(2 / 499 / 20) = 0.014; alpha is about 1e-6.
    """
    seconds = np.cumsum(np.random.default_rng(8).exponential(0.05, 100_000))
    found = fitted(seconds)
    spec = {"kind": "piecewise", "times_s": found.edges_s, "rates_rps": found.rates_rps}
    drawn = []
    for seed in range(20):
        planned = Planned({"rate": spec, "spacing": {"kind": "poisson"}}, 5000.0, seed, 0.0)
        counts = np.bincount(np.concatenate([block.offsets_ns for block in planned.blocks()]) // (10 * S), minlength=500)[:500]
        drawn.append(counts.var(ddof=1) / counts.mean())
    assert np.mean(drawn) == pytest.approx(1, abs=5 * 0.014 + 0.03)


def test_joined_pieces_preserve_counts_and_stop_at_real_steps() -> None:
    """Edges stay edges, the area under the curve is the count; empty stretches join into one piece of rate 0."""
    edges = np.arange(101) * 10.0
    counts = np.concatenate([np.zeros(40), np.full(30, 100.0), np.zeros(30)])
    found, rates = joined(edges, counts.copy(), 1.0)
    assert found.tolist() == [0.0, 400.0, 700.0, 1000.0]
    assert rates.tolist() == [0.0, 10.0, 0.0]


def test_too_thin_for_dispersion_falls_back_on_the_gaps() -> None:
    """Below half an arrival a part, counts tell nothing: the gaps' CV is taken; without gaps, Poisson's."""
    assert spacing_cv(1.0, 0.1, 2.5) == 2.5
    assert spacing_cv(float("nan"), 0.0, float("nan")) == 1.0


def test_the_model_of_a_bursty_process_has_its_dispersion(tmp_path: Any) -> None:
    """Gamma gaps of CV 3 recorded, modelled, replayed: the replay's dispersion per second is the record's within 15 %;
    Poisson's is not.
    """
    gaps = np.random.default_rng(2).gamma(1 / 9, 0.01 * 9, 200_000)
    path = tmp_path / "bursty.csv"
    path.write_text("offset_s\n" + "\n".join(f"{second:.9f}" for second in np.cumsum(gaps)) + "\n")

    def dispersion(mode: str) -> float:
        schedule = Schedule({"trace": {"file": str(path), "mode": mode}}, 1500.0, 1)
        counts = np.bincount(np.concatenate([block.offsets_ns for block in schedule.blocks()]) // S)[:1500]
        return float(counts.var(ddof=1) / counts.mean())

    recorded = dispersion("exact")
    assert recorded > 5
    assert dispersion("model") == pytest.approx(recorded, rel=0.15)
    assert dispersion("poisson") < 0.7 * recorded
    assert dispersion("fixed") < 0.1


def test_the_snippet_is_a_scenario_s_arrivals() -> None:
    """Constant Poisson prints as a rate; too many pieces are an error that says what to do."""
    found = fitted(np.cumsum(np.random.default_rng(0).exponential(0.02, 20_000)))
    one = Fit(found.n, found.length_s, 10.0, np.array([0.0, found.length_s]), np.array([found.mean_rps]), 1.0, 1.0, 50.0)
    assert arrivals_snippet(one) == {"rate": f"{found.mean_rps:.6g}/s", "spacing": "poisson"}
    many = Fit(900, 300.0, 1.0, np.arange(301.0), np.ones(300), 1.0, 1.0, 50.0)
    with pytest.raises(ValueError, match="wider fit window"):
        arrivals_snippet(many)
