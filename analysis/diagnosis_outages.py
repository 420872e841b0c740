"""Rules about windows in which something stood still or was away: stalls of the process, deployments and autoscaling."""

from __future__ import annotations

import numpy as np

from analysis.diagnosis_evidence import LATE_SHARE, NS, Evidence, Finding, Unmeasured, Window, shown
from truetail.records import FAILED, OK

LEAST_STALL_S = 0.05
EVENT_KINDS = ("deploy", "scale", "autoscale", "restart", "rollout")
LEAST_ABSENCE_S = 0.5


def pauses(evidence: Evidence) -> Finding | Unmeasured | None:
    """The whole process stood still: nothing finished although requests were inside, and new ones were not even read."""
    windows = [
        window
        for window in stalls(evidence)
        if not generator_stalled(evidence, window) and not processing_fills(evidence, window)
    ]
    if not windows:
        return None
    lengths = np.array([(b - a) / NS for a, b in windows])
    mask = evidence.during(windows)
    # Short stalls of other origin (a busy machine) must not hide the rhythm of the long ones.
    period = _period_s([window for window, length in zip(windows, lengths, strict=True) if length >= lengths.max() / 2])
    rhythm = f"every {period:.3g} s" if period else "at irregular times"
    return Finding(
        "runtime-pause",
        f"The service stood still {len(windows)} times, {rhythm}",
        evidence.explained(mask, evidence.reference_s(mask)),
        [
            f"stalls of {1e3 * lengths.min():.3g}-{1e3 * lengths.max():.3g} ms in which nothing was answered or read, {rhythm}",
            f"windows: {shown(windows)}",
        ],
        "Look at garbage collection, checkpoints, log rotation and cron jobs of that period; if the stall is on the way, at the network.",
        windows,
        ["completions per 10 ms", "response"],
    )


def stalls(evidence: Evidence) -> list[Window]:
    """Windows without an answer though requests were inside. Where stages are told, some that came in then must have been
    read late (time outside the stages); where not, at least three windows with an even period are needed."""
    rows = evidence.rows
    done = np.sort(rows["done_ns"])
    sent_order = np.argsort(rows["sent_ns"])
    sent, ends = rows["sent_ns"][sent_order], rows["done_ns"][sent_order]
    least_ns = int(max(LEAST_STALL_S, 4 * _usual_service_s(evidence)) * NS)
    found: list[Window] = []
    for i in np.flatnonzero(np.diff(done) > least_ns):
        before, after = int(done[i]), int(done[i + 1])
        first, last = np.searchsorted(sent, [before - 30 * 10**9, after])
        open_ = np.flatnonzero((ends[first:last] >= after) & (sent[first:last] < after)) + first
        if len(open_) and after - (begin := max(before, int(sent[open_].min()))) > least_ns:
            found.append((begin, after))
    if evidence.tells_stages:
        return [window for window in found if _read_late(evidence, window)]
    return found if len(found) >= 3 and _period_s(found) else []


def _usual_service_s(evidence: Evidence) -> float:
    inference = evidence.stage_s.get("inference")
    if inference is not None:
        return float(np.nanmedian(inference))
    return float(np.median((evidence.rows["done_ns"] - evidence.rows["sent_ns"])[evidence.ok]) / NS)


def _read_late(evidence: Evidence, window: Window) -> bool:
    """Whether requests sent within the window spent time outside the stages that its length explains, or stages that wait on
    the process (postprocessing) did."""
    low, high = window
    outside = np.nan_to_num(evidence.stage_s["outside"]) + np.nan_to_num(
        evidence.stage_s.get("postprocess", np.zeros(len(evidence.rows)))
    )
    inside = (
        (evidence.rows["sent_ns"] < high) & (evidence.rows["done_ns"] >= high) & (evidence.rows["sent_ns"] >= low - (high - low))
    )
    return bool(inside.any() and outside[inside].max() >= 0.3 * (high - low) / NS)


