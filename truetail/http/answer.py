"""One answer while it comes in: the parser's callbacks, with every size bounded. Headers and body are untrusted."""

from __future__ import annotations

import zlib
from collections.abc import Callable

from geventhttpclient._parser import HTTPParseError, HTTPResponseParser

from truetail.exchange import Exchange
from truetail.http.errors import Failure

MAX_HEAD_BYTES = 64 * 1024
MAX_INTERIM = 20
"""Most 1xx answers before the final one."""

Sink = Callable[[bytes, int], None]
"""Takes a decoded piece of the body and the instant (CLOCK_MONOTONIC ns) at which it arrived."""


class Answer(HTTPResponseParser):
    """Status, headers (lower-case names, repeated ones joined by a comma), body, and the account of the exchange.

    With a ``sink`` the pieces of a 2xx body go there as they arrive, and ``body`` stays empty.
    """

    def __init__(self, method: str, exchange: Exchange, max_bytes: int, sink: Sink | None = None) -> None:
        super().__init__()
        self.exchange = exchange
        self.status = 0
        self.headers: dict[str, str] = {}
        self.complete = False
        self.head_complete = False
        self._skip_body = method == "HEAD"
        self._max_bytes = max_bytes
        self._sink = sink
        self._received = 0
        self._interim = 0
        self._field = ""
        self._value: str | None = None
        self._pieces: list[bytes] = []
        self._inflate: zlib._Decompress | None = None
        self._inflated = 0
        self._now_ns = 0

    @property
    def body(self) -> bytes:
        """The whole body, decompressed."""
        pieces = self._pieces
        if len(pieces) > 1:
            pieces[:] = [b"".join(pieces)]
        return pieces[0] if pieces else b""

    @property
    def failed(self) -> bool:
        """Whether the exchange is a failure already."""
        return bool(self.exchange.error_class)

    def fail(self, failure: Failure) -> None:
        """The exchange has failed. The first failure of an exchange stands."""
        exchange = self.exchange
        if not exchange.error_class:
            exchange.outcome, exchange.error_class, exchange.error_detail = failure.outcome, failure.error_class, failure.detail

    def feed_at(self, data: bytes, now_ns: int) -> None:
        """Take what one ``recv`` returned (b"" for the end of the stream). Raises Failure."""
        self._received += len(data)
        self._now_ns = now_ns
        try:
            self.feed(data)
        except HTTPParseError as error:
            raise self._failure(error, ended=not data) from None
        if not self.head_complete and self._received > MAX_HEAD_BYTES:
            raise Failure("too-large", f"headers of over {MAX_HEAD_BYTES} bytes")

    def _failure(self, error: HTTPParseError, ended: bool) -> Failure:
        if ended:
            return Failure("truncated", "in the body" if self.head_complete else "in the headers")
        if self.complete:
            return Failure("malformed", "bytes after the end of the answer")
        return Failure("malformed", str(error.args[0])[:80].lower())

    # -- the parser's callbacks -------------------------------------------------------------------------------------

    def _on_message_begin(self) -> None:
        if self.complete:
            raise Failure("malformed", "bytes after the end of the answer")

    def _on_status(self, text: str) -> None:
        """The reason phrase says nothing that the code does not."""

    def _on_header_field(self, text: str) -> None:
        if self._value is not None:
            self._keep_header()
            self._field = text
        else:
            self._field += text

    def _on_header_value(self, text: str) -> None:
        self._value = text if self._value is None else self._value + text

    def _keep_header(self) -> None:
        name = self._field.lower()
        value = self._value or ""
        self.headers[name] = f"{self.headers[name]}, {value}" if name in self.headers else value
        self._field, self._value = "", None

    def _on_headers_complete(self) -> bool:
        if self._value is not None:
            self._keep_header()
        status: int = self.get_code()
        if status < 200:
            self._interim += 1
            if self._interim > MAX_INTERIM:
                raise Failure("malformed", f"over {MAX_INTERIM} interim answers")
            self.headers.clear()
            return False
        self.status = self.exchange.status = status
        self.head_complete = True
        encoding = self.headers.get("content-encoding")
        if encoding and not self._skip_body:
            self._begin_inflating(encoding.strip().lower())
        if self._sink is not None and not 200 <= status < 300:
            self._sink = None
        return self._skip_body

    def _begin_inflating(self, encoding: str) -> None:
        if encoding in ("gzip", "x-gzip", "deflate"):
            self._inflate = zlib.decompressobj(47)  # gzip or zlib, whichever its header says
        elif encoding != "identity":
            raise Failure("malformed", f"content-encoding {encoding[:20]} was not asked for")

    def _on_body(self, piece: bytearray) -> None:
        exchange = self.exchange
        exchange.response_bytes += len(piece)
        if exchange.response_bytes > self._max_bytes:
            raise Failure("too-large", f"body of over {self._max_bytes} bytes")
        plain = bytes(piece) if self._inflate is None else self._inflated_piece(piece)
        if self._sink is not None:
            self._sink(plain, self._now_ns)
        else:
            self._pieces.append(plain)

    def _inflated_piece(self, piece: bytearray) -> bytes:
        assert self._inflate is not None
        try:
            plain = self._inflate.decompress(piece, self._max_bytes - self._inflated + 1)
        except zlib.error:
            raise Failure("malformed", "compressed body is damaged") from None
        self._inflated += len(plain)
        if self._inflated > self._max_bytes:
            raise Failure("too-large", f"body of over {self._max_bytes} bytes when decompressed")
        return plain

    def _on_message_complete(self) -> None:
        if self.get_code() >= 200:
            self.complete = True
            if self._inflate is not None and not self._inflate.eof and self.exchange.response_bytes:
                raise Failure("truncated", "compressed body ends early")
