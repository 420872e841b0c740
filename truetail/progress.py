"""What a person sees while a run lasts: a table that moves in a terminal, a plain line every few seconds in a log."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from rich.console import Console
from rich.live import Live
from rich.table import Table

PLAIN_EVERY_S = 5.0


class Follower:
    """Reads new whole lines of a growing JSON-lines file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0

    def latest(self) -> dict[str, Any] | None:
        """The newest line since the last call, or None."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                data = file.read()
        except OSError:
            return None
        end = data.rfind(b"\n") + 1
        if not end:
            return None
        self._at += end
        line: dict[str, Any] = json.loads(data[:end].splitlines()[-1])
        return line


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f} ms" if value < 10_000 else f"{value / 1000:,.1f} s"


def plain_line(line: Mapping[str, Any], achieved_rps: float) -> str:
    """One line without control characters."""
    response, lateness = line["response_ms"], line["lateness_ms"]
    bad = line["failed"] + line["timed_out"]
    return (
        f"{line['at_s']:6.0f}/{line['duration_s']:.0f} s  offered {line['planned_last_s']:.0f}/s  sent {achieved_rps:.0f}/s  in flight {line['in_flight']}  "
        f"p50 {_ms(response['p50'])}  p99 {_ms(response['p99'])}  late p99 {_ms(lateness['p99'])}  errors {bad}  dropped {line['dropped']}"
        + (f"  workers lost {line['workers_lost']}" if line["workers_lost"] else "")
    )


def table(line: Mapping[str, Any], achieved_rps: float) -> Table:
    """The same as a table."""
    response, lateness = line["response_ms"], line["lateness_ms"]
    left_s = max(0.0, line["duration_s"] - line["at_s"])
    grid = Table(
        title=f"{line['at_s']:.0f} of {line['duration_s']:.0f} s, {left_s:.0f} s left" if left_s else "draining",
        title_justify="left",
        show_header=False,
    )
    rows = (
        ("offered / sent", f"{line['planned_last_s']:,.0f}/s / {achieved_rps:,.0f}/s"),
        ("in flight, waiting for a user", f"{line['in_flight']:,} , {line['backlog']:,}"),
        ("response p50, p99, p99.9, max", ", ".join(_ms(response[name]) for name in ("p50", "p99", "p99.9", "max"))),
        ("lateness p50, p99, max", ", ".join(_ms(lateness[name]) for name in ("p50", "p99", "max"))),
        ("ok, failed, timed out", f"{line['ok']:,} , {line['failed']:,} , {line['timed_out']:,}"),
        ("dropped, lost", f"{line['dropped']:,} , {line['lost']:,}"),
        ("workers alive, busiest worker's core", f"{line['workers']} , {line['cpu_share_max']:.0%}"),
    )
    for name, value in rows:
        grid.add_row(name, value)
    return grid


class Progress:
    """Shows a run's ``progress.jsonl`` as it grows; ``mode`` is auto, plain, quiet or json."""

    def __init__(self, folder: Path, mode: str = "auto", out: TextIO = sys.stderr) -> None:
        self._follower = Follower(folder / "progress.jsonl")
        self._out = out
        self._mode = mode if mode != "auto" else "live" if out.isatty() else "plain"
        self._live = Live(console=Console(file=out), auto_refresh=False, transient=True) if self._mode == "live" else None
        self._shown_at = 0.0
        self._last: tuple[float, int] = (0.0, 0)

    def __enter__(self) -> Progress:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        if self._live:
            self._live.stop()

    def update(self) -> None:
        """Show what is new, if anything."""
        line = self._follower.latest()
        if line is None or self._mode == "quiet":
            return
        elapsed_s = line["at_s"] - self._last[0]
        achieved_rps = (line["sent"] - self._last[1]) / elapsed_s if elapsed_s > 0 else 0.0
        if self._live:
            self._last = (line["at_s"], line["sent"])
            self._live.update(table(line, achieved_rps), refresh=True)
        elif self._mode == "json":
            print(json.dumps(line, allow_nan=False), file=self._out, flush=True)
        elif time.monotonic() - self._shown_at >= PLAIN_EVERY_S:
            self._shown_at = time.monotonic()
            self._last = (line["at_s"], line["sent"])
            print(plain_line(line, achieved_rps), file=self._out, flush=True)
