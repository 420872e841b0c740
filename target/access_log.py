"""The access log: one JSON line per answer, so that arrivals can be reconciled at the server by their id."""

from __future__ import annotations

import io
import json
from pathlib import Path

ARRIVAL_HEADER = b"x-truetail-arrival"
_LONGEST = 256


class AccessLog:
    """Lines are buffered in memory and written by :meth:`flush` (twice a second, and at the end): no disk on a request's path.

    Raises OSError when the file cannot be opened. A write that fails later stops the log, says so once through ``failure``.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.failure = ""
        self._lines: list[str] = []
        self._file: io.TextIOWrapper | None = path.open("a", encoding="utf-8")

    def write(self, arrived_wall_ns: int, duration_us: int, method: str, path: str, status: int, arrival: bytes | None) -> None:
        """Note one answer. Text from outside is cut and escaped; status 0: the client went away before an answer."""
        line = {
            "arrived_wall_ns": arrived_wall_ns,
            "duration_us": duration_us,
            "method": method[:16],
            "path": path[:_LONGEST],
            "status": status,
            "arrival": None if arrival is None else arrival[:_LONGEST].decode("latin-1"),
        }
        self._lines.append(json.dumps(line, allow_nan=False))

    def flush(self) -> None:
        """Write what has been noted."""
        lines, self._lines = self._lines, []
        if self._file is None or not lines:
            return
        try:
            self._file.write("\n".join(lines) + "\n")
            self._file.flush()
        except OSError as error:
            self.failure = f"access log {self.path.name}: {error.strerror or error}"
            self._file = None

    def close(self) -> None:
        """Write the rest and close."""
        self.flush()
        if self._file is not None:
            self._file.close()
            self._file = None
