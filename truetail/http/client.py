"""The client: one request, one answer, one exact account of it. Failures are told, not raised."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from truetail import server_timing
from truetail.exchange import Exchange
from truetail.http import origin as origins
from truetail.http import tls as tls_settings
from truetail.http.answer import Answer, Sink
from truetail.http.connect import Connector
from truetail.http.errors import Failure, of_os
from truetail.http.pool import Connection, Pool
from truetail.http.request import PreparedRequest, prepare

RECV_BYTES = 64 * 1024
MAX_RESPONSE_BYTES = 16 * 2**20
IDLE_LIMIT_S = 4.0
"""A connection idle for longer is not used again: common servers close theirs after 5 s, and who reuses later races with that."""


@dataclass(slots=True)
class Counts:
    """What became of connections. ``resent`` are requests sent a second time because their connection had been closed unread."""

    opened: int = 0
    resent: int = 0


class HttpClient:
    """HTTP/1.1 requests to one origin over kept connections.

    The deadline covers a whole request: connecting, sending, waiting and reading to the last byte. A server that sends a byte
    now and then does not stretch it.
    """

    def __init__(
        self,
        base_url: str,
        *,
        deadline_s: float = 10.0,
        connect_timeout_s: float = 5.0,
        tls: Mapping[str, Any] | None = None,
        proxy: str | None = None,
        keep_alive: Literal["reuse", "per-request"] = "reuse",
        idle_limit_s: float = IDLE_LIMIT_S,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.origin = origins.parse(base_url)
        self.deadline_s = deadline_s
        self.counts = Counts()
        self._connect_timeout_s = connect_timeout_s
        self._reuse = keep_alive == "reuse"
        self._max_bytes = max_response_bytes
        self._pool = Pool(idle_limit_s)
        self._headers = {"Host": self.origin.authority, "Accept": "*/*", **({} if self._reuse else {"Connection": "close"})}
        self._headers = _merged(self._headers, headers or {})
        self._absolute = f"http://{self.origin.authority}" if proxy and self.origin.scheme == "http" else ""
        authorization = "" if self._absolute else self._headers.pop("Proxy-Authorization", "")
        context = tls_settings.context(tls) if self.origin.scheme == "https" else None
        self._connector = Connector(self.origin, context, origins.parse(proxy) if proxy else None, authorization)

    def prepare(self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b"") -> PreparedRequest:
        """A request for ``path`` under the base URL, with the client's headers beneath the given ones."""
        target = f"{self._absolute}{self.origin.path}{path}"
        return prepare(method, target, _merged(self._headers, headers or {}), body)

    def send(self, request: PreparedRequest, deadline_s: float | None = None, sink: Sink | None = None) -> Answer:
        """Send and read the whole answer. What went wrong on the way stands in ``answer.exchange``; statuses are not judged here.

        ``deadline_s`` counts from now (the client's own when None). ``sink`` gets the pieces of a 2xx body as they arrive.
        """
        sent_ns = time.monotonic_ns()
        exchange = Exchange(sent_ns, request_bytes=len(request.wire))
        answer = Answer(request.method, exchange, self._max_bytes, sink)
        deadline_ns = sent_ns + int((self.deadline_s if deadline_s is None else deadline_s) * 1e9)
        try:
            connection = self._pool.take(sent_ns) if self._reuse else None
            if connection is None:
                connection = self._open(exchange, deadline_ns)
            if not self._carry(connection, request, answer, deadline_ns):
                self.counts.resent += 1
                answer = Answer(request.method, exchange, self._max_bytes, sink)
                self._carry(self._open(exchange, deadline_ns), request, answer, deadline_ns)
            server_timing.read(exchange, answer.headers.get)
        except Failure as failure:
            answer.fail(failure)
            exchange.done_ns = time.monotonic_ns()
        return answer

    def close(self) -> None:
        """Close the idle connections."""
        self._pool.close()

    def _open(self, exchange: Exchange, deadline_ns: int) -> Connection:
        begun_ns = time.monotonic_ns()
        connection = self._connector.open(min(self._connect_timeout_s, (deadline_ns - begun_ns) / 1e9))
        exchange.connect_us = (time.monotonic_ns() - begun_ns) / 1e3
        self.counts.opened += 1
        return connection

    def _carry(self, connection: Connection, request: PreparedRequest, answer: Answer, deadline_ns: int) -> bool:
        """One request over one connection. False: the connection had been closed before the request, and it may go out again."""
        try:
            try:
                _write(connection, request.wire, answer.exchange, deadline_ns)
                _read(connection, answer, deadline_ns)
            except OSError as error:
                raise of_os(error, "truncated" if answer.exchange.first_byte_ns >= 0 else "reset") from None
        except Failure as failure:
            again = failure.error_class == "reset" and _may_resend(connection, request)
            connection.close()
            if not again:
                raise
            return False
        except BaseException:  # the user's greenlet is killed
            connection.close()
            raise
        if self._reuse and answer.should_keep_alive():
            self._pool.give(connection, answer.exchange.done_ns)
        else:
            connection.close()
        return True


def _write(connection: Connection, wire: bytes, exchange: Exchange, deadline_ns: int) -> None:
    sock = connection.sock
    sock.settimeout(max(1e-6, (deadline_ns - time.monotonic_ns()) / 1e9))
    connection.uses += 1
    connection.bytes_handed += len(wire)
    try:
        handed = sock.send(wire)
        if handed < len(wire):
            sock.sendall(memoryview(wire)[handed:])
    except TimeoutError:
        raise Failure("timeout-first-byte", "while sending") from None
    except OSError:
        # A server may refuse a request before it has read it all; its answer then lies in the socket, and tells more than the error.
        if len(wire) <= RECV_BYTES:
            raise


def _read(connection: Connection, answer: Answer, deadline_ns: int) -> None:
    sock, exchange, clock_ns = connection.sock, answer.exchange, time.monotonic_ns
    now_ns = clock_ns()
    while not answer.complete:
        left_ns = deadline_ns - now_ns
        if left_ns <= 0:
            raise Failure("timeout-first-byte" if exchange.first_byte_ns < 0 else "timeout-body")
        sock.settimeout(left_ns / 1e9)
        try:
            data = sock.recv(RECV_BYTES)
        except TimeoutError:
            now_ns = deadline_ns
            continue
        now_ns = clock_ns()
        if exchange.first_byte_ns < 0:
            if not data:
                raise Failure("reset", "closed before any byte")
            exchange.first_byte_ns = now_ns
        answer.feed_at(data, now_ns)
        if not data and not answer.complete:
            raise Failure("truncated", "in the body" if answer.head_complete else "in the headers")
    exchange.done_ns = now_ns


def _may_resend(connection: Connection, request: PreparedRequest) -> bool:
    """A kept connection that its server closed meanwhile: nothing came back, and the request cannot have been acted on twice.

    An idempotent request may always go out again (RFC 9110, section 9.2.2); any other only where the server's kernel
    acknowledged nothing of it. So a server that reads a POST and hangs up is seen as the failure that it is, and no arrival is
    counted twice at the server.
    """
    return connection.uses > 1 and (request.idempotent or connection.unseen(len(request.wire)))


def _merged(below: Mapping[str, str], above: Mapping[str, str]) -> dict[str, str]:
    """Both, whatever their case; those above win."""
    names = {name.lower() for name in above}
    return {**{name: value for name, value in below.items() if name.lower() not in names}, **above}
