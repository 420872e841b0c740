"""Why the tail is what it is: every rule tried on the evidence, findings ranked by the share of the tail's time they explain.

No finding without evidence: a rule without its data says what it would need, and a share below 15 % accuses no one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from analysis import diagnosis_device as device
from analysis import diagnosis_outages as outages
from analysis import diagnosis_queue as queue
from analysis import diagnosis_spikes as spiking
from analysis import diagnosis_stages as stages
from analysis.diagnosis_evidence import FEWEST_REQUESTS, Evidence, Finding, Unmeasured

Rule = Callable[[Evidence], Finding | Unmeasured | None]

RULES: Mapping[str, Rule] = {
    "client-limit": stages.client,
    "cold-start": device.cold_start,
    "deploy": outages.deployments,
    "runtime-pause": outages.pauses,
    "throttling": device.throttling,
    "memory-pressure": device.memory_pressure,
    "slow-replica": device.slow_replica,
    "cpu-bound": stages.cpu_bound,
    "dependency": stages.dependency,
    "input-variability": device.input_variability,
    "gpu-contention": device.contention,
    "batching-delay": queue.held_back,
    "queueing": queue.queueing,
    "network": stages.network,
}
"""In order of how specific they are; equal shares rank in this order."""

LEAST_SHARE = 0.15
GENERAL: Mapping[str, frozenset[str]] = {
    "queueing": frozenset(
        {"cold-start", "deploy", "runtime-pause", "throttling", "memory-pressure", "slow-replica", "cpu-bound"}
    ),
    "network": frozenset({"runtime-pause", "cpu-bound", "client-limit"}),
    "input-variability": frozenset(
        {"cold-start", "runtime-pause", "throttling", "memory-pressure", "slow-replica", "gpu-contention"}
    ),
    "cpu-bound": frozenset({"runtime-pause"}),
    "client-limit": frozenset(),
}
"""What a general finding is a symptom of: where one of these is found, the general one counts, and is told, for what it leaves."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Findings, most of the tail explained first; what could not be tried; spike windows; the tail's time by stage (share of
    requests above p99, share of all). ``reason`` is set where there are too few requests to say anything."""

    findings: Sequence[Finding]
    unmeasured: Sequence[Unmeasured]
    spikes: Sequence[spiking.Spike]
    stages: Mapping[str, tuple[float, float]]
    reason: str = ""


def diagnose(evidence: Evidence) -> Diagnosis:
    """Try every rule."""
    n = int(evidence.ok.sum())
    if n < FEWEST_REQUESTS:
        return Diagnosis((), (), (), {}, f"{n} answered requests after the warm-up; a diagnosis needs {FEWEST_REQUESTS}")
    outcomes = [rule(evidence) for rule in RULES.values()]
    unmeasured = [outcome for outcome in outcomes if isinstance(outcome, Unmeasured)]
    found = [outcome for outcome in outcomes if isinstance(outcome, Finding) and outcome.share >= LEAST_SHARE]
    own = [(_own_share(finding, found), finding) for finding in found]
    ranked = [finding for share, finding in sorted(own, key=lambda pair: -pair[0]) if share >= LEAST_SHARE]
    return Diagnosis(ranked, unmeasured, spiking.spikes(evidence), spiking.decomposition(evidence))


def _own_share(finding: Finding, found: Sequence[Finding]) -> float:
    """A finding's share, less what more specific findings take of it."""
    causes = GENERAL.get(finding.cause, frozenset())
    return finding.share - max((other.share for other in found if other.cause in causes), default=0.0)
