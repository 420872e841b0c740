"""Draws by arrival number: published test vectors, independence of order and company, right shares."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from shapes.mix import choices, philox, uniforms


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_known_answers(counter: tuple[int, ...], key: tuple[int, int], expected: tuple[int, ...]) -> None:
    """The known-answer vectors that the authors of Philox4x32-10 publish."""
    words = philox(tuple(np.array([word], dtype=np.uint64) for word in counter), key)  # type: ignore[arg-type]
    assert tuple(int(word[0]) for word in words) == expected


@given(st.lists(st.integers(0, 2**40), max_size=30), st.integers(0, 2**64 - 1))
def test_depends_on_k_and_seed_alone(ks: list[int], seed: int) -> None:
    """Order and company of the arrivals do not matter, so any worker draws alike for the same arrival."""
    together = choices(np.array(ks, dtype=np.int64), [1, 2, 3], seed)
    alone = [int(choices(np.array([k]), [1, 2, 3], seed)[0]) for k in ks]
    assert together.tolist() == alone
    assert choices(np.array(ks[::-1], dtype=np.int64), [1, 2, 3], seed).tolist() == alone[::-1]


def test_uniform_and_independent() -> None:
    """Uniform by KS, uncorrelated from k to k + 1, between slots, dimensions and neighbouring seeds (alpha 0.001 each, fixed seeds)."""
    ks = np.arange(200_000)
    u = uniforms(ks, 0, "payload")
    assert stats.kstest(u, "uniform").pvalue > 1e-3
    for other in (np.roll(u, 1), np.roll(u, 4), uniforms(ks, 0, "body"), uniforms(ks, 1, "payload"), uniforms(ks, 0, 0)):
        assert stats.pearsonr(u, other).pvalue > 1e-3
    assert u.min() > 0 and u.max() < 1


def test_shares() -> None:
    """Shares are the weights' (chi-squared, alpha 0.001); a weight of 0 is never drawn, wherever it stands."""
    found = np.bincount(choices(np.arange(100_000), [0, 1, 0, 2, 7, 0], seed=3), minlength=6)
    assert found[[0, 2, 5]].tolist() == [0, 0, 0]
    assert stats.chisquare(found[[1, 3, 4]], np.array([1, 2, 7]) * 10_000).pvalue > 1e-3


def test_pinned() -> None:
    """A mix seed means the same requests in every release."""
    assert choices(np.arange(20), [3, 2, 1], seed=42).tolist() == [1, 2, 1, 1, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 1, 2, 0, 1, 0]
    assert uniforms([0, 1, 2**33], 42, "payload").tolist() == [0.19080004353781488, 0.12674047580040126, 0.6585277827946058]


@pytest.mark.parametrize("weights", [[], [0.0], [-1, 2], [float("nan")], [[1.0]]])
def test_clear_errors(weights: list[float]) -> None:
    """Weights that say nothing are refused."""
    with pytest.raises(ValueError, match="weights: found"):
        choices([0], weights, 0)
