"""Which series of a source are shown, in what unit: panels for a GPU (or simulated device), a server, a host. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from analysis.telemetry import Source
from analysis.telemetry_figures import busy_percent
from analysis.telemetry_plots import Panel
from analysis.telemetry_series import Series, increases, rate

MOST_LINES = 6
QUEUED = re.compile(r"pending|waiting|queue_(size|length)|running|current_size|batch_size$")
CACHED = re.compile(r"cache_usage|gpu_cache|memory_used")
EVENTS = re.compile(r"preempt|fail|reject|shed|drop|success|target_requests_total")
TIMED = re.compile(r"queue|stage|compute|infer|prefill|decode|first_token|inter_token")


def scaled(series: Series, factor: float) -> Series:
    """The series in another unit."""
    return Series(series.at_ns, series.values * factor, series.counter)


def gpu_panels(source: Source) -> list[Panel]:
    """Busy share, clocks, power, memory, temperature: as far as the device offers them."""
    have = source.series
    panels = []
    busy = busy_percent(source)
    lines = {busy[0]: busy[1]} if busy else {}
    if "utilization_gpu_percent" in have and busy and busy[1] is not have["utilization_gpu_percent"]:
        lines["utilisation (any kernel)"] = have["utilization_gpu_percent"]
    wanted: list[tuple[str, str, dict[str, Series], float | None]] = [
        ("Busy", "%", lines, 0.0),
        ("Clocks", "MHz", _named(have, {"clock_sm_mhz": "SM", "clock_mhz": "clock", "clock_memory_mhz": "memory"}), None),
        ("Power", "W", _named(have, {"power_w": "power", "power_instant_w": "instant"}), 0.0),
        (
            "Memory in use",
            "GiB",
            _named(have, {"memory_used_bytes": "used", "memory_used_with_reserved_bytes": "used and reserved"}, 2.0**-30),
            0.0,
        ),
        ("Temperature", "degC", _named(have, {"temperature_gpu_celsius": "GPU", "temperature_memory_celsius": "memory"}), None),
    ]
    for title, unit, found, floor in wanted:
        if found:
            panels.append(Panel(f"{title}{' (simulated)' if source.simulated else ''}", unit, found, floor))
    return panels


def server_panels(source: Source) -> list[Panel]:
    """Queues, mean times (sum over count of what was observed between samples), events a second, caches."""
    gauges = {name: series for name, series in source.series.items() if not series.counter}
    panels = [
        Panel("Queue and batch", "requests", _most(gauges, QUEUED)),
        Panel("Mean time by what was observed between samples", "ms", dict(list(mean_times(source))[:MOST_LINES])),
        Panel(
            "Events", "1/s", {n: rate(s) for n, s in _most({n: s for n, s in source.series.items() if s.counter}, EVENTS).items()}
        ),
        Panel("Cache and memory in use", "as the server reports it", _most(gauges, CACHED)),
    ]
    return [panel for panel in panels if panel.lines]


def mean_times(source: Source) -> Iterator[tuple[str, Series]]:
    """Mean durations in ms: histograms and summaries by their ``_sum`` and ``_count``, Triton's ``_duration_us`` by requests."""
    for name, total in source.series.items():
        bare, brace, labels = name.partition("{")
        if not total.counter or not TIMED.search(bare):
            continue
        if (
            bare.endswith("_summary_us_sum")
            and f"{bare.replace('_summary_us_sum', '_duration_us')}{brace}{labels}" in source.series
        ):
            continue  # Triton tells the same twice
        if bare.endswith("_sum"):
            count = source.series.get(f"{bare.removesuffix('_sum')}_count{brace}{labels}")
            factor = 1e-3 if "_us_" in bare or bare.endswith("_us_sum") else 1e3
        elif bare.endswith("_duration_us"):
            count, factor = source.series.get(f"nv_inference_request_success{brace}{labels}"), 1e-3
        else:
            continue
        if count is not None:
            means = ratio(total, count, factor)
            if len(means):
                yield name, means


def ratio(total: Series, count: Series, factor: float) -> Series:
    """Increase of one counter over the increase of another between common samples; only where the latter grew."""
    at, left, right = np.intersect1d(total.at_ns, count.at_ns, assume_unique=True, return_indices=True)
    if len(at) < 2:
        return Series(np.empty(0, np.int64), np.empty(0))
    up, down = increases(total.values[left]), increases(count.values[right])
    good = down > 0
    return Series(at[1:][good], factor * up[good] / down[good])


def host_panels(source: Source) -> list[Panel]:
    """CPU, page faults and context switches, network."""
    have = source.series
    panels = []
    idle, busy = (
        have.get("cpu_idle_s_total"),
        [have[n] for n in have if re.fullmatch(r"cpu_(user|nice|system|irq|softirq|steal)_s_total", n)],
    )
    if idle is not None and busy and all(len(series) == len(idle) for series in busy) and len(idle) > 1:
        used = sum((increases(series.values) for series in busy), np.zeros(len(idle) - 1))
        whole = (
            used + increases(idle.values) + (increases(have["cpu_iowait_s_total"].values) if "cpu_iowait_s_total" in have else 0)
        )
        share = np.divide(100 * used, whole, out=np.zeros_like(used), where=whole > 0)
        panels.append(Panel("CPU in use, of all CPUs", "%", {"CPU": Series(idle.at_ns[1:], share)}))
    counted = {
        "context_switches_total": "context switches",
        "page_faults_total": "page faults",
        "major_page_faults_total": "major page faults",
    }
    panels.append(Panel("Switches and faults", "1/s", {label: rate(have[n]) for n, label in counted.items() if n in have}))
    moved = {
        "network_sent_bytes_total": "sent",
        "network_received_bytes_total": "received",
        "loopback_sent_bytes_total": "loopback",
    }
    panels.append(Panel("Network", "MB/s", {label: scaled(rate(have[n]), 1e-6) for n, label in moved.items() if n in have}))
    panels.append(Panel("Memory in use", "GiB", _named(have, {"memory_used_bytes": "used"}, 2.0**-30)))
    return [panel for panel in panels if panel.lines]


def _named(have: dict[str, Series], labels: dict[str, str], factor: float = 1.0) -> dict[str, Series]:
    return {label: scaled(have[name], factor) for name, label in labels.items() if len(have.get(name, ()))}


def _most(have: dict[str, Series], pattern: re.Pattern[str]) -> dict[str, Series]:
    """The series whose family matches, those that move first, at most MOST_LINES."""
    found = {name: series for name, series in have.items() if pattern.search(name.partition("{")[0]) and len(series) > 1}
    moving = sorted(found, key=lambda name: (bool(np.ptp(found[name].values) == 0), name))
    return {name: found[name] for name in moving[:MOST_LINES]}
