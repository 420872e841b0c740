"""log, exp, sine and the normal distribution from + - * / and square roots alone: the same bits on every IEEE 754 machine.

The workers of a fleet compare digests of the schedule that each planned by itself. A C library or a vector unit may round the
last bit of ``log`` in its own way, which would move an arrival by a nanosecond on one host only. The five operations used here are
correctly rounded by the standard, and numpy applies each to whole arrays, so no compiler can fuse a product with a sum.
All functions take and return float64 arrays and are good to about 1e-15.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LN2_HIGH = float.fromhex("0x1.62e42fefa3000p-1")
"""ln 2 to 41 bits, so that its product with an exponent is exact; LN2_LOW is the rest."""
LN2_LOW = float.fromhex("0x1.3de6af278ece6p-42")
PER_LN2 = float.fromhex("0x1.71547652b82fep+0")
SQRT_HALF = 0.7071067811865476
TWO_PI = 6.283185307179586
PER_SQRT_TWO_PI = 0.3989422804014327

_ATANH = [1.0 / (2 * n + 1) for n in range(11, 0, -1)]
_EXP = [1.0]
for _n in range(1, 15):
    _EXP.insert(0, _EXP[0] / _n)
_SIN = [1.0]
for _n in range(1, 12):
    _SIN.insert(0, -_SIN[0] / ((2 * _n) * (2 * _n + 1)))


def _horner(x: Floats, coefficients: list[float]) -> Floats:
    """The polynomial with these coefficients, highest power first."""
    total = x * coefficients[0]
    total += coefficients[1]
    for coefficient in coefficients[2:]:
        total *= x
        total += coefficient
    return total


def log(x: Floats) -> Floats:
    """Natural logarithm of positive, finite x.

    x = m 2^e with m in [sqrt(1/2), sqrt 2); with f = (m - 1) / (m + 1), log m = 2 atanh f = 2 (f + f^3/3 + f^5/5 + ...), and f^2 < 0.0295.
    """
    mantissa, exponent = np.frexp(x)
    small = mantissa < SQRT_HALF
    mantissa = np.where(small, mantissa + mantissa, mantissa)
    whole = (exponent - small).astype(np.float64)
    f = (mantissa - 1.0) / (mantissa + 1.0)
    square = f * f
    series = _horner(square, _ATANH)
    series *= square
    f += f
    series *= f
    series += whole * LN2_LOW
    series += f
    series += whole * LN2_HIGH
    return series


def exp(x: Floats) -> Floats:
    """e^x for x <= 700; 0 below -700 (a subnormal result would depend on the machine's mode).

    x = k ln 2 + r with |r| <= ln(2)/2, then e^r by its series to r^14/14!.
    """
    clipped = np.maximum(x, -700.0)
    whole = np.rint(clipped * PER_LN2)
    rest = clipped - whole * LN2_HIGH
    rest -= whole * LN2_LOW
    return np.where(x < -700.0, 0.0, np.ldexp(_horner(rest, _EXP), whole.astype(np.int32)))


def sin_turns(x: Floats) -> Floats:
    """sin(2 pi x). Whole turns are taken off exactly, so that long runs lose nothing."""
    turn = x - np.rint(x)
    folded = np.where(np.abs(turn) > 0.25, np.copysign(0.5, turn) - turn, turn)
    return _sin_quarter(folded)


def cos_turns(x: Floats) -> Floats:
    """cos(2 pi x) = sin(2 pi (1/4 - |x|)) for |x| <= 1/2."""
    return _sin_quarter(0.25 - np.abs(x - np.rint(x)))


def _sin_quarter(turn: Floats) -> Floats:
    """sin(2 pi turn) for |turn| <= 1/4, by its series to the 23rd power."""
    angle = turn * TWO_PI
    return angle * _horner(angle * angle, _SIN)


def normal_density(z: Floats) -> Floats:
    """e^(-z^2/2) / sqrt(2 pi)."""
    return exp(z * z * -0.5) * PER_SQRT_TWO_PI


NORMAL_REACH = 9.0
"""Beyond this many standard deviations the normal distribution is 0 or 1 to the last bit of a double near 1."""
_CELLS = 64
"""Cells per standard deviation in the table of the normal distribution."""


def normal_distribution(z: Floats) -> Floats:
    """P(Z <= z) of a standard normal Z, to 1e-15 absolute: a Taylor polynomial about the nearest of 1,153 tabled points."""
    near = np.rint(np.clip(z, -NORMAL_REACH, NORMAL_REACH) * _CELLS)
    row = (near + NORMAL_REACH * _CELLS).astype(np.intp)
    distance = np.clip(z, -NORMAL_REACH, NORMAL_REACH) - near / _CELLS
    columns = _normal_table()
    total = columns[-1][row]
    for column in columns[-2::-1]:
        total = total * distance + column[row]
    return np.where(z <= -NORMAL_REACH, 0.0, np.where(z >= NORMAL_REACH, 1.0, total))


@cache
def _normal_table() -> list[Floats]:
    """Taylor coefficients of the normal distribution at each tabled point, lowest power first.

    The value: 1/2 + density(z) (z + z^3/3 + z^5/15 + ...), all terms of one sign. The derivatives: D^(n+1) = (-1)^n He_n(z) density(z),
    He the Hermite polynomials, He_(n+1) = z He_n - n He_(n-1).
    """
    z = np.arange(-NORMAL_REACH * _CELLS, NORMAL_REACH * _CELLS + 1) / _CELLS
    density = normal_density(z)
    term, series = z.copy(), z.copy()
    for n in range(1, 160):
        term = term * (z * z) / (2 * n + 1)
        series = series + term
    columns = [0.5 + density * series]
    before, hermite, factor = np.zeros_like(z), np.ones_like(z), 1.0
    for n in range(7):
        factor /= n + 1
        columns.append((-1) ** n * hermite * density * factor)
        before, hermite = hermite, z * hermite - n * before
    return columns
