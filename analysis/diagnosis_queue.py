"""Rules about the queue in front of the device: batches held back, bursts, overload, other clients."""

from __future__ import annotations

import numpy as np

from analysis.diagnosis_evidence import NS, Evidence, Finding, Floats, Unmeasured
from analysis.diagnosis_stages import LEAST_STAGE_S, STAGE_NEEDS, ms, tail_mean

LEAST_HELD = 0.25
"""Held back counts from a quarter of the tail's time on: the usual delay of 2 ms is meant, and no fault."""


def held_back(evidence: Evidence) -> Finding | Unmeasured | None:
    """Requests wait although the device is idle, or while batches with room for them start: a batcher's delay, or another hold."""
    if "queue" not in evidence.stage_s or "inference" not in evidence.stage_s:
        return Unmeasured("batching-delay", STAGE_NEEDS + ": queue, inference")
    held = held_s(evidence)
    mine = evidence.tail & evidence.ok
    slow, share = float(held[mine].mean()), float(held[mine].sum() / evidence.cost_s[evidence.tail].sum())
    if slow < LEAST_STAGE_S or share < LEAST_HELD or foreign_share(evidence) >= 0.1:
        return None
    batch = float(evidence.rows["batch"][evidence.ok].mean())
    return Finding(
        "batching-delay",
        "Requests wait in the queue while the device could take them",
        share,
        [
            f"held back {ms(slow)} in the mean above p99, {ms(float(np.median(held[evidence.ok])))} in the median of all",
            f"mean batch {batch:.2g}" + (": waiting brings hardly any company" if batch < 2 else ""),
        ],
        "Shorten the batcher's maximum delay: at low load it only adds latency (`truetail plan batch` shows what it buys).",
        plot=["queue", "batch"],
    )


def held_s(evidence: Evidence) -> Floats:
    """Seconds that each row waited though its device was idle, or after a batch with room had started without it.

    Instants on the server are placed by the client's clock, half of the time outside after the end; what the spread of that
    time could explain is not counted. Only this run's own calls are known.
    """
    rows, held = evidence.rows, np.zeros(len(evidence.rows))
    outside = np.nan_to_num(evidence.stage_s["outside"])
    blur = 0.001 + float(np.quantile(outside, 0.9) - np.quantile(outside, 0.1))
    inference, queue = (np.nan_to_num(evidence.stage_s[name]) for name in ("inference", "queue"))
    post = np.nan_to_num(evidence.stage_s.get("postprocess", np.zeros(len(rows))))
    end = rows["done_ns"] / NS - outside / 2 - post
    most = int(rows["batch"].max())
    for replica in np.unique(rows["replica"]):
        mine = np.flatnonzero((rows["replica"] == replica) & evidence.ok & (inference > 0))
        start = end[mine] - inference[mine]
        joined = start - queue[mine]
        idle = queue[mine] - _busy(start, end[mine], joined)
        roomy = np.sort(start[rows["batch"][mine] < most])
        if not len(roomy):
            roomy = np.array([np.inf])
        following = np.searchsorted(roomy, joined + blur)
        passed = roomy[np.minimum(following, len(roomy) - 1)]
        skipped = np.where((following < len(roomy)) & (passed < start - blur), start - passed, 0.0)
        held[mine] = np.maximum(np.where(idle > blur, idle, 0.0), skipped)
    return held


def _busy(start: Floats, end: Floats, since: Floats) -> Floats:
    """The time in [since, start) in which any of the calls [start, end) was under way."""
    order = np.argsort(start)
    begins, ends = start[order], np.maximum.accumulate(end[order])
    # What each call adds to the union of all that began before it.
    floor = np.concatenate([[-np.inf], ends[:-1]])
    added = np.maximum(ends - np.maximum(begins, floor), 0)
    total = np.concatenate([[0.0], np.cumsum(added)])

    def until(t: Floats) -> Floats:
        """The union's length up to t."""
        k = np.searchsorted(begins, t, side="left")
        over = np.where(k > 0, np.maximum(ends[np.maximum(k, 1) - 1] - t, 0), 0.0)
        return np.asarray(total[k] - over)

    return until(start) - until(since)


def own_busy_share(evidence: Evidence) -> float:
    """The share of time that devices worked for this run's requests: inference time, split over the batch, per replica."""
    inference = np.nan_to_num(evidence.stage_s.get("inference", np.zeros(len(evidence.rows))))
    batch = np.maximum(evidence.rows["batch"], 1)
    span_s = (evidence.rows["done_ns"].max() - evidence.rows["intended_ns"].min()) / NS
    replicas = max(1, len(np.unique(evidence.rows["replica"][evidence.ok])))
    return float((inference / batch).sum() / max(span_s, 1e-9) / replicas)


