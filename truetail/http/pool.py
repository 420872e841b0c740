"""Open connections that wait for their next request: the last to come is the first to go out again."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
from typing import Any

from gevent import monkey

TCP_INFO: int = getattr(socket, "TCP_INFO", 0)  # Linux
_LOOK = int(socket.MSG_PEEK | socket.MSG_DONTWAIT)
_poll = monkey.get_original("select", "poll")
_RDHUP = getattr(select, "POLLRDHUP", 0x2000)
_BYTES_ACKED_AT = 120
"""Offset of tcpi_bytes_acked in Linux's struct tcp_info (since 4.1)."""


class Connection:
    """A socket, how many requests it has carried and how many bytes were handed to it."""

    __slots__ = ("bytes_handed", "idle_since_ns", "is_tcp", "is_tls", "sock", "uses")

    def __init__(self, sock: Any, is_tls: bool, is_tcp: bool) -> None:
        self.sock = sock
        self.is_tls = is_tls
        self.is_tcp = is_tcp
        self.uses = 0
        self.bytes_handed = 0
        self.idle_since_ns = 0

    def alive(self) -> bool:
        """Whether the other side still holds it open and has said nothing unasked.

        Asked of the descriptor itself: ``select`` cannot look at descriptors from 1024 on. Under TLS pending bytes may be
        session tickets, so there only a hang-up counts.
        """
        if self.is_tls:
            poll = _poll()
            poll.register(self.sock.fileno(), _RDHUP)
            return not poll.poll(0)
        try:
            self.sock._sock.recv(1, _LOOK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False  # closed (b""), or bytes that belong to no request

    def unseen(self, request_bytes: int) -> bool:
        """Whether the other side's kernel has certainly acknowledged nothing of the last request.

        Then no process there can have read it, and it may be sent again without any risk of arriving twice.
        """
        if not (self.is_tcp and TCP_INFO) or self.is_tls:
            return False
        try:
            info = self.sock.getsockopt(socket.IPPROTO_TCP, TCP_INFO, 256)
        except OSError:
            return False
        if len(info) < _BYTES_ACKED_AT + 8:
            return False
        (acked,) = struct.unpack_from("=Q", info, _BYTES_ACKED_AT)
        return bool(acked <= self.bytes_handed - request_bytes + 1)  # the connection's own first byte (SYN) counts as one

    def close(self) -> None:
        """Close the socket; errors of a connection that is given up are nobody's concern."""
        with contextlib.suppress(OSError):
            self.sock.close()


class Pool:
    """Idle connections to one place. It never blocks: the load's own pool is the only limit on requests in flight."""

    def __init__(self, idle_limit_s: float) -> None:
        self._idle: list[Connection] = []
        self._limit_ns = int(idle_limit_s * 1e9)

    def __len__(self) -> int:
        return len(self._idle)

    def take(self, now_ns: int) -> Connection | None:
        """The warmest connection that is still alive; None when there is none. Others met on the way are closed."""
        while self._idle:
            connection = self._idle.pop()
            if now_ns - connection.idle_since_ns <= self._limit_ns and connection.alive():
                return connection
            connection.close()
        return None

    def give(self, connection: Connection, now_ns: int) -> None:
        """A connection whose answer is complete and that may be used again."""
        connection.idle_since_ns = now_ns
        self._idle.append(connection)

    def close(self) -> None:
        """Close every idle connection."""
        while self._idle:
            self._idle.pop().close()
