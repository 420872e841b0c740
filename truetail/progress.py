"""What a person sees while a run lasts: a table that moves in a terminal, a plain line every few seconds in a log."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from truetail.tail import Tail

PLAIN_EVERY_S = 5.0
QUIET_EVENTS = frozenset({"message-refused", "took-over"})
"""Events that are for the run folder alone: many, or of use to nobody who watches."""
MOST_TEXT = 300
MODES = ("auto", "live", "plain", "quiet", "json")


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f} ms" if value < 10_000 else f"{value / 1000:,.1f} s"


def plain_line(line: Mapping[str, Any], achieved_rps: float) -> str:
    """One line without control characters."""
    response, lateness = line["response_ms"], line["lateness_ms"]
    bad = line["failed"] + line["timed_out"]
    return (
        f"{line['at_s']:6.0f}/{line['duration_s']:.0f} s  offered {line['planned_last_s']:.0f}/s  sent {achieved_rps:.0f}/s  "
        f"in flight {line['in_flight']}  p50 {_ms(response['p50'])}  p99 {_ms(response['p99'])}  late p99 {_ms(lateness['p99'])}  "
        f"errors {bad}  dropped {line['dropped']}" + (f"  workers lost {line['workers_lost']}" if line["workers_lost"] else "")
    )


def table(line: Mapping[str, Any], achieved_rps: float) -> Group:
    """The same as a bar and a table."""
    response, lateness = line["response_ms"], line["lateness_ms"]
    left_s = max(0.0, line["duration_s"] - line["at_s"])
    grid = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    rows = (
        ("offered, sent", f"{line['planned_last_s']:,.0f}/s, {achieved_rps:,.0f}/s", False),
        ("in flight, waiting for a user", f"{line['in_flight']:,}, {line['backlog']:,}", False),
        ("response p50, p99, p99.9, max", ", ".join(_ms(response[name]) for name in ("p50", "p99", "p99.9", "max")), False),
        ("lateness p50, p99, max", ", ".join(_ms(lateness[name]) for name in ("p50", "p99", "max")), False),
        ("ok", f"{line['ok']:,}", False),
        ("failed, timed out", f"{line['failed']:,}, {line['timed_out']:,}", line["failed"] + line["timed_out"] > 0),
        ("dropped, lost", f"{line['dropped']:,}, {line['lost']:,}", line["dropped"] + line["lost"] > 0),
        (
            "workers, lost, busiest core",
            f"{line['workers']}, {line['workers_lost']}, {line['cpu_share_max']:.0%}",
            line["workers_lost"] > 0,
        ),
    )
    for name, value, bad in rows:
        grid.add_row(Text(name, style="dim"), Text(value, style="bold red" if bad else ""))
    title = f"{line['at_s']:.0f} of {line['duration_s']:.0f} s, {left_s:.0f} s left" if left_s else "draining"
    done = min(line["at_s"], line["duration_s"])
    bar = Padding(ProgressBar(total=line["duration_s"], completed=done, width=60), 0)  # a bare bar ends without a new line
    return Group(Text(title, style="bold"), bar, grid)


def chosen_mode(mode: str, out: TextIO, environment: Mapping[str, str]) -> str:
    """``auto`` becomes ``live`` only in a real terminal: not in CI, whose logs may pretend to be one, and not in a dumb one."""
    if mode not in MODES:
        raise ValueError(f"progress mode {mode!r}; allowed are {', '.join(MODES)}")
    if mode != "auto":
        return mode
    plain = not out.isatty() or environment.get("TERM") == "dumb" or environment.get("CI", "") not in ("", "0", "false")
    return "plain" if plain else "live"


class Progress:
    """Shows a run's ``progress.jsonl`` as it grows; ``mode`` is one of ``MODES``."""

    def __init__(
        self, folder: Path, mode: str = "auto", out: TextIO = sys.stderr, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tail = Tail(folder / "progress.jsonl")
        self._events = Tail(folder / "events.jsonl")
        self._out = out
        self._clock = clock
        self._mode = chosen_mode(mode, out, os.environ)
        self._live = Live(console=Console(file=out), auto_refresh=False, transient=True) if self._mode == "live" else None
        self._shown_at: float | None = None
        self._last: tuple[float, int] = (0.0, 0)
        self._unshown: dict[str, Any] | None = None

    def __enter__(self) -> Progress:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        """In a log the last line is always shown, also when its turn had not come."""
        self.update()
        if self._live:
            self._live.stop()
        elif self._mode == "plain" and self._unshown is not None:
            self._print(self._unshown)

    def update(self) -> None:
        """Show what is new, if anything."""
        for event in self._events.lines():
            if event.get("kind") not in QUIET_EVENTS:
                self.say(f"{event.get('kind')}: {event.get('text')}")
        lines = self._tail.lines()
        if self._mode == "json":
            for line in lines:
                print(json.dumps(line, allow_nan=False), file=self._out, flush=True)
        elif lines and self._mode != "quiet":
            self._show(lines[-1])

    def say(self, text: str) -> None:
        """A line of its own, in a terminal above the table; nothing in the modes for programs and for silence."""
        text = "".join(char if char.isprintable() else " " for char in text)[:MOST_TEXT]
        if self._live:
            self._live.console.print(Text(text, style="dim"))
        elif self._mode == "plain":
            print(text, file=self._out, flush=True)

    def _show(self, line: dict[str, Any]) -> None:
        if self._live:
            self._live.update(table(line, self._achieved_rps(line)), refresh=True)
        elif self._shown_at is None or self._clock() - self._shown_at >= PLAIN_EVERY_S:
            self._print(line)
        else:
            self._unshown = line

    def _print(self, line: dict[str, Any]) -> None:
        self._shown_at, self._unshown = self._clock(), None
        print(plain_line(line, self._achieved_rps(line)), file=self._out, flush=True)

    def _achieved_rps(self, line: Mapping[str, Any]) -> float:
        """Sent per second since the line that was shown before."""
        elapsed_s, sent = line["at_s"] - self._last[0], line["sent"] - self._last[1]
        self._last = (line["at_s"], line["sent"])
        return float(sent / elapsed_s) if elapsed_s > 0 else 0.0
