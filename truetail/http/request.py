"""A request as bytes, built once: the load then only sends them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from truetail.errors import UsageError

IDEMPOTENT = frozenset({"GET", "HEAD", "PUT", "DELETE", "OPTIONS"})
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")
_TARGET = re.compile(r"[\x21-\x7e]+")
_BODILESS = frozenset({"GET", "HEAD", "DELETE", "OPTIONS"})


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """Bytes to send. ``head`` ends before the Content-Length line; ``wire`` is the whole request."""

    method: str
    head: bytes
    wire: bytes

    @property
    def target(self) -> str:
        """What the request line asks for."""
        return self.head.split(b" ", 2)[1].decode("latin-1")

    @property
    def idempotent(self) -> bool:
        """Whether sending it twice does no more than sending it once (RFC 9110, section 9.2.2)."""
        return self.method in IDEMPOTENT

    def with_body(self, body: bytes) -> PreparedRequest:
        """The same request with another body."""
        return replace(self, wire=b"%bContent-Length: %d\r\n\r\n%b" % (self.head, len(body), body))

    def with_headers(self, headers: Mapping[str, str]) -> PreparedRequest:
        """The same request with headers added. They are ours: neither checked nor looked for among those that it has."""
        more = "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode("latin-1")
        head = self.head + more
        return PreparedRequest(self.method, head, head + self.wire[len(self.head) :])

    def towards(self, target: str, method: str = "") -> PreparedRequest:
        """The same request to another target; with another method it loses its body. Raises ValueError for a target that is none."""
        if not _TARGET.fullmatch(target):
            raise ValueError(target)
        _, _, rest = self.head.partition(b"\r\n")
        head = b"%b %b HTTP/1.1\r\n%b" % (method.encode() or self.method.encode(), target.encode(), rest)
        if method and method != self.method:
            return PreparedRequest(method, head, head + b"\r\n")
        return PreparedRequest(self.method, head, head + self.wire[len(self.head) :])


def prepare(method: str, target: str, headers: Mapping[str, str], body: bytes = b"") -> PreparedRequest:
    """A request for ``target`` (a path with query, or an absolute URI for a proxy).

    Raises UsageError for what would break the message or smuggle another one into it.
    """
    method = method.upper()
    if not _NAME.fullmatch(method):
        raise UsageError(f"method: found {method!r}; allowed is a name like GET or POST")
    if not _TARGET.fullmatch(target):
        raise UsageError(f"path: found {target!r}; allowed are printable ASCII characters without blanks (escape others as %XX)")
    lines = [f"{method} {target} HTTP/1.1"]
    for name, value in headers.items():
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise UsageError(f"header {name!r}: its name or value holds characters that a header cannot hold")
        if name.lower() in ("content-length", "transfer-encoding"):
            raise UsageError(f"header {name}: the client writes it itself, from the body")
        lines.append(f"{name}: {value}")
    head = "\r\n".join([*lines, ""]).encode("latin-1", errors="replace")
    if not body and method in _BODILESS:
        return PreparedRequest(method, head, head + b"\r\n")
    return PreparedRequest(method, head, b"").with_body(body)
