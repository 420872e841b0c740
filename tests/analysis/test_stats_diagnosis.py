"""The diagnosis against a simulated service whose faults are known: the injected cause first, and no clean run accused."""

import sys
from collections import Counter
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest

from analysis import diagnosis_queue
from analysis.batching import BatchTime
from analysis.diagnosis import LEAST_SHARE, RULES, diagnose
from analysis.diagnosis_evidence import Evidence, field_of, shown, windows_where
from analysis.telemetry_series import Series

RUN_S = 60.0


def beside(name):
    """A module that lies beside this file."""
    spec = spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


sim = beside("simulated_service")
Service = sim.Service


def poisson(rate, seed, run_s=RUN_S):
    """Poisson arrivals over the run, in s."""
    rng = np.random.default_rng(9000 + seed)
    at = np.cumsum(rng.exponential(1 / rate, int(rate * run_s * 1.3) + 50))
    return at[at < run_s]


def gauge(windows, hot, cold):
    """A gauge sampled twice a second, ``hot`` within the windows."""
    at = np.arange(0, RUN_S, 0.5)
    inside = np.any([(at >= a) & (at < b) for a, b in windows], axis=0) if windows else np.zeros(len(at), dtype=bool)
    return Series((at * 1e9).astype(np.int64), np.where(inside, hot, cold).astype(float))


def device(throttled=(), full=()):
    """The simulated device's series as the collector writes them."""
    prefix = "gpu/simulated-target:devices.0."
    return {
        prefix + "throttling": gauge(throttled, 1, 0),
        prefix + "clock_mhz": gauge(throttled, 705, 1410),
        prefix + "memory_used_bytes": gauge(full, 15.5e9, 4e9),
        prefix + "memory_total_bytes": gauge([], 0, 16e9),
    }


def window(seed):
    """A window of about 12 s somewhere in the run."""
    start = 15 + np.random.default_rng(seed).uniform(0, 10)
    return [(start, start + 12.0)]


def bursts(seed):
    """A base of 100/s, and every 15 s 150 clients within half a second."""
    rng = np.random.default_rng(seed)
    extra = np.concatenate([start + np.sort(rng.uniform(0, 0.5, 150)) for start in np.arange(5, RUN_S, 15)])
    return np.sort(np.concatenate([poisson(100, seed), extra]))


