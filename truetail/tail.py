"""New whole lines of a JSON-lines file that another process appends to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

MOST_BYTES = 1 << 20
"""Read at one call; what is beyond waits for the next."""


class Tail:
    """Remembers how far it has read. A line that is no JSON object is passed over: files of a crashed writer may hold one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._at = 0

    def lines(self) -> list[dict[str, Any]]:
        """The lines that have come since the last call, oldest first; [] while there is no file."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._at)
                data = file.read(MOST_BYTES)
        except OSError:
            return []
        end = data.rfind(b"\n") + 1
        if not end and len(data) == MOST_BYTES:
            end = len(data)  # a line longer than all we read at once is nothing of ours
        self._at += end
        return [line for text in data[:end].splitlines() if (line := _parsed(text)) is not None]


def _parsed(text: bytes) -> dict[str, Any] | None:
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return line if isinstance(line, dict) else None
