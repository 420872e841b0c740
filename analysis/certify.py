"""Were the arrivals what the scenario declares? By number against the schedule, and by distribution against the declared law.

(a) The schedule passes the arrival tests at the declared rate. (b) Every scheduled arrival was sent once, and on time. (c) What
was sent passes the tests too. (b) is what certifies: (a) and (c) cannot see a constant delay or a few missing requests. A test
that rejects fails only if an effect is beyond its tolerance as well: with 10^5 arrivals trivial deviations reject.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shapes import arrival_tests
from shapes.arrival_tests import ArrivalTest

Tests = Callable[[NDArray[np.float64], float], Sequence[ArrivalTest]]
"""The arrival tests, given points in operational time and their total Lambda(duration)."""


def poisson_tests(points: NDArray[np.float64], total: float) -> Sequence[ArrivalTest]:
    """The six tests of ``shapes.arrival_tests``; none where there are too few points for them."""
    inside = points[(points >= 0) & (points <= total)]
    return arrival_tests.certify(inside, total).tests if len(inside) >= arrival_tests.MIN_POINTS else ()


@dataclass(frozen=True, slots=True)
class Tolerances:
    """How far things may be off: relative rate, squared coefficient of variation and dispersion (both against the schedule's),
    lateness in s, and numbers missing or doubled."""

    rate: float = 0.02
    scv: float = 0.1
    dispersion: float = 0.2
    lateness_p99_s: float = 0.005
    lateness_max_s: float = 0.25
    missing: int = 0


@dataclass(frozen=True, slots=True)
class Effects:
    """Effect sizes of ``n`` arrivals in operational time, where a Poisson process has 1 for all three.

    ``rate_ratio``: count over the declared Lambda; ``scv``: of the gaps; ``idc``: index of dispersion of counts in windows of
    about 10 expected arrivals. NaN where there are too few arrivals.
    """

    n: int
    rate_ratio: float
    scv: float
    idc: float


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """Scheduled against sent, by number. Lateness (s) = sent - intended, over what was sent."""

    scheduled: int
    sent: int
    missing: int
    doubled: int
    unknown: int
    lateness_p50_s: float
    lateness_p99_s: float
    lateness_max_s: float


@dataclass(frozen=True, slots=True)
class Certificate:
    """The arrivals' certificate; ``faults`` is empty when it is given."""

    reconciliation: Reconciliation
    scheduled: Effects
    achieved: Effects
    scheduled_tests: Sequence[ArrivalTest]
    achieved_tests: Sequence[ArrivalTest]
    faults: Sequence[str]

    @property
    def given(self) -> bool:
        """Whether the arrivals were what was declared."""
        return not self.faults


def effects(operational: NDArray[np.float64], expected: float) -> Effects:
    """Effect sizes of sorted arrivals in operational time Lambda(t), of which ``expected`` = Lambda(duration) are declared."""
    n = len(operational)
    ratio = n / expected if expected > 0 else math.nan
    gaps = np.diff(operational)
    scv = float(gaps.var() / gaps.mean() ** 2) if n >= 50 and gaps.mean() > 0 else math.nan
    windows = int(expected // 10)
    if windows < 20:
        return Effects(n, ratio, scv, math.nan)
    counts = np.histogram(operational, bins=windows, range=(0.0, expected))[0]
    return Effects(n, ratio, scv, float(counts.var(ddof=1) / counts.mean()) if counts.any() else math.nan)


def reconcile(scheduled_ns: NDArray[np.int64], sent_k: NDArray[np.int64], sent_ns: NDArray[np.int64]) -> Reconciliation:
    """Match what was sent (number, instant) against the schedule, whose arrival k is due at ``scheduled_ns[k]``."""
    n = len(scheduled_ns)
    known = (sent_k >= 0) & (sent_k < n)
    times = np.bincount(sent_k[known], minlength=n)
    late = (sent_ns[known] - scheduled_ns[sent_k[known]]) / 1e9
    p50, p99 = np.quantile(late, [0.5, 0.99], method="inverted_cdf") if len(late) else (math.nan, math.nan)
    return Reconciliation(
        n, int(known.sum()), int((times == 0).sum()), int((times > 1).sum()), int((~known).sum()),
        float(p50), float(p99), float(late.max()) if len(late) else math.nan,
    )  # fmt: skip


def certify(
    scheduled_ns: NDArray[np.int64],
    sent: tuple[NDArray[np.int64], NDArray[np.int64]],
    cumulative: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    duration_s: float,
    tests: Tests | None = poisson_tests,
    tolerances: Tolerances | None = None,
) -> Certificate:
    """The certificate. ``sent`` is (numbers, instants in ns); ``cumulative`` is the declared Lambda (arrivals by time in s, linear
    beyond ``duration_s``); ``tests`` are the Poisson tests, None where the declared law is not Poisson (then effects are held against the schedule's)."""
    allowed = tolerances or Tolerances()
    expected = float(cumulative(np.array([duration_s]))[0])
    sent_k, sent_ns = sent
    planned_at, achieved_at = (np.sort(cumulative(np.sort(times) / 1e9)) for times in (scheduled_ns, sent_ns))
    planned, achieved = effects(planned_at, expected), effects(achieved_at, expected)
    matched = reconcile(scheduled_ns, sent_k, sent_ns)
    before, after = (tests(planned_at, expected), tests(achieved_at, expected)) if tests else ((), ())
    faults = _matching_faults(matched, allowed)
    if tests:
        law = Effects(0, 1.0, 1.0, 1.0)
        faults += _law_faults("the schedule", planned, law, before, allowed)
        faults += _law_faults("what was sent", achieved, law, after, allowed)
    else:
        faults += [f"what was sent: {text}" for text in beyond(achieved, planned, allowed)]
    return Certificate(matched, planned, achieved, before, after, faults)


def beyond(found: Effects, reference: Effects, allowed: Tolerances) -> list[str]:
    """Which effects are off their reference by more than the tolerance plus three standard errors of a Poisson sample."""
    n = max(found.n, 1)
    limits = (
        ("rate ratio", found.rate_ratio, reference.rate_ratio, allowed.rate + (3 / math.sqrt(n) if reference.n == 0 else 0.0)),
        ("SCV of gaps", found.scv, reference.scv, allowed.scv + 3 * math.sqrt(8 / n)),
        ("dispersion of counts", found.idc, reference.idc, allowed.dispersion + 3 * math.sqrt(20 / n)),
    )
    return [
        f"{name} {value:.3f}, {want:.3f} is declared (tolerance {limit:.3f})"
        for name, value, want, limit in limits
        if abs(value - want) > limit  # a NaN (too few arrivals) is never beyond
    ]


def _law_faults(what: str, found: Effects, law: Effects, tested: Sequence[ArrivalTest], allowed: Tolerances) -> list[str]:
    """Faults where tests reject and effects are beyond tolerance; p-values alone do not count."""
    rejected = [test for test in tested if not test.passed]
    off = beyond(found, law, allowed)
    if not rejected or not off:
        return []
    return [f"{what}: {text}; rejected by {', '.join(t.name for t in rejected)}" for text in off]


def _matching_faults(matched: Reconciliation, allowed: Tolerances) -> list[str]:
    checks = (
        (matched.missing > allowed.missing, f"{matched.missing} of {matched.scheduled} scheduled arrivals were not sent"),
        (matched.doubled > 0, f"{matched.doubled} arrivals were sent more than once"),
        (matched.unknown > 0, f"{matched.unknown} requests belong to no scheduled arrival"),
        (
            matched.lateness_p99_s > allowed.lateness_p99_s,
            f"lateness p99 {1e3 * matched.lateness_p99_s:.3g} ms, allowed are {1e3 * allowed.lateness_p99_s:g} ms",
        ),
        (
            matched.lateness_max_s > allowed.lateness_max_s,
            f"lateness max {1e3 * matched.lateness_max_s:.3g} ms, allowed are {1e3 * allowed.lateness_max_s:g} ms",
        ),
    )
    return [text for failed, text in checks if failed]
