"""Spacings: laws of the gaps against scipy, stationarity from the start, no drift, blocks that can be made again."""

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats

from shapes.spacings import BLOCK, UNITS, accumulate, build_spacing
from shapes.variates import GAPS, Bits, exponentials, gammas

ALPHA = 1e-3  # of each goodness-of-fit test here; seeds are fixed


def sums(spec: dict[str, Any], blocks: int, seed: int = 7) -> np.ndarray:
    """The first partial sums of a spacing."""
    return np.concatenate(list(itertools.islice(build_spacing(spec).sums(seed), blocks)))


def test_fixed_is_exact() -> None:
    """S_k = k + 1/2 to the last bit, whatever the block."""
    assert np.array_equal(sums({"kind": "fixed"}, 3), np.arange(3 * BLOCK) + 0.5)


def test_poisson_gaps_are_exponential() -> None:
    """Gaps of 10 blocks against scipy's exponential law; the first arrival is not at 0."""
    gaps = np.diff(sums({"kind": "poisson"}, 10), prepend=0.0)
    assert stats.kstest(gaps, stats.expon.cdf).pvalue > ALPHA
    firsts = np.array([sums({"kind": "poisson"}, 1, seed)[0] for seed in range(400)])
    assert firsts.min() > 0
    assert stats.kstest(firsts, stats.expon.cdf).pvalue > ALPHA


@pytest.mark.parametrize("cv", [0.1, 0.5, 1.0, 2.0, 4.0])
def test_gamma_gaps(cv: float) -> None:
    """Gaps against scipy's gamma law with mean 1; their mean and SCV are 1 and cv^2 within 5 standard errors."""
    gaps = np.diff(sums({"kind": "gamma", "cv": cv}, 10))
    law = stats.gamma(1 / cv**2, scale=cv**2)
    least = 1e-8  # gaps are whole numbers of 2^-36, and with cv 4 a fifth of them is smaller than that
    shares = (law.cdf(gaps[gaps > least]) - law.cdf(least)) / law.sf(least)
    assert stats.kstest(shares, "uniform").pvalue > ALPHA
    assert stats.binomtest(int((gaps > least).sum()), gaps.size, law.sf(least)).pvalue > ALPHA
    assert gaps.mean() == pytest.approx(1, abs=5 * cv / gaps.size**0.5)
    spread = (gaps / gaps.mean()).var()
    kurtosis = 3 + 6 * cv**2
    assert spread == pytest.approx(cv**2, abs=5 * cv**2 * ((kurtosis - 1) / gaps.size) ** 0.5 + 5 * cv**3 / gaps.size**0.5)


@pytest.mark.parametrize("cv", [0.5, 3.0])
def test_gamma_is_stationary_from_the_start(cv: float) -> None:
    """The mean count of the first 20 time units is 20 over 300 seeds (4 standard errors): no bias from the first gap.

    With an ordinary first gap it would be about 20 + (cv^2 - 1) / 2.
    """
    counts = np.array([np.searchsorted(next(build_spacing({"kind": "gamma", "cv": cv}).sums(seed)), 20.0) for seed in range(300)])
    error = counts.std() / counts.size**0.5
    assert abs(counts.mean() - 20) < 4 * error
    if cv > 1:
        assert (cv**2 - 1) / 2 > 4 * error  # the test could see the bias


def test_groups_share_an_instant() -> None:
    """k arrivals at the same instant, groups at 1/k of the rate: fixed groups of 4 are at 2, 6, 10, ..."""
    found = sums({"kind": "groups", "size": 4, "spacing": {"kind": "fixed"}}, 2)
    assert found[:12].tolist() == [2] * 4 + [6] * 4 + [10] * 4
    poisson = sums({"kind": "groups", "size": 3, "spacing": {"kind": "poisson"}}, 30).reshape(-1, 3)
    assert (poisson == poisson[:, :1]).all()
    assert stats.kstest(np.diff(poisson[:, 0]) / 3, stats.expon.cdf).pvalue > ALPHA


def test_huge_groups_stay_bounded() -> None:
    """A group may be larger than a block; blocks grow to one group, not to a block of groups."""
    block = next(build_spacing({"kind": "groups", "size": 100_000, "spacing": {"kind": "fixed"}}).sums(0))
    assert block.size == 100_000


def test_no_drift() -> None:
    """Adding up loses nothing: after 200 blocks the sum equals that of exact fractions of the rounded gaps."""
    gaps_of = lambda block: np.full(BLOCK, 1 / 3) + block * 1e-7  # noqa: E731
    last = [block[-1] for block in itertools.islice(accumulate(gaps_of), 200)][-1]
    exact = sum(Fraction(round(float(gaps_of(block)[0]) * UNITS), int(UNITS)) * BLOCK for block in range(200))
    assert last == float(exact)


def test_blocks_can_be_made_again() -> None:
    """Block i comes from its own counter: made alone it equals the one in the stream; other seeds and blocks differ."""
    gaps = np.diff(sums({"kind": "poisson"}, 3), prepend=0.0)[2 * BLOCK :]
    assert np.abs(exponentials(Bits(7, GAPS, 2), BLOCK) - gaps)[1:].max() < 1e-9
    heads = {exponentials(Bits(seed, GAPS, block), 1)[0] for seed in range(50) for block in range(50)}
    assert len(heads) == 2500


def test_uniform_bits() -> None:
    """Uniforms lie inside (0, 1), on the half-way points of 2^-52, and are uniform."""
    u = Bits(0, GAPS, 0).uniforms(200_000)
    assert u.min() > 0 and u.max() < 1
    assert np.array_equal(u * 2.0**52 % 1, np.full(u.size, 0.5))
    assert stats.kstest(u, "uniform").pvalue > ALPHA


@pytest.mark.parametrize("shape", [0.02, 0.5, 1.0, 30.0, 1e6])
def test_gamma_variates(shape: float) -> None:
    """Gamma variates of small and large shape against scipy's law."""
    x = gammas(Bits(11, GAPS, 0), shape, 40_000)
    assert stats.kstest(x, stats.gamma(shape).cdf).pvalue > ALPHA


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"kind": "gamma", "cv": 0}, "gamma cv: found 0"),
        ({"kind": "gamma", "cv": float("nan")}, "gamma cv: found nan"),
        ({"kind": "gamma"}, "cv is missing"),
        ({"kind": "groups", "size": 0, "spacing": {"kind": "fixed"}}, "groups size: found 0"),
        ({"kind": "weibull"}, "found 'weibull'; allowed: fixed, poisson"),
    ],
)
def test_clear_errors(spec: dict[str, Any], words: str) -> None:
    """A wrong spacing is answered with its field, what was found and what is allowed."""
    with pytest.raises(ValueError, match=words):
        build_spacing(spec)


@pytest.mark.parametrize("seed", [-1, 2**64, 1.5, True, "7"])
def test_seeds_are_64_bit_numbers(seed: Any) -> None:
    """Anything else is refused, not silently cut."""
    with pytest.raises(ValueError, match="seed: found"):
        Bits(seed, GAPS, 0)
