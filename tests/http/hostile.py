"""A server for one fault: it accepts on a raw socket, reads a request, and then does to the connection whatever the test says."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator

from gevent import monkey

_start_thread = monkey.get_original("_thread", "start_new_thread")
Fault = Callable[[socket.socket], None]
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
EVENTS = OK + b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def read_request(sock: socket.socket) -> bytes:
    """Headers and a body with a Content-Length; b"" when the client closed."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = sock.recv(65536)
        if not piece:
            return b""
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"content-length:"):
            while len(body) < int(line.split(b":")[1]):
                piece = sock.recv(65536)
                if not piece:
                    return b""
                body += piece
    return head + b"\r\n\r\n" + body


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def with_length(body: bytes, *headers: bytes, status: bytes = b"200 OK") -> bytes:
    """A whole answer."""
    lines = [b"HTTP/1.1 " + status, b"Content-Length: %d" % len(body), *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


class Server:
    """Runs ``fault(sock)`` for every connection accepted, and closes it afterwards; ``connections`` counts them.

    In real threads, whether or not gevent has patched this process: a greedy fault must not starve the client of its loop.
    """

    def __init__(self, fault: Fault, family: int = socket.AF_INET, address: object = ("127.0.0.1", 0)) -> None:
        self._fault = fault
        self._listener = socket.socket(family, socket.SOCK_STREAM)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(address)
        self._listener.listen(256)
        name = self._listener.getsockname()
        self.port = name[1] if isinstance(name, tuple) else 0
        self.url = f"http://127.0.0.1:{self.port}"
        self.connections = 0
        self._open: set[int] = set()
        self._ended = False

    def __enter__(self) -> Server:
        _start_thread(self._accept, (os.dup(self._listener.fileno()),))
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        for descriptor in [self._listener.fileno(), *self._open]:
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as sock:
                sock.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self, descriptor: int) -> None:
        listener = socket.socket(fileno=descriptor)  # gevent's sockets belong to the thread that made them
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                listener.close()
                return
            if self._ended:
                sock.close()
                continue
            self.connections += 1
            self._open.add(sock.fileno())
            _start_thread(self._run, (sock.detach(),))

    def _run(self, descriptor: int) -> None:
        with contextlib.suppress(OSError), socket.socket(fileno=descriptor) as sock:
            if sock.family != socket.AF_UNIX:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                self._fault(sock)
            finally:
                self._open.discard(descriptor)


def answering(*pieces: bytes, pause_s: float = 0.0, then: Fault | None = None) -> Fault:
    """A fault that reads a request, sends the pieces with pauses between, and closes (after ``then``)."""

    def fault(sock: socket.socket) -> None:
        read_request(sock)
        for index, piece in enumerate(pieces):
            if index and pause_s:
                time.sleep(pause_s)
            sock.sendall(piece)
        if then is not None:
            then(sock)

    return fault


def serving(answer: bytes) -> Fault:
    """A well-behaved connection: the same answer to every request on it."""

    def fault(sock: socket.socket) -> None:
        while read_request(sock):
            sock.sendall(answer)

    return fault


def forever(pieces: Iterator[bytes]) -> Fault:
    """Reads a request and sends pieces for as long as they come and the client listens."""

    def fault(sock: socket.socket) -> None:
        read_request(sock)
        for piece in pieces:
            sock.sendall(piece)

    return fault


def reset(sock: socket.socket) -> None:
    """Close with a RST."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    sock.close()


def hold(sock: socket.socket) -> None:
    """Say nothing more until the client goes."""
    while sock.recv(65536):
        pass
