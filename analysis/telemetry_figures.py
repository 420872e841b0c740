"""What the report says of telemetry: busy share, throttling, energy per request and token, latency joined by second. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from analysis.telemetry import HARMLESS, Source
from analysis.telemetry_series import Series, Times, Values, increase, integral, intervals, mean_by_bin, rate


@dataclass(frozen=True, slots=True)
class Energy:
    """Energy of one device over the part of the measured window that its samples cover."""

    title: str
    simulated: bool
    joules: float
    seconds: float
    covered: float
    requests: int
    tokens: int
    how: str

    @property
    def watts(self) -> float:
        """Mean power."""
        return self.joules / self.seconds

    @property
    def per_request_j(self) -> float | None:
        """Joules per answered request, idle power included; None without requests."""
        return self.joules / self.requests if self.requests else None

    @property
    def per_token_j(self) -> float | None:
        """Joules per output token, None where no tokens were told."""
        return self.joules / self.tokens if self.tokens else None


def busy_percent(source: Source) -> tuple[str, Series] | None:
    """How busy the device was and by which measure, the most honest first: SM activity, busy time, utilisation.

    Utilisation is the share of time in which any kernel ran: one busy SM of 132 reads 100 %.
    """
    seconds = source.series.get("busy_seconds_total")
    if seconds is not None and len(seconds) > 2:
        shares = rate(seconds)
        return "busy share", Series(shares.at_ns, 100 * shares.values)
    for name, label, factor in (
        ("sm_active_percent", "SM activity", 1.0),
        ("busy_share", "busy share", 100.0),
        ("utilization_gpu_percent", "utilisation (any kernel)", 1.0),
    ):
        if len(source.series.get(name, ())):
            found = source.series[name]
            return label, Series(found.at_ns, factor * found.values)
    return None


def throttled(source: Source) -> list[tuple[int, int, str]]:
    """(from, to, reason) of throttling, by the reasons that the device told, else by its ``throttling`` flag."""
    gap_ns = 5 * source.period_ns * source.thinned
    names = sorted({reason for _, reasons in source.reasons for reason in reasons} - HARMLESS)
    at = [at for at, _ in source.reasons]
    found = [
        (low, high, name)
        for name in names
        for low, high in intervals(at, [name in reasons for _, reasons in source.reasons], gap_ns)
    ]
    flag = source.series.get("throttling")
    if not found and flag is not None:
        found = [(low, high, "throttling") for low, high in intervals(flag.at_ns.tolist(), (flag.values > 0).tolist(), gap_ns)]
    return sorted(found)


def energy(source: Source, window_ns: tuple[int, int], done_ns: Times, tokens: Values) -> Energy | None:
    """Energy by the device's counter, else by integrating its power; None where neither is known.

    ``done_ns`` and ``tokens`` are of the answered requests; those that were done in the covered window count.
    """
    counter, power = source.series.get("energy_mj_total"), source.series.get("power_w") or source.series.get("power_instant_w")
    series = counter if counter is not None and len(counter) > 1 else power
    if series is None or len(series) < 2:
        return None
    low, high = max(window_ns[0], int(series.at_ns[0])), min(window_ns[1], int(series.at_ns[-1]))
    if high <= low:
        return None
    millijoules = increase(series, low, high) if series is counter else None
    joules = millijoules / 1000 if millijoules is not None else integral(series, low, high)
    if joules is None:
        return None
    inside = (done_ns >= low) & (done_ns < high)
    how = "energy counter" if series is counter else f"power sampled every {source.period_ns / 1e6:g} ms"
    covered = (high - low) / (window_ns[1] - window_ns[0])
    return Energy(
        source.title, source.simulated, joules, (high - low) / 1e9, covered, int(inside.sum()), int(tokens[inside].sum()), how
    )


def together(parts: Iterable[Energy]) -> list[Energy]:
    """Sums over devices, measured and simulated ones never mixed; only where there are several and they cover the same time."""
    found = []
    for simulated in (False, True):
        same = [part for part in parts if part.simulated is simulated]
        if len(same) > 1 and max(p.seconds for p in same) - min(p.seconds for p in same) < 1:
            title = f"all {len(same)} {'simulated devices' if simulated else 'GPUs'}"
            first = same[0]
            joules = sum(part.joules for part in same)
            found.append(Energy(title, simulated, joules, first.seconds, first.covered, first.requests, first.tokens, first.how))
    return found


@dataclass(frozen=True, slots=True)
class Seconds:
    """Latency by the second of intended time: number of requests, median and p99 (nearest rank; failures are infinite), seconds."""

    edges_ns: Times
    n: Values
    median_s: Values
    p99_s: Values


def latency_by_second(intended_ns: Times, response_s: Values, end_ns: int, width_ns: int = 10**9) -> Seconds:
    """Join latency to seconds. ``response_s`` is infinite for a request that was not answered."""
    edges = np.arange(0, max(1, -(-end_ns // width_ns)) + 1, dtype=np.int64) * width_ns
    order = np.argsort(intended_ns, kind="stable")
    at, values = intended_ns[order], response_s[order]
    bounds = np.searchsorted(at, edges)
    n = np.diff(bounds).astype(float)
    median, p99 = np.full(len(n), np.nan), np.full(len(n), np.nan)
    for index in np.flatnonzero(n):
        chunk = np.sort(values[bounds[index] : bounds[index + 1]])
        median[index] = chunk[(len(chunk) * 50 + 99) // 100 - 1]
        p99[index] = chunk[(len(chunk) * 99 + 99) // 100 - 1]
    return Seconds(edges, n, median, p99)


def busy_against_latency(busy: Series, seconds: Seconds) -> tuple[Values, Values]:
    """(busy share, p99) of each second that has both, for a scatter plot."""
    share = mean_by_bin(busy, seconds.edges_ns)
    both = np.isfinite(share) & np.isfinite(seconds.p99_s)
    return share[both], seconds.p99_s[both]


def spearman(x: Values, y: Values) -> float | None:
    """Spearman's rank correlation, ties at their mean rank; None below ten points or where one does not vary."""
    if len(x) < 10 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    return float(np.corrcoef(_ranks(x), _ranks(y))[0, 1])


def _ranks(values: Values) -> Values:
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: Values = (last - (counts - 1) / 2)[which]
    return ranks
