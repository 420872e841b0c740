"""Spacings: how arrivals at unit rate are spaced in operational time, as streams of partial sums S_k of gaps with mean 1.

The rate then stretches time: arrival k is due at t_k = Lambda^-1(S_k) (see :mod:`shapes.schedule`). Each spacing is stationary
from the start: the first gap has the law of the time to the next arrival from an arbitrary instant, so that the mean count
over any stretch is exactly Lambda, with no bias from the start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from shapes.elementary import Floats
from shapes.variates import GAPS, Bits, exponentials, gammas

BLOCK = 16_384
"""Gaps made at once: part of what a seed means, since block i of the gaps has its own random bits."""


class Spacing(Protocol):
    """A law of gaps."""

    def sums(self, seed: int) -> Iterator[Floats]:
        """S_0 <= S_1 <= ... in blocks, without end; the same for the same seed."""
        ...


class Fixed:
    """Equal gaps: S_k = k + 1/2, so arrivals at rate r are due at (k + 1/2) / r.

    The half puts an arrival in the middle of its own interval: a run of length T has r T arrivals when that is a whole number, and the nearest
    whole number otherwise; none falls on the first or last instant.
    """

    def sums(self, seed: int) -> Iterator[Floats]:
        """The seed has no influence."""
        first = 0
        while True:
            yield np.arange(first, first + BLOCK, dtype=np.float64) + 0.5
            first += BLOCK


class Poisson:
    """Exponential gaps: a Poisson process, as many independent users make it. The first arrival is exponential after 0."""

    def sums(self, seed: int) -> Iterator[Floats]:
        """Sums of -log u."""
        return accumulate(lambda block: exponentials(Bits(seed, GAPS, block), BLOCK))


class Gamma:
    """Gamma gaps with mean 1 and coefficient of variation cv: 1 is Poisson, below is steadier, above is burstier.

    Shape a = 1/cv^2 and scale 1/a. The first gap is the time from an arbitrary instant to the next arrival: a uniform share of a
    length-biased gap, U gamma(a + 1) / a.
    """

    def __init__(self, cv: float) -> None:
        if not 0 < cv <= 100:
            raise ValueError(f"gamma cv: found {cv!r}; allowed is more than 0 and at most 100 (0 is the spacing fixed)")
        self.shape = 1.0 / max(cv * cv, 1e-12)  # steadier than 1e-6 is beyond the resolution of a gap

    def sums(self, seed: int) -> Iterator[Floats]:
        """Sums of gamma variates over their mean."""
        return accumulate(lambda block: self._gaps(seed, block))

    def _gaps(self, seed: int, block: int) -> Floats:
        gaps = gammas(Bits(seed, GAPS, block), self.shape, BLOCK)
        if block == 0:
            first = Bits(seed, GAPS, block, part=1)
            gaps[0] = first.uniforms(1)[0] * gammas(first, self.shape + 1.0, 1)[0]
        gaps /= self.shape
        return gaps


class Groups:
    """``size`` arrivals at the same instant; the groups are spaced by another spacing, at 1/size of the rate."""

    def __init__(self, size: int, spacing: Spacing) -> None:
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ValueError(f"groups size: found {size!r}; allowed is a whole number from 1 on")
        self.size, self.spacing = size, spacing

    def sums(self, seed: int) -> Iterator[Floats]:
        """Each sum of the groups' spacing, times size, size times over."""
        per_part = max(1, BLOCK // self.size)
        for sums in self.spacing.sums(seed):
            for first in range(0, sums.size, per_part):
                yield np.repeat(sums[first : first + per_part] * self.size, self.size)


UNITS = 2.0**36
"""Gaps are added up as whole numbers of 2^-36 of the mean gap."""


def accumulate(gaps_of: Callable[[int], Floats]) -> Iterator[Floats]:
    """Partial sums of the gaps of block 0, 1, 2, ... without drift.

    Whole numbers add exactly, so the sum does not depend on how many came before: after 1e9 gaps the error is that of rounding each
    gap once (about 1e-7 of one gap in all). A block stays below 2^63 units unless its gaps average 2,048, which no spacing here can reach.
    """
    whole, rest, block = 0, 0, 0
    while True:
        gaps = gaps_of(block)
        gaps *= UNITS
        sums = np.rint(gaps, out=gaps).astype(np.int64)
        np.cumsum(sums, out=sums)
        sums += rest
        carried, rest = divmod(int(sums[-1]), int(UNITS))
        yield sums.astype(np.float64) / UNITS + float(whole)
        whole += carried
        block += 1


KINDS: dict[str, Callable[[Mapping[str, Any]], Spacing]] = {
    "fixed": lambda spec: Fixed(),
    "poisson": lambda spec: Poisson(),
    "gamma": lambda spec: Gamma(float(spec["cv"])),
    "groups": lambda spec: Groups(spec["size"], build_spacing(spec["spacing"])),
}


def build_spacing(spec: Mapping[str, Any]) -> Spacing:
    """The spacing that a resolved scenario describes: ``{"kind": "gamma", "cv": 2}``. Raises ValueError."""
    kind = spec.get("kind")
    if kind not in KINDS:
        raise ValueError(f"spacing kind: found {kind!r}; allowed: {', '.join(KINDS)}")
    try:
        return KINDS[kind](spec)
    except KeyError as missing:
        raise ValueError(f"spacing {kind}: {missing.args[0]} is missing") from None
