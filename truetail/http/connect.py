"""Opening a connection: names to addresses, TCP or Unix socket, proxy tunnel, TLS, all within one limit."""

from __future__ import annotations

import time
from socket import AF_UNIX, IPPROTO_TCP, SOCK_STREAM, TCP_NODELAY, gaierror
from typing import Any

import gevent
from gevent import socket, ssl

from truetail.http.errors import Failure, of_os, of_tls
from truetail.http.origin import Origin
from truetail.http.pool import Connection

RESOLVE_AGAIN_NS = 30_000_000_000
MAX_PROXY_HEAD = 16 * 1024


class Connector:
    """Opens connections to an origin, if need be through a proxy.

    A name with several addresses is spread over them: each new connection begins at the next one, and goes on to the others
    where it is refused or does not answer in its share of the time.
    """

    def __init__(
        self, origin: Origin, context: ssl.SSLContext | None, proxy: Origin | None = None, proxy_authorization: str = ""
    ) -> None:
        self._origin = origin
        self._context = context if origin.scheme == "https" else None
        self._proxy = proxy
        self._proxy_authorization = proxy_authorization
        self._addresses: list[tuple[Any, ...]] = []
        self._resolved_ns = -RESOLVE_AGAIN_NS
        self._opened = 0

    def open(self, limit_s: float) -> Connection:
        """A new connection within ``limit_s`` seconds. Raises Failure: dns, connect, tls or timeout-connect."""
        sock = None
        timer = gevent.Timeout.start_new(max(limit_s, 1e-6), Failure("timeout-connect"))
        try:
            sock = self._reach(time.monotonic() + limit_s)
            if self._context is None:
                return Connection(sock, is_tls=False, is_tcp=not self._origin.unix_path)
            if self._proxy is not None:
                self._tunnel(sock)
            sock = self._wrapped(sock, self._context)
            return Connection(sock, is_tls=True, is_tcp=True)
        except BaseException:
            if sock is not None:
                sock.close()
            raise
        finally:
            timer.close()

    def _wrapped(self, sock: Any, context: ssl.SSLContext) -> Any:
        try:
            return context.wrap_socket(sock, server_hostname=self._origin.host)
        except (OSError, ValueError) as error:
            raise of_tls(error) from None

    def _reach(self, until_s: float) -> Any:
        if self._origin.unix_path:
            return _connected(AF_UNIX, 0, self._origin.unix_path, None)
        addresses = self._resolve(self._proxy or self._origin)
        self._opened += 1
        first = self._opened % len(addresses)
        last: Failure | None = None
        for tried, (family, _, proto, _, address) in enumerate(addresses[first:] + addresses[:first]):
            share_s = (until_s - time.monotonic()) / (len(addresses) - tried)
            try:
                return _connected(family, proto, address, max(share_s, 1e-6))
            except Failure as failure:
                last = failure
        assert last is not None
        raise last

    def _resolve(self, place: Origin) -> list[tuple[Any, ...]]:
        now_ns = time.monotonic_ns()
        if now_ns - self._resolved_ns > RESOLVE_AGAIN_NS:
            try:
                self._addresses = socket.getaddrinfo(place.host, place.port, 0, SOCK_STREAM)
            except (gaierror, UnicodeError) as error:
                raise Failure("dns", getattr(error, "strerror", None) or "not a host name") from None
            self._resolved_ns = now_ns
        return self._addresses

    def _tunnel(self, sock: Any) -> None:
        """Ask an HTTP proxy for a tunnel (RFC 9110, section 9.3.6)."""
        place = self._origin.host_port
        lines = [f"CONNECT {place} HTTP/1.1", f"Host: {place}"]
        if self._proxy_authorization:
            lines.append(f"Proxy-Authorization: {self._proxy_authorization}")
        head = b""
        try:
            sock.sendall("\r\n".join([*lines, "", ""]).encode())
            # The target speaks only after we do (TLS), so nothing beyond the proxy's answer can be read here.
            while b"\r\n\r\n" not in head and len(head) < MAX_PROXY_HEAD:
                piece = sock.recv(4096)
                if not piece:
                    raise Failure("connect", "proxy closed the connection")
                head += piece
        except OSError as error:
            raise of_os(error, "connect") from None
        words = head.split(b"\r\n", 1)[0].split(None, 2)
        if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or words[1] != b"200":
            told = words[1].decode("latin-1")[:3] if len(words) > 1 else "nothing of HTTP"
            raise Failure("connect", f"proxy refused the tunnel: {told}")


def _connected(family: int, proto: int, address: Any, limit_s: float | None) -> Any:
    sock = socket.socket(family, SOCK_STREAM, proto)
    try:
        sock.settimeout(limit_s)
        sock.connect(address)
        if family != AF_UNIX:
            sock.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
        sock.settimeout(None)
    except TimeoutError:
        sock.close()
        raise Failure("timeout-connect") from None
    except OSError as error:
        sock.close()
        raise of_os(error, "connect") from None
    except BaseException:
        sock.close()
        raise
    return sock
