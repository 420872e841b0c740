"""May these runs be compared? Same work, same way of choosing seeds, same machine, all sound, and interleaved in time."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis import ledger, percentiles, slo_lines, validity
from analysis.metrics import measure, seconds
from analysis.run_folder import Run
from analysis.text import plain

WORK = ("users", "requests", "arrivals", "duration_s", "warmup_s", "pool", "deadline_s", "lateness_deadline_s", "fleet")
"""What of a scenario must be equal; the target, the SLOs and the name may differ, since that is what is compared."""
NOT_OURS = ("SLO stated", "long enough")
"""Rules about what a run claims by itself, which a comparison does not ask for."""
LIKE_N = 0.05
"""Numbers of requests may differ by this share: p99 of a short run is biased low."""


@dataclass(frozen=True, slots=True)
class Doubts:
    """``unlike``: reasons not to compare, unless told to; ``notes``: what a reader should know anyway."""

    unlike: Sequence[str]
    notes: Sequence[str]


def values_s(run: Run, metric: str, name: str | None) -> NDArray[np.float64]:
    """A metric of the run's arrivals after the warm-up, in order of intended time; +inf for failures."""
    records = run.records
    mask = records.judged
    if name is not None:
        texts = records.texts("name")
        mask = mask & (records["name"] == (texts.index(name) if name in texts else -1))
    return seconds(measure(records, metric, mask))


def doubts(base: Sequence[Run], candidate: Sequence[Run]) -> Doubts:
    """Everything that speaks against comparing the two arms."""
    runs = [*base, *candidate]
    unmet = [(run, rule) for run in runs for rule in _unmet(run)]
    unlike = [
        *(f"{_name(run)} is INVALID: {rule.name}: {rule.text}" for run, rule in unmet if rule.name not in NOT_OURS),
        *_different_work(runs),
        *_different_seeds(base, candidate),
        *_different_machines(runs),
        *_different_sizes(runs),
    ]
    # Compared, since a comparison claims nothing about an SLO; but not in silence.
    alone = [f"{_name(run)} is INVALID by itself: {rule.name}: {rule.text}" for run, rule in unmet if rule.name in NOT_OURS]
    return Doubts(unlike, [*alone, *_notes(base, candidate)])


def _name(run: Run) -> str:
    return plain(run.path.name, 80)


def _unmet(run: Run) -> list[validity.Rule]:
    """The rules that make the run INVALID by itself."""
    return validity.unmet(
        validity.judge(validity.Evidence(run, ledger.check(run), percentiles.of_run(run), slo_lines.judge(run)))
    )


def _work(run: Run) -> Mapping[str, Any]:
    scenario = run.manifest.raw.get("scenario", {})
    return {key: scenario.get(key) for key in WORK}


def _different_work(runs: Sequence[Run]) -> list[str]:
    first, found = _work(runs[0]), []
    for run in runs[1:]:
        other = _work(run)
        keys = [key for key in WORK if _canonical(first[key]) != _canonical(other[key])]
        if keys:
            found.append(f"{_name(run)} did other work than {_name(runs[0])}: {', '.join(keys)} differ")
    return found


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _seeds(arm: Sequence[Run]) -> list[int]:
    return sorted(run.scenario.seed.schedule for run in arm)


def _different_seeds(base: Sequence[Run], candidate: Sequence[Run]) -> list[str]:
    """The arms must use the same seeds, or each run one of its own: anything else mixes luck of the schedule into the difference."""
    one, two = _seeds(base), _seeds(candidate)
    own = len(set(one + two)) == len(one) + len(two)
    return [] if own or set(one) == set(two) else [f"the arms' seeds are chosen differently: {one} and {two}"]


def _machine(run: Run) -> str:
    host = run.manifest.raw.get("host")
    host = host if isinstance(host, dict) else {}
    return plain(f"{host.get('name', '?')}, {host.get('cpus', '?')} CPUs", 120)


def _different_machines(runs: Sequence[Run]) -> list[str]:
    machines = sorted({_machine(run) for run in runs})
    return [f"runs are from different machines: {'; '.join(machines)}"] if len(machines) > 1 else []


def _different_sizes(runs: Sequence[Run]) -> list[str]:
    sizes = [int(run.records.judged.sum()) for run in runs]
    if min(sizes) >= (1 - LIKE_N) * max(sizes):
        return []
    return [f"numbers of requests differ: {min(sizes)} to {max(sizes)}"]


def _notes(base: Sequence[Run], candidate: Sequence[Run]) -> list[str]:
    found = []
    times = sorted((run.manifest.started_wall_ns or 0, arm) for arm, runs in enumerate((base, candidate)) for run in runs)
    changes = sum(one[1] != two[1] for one, two in itertools.pairwise(times))
    if len(times) > 2 and changes < min(len(base), len(candidate)):
        found.append(
            "the runs were not interleaved (base, candidate, base, ...): what changed on the machine in between is in the difference"
        )
    if 1 < min(len(base), len(candidate)) < 5:
        found.append("fewer than 5 runs in an arm: small differences will not show")
    return found
