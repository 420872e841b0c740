"""Server-sent events, taken apart as their bytes arrive (HTML standard, section 9.2): an event is told in the recv that completed it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from truetail.http.errors import Failure

MAX_EVENT_BYTES = 2**20
_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


class EventStream:
    """Feed it pieces of a body; it yields the ``data`` of each event. Lines may end with CR, LF or both, and be cut anywhere."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._size = 0
        self._after_cr = False
        self._begun = False

    def feed(self, piece: bytes) -> Iterator[str]:
        """The data of every event that ``piece`` completes. Raises Failure: malformed for invalid UTF-8, too-large for an endless event."""
        if self._after_cr and piece:
            # A CR at the end of the last piece ended a line at once; the LF that belongs to it comes only now.
            self._after_cr = False
            piece = piece.removeprefix(b"\n")
        buffer = self._rest + piece
        if not self._begun:
            if _BOM.startswith(buffer):  # too short to tell
                self._rest = buffer
                return
            self._begun = True
            buffer = buffer.removeprefix(_BOM)
        at = 0
        for end in _LINE_END.finditer(buffer):
            event = self._line(buffer[at : end.start()])
            at = end.end()
            if event is not None:
                yield event
        self._after_cr = buffer.endswith(b"\r")
        self._rest = buffer[at:]
        if len(self._rest) + self._size > MAX_EVENT_BYTES:
            raise Failure("too-large", f"event of over {MAX_EVENT_BYTES} bytes")

    @property
    def unfinished(self) -> bool:
        """Whether the stream stopped inside an event (the standard drops such an event; a load test reports it)."""
        return bool(self._data) or bool(self._rest.strip())

    def _line(self, line: bytes) -> str | None:
        if not line:
            return self._event()
        if line.startswith(b"data"):
            field, _, value = line.partition(b":")
            if field == b"data":
                value = value.removeprefix(b" ")
                self._data.append(value)
                self._size += len(value)
        return None  # comments, ids, event names and retry times say nothing of the load

    def _event(self) -> str | None:
        if not self._data:
            return None
        joined = b"\n".join(self._data)
        self._data.clear()
        self._size = 0
        try:
            return joined.decode()
        except UnicodeDecodeError:
            raise Failure("malformed", "event is no UTF-8") from None