def generator_stalled(evidence: Evidence, window: Window) -> bool:
    """Whether the generator was held up in the window too: then the machine they share stood still, or the generator alone did,
    and the service is not to blame. Looked for in the requests that were due in the window."""
    low, high = window
    rows = evidence.rows
    first, last = np.searchsorted(rows["intended_ns"], [low, high])
    late = rows["sent_ns"][first:last] - rows["intended_ns"][first:last]
    return bool(len(late) and late.max() >= LATE_SHARE * (high - low))


def processing_fills(evidence: Evidence, window: Window) -> bool:
    """Whether the usual pre- or postprocessing of those who were inside, one after the other, takes half of the window or more:
    then the process did not stand still, it computed for them, and everyone else waited."""
    low, high = window
    rows = evidence.rows
    inside = (rows["sent_ns"] < high) & (rows["done_ns"] >= high) & (rows["sent_ns"] >= low - (high - low))
    usual_s = max(
        (float(np.nanmedian(evidence.stage_s[s])) for s in ("preprocess", "postprocess") if s in evidence.stage_s), default=0.0
    )
    return bool(inside.sum() * usual_s >= 0.5 * (high - low) / NS)


def _period_s(windows: list[Window]) -> float:
    """The period of the windows' starts (s) if there are at least three and they lie on a grid; 0 if not. Some may be missing."""
    starts = np.array([a for a, _ in windows], dtype=float) / NS
    if len(starts) < 3:
        return 0.0
    gaps = np.diff(starts)
    period = float(np.median(gaps[gaps <= 1.5 * gaps.min()]))
    steps = np.maximum(np.round(gaps / period), 1)
    return period if np.all(np.abs(gaps - steps * period) <= 0.15 * period) else 0.0


def deployments(evidence: Evidence) -> Finding | Unmeasured | None:
    """Replicas went away or came, by the records or by events; or the service refused everything for a while."""
    told = [event for event in evidence.events if str(event.get("kind", "")).lower().startswith(EVENT_KINDS)]
    windows = absences(evidence)
    refused = refusals(evidence)
    for event in told:
        at = event.get("at_ns")
        if isinstance(at, int):
            windows.append((at, at + round(5 * NS)))
    if not windows and not refused:
        return None
    everything = sorted(windows + refused)
    mask = evidence.during(everything)
    share = evidence.explained(mask, evidence.reference_s(mask))
    return Finding(
        "deploy",
        "Replicas went away or came while requests arrived",
        share,
        [
            f"{len(windows)} absences of replicas, {len(refused)} windows in which nothing was served, {len(told)} events told",
            f"windows: {shown(everything)}",
        ],
        "Drain before stopping, start the new replica before the old one goes, keep capacity for one replica less, and retry refusals.",
        everything,
        ["rate by replica", "errors"],
    )


def absences(evidence: Evidence) -> list[Window]:
    """Windows in which a replica that served before and after (or appeared late) served nothing, too long to be chance."""
    every = evidence.every[evidence.every["outcome"] == OK]
    ids, counts = np.unique(every["replica"], return_counts=True)
    if len(ids) < 2 or not len(every):
        return []
    first, last = int(every["intended_ns"].min()), int(every["intended_ns"].max())
    found = []
    for replica in ids[counts >= 30]:
        at = np.concatenate([[first], np.sort(every["intended_ns"][every["replica"] == replica]), [last]])
        gaps = np.diff(at)
        least_ns = max(LEAST_ABSENCE_S * NS, 15 * float(gaps.mean()))
        found += [(int(at[i]), int(at[i + 1])) for i in np.flatnonzero(gaps > least_ns)]
    return found


def refusals(evidence: Evidence) -> list[Window]:
    """Windows of at least 0.3 s in which five or more requests in a row failed with 502, 503, 504 or without an answer."""
    rows = evidence.rows
    refused = (rows["outcome"] == FAILED) & np.isin(rows["status"], (0, 502, 503, 504))
    edges = np.flatnonzero(np.diff(np.concatenate([[0], refused.astype(int), [0]])))
    runs = [(a, b - 1) for a, b in zip(edges[::2], edges[1::2], strict=True) if b - a >= 5]
    windows = [(int(rows["intended_ns"][a]), int(rows["intended_ns"][b])) for a, b in runs]
    return [(a, b) for a, b in windows if b - a >= 0.3 * NS]
