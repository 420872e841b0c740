"""What a rate is, and the one numerical method that rates without a closed inverse share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from shapes.elementary import Floats


class Rate(Protocol):
    """An arrival rate over the run; t in s from the start, t >= 0. All methods take and return whole arrays."""

    def rate(self, t: ArrayLike) -> Floats:
        """lambda(t) in 1/s."""
        ...

    def cumulative(self, t: ArrayLike) -> Floats:
        """Lambda(t), the integral of lambda from 0 to t: the mean number of arrivals before t."""
        ...

    def inverse(self, s: ArrayLike) -> Floats:
        """The earliest t with Lambda(t) >= s; infinite where Lambda never gets there."""
        ...


def check(name: str, value: float, low: float = 0.0, *, above: bool = False) -> float:
    """The value as a finite float that is at least (or ``above``: more than) ``low``. Raises ValueError."""
    number = float(value)
    if not math.isfinite(number) or number < low or (above and number == low):
        raise ValueError(f"{name}: found {value!r}; allowed is a finite number {'more than' if above else 'from'} {low:g}")
    return number


_TURNS = 240
"""Enough to halve any bracket of doubles 60 times; four or five turns are usual."""
Bracket = tuple[Floats, Floats]
"""(t, f(t)) at one end of a bracket."""


def solve(f: Callable[[Floats], tuple[Floats, Floats]], s: Floats, low: Bracket, high: Bracket, tolerance: float) -> Floats:
    """The t in a bracket with f(t) = s, for a rising f that comes with its slope: Newton's method, kept within a bracket that narrows.

    Where the Newton step leaves the bracket (flat stretches, kinks), and on every fourth turn, the bracket is halved instead, so every
    element converges to ``tolerance``, on a flat stretch to its early end. An element that has converged is left alone: the result does
    not depend on what else is in the array.
    """
    (a, f_a), (b, f_b) = low, high
    t = np.empty(s.shape)
    place = np.arange(s.size)
    with np.errstate(divide="ignore", invalid="ignore"):
        guess = a + (b - a) * np.clip(np.nan_to_num((s - f_a) / (f_b - f_a), nan=1.0), 0.0, 1.0)
        for turn in range(_TURNS):
            value, slope = f(guess)
            excess = value - s
            enough = excess >= 0.0
            b, a = np.where(enough, guess, b), np.where(enough, a, guess)
            step = excess / slope
            newton = guess - step
            near = np.abs(step) <= tolerance
            inside = near | ((newton > a) & (newton < b) & (turn % 4 != 3))
            guess = np.where(inside, newton, a + (b - a) * 0.5)
            done = near | (b - a <= tolerance)
            if done.any():
                t[place[done]] = guess[done]
                going = ~done
                place, s, a, b, guess = place[going], s[going], a[going], b[going], guess[going]
                if not place.size:
                    break
        t[place] = guess
    return t
