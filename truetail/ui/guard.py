"""What keeps other web pages in the same browser away from a server on 127.0.0.1.

Locust answers every origin (CORS *), so that any page a developer has open could read the figures or stop the run. A browser says where
a request comes from; what comes from elsewhere is refused, and so is a host name that is not ours (DNS rebinding).
"""

from __future__ import annotations

import ipaddress
from pathlib import Path
from urllib.parse import urlsplit

from flask import Flask, Response, abort, request, send_from_directory

STATIC = Path(__file__).parent / "static"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
MOST_FORM_BYTES = 1 << 20


def refuse_strangers(app: Flask, loopback: bool) -> None:
    """Refuse requests of other origins, and on loopback those for another host name."""

    @app.before_request
    def _check() -> None:
        origin = request.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc != request.host:
            abort(403, "requests from other origins are refused")
        if loopback and not is_loopback(urlsplit(f"//{request.host}").hostname or ""):
            abort(403, "this server answers as 127.0.0.1 or localhost only")


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine's own."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def strict(response: Response) -> Response:
    """Headers of our own pages: nothing but what this server itself serves may load or run, and nothing is kept by caches."""
    response.headers.setdefault("Content-Security-Policy", POLICY)
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Referrer-Policy"] = "same-origin"  # with "no-referrer" a browser sends our own forms as of origin "null"
    response.headers["Cache-Control"] = "no-cache"
    return response


def static(path: str) -> Response:
    """A file of the package's static folder (404 for anything else)."""
    return send_from_directory(STATIC, path)
