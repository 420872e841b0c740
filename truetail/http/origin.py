"""Where requests go: a URL taken apart once, before the run."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from truetail.errors import UsageError

PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Origin:
    """Scheme, place and base path of a service. ``unix_path`` is set for ``unix:/path/to.sock``, and host is then only a name."""

    scheme: str
    host: str
    port: int
    path: str = ""
    unix_path: str = ""

    @property
    def authority(self) -> str:
        """The Host header: an IPv6 address in brackets, the scheme's own port left out."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def host_port(self) -> str:
        """The authority with its port always written, as CONNECT wants it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse(url: str) -> Origin:
    """``http://host:port/base``, ``https://...``, ``http://[::1]:8000`` or ``unix:/path/to.sock``. Raises UsageError."""
    allowed = "allowed are http://host:port, https://host:port and unix:/path/to.sock"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"target URL: found {url!r} ({error}); {allowed}") from None
    if parts.scheme == "unix" and parts.path.startswith("/"):
        return Origin("http", "localhost", 80, unix_path=parts.path)
    if parts.scheme not in PORTS or not parts.hostname:
        raise UsageError(f"target URL: found {url!r}; {allowed}")
    if parts.username is not None or parts.password is not None:
        raise UsageError("target URL: found a user or password in it; secrets come from the environment (target.auth)")
    return Origin(parts.scheme, parts.hostname, port or PORTS[parts.scheme], parts.path.rstrip("/"))
