"""The six tests: p-values against scipy, size and power, and the certificate of planned arrivals over the union of workers."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from shapes.arrival_tests import ALPHA, certify, chi2_upper_tail, ks_p_value, ks_statistic
from shapes.rates import build_rate
from shapes.schedule import Schedule

SEEDS = range(20)
MOST_FAILURES = 2
"""Of 20 certificates at alpha 0.01 more than two fail with probability 0.001 (binomial), so that is where a wrong process is inferred."""

POISSON = {"kind": "poisson"}
CONSTANT = {"kind": "constant", "rate_rps": 200.0}


def union(arrivals: dict[str, Any], duration_s: float, seed: int, n_slots: int) -> np.ndarray:
    """Offsets in s of all workers' shares put together again, as a server sees them."""
    schedule = Schedule(arrivals, duration_s, seed)
    return (
        np.sort(np.concatenate([part.offsets_ns for slot in range(n_slots) for part in schedule.slot_blocks(slot, n_slots)]))
        / 1e9
    )


def certificates(arrivals: dict[str, Any], duration_s: float = 50.0) -> list[Any]:
    """One certificate a seed, of the union of 4 workers, at the declared rate."""
    rate = build_rate(arrivals["rate"])
    total = float(rate.cumulative([duration_s])[0])
    return [certify(rate.cumulative(union(arrivals, duration_s, seed, 4)), total) for seed in SEEDS]


@pytest.mark.parametrize("n", [100, 1000, 30_000])
@pytest.mark.parametrize("p", [1e-4, 0.0017, 0.01, 0.3, 0.9])
def test_p_values_against_scipy(n: int, p: float) -> None:
    """Kolmogorov's and the chi-squared tail against scipy's exact ones, within 5 % of the p-value or 0.012 absolute in the bulk."""
    d = float(stats.kstwo.isf(p, n))
    assert ks_p_value(d, n) == pytest.approx(p, rel=0.08, abs=0.012 if p > 0.05 else 2e-4)
    assert chi2_upper_tail(float(stats.chi2.isf(p, n - 1)), n - 1) == pytest.approx(p, rel=0.02, abs=6e-4)


def test_statistics_against_scipy() -> None:
    """D is scipy's; the count's p-value is that of the normal law; IDC is the variance over the mean of the counts."""
    u = np.random.default_rng(1).random(500)
    assert ks_statistic(u) == pytest.approx(stats.kstest(u, "uniform").statistic, abs=1e-12)
    found = certify(u * 460, 460)
    assert found["count"].statistic == pytest.approx(40 / 460**0.5)
    assert found["count"].p_value == pytest.approx(2 * stats.norm.sf(40 / 460**0.5))
    assert found["count"].effect == pytest.approx(500 / 460)
    counts = np.histogram(u, 50, (0, 1))[0]
    assert found["dispersion, 50 windows"].effect == pytest.approx(counts.var(ddof=1) / counts.mean())
    chi2 = stats.chisquare(counts)
    assert found["dispersion, 50 windows"].p_value == pytest.approx(2 * min(chi2.pvalue, 1 - chi2.pvalue), abs=2e-3)


def test_lewis_by_its_definition() -> None:
    """Durbin's transform, gap by gap in plain Python: a second derivation of the array code."""
    x = np.sort(np.random.default_rng(2).random(150) * 7)
    gaps = sorted(np.diff([0.0, *x, 7.0]) / 7)
    transformed, total, before = [], 0.0, 0.0
    for i, gap in enumerate(gaps[:-1]):
        total += (len(gaps) - i) * (gap - before)
        transformed.append(total)
        before = gap
    assert certify(x, 7 * 150 / 7.0).count == 150
    assert certify(x, 7.0)["Lewis-Durbin"].statistic == pytest.approx(ks_statistic(np.array(transformed)), abs=1e-12)


def test_size_of_the_family() -> None:
    """Of 600 Poisson samples made by numpy, not by us, at most 2.2 % are rejected at alpha 1 % (binomial, 0.005)."""
    rng = np.random.default_rng(8)
    rejected = sum(not certify(rng.random(rng.poisson(1000)) * 1000, 1000).passed for _ in range(600))
    assert rejected <= stats.binom.isf(0.005, 600, ALPHA)


def _stalls(x: np.ndarray) -> np.ndarray:
    return np.where(x % 5 < 0.05, x - x % 5 + 0.05, x)


