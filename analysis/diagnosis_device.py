"""Rules about the device: throttling, memory, interleaving kernels, a slow replica, cold starts, inputs of different size."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from analysis.diagnosis_evidence import NS, SETTLING, Evidence, Finding, Mask, Unmeasured, Window, field_of, shown, windows_where
from analysis.diagnosis_outages import stalls
from analysis.diagnosis_stages import STAGE_NEEDS
from analysis.fit_batches import fit
from analysis.telemetry_series import Series

SLOWER = 1.15
"""A device counts as slower from 15 % on."""
FULL = 0.95
JOIN_NS = 1_500_000_000


def _gauge_windows(series: Series, hot: Mask) -> list[Window]:
    """Windows around hot samples, reaching to the neighbouring samples, so that one hot sample is not a window of no length."""
    if not hot.any():
        return []
    around = hot.copy()
    around[1:] |= hot[:-1]
    around[:-1] |= hot[1:]
    return windows_where(series.at_ns, around, JOIN_NS)


def _rising(series: Series) -> Mask:
    """Samples at which a counter stands higher than at the sample before (a reset is no rise)."""
    return np.concatenate([[False], np.diff(series.values) > 0])


def _device_finding(
    evidence: Evidence, cause: str, windows: list[Window], seen: str, words: tuple[str, str], plot: list[str]
) -> Finding | None:
    """A finding if the device was slower inside the windows than outside, or than was declared when there is no outside."""
    mask = evidence.during(windows)
    inside, outside = evidence.slowness[mask & evidence.ok], evidence.slowness[~mask & evidence.ok]
    if np.isfinite(inside).sum() < 10:
        return None
    if np.isfinite(outside).sum() >= max(20, 0.1 * len(mask)):
        factor, share = float(np.nanmedian(inside) / np.nanmedian(outside)), evidence.explained(mask, evidence.reference_s(mask))
        against = "outside these windows"
    elif evidence.declared is not None and evidence.fit is not None:
        usual = float(np.mean(evidence.rows["batch"][evidence.ok]))
        factor = evidence.fit.time.time_s(usual) / evidence.declared.time_s(usual)
        share, against = 1 - 1 / max(factor, 1.0), "declared for it"
    else:
        return None  # always so, and nothing to compare with: no evidence that it mattered
    if factor < SLOWER:
        return None
    title, action = words
    evidence_lines = [seen, f"inference was {factor:.2f} times as long as {against}", f"windows: {shown(windows)}"]
    return Finding(cause, title, share, evidence_lines, action, windows, plot)


def throttling(evidence: Evidence) -> Finding | Unmeasured | None:
    """The clock was lowered (heat, power): throttle gauges, throttle counters, or an SM clock below 90 % of its maximum under load."""
    gauges = evidence.matching("throttling")
    counters = {n: s for n, s in evidence.matching("throttle_").items() if field_of(n).endswith("_total")}
    clocks = evidence.matching("clock_mhz", "clock_sm_mhz")
    if not gauges and not counters and not clocks:
        return Unmeasured("throttling", "the GPU's clocks and throttle reasons (collector)")
    windows = [w for s in gauges.values() for w in _gauge_windows(s, s.values > 0)]
    windows += [w for s in counters.values() for w in _gauge_windows(s, _rising(s))]
    if not gauges and not counters:
        windows += [w for s in clocks.values() for w in _gauge_windows(s, s.values < 0.9 * s.values.max())]
    if not windows:
        return None
    low = min((float(s.values.min() / s.values.max()) for s in clocks.values() if s.values.max() > 0), default=float("nan"))
    return _device_finding(
        evidence,
        "throttling",
        sorted(windows),
        f"the GPU reported throttling; lowest clock {low:.0%} of its highest"
        if np.isfinite(low)
        else "the GPU reported throttling",
        ("The GPU was throttled", "Look at power limit, cooling and neighbours; lock the clocks for benchmarks."),
        [*gauges, *counters, *clocks],
    )


def memory_pressure(evidence: Evidence) -> Finding | Unmeasured | None:
    """Device memory (or a KV cache) nearly full, preemptions, or the host swapping, while inference was slower."""
    shares = memory_shares(evidence)
    counters = evidence.matching("num_preemptions")
    if not shares and not counters:
        return Unmeasured("memory-pressure", "the device's memory (collector), or the server's cache metrics")
    windows = [w for s in shares.values() for w in _gauge_windows(s, s.values >= FULL)]
    windows += [w for s in counters.values() for w in _gauge_windows(s, _rising(s))]
    if not windows:
        return None
    top = max((float(s.values.max()) for s in shares.values()), default=float("nan"))
    return _device_finding(
        evidence,
        "memory-pressure",
        sorted(windows),
        f"memory used up to {top:.1%}" if np.isfinite(top) else "requests were preempted",
        (
            "Memory was nearly full",
            "Lower the batch limit or the cache's share, shorten inputs, or move the neighbour off the device.",
        ),
        [*shares, *counters],
    )


def memory_shares(evidence: Evidence) -> Mapping[str, Series]:
    """Used over total, by series: device memory, and caches that tell their share."""
    found = dict(evidence.matching("kv_cache_usage_perc", "gpu_cache_usage_perc"))
    for name, series in evidence.matching("memory_used_bytes").items():
        total = evidence.series.get(name.replace("memory_used_bytes", "memory_total_bytes"))
        if total is not None and len(total.values) and total.values.max() > 0 and not name.startswith("host/"):
            found[name] = Series(series.at_ns, series.values / total.values.max())
    return found


def slow_replica(evidence: Evidence) -> Finding | Unmeasured | None:
    """One replica takes longer than the median of the others, and sits in the tail more than its share."""
    ids, counts = np.unique(evidence.rows["replica"][evidence.ok], return_counts=True)
    ids = ids[(counts >= 30) & (ids > 0)]
    if not len(ids):
        return Unmeasured("slow-replica", "the replica's name in each answer (x-replica-id)")
    if len(ids) < 2:
        return None
    factors = {int(i): _against_others(evidence, np.asarray(evidence.rows["replica"] == i)) for i in ids}
    worst = max(factors, key=lambda i: factors[i])
    factor = factors[worst]
    mask = np.asarray(evidence.rows["replica"] == worst)
    if factor < 1.3:
        return None
    name = evidence.replica_names.get(worst, str(worst))
    return Finding(
        "slow-replica",
        f"Replica {name!r:.60} is slower than the others",
        evidence.explained(mask, evidence.reference_s(mask)),
        [
            f"it takes {factor:.2f} times as long as the other {len(ids) - 1} at equal batch size",
            f"it served {mask[evidence.ok].mean():.0%} of the requests and {(mask & evidence.tail).sum() / evidence.tail.sum():.0%} of the tail",
        ],
        "Take it out and look at its node: clock, neighbours, driver, cache; route by latency or outstanding requests meanwhile.",
        plot=["response by replica"],
    )


def _against_others(evidence: Evidence, mine: Mask) -> float:
    """How many times as long these rows took as the others, at equal batch size where batches are told: t(b) is fitted to the
    others only, for a slow replica also has the larger batches."""
    ok, inference = evidence.ok, evidence.stage_s.get("inference")
    if inference is None:
        return float(np.median(evidence.response_s[ok & mine]) / max(np.median(evidence.response_s[ok & ~mine]), 1e-12))
    batch = evidence.rows["batch"]
    rest = fit(batch[ok & ~mine], inference[ok & ~mine])
    if rest is None:
        return float(np.nanmedian(inference[ok & mine]) / max(np.nanmedian(inference[ok & ~mine]), 1e-12))
    usual = rest.time.a_s + rest.time.c_s * np.maximum(batch[ok & mine], 1)
    return float(np.nanmedian(inference[ok & mine] / usual))


def contention(evidence: Evidence) -> Finding | Unmeasured | None:
    """Inference takes longer the more calls are on the device at once: kernels interleave."""
    if "inference" not in evidence.stage_s:
        return Unmeasured("gpu-contention", STAGE_NEEDS + ": inference")
    rows, inference = evidence.rows, evidence.stage_s["inference"]
    post = np.nan_to_num(evidence.stage_s.get("postprocess", np.zeros(len(rows))))
    end = rows["done_ns"] / NS - np.nan_to_num(evidence.stage_s["outside"]) / 2 - post
    together = _calls_at_once(rows, end - inference, end)
    alone, many = evidence.ok & (together < 1.5), evidence.ok & (together >= 2)
    if many.mean() < 0.02 or alone.sum() < 20:
        return None
    factor = float(np.nanmedian(evidence.slowness[many]) / np.nanmedian(evidence.slowness[alone]))
    if factor < 1.3 or evidence.stage_share("inference") < 0.4:
        return None
    usual = float(np.nanmedian(evidence.response_s[alone]))
    return Finding(
        "gpu-contention",
        "Kernels interleave: calls that meet on the device stretch each other",
        evidence.explained(many, usual),
        [
            f"inference takes {factor:.2f} times as long with two or more calls on the device as with one",
            f"{many[evidence.ok].mean():.0%} of the requests met another on the device, "
            f"{(many & evidence.tail).sum() / evidence.tail.sum():.0%} of the tail did",
        ],
        "Batch instead of running calls side by side, or limit how many run at once (one instance, a queue); then test again.",
        plot=["inference", "in flight"],
    )


def _calls_at_once(rows: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Calls on the same replica's device at each call's middle, itself included; a batch's members are one call."""
    together = np.full(len(rows), np.nan)
    for replica in np.unique(rows["replica"]):
        mine = np.flatnonzero((rows["replica"] == replica) & np.isfinite(start))
        middle = (start[mine] + end[mine]) / 2
        began = np.searchsorted(np.sort(start[mine]), middle, side="right")
        ended = np.searchsorted(np.sort(end[mine]), middle, side="right")
        together[mine] = (began - ended) / np.maximum(rows["batch"][mine], 1)
    return together


