"""Elementary functions: accuracy against exact decimal arithmetic and scipy, and the same bits whatever the library."""

import hashlib
import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from scipy import special

from shapes import elementary
from shapes.elementary import cos_turns, exp, log, normal_density, normal_distribution, sin_turns

NEAR_ONE = 1.0 + np.arange(-40, 41) * 2.0**-52
WIDE = np.concatenate([2.0 ** np.arange(-1000, 1000, 7.0), np.random.default_rng(5).random(2000), NEAR_ONE])


def test_log_against_decimal() -> None:
    """Within 1.5e-15 of ln computed to 50 digits, also at 1 +- a few ulp, where a careless log loses everything."""
    with localcontext() as context:
        context.prec = 50
        for x, found in zip(WIDE.tolist(), log(WIDE).tolist(), strict=True):
            exact = Decimal(x).ln()
            assert abs(Decimal(found) - exact) <= abs(exact) * Decimal("1.5e-15"), x


def test_exp_against_decimal() -> None:
    """Within 1.5e-15 of e^x to 50 digits; 0 where the result would be subnormal."""
    xs = np.concatenate([np.linspace(-699, 699, 701), np.linspace(-1, 1, 300)])
    with localcontext() as context:
        context.prec = 50
        for x, found in zip(xs.tolist(), exp(xs).tolist(), strict=True):
            exact = Decimal(x).exp()
            assert abs(Decimal(found) - exact) <= exact * Decimal("1.5e-15"), x
    assert exp(np.array([-701.0, -1e300, -math.inf])).tolist() == [0.0, 0.0, 0.0]


def test_turns_against_numpy_near_and_exact_far() -> None:
    """Sine and cosine agree with the library's to 1e-15; whole turns are lost exactly, even a billion of them."""
    x = np.linspace(-0.5, 0.5, 4001)
    assert np.abs(sin_turns(x) - np.sin(2 * np.pi * x)).max() < 1e-15
    assert np.abs(cos_turns(x) - np.cos(2 * np.pi * x)).max() < 1e-15
    dyadic = np.arange(-64, 65) / 128
    assert np.array_equal(sin_turns(dyadic + 2.0**30), sin_turns(dyadic))


def test_normal_distribution_against_scipy() -> None:
    """Distribution and density of the normal law against scipy's, to 1.5e-15 absolute, over and beyond the table."""
    z = np.concatenate([np.linspace(-11, 11, 20001), [-math.inf, math.inf]])
    assert np.abs(normal_distribution(z) - special.ndtr(z)).max() < 1.5e-15
    z = z[np.isfinite(z)]
    assert np.abs(normal_density(z) - np.exp(-z * z / 2) / math.sqrt(2 * math.pi)).max() < 1e-15
    assert (np.diff(normal_distribution(np.linspace(-9, 9, 200_001))) >= -1e-15).all()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("log", "116c3602b15321a2"),
        ("exp", "fc80ddb955ec2987"),
        ("sin_turns", "2f43d4ae48571679"),
        ("normal_distribution", "9b3ba0629477cbea"),
    ],
)
def test_same_bits_everywhere(name: str, expected: str) -> None:
    """The bits of 100,000 results, pinned: a machine on which one differs would plan another schedule than the rest of its fleet."""
    x = (np.arange(100_000) + 0.5) / 100_000
    x = {"log": x, "exp": x * 80 - 40, "sin_turns": x * 7 - 3, "normal_distribution": x * 16 - 8}[name]
    found = getattr(elementary, name)(x).astype("<f8").tobytes()
    assert hashlib.sha256(found).hexdigest()[:16] == expected
