"""Rules that read the stages: CPU-bound processing, network, dependency, the client's own limit."""

from __future__ import annotations

import numpy as np

from analysis.diagnosis_evidence import LATE_SHARE, Evidence, Finding, Unmeasured

LEAST_STAGE_S = 0.002
"""A stage of less than 2 ms is nobody's tail, whatever its share."""
STAGE_NEEDS = "the server's stage times (Server-Timing)"


def ms(seconds: float) -> str:
    """Milliseconds for people."""
    return f"{1e3 * seconds:.3g} ms"


def tail_mean(evidence: Evidence, stage: str) -> float:
    """The mean seconds in a stage among successes above p99; 0 where none was told."""
    values = evidence.stage_s[stage][evidence.tail & evidence.ok]
    return float(np.nanmean(values)) if np.isfinite(values).any() else 0.0


def cpu_bound(evidence: Evidence) -> Finding | Unmeasured | None:
    """Pre- or postprocessing takes a good part of the tail; waiting for the same CPU shows outside the stages, and counts with it."""
    told = [stage for stage in ("preprocess", "postprocess") if stage in evidence.stage_s]
    if not told:
        return Unmeasured("cpu-bound", STAGE_NEEDS + ": preprocess, postprocess")
    typical = {stage: float(np.nanmedian(evidence.stage_s[stage])) for stage in told}
    own = sum(evidence.stage_share(stage) for stage in told)
    worst = max(told, key=evidence.stage_share)
    # A stall of the whole process stretches a stage of the few requests it meets; processing that is slow is slow for most.
    if own < 0.1 or typical[worst] < LEAST_STAGE_S or typical[worst] < 0.1 * evidence.median_s:
        return None
    share = own + evidence.stage_share("outside")
    return Finding(
        "cpu-bound",
        f"{worst.capitalize()}ing on the CPU is a large part of the tail",
        share,
        [
            f"{worst}: median {ms(typical[worst])}, mean {ms(tail_mean(evidence, worst))} above p99",
            f"share of the tail's time: {own:.0%} in pre- and postprocessing, {evidence.stage_share('outside'):.0%} outside all stages",
        ],
        "Profile it; vectorise, move it to other processes, or do it on the device; keep it off the event loop.",
        plot=[worst, "outside"],
    )


def network(evidence: Evidence) -> Finding | Unmeasured | None:
    """Client time that no server stage accounts for, while the generator itself was not held up."""
    if not evidence.tells_stages:
        return Unmeasured("network", STAGE_NEEDS)
    outside = evidence.stage_s["outside"]
    typical, slow = float(np.nanmedian(outside)), tail_mean(evidence, "outside")
    own = _read_late_share(evidence)
    share = evidence.stage_share("outside") - own
    if share < 0.25 or slow < 2 * LEAST_STAGE_S:
        return None
    connect = evidence.rows["connect_us"][evidence.tail & evidence.ok] / 1e6
    connecting = float(np.nan_to_num(connect).sum() / max(evidence.response_s[evidence.tail & evidence.ok].sum(), 1e-12))
    return Finding(
        "network",
        "Time is spent between client and server, outside the server's own stages",
        share,
        [
            f"outside: median {ms(typical)}, mean {ms(slow)} above p99, {share:.0%} of the tail's time",
            f"of the tail's time {connecting:.0%} is setting up connections",
            *([f"{own:.0%} more while the generator itself was late: not counted"] if own >= 0.01 else []),
        ],
        "Measure from beside the server; look at the ingress, TLS, connection reuse, and the server's accept queue.",
        plot=["outside"],
    )


def _read_late_share(evidence: Evidence) -> float:
    """The share of the tail's time outside the stages in which the generator was held up: what was due while a request was out was
    sent late, by a fifth of the request's time outside or more, so its answer may have lain there unread."""
    rows, mine = evidence.rows, np.flatnonzero(evidence.tail & evidence.ok)
    outside, lateness = np.nan_to_num(evidence.stage_s["outside"]), evidence.stage_s["lateness"]
    first, last = (np.searchsorted(rows["intended_ns"], rows[end][mine]) for end in ("sent_ns", "done_ns"))
    late = np.array([lateness[a:b].max(initial=0.0) for a, b in zip(first, last, strict=True)])
    held = late >= LATE_SHARE * outside[mine]
    return float(np.maximum(outside[mine][held], 0).sum() / max(evidence.response_s[mine].sum(), 1e-12))


def dependency(evidence: Evidence) -> Finding | Unmeasured | None:
    """Waiting for another service."""
    if "dependency" not in evidence.stage_s:
        return Unmeasured("dependency", STAGE_NEEDS + ": dependency")
    share, slow = evidence.stage_share("dependency"), tail_mean(evidence, "dependency")
    if share < 0.15 or slow < LEAST_STAGE_S:
        return None
    called = np.isfinite(evidence.stage_s["dependency"]).mean()
    return Finding(
        "dependency",
        "A service that this one calls is slow",
        share,
        [f"dependency: mean {ms(slow)} above p99, {share:.0%} of the tail's time; called by {called:.0%} of all requests"],
        "Look at that service's own tail; set a deadline and a fallback, cache, or call it in parallel with other work.",
        plot=["dependency"],
    )


def host_evidence(evidence: Evidence) -> list[str]:
    """How busy the collector's machine was over the run, from its CPU counters; nothing where it was not recorded."""
    names = ("user", "system", "idle", "iowait", "irq", "softirq", "steal")
    found = {name: evidence.matching(f"cpu_{name}_s_total").values() for name in names}
    spent = {name: sum(float(s.values[-1] - s.values[0]) for s in series if len(s.values)) for name, series in found.items()}
    total = sum(spent.values())
    return [f"CPUs of the collector's machine: {1 - (spent['idle'] + spent['iowait']) / total:.0%} busy"] if total > 0 else []


def client(evidence: Evidence) -> Finding | Unmeasured | None:
    """Time between the intended instant and sending: the generator's own, or requests held back because its pool was full."""
    share, slow = evidence.stage_share("lateness"), tail_mean(evidence, "lateness")
    if share < 0.1 or slow < LEAST_STAGE_S:
        return None
    busy = [float(g.get("cpu_share_max") or 0) for g in evidence.generators]
    stalls = [float(g.get("loop_stall_max_ms") or 0) for g in evidence.generators]
    told = (
        f"workers' CPU at most {max(busy):.0%}, event loop held up at most {max(stalls):.3g} ms"
        if busy
        else "workers not measured"
    )
    return Finding(
        "client-limit",
        "The load generator was late: its pool was full, or it was out of CPU",
        share,
        [f"lateness: mean {ms(slow)} above p99, {share:.0%} of the tail's time", told, *host_evidence(evidence)],
        "Raise `pool`, add workers, or give them CPUs of their own; until then the tail is not the service's alone.",
        plot=["lateness"],
    )
