"""Append-only JSONL files that a crash cannot spoil.

Every line goes out with one ``write`` to a file opened for appending, so a process that is killed loses at most the line
it was writing. Files are cut into parts of bounded size, each with a header of its own; past the whole bound
lines are dropped and counted, never older data overwritten.
"""

from __future__ import annotations

import json
import math
import os
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from collector.clocks import Anchor

FORMAT = "truetail-collector/1"
PART_BYTES = 256 << 20
TOTAL_BYTES = 8 << 30
LINE_BYTES = 4 << 20
ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))


def safe_name(text: str) -> str:
    """A file name from untrusted text: letters, digits, ``._-``, at most 64 characters, never empty, hidden or a path."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", text)[:64].lstrip(".") or "unnamed"


def strict(value: Any) -> Any:
    """The same value as strict JSON has it: NaN and the infinities become the strings "NaN", "+Inf", "-Inf"."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    if isinstance(value, Mapping):
        return {str(key): strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict(item) for item in value]
    return value


def encode(line: Mapping[str, Any]) -> bytes:
    """One JSONL line; the tree is only walked for values that strict JSON cannot hold when there are any."""
    try:
        text = ENCODER.encode(line)
    except ValueError:
        text = ENCODER.encode(strict(line))
    return text.encode() + b"\n"


class Journal:
    """One source's file ``<folder>/<name>.jsonl`` and its parts. Safe for several threads; never raises on a full disk."""

    def __init__(
        self,
        folder: Path,
        name: str,
        header: Mapping[str, Any],
        part_bytes: int = PART_BYTES,
        total_bytes: int = TOTAL_BYTES,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.name = folder, safe_name(name)
        self.header = {"format": FORMAT, **header}
        self.part_bytes, self.total_bytes = part_bytes, total_bytes
        self.lock = threading.Lock()
        self.written_bytes = self.lines = self.dropped = 0
        self.error = ""
        self._fd, self._part, self._size, self._torn = -1, 0, 0, False
        self._anchor: Anchor | None = None

    def path(self, part: int) -> Path:
        """Where a part lies: the first without a number, the others as ``name.part0001.jsonl``."""
        return self.folder / (f"{self.name}.part{part:04d}.jsonl" if part else f"{self.name}.jsonl")

    def append(self, line: Mapping[str, Any]) -> bool:
        """Write one line; False when it was dropped (disk full, bound reached, file gone), with the reason in ``error``."""
        data = encode(line)
        with self.lock:
            return self._append(data)

    def anchor(self, at: Anchor) -> None:
        """Note an anchor: a line in the file, repeated at the head of every later part."""
        with self.lock:
            self._append(encode({"anchor": at._asdict()}))
            self._anchor = at

    def close(self) -> None:
        """Close the file; a later append opens it again."""
        with self.lock:
            self._close()

    def _append(self, data: bytes) -> bool:
        if len(data) > LINE_BYTES or self.written_bytes + len(data) > self.total_bytes:
            return self._drop(f"{self.name}: the bound of {min(LINE_BYTES, self.total_bytes)} bytes is reached")
        try:
            if self._fd < 0:
                self._open()
            elif self._size + len(data) > self.part_bytes:
                self._close()
                self._part += 1
                self._open()
            self._write(data)
        except OSError as error:
            self._close()
            return self._drop(f"{self.name}: cannot write: {error.strerror or error}")
        self.lines += 1
        self.error = ""
        return True

    def _drop(self, reason: str) -> bool:
        self.dropped += 1
        self.error = reason
        return False

    def _open(self) -> None:
        """Open for appending. What an earlier collector left there stays; its torn last line is ended first."""
        while self.path(self._part + 1).exists():
            self._part += 1
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._fd = os.open(self.path(self._part), flags, 0o644)
        self._size = os.fstat(self._fd).st_size
        self._torn = bool(self._size) and os.pread(self._fd, 1, self._size - 1) != b"\n"
        self._write(encode(self.header))
        if self._anchor:
            self._write(encode({"anchor": self._anchor._asdict()}))

    def _write(self, data: bytes) -> None:
        if self._torn:
            data = b"\n" + data
        self._torn = True
        done = os.write(self._fd, data)
        self._size += done
        self.written_bytes += done
        if done != len(data):
            raise OSError(28, "the disk took only part of a line")
        self._torn = False

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1
