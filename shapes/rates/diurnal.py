"""A day's curve."""

from __future__ import annotations

import numpy as np

from shapes.elementary import TWO_PI, Floats, cos_turns, sin_turns
from shapes.rates.base import check
from shapes.rates.periodic import Periodic


class Diurnal(Periodic):
    """lambda(t) = m (1 + A cos(2 pi (t - p) / P)): mean m, amplitude A of the mean (0 to 1), period P, peak at p.

    Lambda(t) = m t + (m A P / 2 pi) (sin(2 pi (t - p) / P) + sin(2 pi p / P)).
    """

    def __init__(self, mean_rps: float, amplitude: float, period_s: float, peak_at_s: float = 0.0) -> None:
        self._mean = check("mean_rps", mean_rps, above=True)
        self._amplitude = check("amplitude", amplitude)
        if self._amplitude > 1:
            raise ValueError(f"amplitude: found {amplitude!r}; allowed is 0 to 1, a share of the mean (a rate is never negative)")
        period = check("period_s", period_s, above=True)
        self._peak_turn = check("peak_at_s", peak_at_s) / period
        self._swing = self._mean * self._amplitude * period / TWO_PI
        self._start = float(sin_turns(np.array([self._peak_turn]))[0])
        self.period_s = period
        self._prepare(period, self._mean * period, np.linspace(0.0, period, 2049))

    def _within(self, t: Floats) -> tuple[Floats, Floats]:
        turn = t / self.period_s - self._peak_turn
        within = self._mean * t + self._swing * (sin_turns(turn) + self._start)
        return within, self._mean * (1.0 + self._amplitude * cos_turns(turn))
