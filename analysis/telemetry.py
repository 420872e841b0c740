"""The collector's files of a run, read as series on the run's time axis. From files alone, tolerant of torn and hostile lines.

Formats are described in docs/collector.md. Every sample is placed by its host's monotonic clock; the wall clock is used at
one instant only, the anchor nearest to the epoch, so that a wall clock that is stepped during the run moves nothing.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from analysis.telemetry_series import Series
from analysis.text import plain

FOLDERS = ("gpu", "server", "host")
FORMAT = "truetail-collector/1"
MOST_LINE_BYTES = 4 << 20
MOST_SERIES = 20_000
MOST_POINTS = 400_000
MOST_EVENTS = 10_000
FARTHEST_NS = 1 << 61
WORDS = {"NaN": float("nan"), "+Inf": float("inf"), "-Inf": float("-inf")}
DEVICE = re.compile(r"devices\.(\d{1,3})\.(.+)")
HARMLESS = {"gpu_idle", "applications_clocks_setting", "display_clock_setting", "none"}
"""Reasons for a clock that are no throttling: nothing to do, or somebody set it so."""
COUNTER_ENDS = ("_total", "_bucket", "_sum", "_count")


class Clock(NamedTuple):
    """Monotonic to run time: ``at_ns = mono_ns + shift_ns``, right within +-``error_ns`` of this host's wall clock."""

    shift_ns: int
    error_ns: int


@dataclass
class Source:
    """One device, server or host. ``simulated`` figures were never measured on a GPU, and whatever shows them must say so."""

    folder: str
    kind: str
    name: str
    device: str
    host: str
    simulated: bool
    period_ns: int
    clock: Clock | None
    about: dict[str, str] = field(default_factory=dict)
    series: dict[str, Series] = field(default_factory=dict)
    reasons: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)
    samples: int = 0
    missed: int = 0
    thinned: int = 1

    @property
    def title(self) -> str:
        """How plots and tables call it: a simulated device is called simulated, always."""
        device = f" {self.device}" if self.device else ""
        if self.folder == "gpu":
            return f"simulated device{device} ({self.name})" if self.simulated else f"GPU{device} on {self.host}"
        return f"{self.folder} {self.name}"


class Event(NamedTuple):
    """Something that happened to a source (gpu-lost, call-hung, xid, ...)."""

    at_ns: int | None
    host: str
    source: str
    kind: str
    text: str
    device: str


@dataclass
class Telemetry:
    """Everything that a run's collectors noted. ``notes`` say in words what could not be had and how exact the times are."""

    sources: list[Source] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def of(self, folder: str) -> list[Source]:
        """The sources of one folder whose times are on the run's axis."""
        return [source for source in self.sources if source.folder == folder and source.clock]

    def named(self) -> dict[str, Series]:
        """Every series by one name: ``gpu/<file>:devices.<n>.<field>``, ``server/<name>:<series>``, ``host/<name>:<field>``.

        A GPU that tells reasons for its clock has a series ``throttling`` (1 or 0) made of them.
        """
        found: dict[str, Series] = {}
        for source in self.sources:
            if source.clock:
                prefix = f"{source.folder}/{source.name}:{f'devices.{source.device}.' if source.device else ''}"
                if source.reasons:
                    at, told = zip(*source.reasons, strict=True)
                    flags = np.array([bool(set(reasons) - HARMLESS) for reasons in told], float)
                    found[f"{prefix}throttling"] = Series(np.array(at, np.int64), flags)
                found.update((prefix + name, series) for name, series in source.series.items())
        return found


class _Points:
    """A source being read: samples as plain arrays; past a bound every second one is let go, so that memory stays flat."""

    def __init__(self, header: Mapping[str, Any]) -> None:
        self.header = header
        self.columns: dict[str, tuple[array[int], array[float]]] = {}
        self.reasons: list[tuple[int, tuple[str, ...]]] = []
        self.about: dict[str, str] = {}
        self.samples = self.missed = self.dropped_series = 0
        self.stride = 1

    def add(self, mono_ns: int, values: Mapping[str, Any]) -> None:
        """Take one sample's usable values."""
        self.samples += 1
        if self.samples % self.stride:
            return
        for name, value in values.items():
            number = WORDS.get(value) if isinstance(value, str) else value
            if isinstance(number, int | float) and not isinstance(number, bool) and -1e300 < number < 1e300:
                self._point(name, mono_ns, float(number))
            elif isinstance(value, str):
                self.about[plain(name, 40)] = plain(value, 100)
            elif isinstance(value, list) and name.endswith("reasons") and all(isinstance(item, str) for item in value):
                self.reasons.append((mono_ns, tuple(plain(item, 40) for item in value[:16])))
        if self.samples // self.stride > MOST_POINTS:
            self._thin()

    def _point(self, name: str, mono_ns: int, value: float) -> None:
        column = self.columns.get(name)
        if column is None:
            if len(self.columns) >= MOST_SERIES:
                self.dropped_series += 1
                return
            column = self.columns[plain(name, 300)] = (array("q"), array("d"))
        if not column[0] or mono_ns > column[0][-1]:
            column[0].append(mono_ns)
            column[1].append(value)

    def _thin(self) -> None:
        self.stride *= 2
        self.columns = {name: (times[::2], values[::2]) for name, (times, values) in self.columns.items()}
        self.reasons = self.reasons[::2]


