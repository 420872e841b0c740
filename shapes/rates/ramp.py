"""A rate that rises or falls in a straight line, then holds."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from shapes.elementary import Floats
from shapes.rates.base import check


class Ramp:
    """lambda(t) = a + g t with g = (b - a) / T for t < T, then b.

    Lambda(t) = a t + g t^2 / 2 for t < T, then Lambda(T) + b (t - T), Lambda(T) = (a + b) T / 2.
    Inverse: t = 2 s / (a + sqrt(a^2 + 2 g s)), which loses no digits for small g, then T + (s - Lambda(T)) / b.
    """

    def __init__(self, from_rps: float, to_rps: float, over_s: float) -> None:
        self._a, self._b = check("from_rps", from_rps), check("to_rps", to_rps)
        self._over = check("over_s", over_s, above=True)
        if self._a == self._b == 0:
            raise ValueError("ramp: found from_rps 0 and to_rps 0; at least one must be more than 0")
        self._slope = (self._b - self._a) / self._over
        self._level = (self._a + self._b) * 0.5 * self._over

    def rate(self, t: ArrayLike) -> Floats:
        """a + g t, then b."""
        t = np.asarray(t, dtype=np.float64)
        return np.where(t < self._over, self._a + self._slope * t, self._b)

    def cumulative(self, t: ArrayLike) -> Floats:
        """a t + g t^2 / 2, then Lambda(T) + b (t - T)."""
        t = np.asarray(t, dtype=np.float64)
        return np.where(t < self._over, (self._a + self._slope * 0.5 * t) * t, self._level + self._b * (t - self._over))

    def inverse(self, s: ArrayLike) -> Floats:
        """2 s / (a + sqrt(a^2 + 2 g s)), then T + (s - Lambda(T)) / b."""
        s = np.asarray(s, dtype=np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            root = np.sqrt(np.maximum(self._a * self._a + 2.0 * self._slope * s, 0.0))
            within = np.minimum(np.where(s <= 0.0, 0.0, 2.0 * s / (self._a + root)), self._over)
            after = self._over + (s - self._level) / self._b if self._b else np.full_like(s, np.inf)
        return np.where(s <= self._level, within, after)
