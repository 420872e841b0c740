"""What the collector writes beside the run, read as it grows: a few series of each GPU, server and host, a point a second."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from truetail.tail import Tail

FOLDERS = ("gpu", "server", "host")
MOST_FILES = 64
MOST_TRACKS = 200
SHOWN_TRACKS = 16
RECENT_S = 120
"""Seconds that a track keeps one by one; of the whole run it keeps no more stretches than that either."""
MOST_TEXT = 80
DEVICE = re.compile(r"devices\.(\d{1,3})\.(.+)")
DEVICE_SERIES: Mapping[str, tuple[str, str, float]] = {
    # field: (title, unit, factor); NVML's names and those of the reference service's simulated device
    "utilization_gpu_percent": ("utilisation", "%", 1.0),
    "sm_active_percent": ("SMs active", "%", 1.0),
    "busy_share": ("busy", "%", 100.0),
    "power_average_w": ("power", "W", 1.0),
    "power_w": ("power", "W", 1.0),
    "clock_sm_mhz": ("SM clock", "MHz", 1.0),
    "clock_mhz": ("clock", "MHz", 1.0),
    "temperature_gpu_celsius": ("temperature", "°C", 1.0),
    "memory_used_bytes": ("memory used", "GiB", 1 / (1 << 30)),
    "batch_size": ("batch size", "", 1.0),
    "queue_length": ("queue length", "", 1.0),
}
SERVER_SERIES = re.compile(r"(queue|pending|running|waiting|in_flight|usage_perc|batch_size|ready)")
COUNTERS = ("_total", "_bucket", "_sum", "_count", "_created")
IDLE = {"gpu_idle", "applications_clocks_setting"}


@dataclass
class Track:
    """One series as means, by second from the epoch for the last two minutes and over wider stretches for the whole run.

    The stretch doubles each time there are more than ``RECENT_S`` of them (sums and counts are joined, so a mean stays that of its samples):
    what a track holds does not grow with the run.
    """

    source: str
    title: str
    unit: str
    simulated: bool
    recent: dict[int, tuple[float, int]] = field(default_factory=dict)
    whole: dict[int, tuple[float, int]] = field(default_factory=dict)
    width_s: int = 1
    latest: float = 0.0

    def add(self, at_s: float, value: float) -> None:
        """Take a sample of an instant in s from the epoch; what lies before it is not kept."""
        self.latest = value
        if at_s < 0:
            return
        _note(self.recent, int(at_s), value)
        _note(self.whole, int(at_s) // self.width_s, value)
        while len(self.recent) > RECENT_S:
            del self.recent[min(self.recent)]
        while len(self.whole) > RECENT_S:
            self.width_s *= 2
            self.whole = _joined(self.whole, 2)

    def newest(self, from_s: int) -> tuple[list[int], list[float]]:
        """Means of the last seconds from an instant on: (ends in s, values)."""
        return _means({second: cell for second, cell in self.recent.items() if second >= from_s}, 1)

    def over_all(self, width_s: int) -> tuple[list[int], list[float]]:
        """Means over the run in stretches of ``width_s``, or of as much as is kept where that is more: (ends in s, values)."""
        times = max(1, width_s // self.width_s)
        return _means(_joined(self.whole, times), self.width_s * times)


def _note(cells: dict[int, tuple[float, int]], key: int, value: float) -> None:
    total, n = cells.get(key, (0.0, 0))
    cells[key] = (total + value, n + 1)


def _joined(cells: Mapping[int, tuple[float, int]], times: int) -> dict[int, tuple[float, int]]:
    """Stretches ``times`` as wide."""
    wide: dict[int, tuple[float, int]] = {}
    for key, (total, n) in cells.items():
        so_far, count = wide.get(key // times, (0.0, 0))
        wide[key // times] = (so_far + total, count + n)
    return wide


def _means(cells: Mapping[int, tuple[float, int]], width_s: int) -> tuple[list[int], list[float]]:
    keys = sorted(cells)
    return [(key + 1) * width_s for key in keys], [float(f"{cells[key][0] / cells[key][1]:.5g}") for key in keys]


class Telemetry:
    """Tracks by (source, series). Nothing is read before the run has an epoch, since there is no axis to put it on."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._tails: dict[Path, Tail] = {}
        self.tracks: dict[tuple[str, str], Track] = {}
        self._headers: dict[Path, dict[str, Any]] = {}
        self._cpu: dict[str, tuple[float, float]] = {}
        self._reasons: dict[str, tuple[str, ...]] = {}
        self._events: list[dict[str, Any]] = []
        self._newest_s = 0

    def look(self, epoch_wall_ns: int | None) -> None:
        """Read what is new."""
        if epoch_wall_ns is None:
            return
        for folder in FOLDERS:
            for path in sorted((self._run / folder).glob("*.jsonl")):
                if path not in self._tails and len(self._tails) < MOST_FILES and not path.is_symlink():
                    self._tails[path] = Tail(path)
        for path, tail in self._tails.items():
            for line in tail.lines():
                self._take(path, line, epoch_wall_ns)

    def new_events(self) -> list[dict[str, Any]]:
        """The collector's own events, and throttling that began or ended, since the last call."""
        events, self._events = self._events, []
        return events

    def as_json(self, width_s: float) -> list[dict[str, Any]]:
        """Tracks for the charts: of the last two minutes by the second, and of the whole run."""
        order = sorted(self.tracks, key=lambda key: FOLDERS.index(key[0].partition("/")[0]))[:SHOWN_TRACKS]
        shown = []
        for key in order:
            track = self.tracks[key]
            recent, whole = track.newest(self._newest_s - RECENT_S), track.over_all(int(width_s))
            told = {"source": track.source, "title": track.title, "unit": track.unit, "simulated": track.simulated}
            shown.append({**told, "recent": recent, "whole": whole})
        return shown

    def _take(self, path: Path, line: Mapping[str, Any], epoch_wall_ns: int) -> None:
        if "format" in line:
            self._headers[path] = dict(line)
        wall_ns = line.get("wall_ns")
        if type(wall_ns) is not int or not 0 < wall_ns < 1 << 63:
            return
        at_s = (wall_ns - epoch_wall_ns) / 1e9
        if path.stem.startswith("collector_events"):
            self._events.append({"at_ns": wall_ns - epoch_wall_ns, "kind": line.get("kind"), "text": line.get("text")})
        elif isinstance(line.get("values"), dict):
            self._newest_s = max(self._newest_s, int(at_s))
            self._sample(path, line, at_s)

    def _sample(self, path: Path, line: Mapping[str, Any], at_s: float) -> None:
        folder, stem = path.parent.name, re.sub(r"\.part\d+$", "", path.stem)[:MOST_TEXT]
        if folder == "host":
            self._host(f"host {stem}", line["values"], at_s)
            return
        for device, values in _devices(line):
            source = f"{folder} {stem}" + (f" #{device}" if device else "")
            simulated = line.get("simulated") is True
            for name, (title, unit, factor) in DEVICE_SERIES.items() if folder == "gpu" else ():
                self._add(folder, source, name, (title, unit), values.get(name), factor, at_s, simulated)
            if folder == "server":
                for name in values:
                    if SERVER_SERIES.search(name) and not name.partition("{")[0].endswith(COUNTERS):
                        self._add(folder, source, name, (name[:MOST_TEXT], ""), values[name], 1.0, at_s, simulated)
            self._throttling(source, values, at_s)

    def _add(
        self, folder: str, source: str, name: str, shown: tuple[str, str], value: Any, factor: float, at_s: float, simulated: bool
    ) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float) or not -1e300 < value < 1e300:
            return
        key = (f"{folder}/{source}", name)
        track = self.tracks.get(key)
        if track is None:
            if len(self.tracks) >= MOST_TRACKS:
                return
            track = self.tracks[key] = Track(source, *shown, simulated)
        track.add(at_s, value * factor)

    def _host(self, source: str, values: Mapping[str, Any], at_s: float) -> None:
        """The host's busy share, from its counters."""
        modes = {name: value for name, value in values.items() if re.fullmatch(r"cpu_\w+_s_total", name)}
        if all(isinstance(value, int | float) for value in modes.values()) and modes:
            idle, total = modes.get("cpu_idle_s_total", 0) + modes.get("cpu_iowait_s_total", 0), sum(modes.values())
            before = self._cpu.get(source)
            self._cpu[source] = (idle, total)
            if before is not None and total > before[1]:
                busy = 100 * (1 - (idle - before[0]) / (total - before[1]))
                self._add("host", source, "cpu_busy", ("CPUs busy", "%"), busy, 1.0, at_s, False)
        self._add("host", source, "load_1min", ("load (1 min)", ""), values.get("load_1min"), 1.0, at_s, False)

    def _throttling(self, source: str, values: Mapping[str, Any], at_s: float) -> None:
        for name, value in values.items():
            if name.endswith("reasons") and isinstance(value, list):
                reasons = tuple(str(reason)[:MOST_TEXT] for reason in value[:8] if str(reason) not in IDLE)
                if reasons != self._reasons.get(source, ()):
                    self._reasons[source] = reasons
                    text = f"{source}: {', '.join(reasons) or 'at full clock again'}"
                    self._events.append(
                        {"at_ns": int(at_s * 1e9), "kind": "throttling" if reasons else "throttling-ended", "text": text}
                    )


def _devices(line: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """A sample by device: NVML's line names one, the reference service's lists several, a server's has none."""
    if type(line.get("gpu")) is int:
        yield str(line["gpu"]), line["values"]
        return
    found: dict[str, dict[str, Any]] = {}
    for name, value in line["values"].items():
        match = DEVICE.fullmatch(name)
        found.setdefault(match[1] if match else "", {})[match[2] if match else name] = value
    yield from found.items()