def foreign_share(evidence: Evidence) -> float:
    """A lower bound of the share of batch places that others took: batch size told against our own requests found in the batch.

    The members of one call are told the same replica, batch and inference time, to the microsecond, and finish together.
    """
    rows = evidence.rows[evidence.ok & (evidence.rows["batch"] > 0) & np.isfinite(evidence.rows["inference_us"])]
    if len(rows) < 100:
        return 0.0
    order = np.lexsort((rows["done_ns"], rows["inference_us"], rows["batch"], rows["replica"]))
    rows = rows[order]
    new = np.ones(len(rows), dtype=bool)
    for name in ("replica", "batch", "inference_us"):
        new[1:] &= rows[name][1:] == rows[name][:-1]
    new[1:] &= np.diff(rows["done_ns"]) < np.maximum(2e6, 250.0 * rows["inference_us"][1:])
    new[0] = False
    # A request of several instances takes several places: as many as the smallest batch that its name was ever in.
    smallest = np.full(int(rows["name"].max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(smallest, rows["name"], rows["batch"].astype(np.int64))
    return max(0.0, 1 - float(smallest[rows["name"]].sum()) / float(rows["batch"][~new].sum()))


def dispersion(at_ns: np.ndarray, windows: int) -> float:
    """Index of dispersion of arrivals counted in ``windows`` equal windows: 1 for Poisson, NaN for fewer than 10 windows."""
    if windows < 10:
        return float("nan")
    counts = np.histogram(at_ns, bins=windows)[0]
    return float(counts.var(ddof=1) / max(counts.mean(), 1e-12))


def arrivals_are_bursty(evidence: Evidence) -> tuple[bool, float]:
    """Whether arrivals bunch more than a Poisson process does (dispersion beyond 1.5 and five standard errors), and the largest one."""
    at = evidence.rows["intended_ns"]
    span_s = (at[-1] - at[0]) / NS
    found = [(dispersion(at, int(span_s / width)), int(span_s / width)) for width in (0.1, 1.0, 10.0)]
    known = [(value, 1 + max(0.5, 5 * np.sqrt(2 / n))) for value, n in found if np.isfinite(value)]
    return any(value > limit for value, limit in known), max((value for value, _ in known), default=float("nan"))


def _longer_calls_share(evidence: Evidence) -> float:
    """The share of the tail's time that inference takes beyond a call for one request."""
    if evidence.fit is None:
        return 0.0
    mine = evidence.tail & evidence.ok
    beyond = np.nan_to_num(evidence.stage_s["inference"][mine]) - evidence.fit.time.time_s(1)
    return float(np.maximum(beyond, 0).sum() / max(evidence.response_s[mine].sum(), 1e-12))


def queueing(evidence: Evidence) -> Finding | Unmeasured | None:
    """Waiting for the device beyond what steady, random arrivals of our own would bring: bursts, overload, or other clients."""
    if "queue" not in evidence.stage_s or "inference" not in evidence.stage_s:
        return Unmeasured("queueing", STAGE_NEEDS + ": queue, inference")
    share, slow = evidence.stage_share("queue"), tail_mean(evidence, "queue")
    usual = float(np.nanmedian(evidence.stage_s["inference"]))
    foreign, busy = foreign_share(evidence), own_busy_share(evidence)
    # Others in our batches are evidence enough, and make the calls longer too; without them waiting must exceed what one call
    # before us brings.
    if foreign >= 0.1:
        share += _longer_calls_share(evidence)
    if share < 0.25 or slow < (LEAST_STAGE_S if foreign >= 0.1 else max(LEAST_STAGE_S, usual)):
        return None
    bursty, idc = arrivals_are_bursty(evidence)
    growing = _backlog_grows(evidence)
    if foreign >= 0.1:
        title = "Queueing: other clients use the same replicas"
        action = "Find who else sends (and at what rate); plan capacity for the sum, or separate them."
    elif growing:
        title = "Queueing: the load is at or above capacity, and the backlog grows"
        action = "Add replicas or raise the batch limit; bound the queue and refuse early (429)."
    elif bursty:
        title = "Queueing under bursts"
        action = "Plan for the burst's rate, not the mean: more replicas, or smoothing at the source (jitter in clients' timers)."
    else:
        return None  # a queue under steady random load is what theory expects; the report shows it beside the theory
    return Finding(
        "queueing",
        title,
        share,
        [
            f"queue: mean {ms(slow)} above p99 (usual inference: {ms(usual)})",
            f"the device works {busy:.0%} of the time for this run; {foreign:.0%} of the batch places were taken by others",
            f"dispersion of the arrivals at most {idc:.2g} (Poisson: 1)" + ("; the backlog grows" if growing else ""),
        ],
        action,
        plot=["queue", "rate", "batch"],
    )


def _backlog_grows(evidence: Evidence) -> bool:
    """Responses of the last fifth are beyond four times those of the first fifth, and rise in every fifth between."""
    medians = [float(np.median(part)) for part in np.array_split(evidence.cost_s, 5)]
    return medians[-1] > 4 * medians[0] and all(np.diff(medians) > 0)
