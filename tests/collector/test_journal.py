"""The files: crash-safe, bounded, strict JSON; the clocks: anchors and absolute deadlines."""

from __future__ import annotations

import json
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.clocks import Ticks, anchor
from collector.events import Events
from collector.journal import Journal, encode, safe_name
from collector.sampler import Sampler, SourceFailed


def test_parts_have_headers_and_bounds_hold(tmp_path: Path, read_lines: Any) -> None:
    """Files are cut at the part's size, parts begin with header and anchor, lines past the whole bound are counted as lost."""
    journal = Journal(tmp_path, "h", {"source": "s"}, part_bytes=2_000, total_bytes=9_000)
    journal.anchor(anchor())
    kept = sum(journal.append({"n": n, "pad": "x" * 80}) for n in range(200))
    parts = sorted(tmp_path.glob("h*.jsonl"))
    assert len(parts) >= 4
    assert all(part.stat().st_size <= 2_500 for part in parts)
    assert all("format" in read_lines(part)[0] and "anchor" in read_lines(part)[1] for part in parts)
    ns = [
        line["n"]
        for part in [tmp_path / "h.jsonl", *sorted(tmp_path.glob("h.part*"))]
        for line in read_lines(part)
        if "n" in line
    ]
    assert ns == list(range(kept))
    assert journal.dropped == 200 - kept
    assert "bound" in journal.error