FAULTS = {
    "cold start": ("cold-start", lambda s: (Service(cold=(100, 5.0), replicas=2), poisson(200, s), device())),
    "periodic pause": ("runtime-pause", lambda s: (Service(pauses=[(t, t + 0.2) for t in np.arange(3 + s % 3, 60, 5)]), poisson(200, s), device())),
    "one pause": ("runtime-pause", lambda s: (Service(pauses=[(20.0 + s % 10, 21.0 + s % 10)]), poisson(200, s), device())),
    "throttled clock": ("throttling", lambda s: (Service(slow_windows=[(*window(s)[0], 2.0)]), poisson(300, s), device(throttled=window(s)))),
    "memory full": ("memory-pressure", lambda s: (Service(slow_windows=[(*window(s)[0], 1.8)]), poisson(300, s), device(full=window(s)))),
    "slow replica": ("slow-replica", lambda s: (Service(replicas=4, slow_replica=(s % 4, 3.0)), poisson(300, s), device())),
    "queue delay": ("batching-delay", lambda s: (Service(queue_delay=0.02), poisson(100, s), device())),
    "long batch delay": ("batching-delay", lambda s: (Service(max_delay=0.03), poisson(20, s), device())),
    "slow preprocessing": ("cpu-bound", lambda s: (Service(preprocess=0.02), poisson(200, s), device())),
    "preprocessing on the loop": ("cpu-bound", lambda s: (Service(preprocess=0.02, on_loop=True), poisson(35, s), device())),
    "network delay": ("network", lambda s: (Service(network=(0.05, 0.0)), poisson(200, s), device())),
    "network jitter": ("network", lambda s: (Service(network=(0.0, 0.08)), poisson(200, s), device())),
    "slow dependency": ("dependency", lambda s: (Service(dependency=(1.0, 0.1)), poisson(200, s), device())),
    "dependency stalls": ("dependency", lambda s: (Service(dependency=(0.05, 0.1)), poisson(200, s), device())),
    "oversized inputs": ("input-variability", lambda s: (Service(oversized=(0.05, 40.0)), poisson(80, s), device())),
    "other clients": ("queueing", lambda s: (Service(foreign_rps=500.0), poisson(200, s), device())),
    "bursts": ("queueing", lambda s: (Service(), bursts(s), device())),
    "overload": ("queueing", lambda s: (Service(max_batch=4), poisson(380, s), device())),
    "rolling deploy": (
        "deploy",
        lambda s: (Service(replicas=3, away=[(i, 20 + 4 * i, 24 + 4 * i) for i in range(3)], c=0.002, max_batch=4), poisson(500, s), device()),
    ),
    "service away": ("deploy", lambda s: (Service(away=[(0, 20.0, 22.0)]), poisson(200, s), device())),
    "kernels interleave": ("gpu-contention", lambda s: (Service(mode="shared"), poisson(60, s), device())),
}  # fmt: skip
CLEAN = {
    "batch 20/s": lambda s: (Service(), poisson(20, s)),
    "batch 200/s": lambda s: (Service(), poisson(200, s)),
    "batch 400/s": lambda s: (Service(), poisson(400, s)),
    "batch 600/s": lambda s: (Service(), poisson(600, s)),
    "batch 800/s": lambda s: (Service(), poisson(800, s)),
    "3 replicas 900/s": lambda s: (Service(replicas=3), poisson(900, s)),
    "one at a time 25/s": lambda s: (Service(mode="fifo", a=0.02), poisson(25, s)),
    "one at a time 45/s": lambda s: (Service(mode="fifo", a=0.02), poisson(45, s)),
}


def named(fault, seed):
    """The causes found for a fault, first first."""
    service, arrivals, series = FAULTS[fault][1](seed)
    return [finding.cause for finding in diagnose(Evidence(sim.serve(service, arrivals, seed), series=series)).findings]


def accused(load, seed, tells=True):
    """The causes found for a clean run."""
    service, arrivals = CLEAN[load](seed)
    service.tells = tells
    return [finding.cause for finding in diagnose(Evidence(sim.serve(service, arrivals, seed), series=device())).findings]


@pytest.mark.parametrize("fault", FAULTS)
def test_the_injected_cause_is_named_first(fault):
    """One run of each fault: its cause is the first finding."""
    assert named(fault, 100)[:1] == [FAULTS[fault][0]]


@pytest.mark.parametrize("load", CLEAN)
def test_a_clean_run_accuses_no_one(load):
    """One clean run at each load: no finding."""
    assert accused(load, 200) == []


@pytest.mark.slow
def test_confusion_table():
    """Five fresh seeds a fault: the cause is first in at least 9 of 10 runs in all; 40 clean runs with stages, 40 without: no finding."""
    table = {fault: Counter((named(fault, seed) or ["none"])[0] for seed in range(300, 305)) for fault in FAULTS}
    for fault, counts in table.items():
        print(f"| {fault} | {FAULTS[fault][0]} | {', '.join(f'{cause} {n}' for cause, n in counts.most_common())} |")
    right = sum(counts[FAULTS[fault][0]] for fault, counts in table.items())
    assert right >= 0.9 * 5 * len(FAULTS)
    wrong = {
        (load, tells): found
        for load in CLEAN
        for seed in range(400, 405)
        for tells in (True, False)
        if (found := accused(load, seed, tells))
    }
    print(f"clean runs accused: {wrong}")
    assert not wrong


def test_every_rule_has_a_case():
    """Every rule but the client's own limit (tested below) is the expected cause of some fault above."""
    assert {cause for cause, _ in FAULTS.values()} | {"client-limit"} == set(RULES)


