"""One source sampled at a fixed rate: what is due is read, filed and counted; failures become events."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from collector.clocks import NANOSECONDS, Ticks
from collector.events import Events
from collector.journal import Journal

RETRY_NS = NANOSECONDS
HUNG_NS = NANOSECONDS


class SourceFailed(Exception):
    """A source gave no sample: ``kind`` is the event's kind, the text says why in one line."""

    def __init__(self, kind: str, text: str, **more: Any) -> None:
        super().__init__(text)
        self.kind, self.more = kind, more


class Source(Protocol):
    """What is sampled. ``folder`` and ``name`` say where it is filed; ``key`` is put into each of its lines."""

    folder: str
    name: str
    key: Mapping[str, Any]

    def read(self, now_ns: int) -> Mapping[str, Any]:
        """One sample as ``{field: value}``; a field that is not offered is absent. Raises SourceFailed."""
        ...


@dataclass
class Progress:
    """What a sampler has done so far; read by the watchdog and by /metrics, written by its own thread only."""

    samples: int = 0
    missed: int = 0
    failures: int = 0
    late_ns_max: int = 0
    late_ns_sum: int = 0
    reading_since_ns: int = 0
    hung: bool = False
    failed: str = ""
    latest: Mapping[str, Any] = field(default_factory=dict)


class Sampler:
    """Reads one source at absolute deadlines and files what it says. ``tick`` is the whole step, without waiting."""

    def __init__(self, source: Source, journal: Journal, events: Events, ticks: Ticks) -> None:
        self.source, self.journal, self.events, self.ticks = source, journal, events, ticks
        self.progress = Progress()
        self._retry_at_ns = 0
        self._missed = 0

    def tick(self, mono_ns: Callable[[], int] = time.monotonic_ns, wall_ns: Callable[[], int] = time.time_ns) -> int:
        """Take the sample that is due; returns how long that took (ns).

        A failed source is asked again once a second, and reported only when what it says changes.
        """
        progress, due_ns, before = self.progress, self.ticks.due_ns, mono_ns()
        progress.reading_since_ns = before
        try:
            if before >= self._retry_at_ns:
                values = self.source.read(before)
                after = mono_ns()
                self._file(values, before, after, wall_ns() - (after - before) // 2)
        except SourceFailed as failure:
            self._fail(failure.kind, str(failure), failure.more, mono_ns())
        except Exception as error:  # whatever a driver or a server did: it is noted, the thread lives on
            self._fail("source-error", f"{type(error).__name__}: {error}", {}, mono_ns())
        finally:
            progress.reading_since_ns = 0
        late_ns = max(0, before - due_ns)
        progress.late_ns_max = max(progress.late_ns_max, late_ns)
        progress.late_ns_sum += late_ns
        now_ns = mono_ns()
        self._missed = self.ticks.advance(now_ns)
        progress.missed += self._missed
        return now_ns - before

    def watch(self, now_ns: int, hung_after_ns: int = HUNG_NS) -> None:
        """Report a call that has not come back, once, and its return; called by the main thread."""
        progress = self.progress
        since = progress.reading_since_ns
        hung = bool(since) and now_ns - since >= max(hung_after_ns, self.ticks.period_ns)
        if hung and not progress.hung:
            text = f"no answer for {(now_ns - since) / NANOSECONDS:.1f} s; the other sources go on"
            self.events(self.source.folder, self.source.name, "call-hung", text, **self.source.key)
        elif progress.hung and not hung:
            self.events(self.source.folder, self.source.name, "call-returned", "the hung call came back", **self.source.key)
        progress.hung = hung

    def _file(self, values: Mapping[str, Any], before: int, after: int, wall_ns: int) -> None:
        """Write a sample, timed at the middle of its reading; ``missed`` says how many ticks fell out before it."""
        progress = self.progress
        line = {"wall_ns": wall_ns, "mono_ns": (before + after) // 2, "read_us": (after - before) // 1000}
        if self._missed:
            line["missed"] = self._missed
        self.journal.append({**line, **self.source.key, "values": values})
        progress.samples += 1
        progress.latest = values
        if progress.failed:
            progress.failed = ""
            self.events(self.source.folder, self.source.name, "source-back", "samples again", **self.source.key)

    def _fail(self, kind: str, text: str, more: Mapping[str, Any], now_ns: int) -> None:
        progress = self.progress
        progress.failures += 1
        progress.latest = {}
        self._retry_at_ns = now_ns + RETRY_NS
        if progress.failed != kind:
            progress.failed = kind
            self.events(self.source.folder, self.source.name, kind, text, **{**self.source.key, **more})