def test_concurrent_appends_never_mix(tmp_path: Path, read_lines: Any) -> None:
    """Eight threads writing one file, over rotations, lose and tear nothing."""
    journal = Journal(tmp_path, "h", {}, part_bytes=20_000)

    def write(thread: int) -> None:
        for n in range(300):
            journal.append({"t": thread, "n": n})

    threads = [threading.Thread(target=write, args=(t,)) for t in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [(line["t"], line["n"]) for part in tmp_path.glob("*.jsonl") for line in read_lines(part) if "n" in line]
    assert sorted(found) == [(t, n) for t in range(8) for n in range(300)]


def test_full_disk_is_counted_and_recovered_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that fails or is cut short loses that line only: it is counted, and the next line starts on a line of its own."""
    import os

    journal = Journal(tmp_path, "h", {})
    assert journal.append({"n": 1})
    real = os.write
    monkeypatch.setattr("collector.journal.os.write", lambda fd, data: real(fd, data[: len(data) // 2]))
    assert not journal.append({"n": 2, "pad": "x" * 50})
    monkeypatch.setattr("collector.journal.os.write", real)
    assert journal.dropped == 1
    assert journal.error
    assert journal.append({"n": 3})
    good = []
    for line in (tmp_path / "h.jsonl").read_text().splitlines():
        try:
            good.append(json.loads(line).get("n"))
        except ValueError:
            good.append("torn")
    assert [g for g in good if g is not None] == [1, "torn", 3]
    assert journal.error == ""


def test_strict_json() -> None:
    """NaN and infinities become words, at any depth; ordinary lines are untouched."""
    line = {"a": float("nan"), "b": [float("inf"), {"c": float("-inf")}], "d": 1.5}
    assert json.loads(encode(line)) == {"a": "NaN", "b": ["+Inf", {"c": "-Inf"}], "d": 1.5}


@given(st.text(max_size=300))
def test_safe_names(text: str) -> None:
    """A file name made of anything stays inside its folder and is never hidden or empty."""
    name = safe_name(text)
    assert name
    assert not name.startswith(".")
    assert "/" not in name
    assert len(name) <= 64


def test_anchor_picks_the_tightest_pair() -> None:
    """The anchor kept is the pair with the narrowest monotonic bracket, timed at its middle, half the bracket as uncertainty."""
    mono = iter([0, 100, 1_000, 1_010, 2_000, 2_050])
    wall = iter([5, 6, 7])
    assert anchor(3, lambda: next(mono), lambda: next(wall)) == (6, 1_005, 5)


@given(st.integers(1, 10**9), st.lists(st.integers(0, 5 * 10**9), min_size=1, max_size=50))
def test_ticks_never_drift_nor_lose_count(period: int, lateness: list[int]) -> None:
    """Whatever the lateness, deadlines stay multiples of the period, in the future, and taken + missed = ticks that went by."""
    ticks, missed = Ticks(0, period), 0
    for late in lateness:
        now = ticks.due_ns + late
        missed += ticks.advance(now)
        assert ticks.due_ns % period == 0
        assert now < ticks.due_ns <= now + period
    assert ticks.n == len(lateness) + missed


class Counting:
    """A source of ordinary size whose behaviour follows the clock: it fails for a minute each hour."""

    folder, name, key = "gpu", "nvml", {"gpu": 0}

    def __init__(self) -> None:
        self.n = 0

    def read(self, now_ns: int) -> dict[str, Any]:
        """Thirty fields, as a GPU has."""
        self.n += 1
        if now_ns // 60_000_000_000 % 60 == 59:
            raise SourceFailed("gpu-lost", "GPU 0: lost for a minute")
        return {f"field_{i}_total": self.n * i for i in range(30)}


def traced_bytes() -> int:
    """What Python has allocated (exact, slow)."""
    return tracemalloc.get_traced_memory()[0]


def resident_bytes() -> int:
    """What the process holds (fast, in whole pages)."""
    return int(psutil.Process().memory_info().rss)


@pytest.mark.parametrize(
    ("period_ms", "measure", "bound"),
    [(20_000, traced_bytes, 200_000), pytest.param(100, resident_bytes, 8 << 20, marks=pytest.mark.slow)],
)
def test_a_day_in_flat_memory(tmp_path: Path, period_ms: int, measure: Any, bound: int) -> None:
    """24 h on a simulated clock: memory grows by less than the bound from the first hour to the last; so does the disk's."""
    events = Events(tmp_path, "h")
    journal = Journal(tmp_path / "gpu", "h", {}, part_bytes=4 << 20, total_bytes=64 << 20)
    period_ns = period_ms * 1_000_000
    ticks, now = Ticks(0, period_ns), 0
    sampler = Sampler(Counting(), journal, events, ticks)
    sizes = []
    if measure is traced_bytes:
        tracemalloc.start()
    for hour in range(24):
        while now < (hour + 1) * 3_600_000_000_000:
            now = ticks.due_ns
            sampler.tick(lambda: now, lambda: now)  # noqa: B023 - called at once
        sampler.watch(now)
        sizes.append(measure())
    tracemalloc.stop()
    assert sizes[-1] - sizes[0] < bound
    assert sampler.progress.samples + sampler.progress.failures <= ticks.n
    assert sampler.progress.missed == 0
    assert events.counts == {"gpu-lost": 24, "source-back": 24}
    assert sum(path.stat().st_size for path in (tmp_path / "gpu").glob("h*.jsonl")) <= 64 << 20


def test_hung_source_is_reported_once() -> None:
    """A call that does not come back is one event while it lasts and one when it is over, whatever the number of looks."""
    said: list[str] = []
    sampler = Sampler(Counting(), None, lambda *a, **k: said.append(a[2]), Ticks(0, 100_000_000))  # type: ignore[arg-type]
    sampler.progress.reading_since_ns = 1_000
    for now in (500_000_000, 2_000_000_000, 3_000_000_000):
        sampler.watch(now)
    sampler.progress.reading_since_ns = 0
    sampler.watch(4_000_000_000)
    sampler.watch(5_000_000_000)
    assert said == ["call-hung", "call-returned"]


def test_surprising_error_keeps_the_thread(tmp_path: Path) -> None:
    """An error that nobody foresaw in a source is an event with its type, and the next tick is taken."""

    class Broken(Counting):
        def read(self, now_ns: int) -> dict[str, Any]:
            raise RuntimeError("surprise\nwith a second line")

    events = Events(tmp_path, "h")
    ticks = Ticks(0, 10**9)
    sampler = Sampler(Broken(), Journal(tmp_path, "h", {}), events, ticks)
    for _ in range(3):
        due = ticks.due_ns
        sampler.tick(lambda: due, lambda: due)  # noqa: B023 - called at once
    assert events.counts == {"source-error": 1}
    assert sampler.progress.failures == 3
    event = json.loads((tmp_path / "gpu/collector_events.jsonl").read_text().splitlines()[-1])
    assert event["text"] == "RuntimeError: surprise with a second line"