def test_a_late_generator_accuses_itself():
    """A twentieth of the requests sent 200 ms late: the client is named, with its CPU, not the service."""
    arrivals = poisson(200, 1)
    late = np.where(np.arange(len(arrivals)) % 20 == 0, 0.2, 0.0002)
    evidence = Evidence(
        sim.serve(Service(), arrivals, 1, late_s=late), generators=[{"cpu_share_max": 0.97, "loop_stall_max_ms": 190}]
    )
    first = diagnose(evidence).findings[0]
    assert first.cause == "client-limit"
    assert any("97%" in text for text in first.evidence)


def test_a_machine_that_stands_still_is_not_the_services_fault():
    """Pauses in which the generator was held up as well accuse the generator's side, with the host's CPU, and not the service."""
    arrivals = poisson(200, 14)
    pauses = [(t, t + 0.2) for t in np.arange(3, 60, 5)]
    late = np.full(len(arrivals), 0.0002)
    for begin, end in pauses:
        inside = (arrivals >= begin) & (arrivals < end)
        late[inside] = end - arrivals[inside]
    at = (np.arange(0, RUN_S, 0.5) * 1e9).astype(np.int64)
    counters = {f"host/here:cpu_{name}_s_total": Series(at, at / 1e9 * rate) for name, rate in (("user", 1.8), ("idle", 0.2))}
    causes = diagnose(Evidence(sim.serve(Service(pauses=pauses), arrivals, 14, late_s=late), series=counters)).findings
    assert [finding.cause for finding in causes][:1] == ["client-limit"]
    assert "runtime-pause" not in {finding.cause for finding in causes}
    assert any("90% busy" in text for text in causes[0].evidence)


def test_a_machine_that_stands_still_is_not_the_network():
    """150 ms in which the generator is held up and what comes back is read late: time outside the stages, but not the network's."""
    arrivals = poisson(400, 15)
    stalled = (arrivals >= 20) & (arrivals < 20.15)
    records = sim.serve(Service(), arrivals, 15, late_s=np.where(stalled, 0.02, 0.0002))
    around = (arrivals >= 19.98) & (arrivals < 20.15)
    records["done_ns"][around] += 40_000_000  # the answers lie there; the generator does not come to read them
    assert "network" not in {finding.cause for finding in diagnose(Evidence(records)).findings}
    records = sim.serve(Service(), arrivals, 15)
    records["done_ns"][(arrivals >= 20) & (arrivals < 22)] += 40_000_000  # the same, with a generator that was on time all along
    assert diagnose(Evidence(records)).findings[0].cause == "network"


@pytest.mark.parametrize("seed", range(3))
def test_a_cold_start_is_found_though_only_then_batches_are_large(seed):
    """At 50/s a replica only its cold phase makes large batches: what is usual is learnt from the time after it."""
    records = sim.serve(Service(cold=(100, 5.0), replicas=2), poisson(100, seed, 18.0), seed)
    first = diagnose(Evidence(records)).findings[0]
    assert first.cause == "cold-start"
    assert first.share > 0.5


def test_what_is_not_measured_is_said():
    """Without stages, replicas and series the rules that need them say so, and accuse no one."""
    records = sim.serve(Service(tells=False), poisson(200, 2), 2)
    records["replica"] = 0
    found = diagnose(Evidence(records))
    assert {"throttling", "memory-pressure", "slow-replica", "network", "queueing"} <= {u.cause for u in found.unmeasured}
    assert not found.findings


def test_throttling_without_effect_is_no_finding():
    """A throttle gauge that is on while inference stays as it is accuses no one."""
    records = sim.serve(Service(), poisson(200, 3), 3)
    assert not diagnose(Evidence(records, series=device(throttled=window(3)))).findings


