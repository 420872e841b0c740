"""What a reader could not use: every drop has a name, a count and its first places; strict reading stops at the first."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

EXAMPLES_KEPT = 3
QUOTED_CHARACTERS = 60


class TraceError(ValueError):
    """A trace that cannot be read or replayed as asked: one clear message with file, line and field where there are any."""


def quoted(value: object) -> str:
    """``value`` as an error shows it: its repr, short, with control characters escaped."""
    text = ascii(value)
    return text if len(text) <= QUOTED_CHARACTERS else text[: QUOTED_CHARACTERS - 3] + "..."


@dataclass
class Drops:
    """Counts of rows read, dropped and remarked on while one trace is read.

    ``dropped`` loses the row, ``noted`` keeps it (blank lines, replaced bytes, failures in the trace). Keys are short reasons,
    ``examples`` holds the first places of each. With ``strict`` the first drop raises TraceError instead.
    """

    file: str
    strict: bool = False
    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    noted: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)

    def place(self, line: int, column: str = "") -> str:
        """``file:line: field``, as messages start."""
        return f"{self.file}:{line}" + (f": {column}" if column else "")

    def drop(self, reason: str, line: int, column: str = "", found: object = None, count: int = 1) -> None:
        """Count ``count`` lost rows under ``reason``. Raises TraceError when strict."""
        text = f"{self.place(line, column)}: {reason}" + ("" if found is None else f", found {quoted(found)}")
        if self.strict:
            raise TraceError(text)
        self.dropped[reason] += count
        shown = self.examples.setdefault(reason, [])
        if len(shown) < EXAMPLES_KEPT:
            shown.append(text)

    def note(self, reason: str, count: int = 1) -> None:
        """Count a remark that loses nothing."""
        if count:
            self.noted[reason] += count

    @property
    def lost(self) -> int:
        """How many rows were dropped, for any reason."""
        return sum(self.dropped.values())

    def to_json(self) -> dict[str, object]:
        """Plain JSON: counts by reason and the first places of each."""
        return {
            "kept": self.kept,
            "dropped": dict(self.dropped),
            "noted": dict(self.noted),
            "examples": {reason: list(places) for reason, places in self.examples.items()},
        }

    def lines(self) -> list[str]:
        """The same for people, a line a reason; empty when there is nothing to say."""
        lost = [f"dropped {n}: {reason} (first: {self.examples[reason][0]})" for reason, n in self.dropped.most_common()]
        return lost + [f"note {n}: {reason}" for reason, n in self.noted.most_common()]