def read(run: Path, epoch_wall_ns: int | None) -> Telemetry:
    """Read ``gpu/``, ``server/`` and ``host/`` of a run folder. Without an epoch, times count from the first anchor of each host."""
    telemetry = Telemetry()
    for folder in FOLDERS:
        paths = sorted(path for path in (run / folder).glob("*.jsonl") if path.is_file() and not path.is_symlink())
        events = [path for path in paths if path.name.startswith("collector_events.")]
        groups: dict[str, list[Path]] = {}
        for path in paths:
            if path not in events:
                groups.setdefault(re.sub(r"\.part\d+$", "", path.stem), []).append(path)
        for parts in groups.values():
            parts.sort(key=lambda path: (path.stem.count(".part"), path.stem))
            _read_source(telemetry, folder, parts, epoch_wall_ns)
        for path in events:
            _read_events(telemetry, path, epoch_wall_ns)
    return telemetry


class _Reading:
    """What the parts of one file name hold. A host booted anew (another boot id) has another clock: its samples stay apart."""

    def __init__(self, folder: str, notes: list[str]) -> None:
        self.folder, self.notes = folder, notes
        self.points: dict[tuple[str, str], _Points] = {}
        self.anchors: dict[str, list[tuple[int, int, int]]] = {}
        self.types: dict[str, str] = {}
        self.header: dict[str, Any] = {}

    def take(self, line: dict[str, Any], name: str) -> None:
        """One line of a file; until a sound header has come nothing is taken."""
        if "format" in line:
            self.header = line if line["format"] == FORMAT and line.get("content") == "samples" else {}
            if not self.header:
                told = plain(repr(line["format"]), 60)
                self.notes.append(f"{self.folder}/{plain(name, 80)}: format {told}, expected {FORMAT!r} with samples; not read")
        elif not self.header:
            return
        elif "anchor" in line:
            _note_anchor(self.anchors.setdefault(_boot(self.header), []), line["anchor"])
        elif isinstance(line.get("types"), dict):
            self.types.update({plain(key, 200): plain(kind, 20) for key, kind in list(line["types"].items())[:MOST_SERIES]})
        elif isinstance(line.get("values"), dict) and _instant(line.get("mono_ns")):
            self._sample(line)

    def _sample(self, line: Mapping[str, Any]) -> None:
        for device, values in devices(line):
            held = self.points.setdefault((_boot(self.header), device), _Points(self.header))
            held.missed += line["missed"] if type(line.get("missed")) is int and line["missed"] > 0 else 0
            held.add(line["mono_ns"], values)


def _read_source(telemetry: Telemetry, folder: str, parts: list[Path], epoch_wall_ns: int | None) -> None:
    reading = _Reading(folder, telemetry.notes)
    for path in parts:
        for line in lines(path, telemetry.notes):
            reading.take(line, path.name)
    for (boot, device), held in sorted(reading.points.items(), key=lambda item: (item[0][0], item[0][1].zfill(4))):
        clock = clock_of(reading.anchors.get(boot, []), epoch_wall_ns)
        source = _finish(folder, device, held, clock, reading.types)
        telemetry.sources.append(source)
        if clock is None:
            telemetry.notes.append(
                f"{source.title}: no clock anchor could be read; its times are not on the run's axis and are not shown"
            )
        if held.stride > 1:
            telemetry.notes.append(f"{source.title}: every {held.stride}th of {held.samples} samples is kept here")
        if held.dropped_series:
            telemetry.notes.append(f"{source.title}: more than {MOST_SERIES} series; the rest is left out")


def lines(path: Path, notes: list[str]) -> Iterator[dict[str, Any]]:
    """A file's sound lines; those that are torn, too long or not an object are counted in one note."""
    bad = 0
    with path.open("rb") as file:
        while raw := file.readline(MOST_LINE_BYTES):
            try:
                line = json.loads(raw)
            except (ValueError, RecursionError):
                bad += 1
                continue
            if isinstance(line, dict):
                yield line
            else:
                bad += 1
    if bad:
        notes.append(f"{path.parent.name}/{plain(path.name, 80)}: {bad} lines could not be read (torn or not ours); left out")


