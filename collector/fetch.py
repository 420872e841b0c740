"""One HTTP GET with hard bounds: the whole exchange has a deadline and a size, whatever the server does."""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
from collections.abc import Mapping
from urllib.parse import urlsplit

from collector.sampler import SourceFailed

TIMEOUT_S = 2.0
MAX_BYTES = 4 << 20


class _Bounded(io.RawIOBase):
    """A socket's bytes until the deadline or the size bound; http.client reads its answer from this."""

    def __init__(self, sock: socket.socket, deadline_s: float, max_bytes: int) -> None:
        self.sock, self.deadline_s, self.left = sock, deadline_s, max_bytes

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        remaining = self.deadline_s - time.monotonic()
        if remaining <= 0:
            raise TimeoutError("the answer took too long")
        self.sock.settimeout(remaining)
        n = self.sock.recv_into(buffer)
        self.left -= n
        if self.left < 0:
            raise ValueError("the answer is too large")
        return n

    def makefile(self, mode: str) -> io.BufferedReader:
        """What HTTPResponse calls on a socket."""
        return io.BufferedReader(self)


def get(url: str, headers: Mapping[str, str] | None = None, timeout_s: float = TIMEOUT_S, max_bytes: int = MAX_BYTES) -> bytes:
    """The body of ``url`` (http or https; no redirects). Raises SourceFailed ``fetch-failed`` with the reason in one line."""
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    deadline_s = time.monotonic() + timeout_s
    try:
        address = (parts.hostname or "", parts.port or (443 if secure else 80))
        with socket.create_connection(address, timeout_s) as plain:
            sock = ssl.create_default_context().wrap_socket(plain, server_hostname=parts.hostname) if secure else plain
            sock.sendall(_request(parts.path or "/", parts.query, parts.netloc, headers or {}))
            answer = http.client.HTTPResponse(_Bounded(sock, deadline_s, max_bytes))  # type: ignore[arg-type]
            answer.begin()
            body = answer.read()
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise SourceFailed("fetch-failed", f"{shown(url)}: {_reason(error, timeout_s, max_bytes)}") from None
    if answer.status != 200:
        raise SourceFailed("fetch-failed", f"{shown(url)}: HTTP status {answer.status}, expected 200")
    return body


def shown(url: str) -> str:
    """A URL fit for files and logs: without user, password, query and fragment, which may hold secrets."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _request(path: str, query: str, host: str, headers: Mapping[str, str]) -> bytes:
    """HTTP/1.0, so that the server closes and does not send chunks."""
    lines = [
        f"GET {path}{'?' + query if query else ''} HTTP/1.0",
        f"Host: {host}",
        "User-Agent: truetail-collector",
        "Accept: */*",
    ]
    return "\r\n".join([*lines, *(f"{name}: {value}" for name, value in headers.items()), "", ""]).encode("latin-1")


def _reason(error: Exception, timeout_s: float, max_bytes: int) -> str:
    if isinstance(error, TimeoutError):
        return f"no whole answer within {timeout_s:g} s"
    if isinstance(error, ValueError):
        return f"more than {max_bytes} bytes" if "large" in str(error) else f"not a usable address or answer ({error})"
    return f"{getattr(error, 'strerror', None) or error or type(error).__name__}"
