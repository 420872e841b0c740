"""Rates that are constant between given instants: one constant, steps, and the rate curve of a trace."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from shapes.elementary import Floats
from shapes.rates.base import check


class Constant:
    """lambda(t) = r; Lambda(t) = r t; t = s / r."""

    def __init__(self, rate_rps: float) -> None:
        self.rate_rps = check("rate_rps", rate_rps, above=True)

    def rate(self, t: ArrayLike) -> Floats:
        """r."""
        return np.full_like(np.asarray(t, dtype=np.float64), self.rate_rps)

    def cumulative(self, t: ArrayLike) -> Floats:
        """r t."""
        return np.asarray(t, dtype=np.float64) * self.rate_rps

    def inverse(self, s: ArrayLike) -> Floats:
        """s / r."""
        return np.asarray(s, dtype=np.float64) / self.rate_rps


class Piecewise:
    """lambda(t) = rates[i] for times[i] <= t < times[i+1]; 0 before times[0].

    With as many times as rates the last rate holds on; with one time more the rate is 0 from the last time on.
    Lambda(t) = L_i + rates[i] (t - times[i]), L_i the sum of rates[j] (times[j+1] - times[j]) for j < i.
    The inverse is exact: the piece with L_i < s <= L_(i+1), then t = times[i] + (s - L_i) / rates[i]. No piece of rate 0 is ever chosen.
    """

    def __init__(self, times_s: Sequence[float] | Floats, rates_rps: Sequence[float] | Floats) -> None:
        times, rates = np.array(times_s, dtype=np.float64), np.array(rates_rps, dtype=np.float64)
        if times.ndim != 1 or rates.ndim != 1 or not rates.size or times.size - rates.size not in (0, 1):
            raise ValueError(
                f"piecewise: found {times.size} times_s and {rates.size} rates_rps; allowed is as many of both, or one time more"
            )
        if not np.isfinite(times).all() or times[0] < 0 or (np.diff(times) <= 0).any():
            raise ValueError("times_s: allowed are finite, rising numbers from 0 on")
        if not np.isfinite(rates).all() or (rates < 0).any():
            raise ValueError("rates_rps: allowed are finite numbers from 0 on")
        if times.size > rates.size:
            rates = np.append(rates, 0.0)
        if times[0] > 0:
            times, rates = np.insert(times, 0, 0.0), np.insert(rates, 0, 0.0)
        self._times, self._rates = times, rates
        self._levels = np.concatenate([[0.0], np.cumsum(rates[:-1] * np.diff(times))])
        last = np.inf if rates[-1] > 0 else self._levels[-1]
        self._uppers = np.append(self._levels[1:], last)
        self._ends = np.append(times[1:], np.inf)

    def rate(self, t: ArrayLike) -> Floats:
        """The rate of t's piece."""
        return self._rates[self._piece(np.asarray(t, dtype=np.float64))]

    def cumulative(self, t: ArrayLike) -> Floats:
        """L_i + rates[i] (t - times[i])."""
        t = np.asarray(t, dtype=np.float64)
        i = self._piece(t)
        return np.asarray(np.minimum(self._levels[i] + self._rates[i] * (t - self._times[i]), self._uppers[i]))

    def inverse(self, s: ArrayLike) -> Floats:
        """times[i] + (s - L_i) / rates[i]."""
        s = np.asarray(s, dtype=np.float64)
        i = np.searchsorted(self._uppers, s, side="left")
        never = i >= self._rates.size
        i = np.where(never, 0, i)
        with np.errstate(divide="ignore", invalid="ignore"):
            t = self._times[i] + (s - self._levels[i]) / self._rates[i]
        t = np.minimum(np.where(s <= 0.0, 0.0, t), self._ends[i])
        return np.where(never, np.inf, t)

    def _piece(self, t: Floats) -> np.ndarray:
        return np.maximum(np.searchsorted(self._times, t, side="right") - 1, 0)


def steps(rates_for: Sequence[tuple[float, float]]) -> Piecewise:
    """(rate in 1/s, how long in s) one after the other; the last rate holds on."""
    if not rates_for:
        raise ValueError("steps: found none; at least one is needed")
    rates = [check(f"steps[{i}].rate_rps", rate) for i, (rate, _) in enumerate(rates_for)]
    lengths = [check(f"steps[{i}].for_s", length, above=True) for i, (_, length) in enumerate(rates_for)]
    return Piecewise(np.concatenate([[0.0], np.cumsum(lengths[:-1])]), rates)