def cold_start(evidence: Evidence) -> Finding | Unmeasured | None:
    """The first requests of a replica are served slowly, later ones are not."""
    every = evidence.every
    slowness = evidence.slowness_of(every)
    if not np.isfinite(slowness).any():
        response = (every["done_ns"] - every["sent_ns"]) / NS
        slowness = response / max(evidence.median_s, 1e-9)
    windows: list[Window] = []
    worst, told = 1.0, 0
    for replica in np.unique(every["replica"][every["outcome"] == 0]):
        mine = np.flatnonzero((every["replica"] == replica) & (every["outcome"] == 0) & np.isfinite(slowness))
        cold = _leading_slow(slowness[mine])
        if cold >= 5 and cold <= 0.5 * len(mine):
            worst, told = max(worst, float(np.median(slowness[mine[:cold]]))), told + cold
            windows.append((int(every["intended_ns"][mine[0]]), int(every["done_ns"][mine[:cold]].max())))
    # Who waited behind the cold requests counts with them.
    mask = evidence.during([(a, b + (b - a) // 2) for a, b in windows])
    share = evidence.explained(mask, evidence.reference_s(mask)) if windows else 0.0
    if share <= 0:
        return None
    return Finding(
        "cold-start",
        "Replicas were cold: their first requests took longer",
        share,
        [
            f"the first {told} requests of {len(windows)} replica(s) took {worst:.2f} times the usual time",
            f"windows: {shown(windows)}",
        ],
        "Warm replicas up before they are ready (readiness probe after a few calls), or lengthen `warmup` if cold starts are not meant.",
        windows,
        ["inference", "response"],
    )


def _leading_slow(slowness: np.ndarray) -> int:
    """How many leading calls are slow: up to the last of the first 200 after which no block of 5 has a median above 1.5."""
    head = slowness[: min(SETTLING, len(slowness))]
    blocks = [float(np.median(head[i : i + 5])) for i in range(0, len(head) - 4, 5)]
    count = 0
    for value in blocks:
        if value < 1.5:
            break
        count += 5
    return count


def input_variability(evidence: Evidence) -> Finding | Unmeasured | None:
    """Latency goes with the size of the input or output; or, where no size tells it, some calls take far longer, here and there."""
    sized = _by_size(evidence)
    if sized is not None:
        return sized
    if not np.isfinite(evidence.slowness).any():
        return (
            None if _sizes(evidence) else Unmeasured("input-variability", "sizes or token counts of requests, or inference times")
        )
    # A call that a stall of the process met is long for another reason.
    slow = evidence.slower_than(1.5) & evidence.ok & ~evidence.during(stalls(evidence))
    # Who waited for a slow call is as late as if its own input were large.
    at = evidence.rows["intended_ns"]
    tenths = np.histogram(at[slow], bins=10, range=(float(at[0]), float(at[-1])))[0]
    if not 0.001 <= slow.mean() <= 0.3 or (tenths > 0.2 * tenths.mean()).sum() < 9:
        return None  # slow phases are a matter for other rules
    waited = slow | _waited_for(evidence, slow)
    return Finding(
        "input-variability",
        "Some calls take far longer than others of the same batch size, at random",
        evidence.explained(waited, evidence.reference_s(waited)),
        [
            f"{slow[evidence.ok].mean():.1%} of the requests ran in calls of at least 1.5 times the usual time, all through the run",
            "no size that the client knows goes with it: not measured here",
        ],
        "Log the input's size in the answer; limit or split large inputs, or give them replicas of their own.",
        plot=["inference"],
    )


def _waited_for(evidence: Evidence, slow: Mask) -> Mask:
    """Rows that were sent while a slow call of their replica was under way."""
    rows, waited = evidence.rows, np.zeros(len(evidence.rows), dtype=bool)
    for replica in np.unique(rows["replica"]):
        mine = rows["replica"] == replica
        calls = rows[mine & slow]
        ends = np.sort(calls["done_ns"])
        starts = np.sort(calls["done_ns"] - (calls["inference_us"] * 1e3).astype(np.int64))
        at = rows["sent_ns"][mine]
        waited[mine] = np.searchsorted(starts, at, "right") > np.searchsorted(ends, at, "right")
    return waited


def _sizes(evidence: Evidence) -> dict[str, np.ndarray]:
    """Size columns that vary: their 99th percentile is at least a quarter above the median."""
    columns = {c: evidence.rows[c].astype(float) for c in ("tokens_in", "tokens_out", "request_bytes", "response_bytes")}
    return {c: v for c, v in columns.items() if np.quantile(v, 0.99) > 1.25 * max(float(np.median(v)), 1.0)}


def _by_size(evidence: Evidence) -> Finding | None:
    """The size column that explains most of the variance of inference (or of service, where inference is not told)."""
    inference = evidence.stage_s.get("inference")
    service = (evidence.rows["done_ns"] - evidence.rows["sent_ns"]) / NS
    measured = service if inference is None else inference
    good = evidence.ok & np.isfinite(measured)
    best: tuple[float, str, np.ndarray] | None = None
    for column, sizes in _sizes(evidence).items():
        r2 = float(np.corrcoef(sizes[good], measured[good])[0, 1] ** 2) if good.sum() > 20 and sizes[good].std() > 0 else 0.0
        if best is None or r2 > best[0]:
            best = (r2, column, sizes)
    if best is None or not best[0] >= 0.25:
        return None
    r2, column, sizes = best
    large = np.asarray(sizes > max(np.median(sizes), np.quantile(sizes, 0.8)))
    share = evidence.explained(large, evidence.reference_s(large))
    return Finding(
        "input-variability",
        f"Latency goes with {column.replace('_', ' ')}",
        share,
        [
            f"{column} explains {r2:.0%} of the variance of {'inference' if inference is not None else 'service'} time",
            f"the largest inputs are {large[evidence.ok].mean():.0%} of the requests and {(large & evidence.tail).sum() / evidence.tail.sum():.0%} of the tail",
        ],
        "State the SLO by size class; limit or split large inputs, or give them replicas of their own.",
        plot=["response against size"],
    )