def devices(line: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """A sample by device: NVML's line has one (``gpu``), the reference service's several (``devices.N.name``), others none."""
    if type(line.get("gpu")) is int:
        yield str(line["gpu"]), line["values"]
        return
    found: dict[str, dict[str, Any]] = {}
    for name, value in line["values"].items():
        match = DEVICE.fullmatch(name)
        found.setdefault(match[1] if match else "", {})[match[2] if match else name] = value
    if len(found) > 1:
        found.pop("", None)  # what is said of the whole answer (its own clocks) is of no device
    yield from found.items()


def clock_of(anchors: list[tuple[int, int, int]], epoch_wall_ns: int | None) -> Clock | None:
    """The clock from (wall, mono, uncertainty) anchors. Its error: the anchor's own, plus the two clocks' drift near the epoch."""
    if not anchors:
        return None
    epoch = anchors[0][0] if epoch_wall_ns is None else epoch_wall_ns
    wall, mono, uncertainty = min(anchors, key=lambda anchor: abs(anchor[0] - epoch))
    neighbours = sorted(anchors, key=lambda anchor: abs(anchor[0] - epoch))[:3]
    offsets = [a_wall - a_mono for a_wall, a_mono, _ in neighbours]
    shift = wall - mono - epoch
    if abs(shift) >= 2 * FARTHEST_NS:
        return None
    return Clock(shift, uncertainty + max(offsets) - min(offsets))


def _finish(folder: str, device: str, held: _Points, clock: Clock | None, types: Mapping[str, str]) -> Source:
    header = held.header
    simulated = header.get("source") == "simulated" or header.get("simulated") is True
    period_ns = header["period_ns"] if type(header.get("period_ns")) is int and header["period_ns"] > 0 else 10**8
    words = {key: plain(header.get(key, ""), 64) for key in ("source", "name", "host")}
    source = Source(folder, words["source"], words["name"], device, words["host"], simulated, period_ns, clock, held.about)
    shift = clock.shift_ns if clock else 0
    for name, (times, values) in held.columns.items():
        numbers = np.asarray(values)
        good = np.isfinite(numbers)
        source.series[name] = Series(np.asarray(times)[good] + shift, numbers[good], _is_counter(folder, name, types))
    source.reasons = [(at + shift, reasons) for at, reasons in held.reasons]
    source.samples, source.missed, source.thinned = held.samples, held.missed, held.stride
    return source


def _is_counter(folder: str, name: str, types: Mapping[str, str]) -> bool:
    """By the family's TYPE where the server told it, else by the name's end."""
    bare = name.partition("{")[0]
    if folder != "server":
        return bare.endswith("_total")
    stems = [bare, *(bare.removesuffix(end) for end in COUNTER_ENDS if bare.endswith(end))]
    kinds = [types[stem] for stem in stems if stem in types]
    if kinds:
        return kinds[0] == "counter" or (kinds[0] in ("histogram", "summary") and bare.endswith(COUNTER_ENDS))
    return bare.endswith(COUNTER_ENDS)


def _read_events(telemetry: Telemetry, path: Path, epoch_wall_ns: int | None) -> None:
    for line in lines(path, telemetry.notes):
        if "kind" in line and len(telemetry.events) < MOST_EVENTS:
            wall_ns: Any = line.get("wall_ns")
            at_ns = wall_ns - epoch_wall_ns if epoch_wall_ns is not None and _instant(wall_ns) else None
            host, source, kind, text = (plain(line.get(key, ""), 200) for key in ("host", "source", "kind", "text"))
            device = str(line["gpu"]) if type(line.get("gpu")) is int else ""
            telemetry.events.append(Event(at_ns, host, source, kind, text, device))


def _note_anchor(known: list[tuple[int, int, int]], told: Any) -> None:
    if isinstance(told, dict) and all(_instant(told.get(key)) for key in ("wall_ns", "mono_ns", "uncertainty_ns")):
        known.append((told["wall_ns"], told["mono_ns"], abs(told["uncertainty_ns"])))


def _instant(value: Any) -> bool:
    return type(value) is int and -FARTHEST_NS < value < FARTHEST_NS


def _boot(header: Mapping[str, Any]) -> str:
    """Equal for all that share a monotonic clock; where the boot id is not offered, one process is all that is sure."""
    return str(header.get("boot_id") or f"pid {header.get('pid')}")[:64]
