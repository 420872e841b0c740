"""Records of a worker that shares no folder with the master, shipped in acknowledged chunks while the run lasts.

A chunk says which file and from which byte on; the master appends it only where its own file ends and answers with the new end. Whatever is lost or
sent twice on the way, the next chunk starts at the last acknowledged byte: the master's copy is always a prefix of the worker's file.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

CHUNK_BYTES = 256 * 1024
RESEND_S = 3.0
MOST_BYTES = 1 << 40

SUFFIXES = {"names": ".names.jsonl", "rows": ".rec"}
"""What is shipped, in this order: a row's texts must not come after the row."""


class Chunk(BaseModel):
    """Bytes of one file from an offset on."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    file: Literal["names", "rows"]
    offset: Annotated[int, Field(ge=0, le=MOST_BYTES)]
    data: Annotated[bytes, Field(max_length=CHUNK_BYTES)]


class Shipped(BaseModel):
    """The master's answer: its file now ends here."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)
    file: Literal["names", "rows"]
    end: Annotated[int, Field(ge=0, le=MOST_BYTES)]


class Shipper:
    """The worker's side: :meth:`pump` after each flush, :meth:`acknowledged` for each answer."""

    def __init__(self, folder: Path, worker: str, send: Callable[[dict[str, Any]], None]) -> None:
        self._paths = {kind: folder / f"{worker}{suffix}" for kind, suffix in SUFFIXES.items()}
        self._send = send
        self._acked = dict.fromkeys(SUFFIXES, 0)
        self._sent_at_s: dict[str, float] = {}

    def pump(self, now_s: float | None = None) -> bool:
        """Send what is new, one chunk a file at a time. True when the master has everything."""
        now_s = time.monotonic() if now_s is None else now_s
        complete = True
        for kind, path in self._paths.items():
            size = path.stat().st_size if path.exists() else 0
            if self._acked[kind] >= size:
                continue
            complete = False
            if now_s - self._sent_at_s.get(kind, -RESEND_S) >= RESEND_S:
                self._ship(kind, path, now_s)
        return complete

    def _ship(self, kind: str, path: Path, now_s: float) -> None:
        with path.open("rb") as file:
            file.seek(self._acked[kind])
            data = file.read(CHUNK_BYTES)
        self._sent_at_s[kind] = now_s
        self._send({"file": kind, "offset": self._acked[kind], "data": data})

    def acknowledged(self, shipped: Shipped) -> None:
        """The master holds the file up to ``end``; it may be less than was sent, and the rest is sent again."""
        self._acked[shipped.file] = shipped.end
        self._sent_at_s.pop(shipped.file, None)
        self.pump()


class Receiver:
    """The master's side: appends chunks to ``records/<worker>.*``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def take(self, worker: str, chunk: Chunk) -> Shipped:
        """Append the chunk if it begins where the file ends; the end of the file either way. OSError when it cannot be written."""
        self._folder.mkdir(parents=True, exist_ok=True)
        fd = os.open(
            self._folder / f"{worker}{SUFFIXES[chunk.file]}", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644
        )
        try:
            end = os.fstat(fd).st_size
            if chunk.offset == end:
                view = memoryview(chunk.data)
                while view:
                    view = view[os.write(fd, view) :]
                end += len(chunk.data)
            return Shipped(file=chunk.file, end=end)
        finally:
            os.close(fd)


def shares_folder(folder: str, run_id: str) -> bool:
    """Whether the master's run folder is this run's folder here too (same machine, or a network file system).

    ``TRUETAIL_SHIP=always`` in the environment says no: records are shipped although they need not be.
    """
    if os.environ.get("TRUETAIL_SHIP") == "always":
        return False
    try:
        text = (Path(folder) / "run.json").read_text(encoding="utf-8")
    except OSError:
        return False
    return f'"run_id": "{run_id}"' in text and os.access(folder, os.W_OK)