def test_throttled_throughout_needs_the_declared_time():
    """Throttled all the time there is no contrast within the run: named only with a declared t(b), here half of what was measured."""
    service = Service(slow_windows=[(0.0, RUN_S + 60, 2.0)])
    records, series = sim.serve(service, poisson(100, 4), 4), device(throttled=[(0.0, RUN_S)])
    assert not diagnose(Evidence(records, series=series)).findings
    assert diagnose(Evidence(records, series=series, declared=BatchTime(0.01, 0.0005))).findings[0].cause == "throttling"


def test_sizes_that_explain_latency_are_named():
    """Inference proportional to tokens_out: the column is named with the variance it explains."""
    records = sim.serve(Service(), poisson(50, 5), 5)
    rng = np.random.default_rng(5)
    records["tokens_out"] = rng.lognormal(3, 1, len(records)).astype(int)
    extra = records["tokens_out"] * 1e6  # 1 ms a token
    records["inference_us"] += extra / 1e3
    records["done_ns"] += extra.astype(np.int64)
    first = diagnose(Evidence(records)).findings[0]
    assert first.cause == "input-variability"
    assert "tokens out" in first.title


def test_spikes_are_found_where_they_are():
    """A pause at 30 s makes one spike window around it; a clean run has at most one window in 60."""
    found = diagnose(Evidence(sim.serve(Service(pauses=[(30.0, 30.5)]), poisson(200, 6), 6)))
    assert found.spikes[0].begin_ns - 1e9 <= 30.0e9 <= found.spikes[0].end_ns
    assert found.spikes[0].p99_s > 0.3
    assert len(diagnose(Evidence(sim.serve(Service(), poisson(200, 7), 7))).spikes) <= 1


def test_stage_shares_add_up():
    """Shares of all stages and the unknown rest are 1, above p99 and in general."""
    stages = diagnose(Evidence(sim.serve(Service(), poisson(200, 8), 8))).stages
    assert sum(tail for tail, _ in stages.values()) == pytest.approx(1)
    assert sum(everyone for _, everyone in stages.values()) == pytest.approx(1)
    assert abs(stages["unknown"][0]) < 0.01


def test_foreign_share_is_measured():
    """500/s of others beside 200/s of ours take five sevenths of the places: a lower bound above 0.3 is found; 0 without others."""
    mixed = Evidence(sim.serve(Service(foreign_rps=500.0), poisson(200, 9), 9))
    assert 0.3 < diagnosis_queue.foreign_share(mixed) < 5 / 7 + 0.05
    assert diagnosis_queue.foreign_share(Evidence(sim.serve(Service(), poisson(200, 9), 9))) < 0.01


def test_few_requests_and_failures_only():
    """Too few answers give no diagnosis but a reason; a run without any answer does not break."""
    assert "needs" in diagnose(Evidence(sim.serve(Service(), poisson(2, 10), 10))).reason
    refused = sim.serve(Service(away=[(0, 0.0, 99.0)]), poisson(50, 11), 11)
    assert diagnose(Evidence(refused)).reason
    assert diagnose(Evidence(refused[:0])).reason


def test_warm_up_is_not_judged():
    """A cold start within the warm-up explains nothing of the tail that is measured."""
    records = sim.serve(Service(cold=(100, 5.0), replicas=2), poisson(200, 12), 12, warmup_s=10.0)
    assert not diagnose(Evidence(records)).findings


def test_small_parts():
    """Names of fields, windows and their text."""
    assert field_of("gpu/simulated-target:devices.0.throttling") == "throttling"
    assert field_of('server/vllm:vllm:kv_cache_usage_perc{model="a.b:c"}') == "kv_cache_usage_perc"
    assert field_of('server/t:target_device_memory_used_bytes{replica="r"}') == "memory_used_bytes"
    at = np.array([0, 1, 2, 10, 11]) * 10**9
    assert windows_where(at, np.array([True, True, False, True, True]), 2 * 10**9) == [(0, 10**9), (10 * 10**9, 11 * 10**9)]
    assert shown([(0, 10**9)] * 5) == "0.0-1.0 s, 0.0-1.0 s, 0.0-1.0 s and 2 more"
    assert LEAST_SHARE == 0.15
