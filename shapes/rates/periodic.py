"""What the periodic rates share: one period is enough to know the whole run."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from shapes.elementary import Floats
from shapes.rates.base import solve


class Periodic:
    """A rate with lambda(t + P) = lambda(t), so Lambda(t + n P) = Lambda(t) + n C, C the mean number of arrivals in a period.

    A subclass gives W, the integral within one period [0, P], with its slope, and instants (knots) between which W is smooth. The inverse
    takes whole periods off s, finds the two knots around the rest, and solves between them to well below a nanosecond:
    its cost and memory do not depend on how long the run is.
    """

    period_s: float
    per_period: float

    def _prepare(self, period_s: float, per_period: float, knots: Floats) -> None:
        self.period_s, self.per_period = period_s, per_period
        self._knots = np.unique(np.clip(np.concatenate([[0.0], knots, [period_s]]), 0.0, period_s))
        self._levels = np.maximum.accumulate(np.clip(self._within(self._knots)[0], 0.0, per_period))
        self._levels[-1] = per_period
        self._tolerance = max(1e-10, period_s * 2.0**-51)

    def _within(self, t: Floats) -> tuple[Floats, Floats]:
        """W(t) and its slope lambda(t), 0 <= t <= P."""
        raise NotImplementedError

    def rate(self, t: ArrayLike) -> Floats:
        """lambda(t)."""
        t = np.asarray(t, dtype=np.float64)
        return self._within(t - np.floor(t / self.period_s) * self.period_s)[1]

    def cumulative(self, t: ArrayLike) -> Floats:
        """n C + W(t - n P), n the whole periods in t."""
        t = np.asarray(t, dtype=np.float64)
        n = np.floor(t / self.period_s)
        within = np.clip(self._within(t - n * self.period_s)[0], 0.0, self.per_period)
        return np.asarray(n * self.per_period + within)

    def inverse(self, s: ArrayLike) -> Floats:
        """n P + W^-1(s - n C)."""
        s = np.atleast_1d(np.asarray(s, dtype=np.float64))
        n = np.maximum(np.ceil(s / self.per_period) - 1.0, 0.0)  # the end of a period, not the start of the next: the earliest t
        rest = np.clip(s - n * self.per_period, 0.0, self.per_period)
        right = np.clip(np.searchsorted(self._levels, rest, side="left"), 1, self._knots.size - 1)
        low, high = ((self._knots[i], self._levels[i]) for i in (right - 1, right))
        t = solve(self._within, rest, low, high, self._tolerance)
        return n * self.period_s + np.where(rest <= 0.0, 0.0, t)
