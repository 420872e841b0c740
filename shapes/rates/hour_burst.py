"""A burst on the hour: a base rate, and clients that each poll once a period at about the same instant."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from shapes.elementary import NORMAL_REACH, Floats, exp, normal_density, normal_distribution
from shapes.rates.base import check
from shapes.rates.periodic import Periodic

ALIGNMENTS = ("start", "wall-clock")


@dataclass(frozen=True)
class Jitter:
    """How far clients are from the exact instant, in units of a width.

    ``polls(x, p)``: the mean number of polls that a client has made by x, up to a constant, when it polls once every p around 0, p, 2 p, ...
    with this jitter, and always has; and the slope of that. ``knots(p)``: instants between which it is smooth, for x from -p to p.
    """

    polls: Callable[[Floats, float], tuple[Floats, Floats]]
    knots: Callable[[float], Floats]


def _uniform(x: Floats, p: float) -> tuple[Floats, Floats]:
    n = np.floor(x / p)
    since = x - n * p
    return n + np.minimum(since, 1.0), np.where(since < 1.0, 1.0, 0.0)


def _exponential(x: Floats, p: float) -> tuple[Floats, Floats]:
    """The tails of this burst and all before it are the sum of e^-(y + j p) over j >= 0, y the time since the last: a geometric series."""
    n = np.floor(x / p)
    tails = exp(n * p - x) / (1.0 - float(exp(np.array([-p]))[0]))
    return n - tails, tails


def _normal(x: Floats, p: float) -> tuple[Floats, Floats]:
    """Only bursts less than NORMAL_REACH away are counted in part; the nearest is within p/2."""
    reach = max(0, math.ceil(NORMAL_REACH / p - 0.5))
    near = np.rint(x / p)
    polls, density = near - reach, np.zeros_like(x)
    for j in range(-reach, reach + 1):
        z = x - (near + j) * p
        polls += normal_distribution(z)
        density += normal_density(z)
    return polls, density


_STEPS = np.linspace(0.0, 1.0, 513)
JITTERS: dict[str, Jitter] = {
    "uniform": Jitter(_uniform, lambda p: np.array([0.0, 1.0])),
    "exponential": Jitter(_exponential, lambda p: np.minimum(40.0 * _STEPS * _STEPS, p)),
    "normal": Jitter(_normal, lambda p: np.clip(NORMAL_REACH * (2.0 * _STEPS - 1.0), -p, p)),
}


class HourBurst(Periodic):
    """lambda(t) = base + N sum over all bursts m of f(t - t_m), t_m = offset + m P on the run's clock or the wall clock, f the density of the jitter.

    Lambda(t) = base t + N (H(t - t_0) - H(-t_0)), H the sum over m of the jitter's distribution function F(x - m P). F of width w:
    uniform x/w on [0, w]; exponential 1 - e^(-x/w), mean w; normal with mean 0 and standard deviation w.
    Bursts have been going on for ever, so any stretch of length P holds exactly N polls in the mean, whatever the jitter. With
    ``align="start"`` t_0 = offset; with ``"wall-clock"`` bursts are where the Unix time is offset modulo P (UTC).
    """

    def __init__(self, base_rps: float, clients: float, period_s: float, jitter: tuple[str, float], first_s: float = 0.0) -> None:
        """``jitter`` is (law, width in s); ``first_s`` the instant of one burst, on the run's axis."""
        self._base, self._clients = check("base_rps", base_rps), check("clients", clients)
        period = check("period_s", period_s, above=True)
        law, self._width = jitter[0], check("jitter.width_s", jitter[1], above=True)
        if law not in JITTERS:
            raise ValueError(f"jitter.kind: found {law!r}; allowed: {', '.join(JITTERS)}")
        if self._width > period:
            raise ValueError(f"jitter.width_s: found {self._width:g}; allowed is at most the period, {period:g}")
        if self._base == 0 and self._clients == 0:
            raise ValueError("hour_burst: found base_rps 0 and no clients; at least one must be more than 0")
        self._jitter = JITTERS[law]
        self._first = first_s - math.floor(first_s / period) * period
        self._p = period / self._width
        self._start = float(self._jitter.polls(np.array([-self._first / self._width]), self._p)[0][0])
        knots = self._first + self._width * self._jitter.knots(self._p)
        self._prepare(period, self._base * period + self._clients, np.concatenate([knots - period, knots, knots + period]))

    @classmethod
    def of_spec(cls, spec: Mapping[str, Any], epoch_wall_s: float) -> HourBurst:
        """From a resolved scenario's ``{"kind": "hour_burst", ...}``."""
        align = spec.get("align", "start")
        if align not in ALIGNMENTS:
            raise ValueError(f"align: found {align!r}; allowed: {', '.join(ALIGNMENTS)}")
        first = check("offset_s", spec.get("offset_s", 0.0))
        if align == "wall-clock":
            first -= math.fmod(epoch_wall_s, check("period_s", spec["period_s"], above=True))
        jitter = spec["jitter"]
        return cls(spec["base_rps"], spec["clients"], spec["period_s"], (jitter["kind"], jitter["width_s"]), first)

    def _within(self, t: Floats) -> tuple[Floats, Floats]:
        polls, density = self._jitter.polls((t - self._first) / self._width, self._p)
        return self._base * t + self._clients * (polls - self._start), self._base + self._clients / self._width * density