@pytest.mark.parametrize(
    ("name", "spoil", "seen_by"),
    [
        ("rate 5 % low", lambda x, rng: x[rng.random(x.size) < 0.95], "count"),
        ("rounded to 1 ms", lambda x, rng: np.round(x, 3), "Lewis-Durbin"),
        ("50 ms stall each 5 s", lambda x, rng: _stalls(x), "dispersion, windows of 10"),
        ("rate drifts by 10 %", lambda x, rng: 10 * (0.9 * x / 10 + 0.1 * (x / 10) ** 2), "conditional uniforms"),
        ("four workers with one seed", lambda x, rng: np.repeat(rng.choice(x, x.size // 4, False), 4), "dispersion, 50 windows"),
        ("rate +-20 % in blocks of 100 ms", lambda x, rng: _blocks(x), "dispersion, windows of 100"),
    ],
)
def test_power(name: str, spoil: Callable[..., np.ndarray], seen_by: str) -> None:
    """Each known way to spoil Poisson arrivals (10 s at 1000/s) is found, by the test that is there for it."""
    rng = np.random.default_rng(9)
    clean = np.sort(rng.random(10_000)) * 10
    assert certify(clean * 1000, 10_000).passed
    spoilt = np.clip(spoil(clean, rng), 0, 10)
    assert seen_by in certify(spoilt * 1000, 10_000).failures, name


def _blocks(x: np.ndarray) -> np.ndarray:
    """Time changed so that the rate is 1.2 and 0.8 of itself in turn, 100 ms each."""
    phase = x % 0.2
    return x - phase + np.where(phase < 0.12, phase / 1.2, 0.1 + (phase - 0.12) / 0.8)


@pytest.mark.parametrize(
    "rate",
    [
        CONSTANT,
        {"kind": "ramp", "from_rps": 20.0, "to_rps": 380.0, "over_s": 50.0},
        {"kind": "diurnal", "mean_rps": 200.0, "amplitude": 0.9, "period_s": 20.0, "peak_at_s": 3.0},
        {"kind": "hour_burst", "base_rps": 20.0, "clients": 1800, "period_s": 10.0, "jitter": {"kind": "exponential", "width_s": 0.5},
         "align": "start", "offset_s": 0.0},
    ],
    ids=lambda rate: str(rate["kind"]),
)  # fmt: skip
def test_poisson_over_four_workers_passes(rate: dict[str, Any]) -> None:
    """In operational time the union of 4 workers is Poisson at the declared rate: at most 2 of 20 seeds fail at alpha 0.01."""
    found = certificates({"rate": rate, "spacing": POISSON})
    assert sum(not certificate.passed for certificate in found) <= MOST_FAILURES
    ratios = [certificate["Lewis-Durbin"].effect for certificate in found]
    assert np.mean(ratios) == pytest.approx(1, abs=0.03)


@pytest.mark.parametrize(
    ("spacing", "scv"),
    [
        ({"kind": "fixed"}, 0.0),
        ({"kind": "gamma", "cv": 0.8}, 0.64),
        ({"kind": "gamma", "cv": 1.3}, 1.69),
        ({"kind": "groups", "size": 4, "spacing": {"kind": "poisson"}}, 7.0),
    ],
)
def test_other_spacings_fail(spacing: dict[str, Any], scv: float) -> None:
    """What is not Poisson is rejected for all 20 seeds, and the squared CV of its gaps is the theoretical one."""
    found = certificates({"rate": CONSTANT, "spacing": spacing})
    assert not any(certificate.passed for certificate in found)
    assert np.mean([certificate["Lewis-Durbin"].effect for certificate in found]) == pytest.approx(scv, abs=0.02 + 0.05 * scv)


def test_wrong_rate_is_seen() -> None:
    """A ramp certified as if it were constant at its mean fails: the declared rate is part of the claim."""
    arrivals = {"rate": {"kind": "ramp", "from_rps": 100.0, "to_rps": 300.0, "over_s": 50.0}, "spacing": POISSON}
    assert "conditional uniforms" in certify(union(arrivals, 50.0, 1, 4) * 200, 10_000).failures


@pytest.mark.parametrize(
    ("points", "words"), [(np.arange(99), "found 99 arrivals"), (np.arange(200), "found points from 0 to 199")]
)
def test_clear_errors(points: np.ndarray, words: str) -> None:
    """Too few points, or points outside the run, are refused."""
    with pytest.raises(ValueError, match=words):
        certify(points, 150.0)
