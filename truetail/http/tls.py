"""TLS settings: whom we trust, and what we show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gevent import ssl

from truetail.errors import UsageError


def context(settings: Mapping[str, Any] | None = None) -> ssl.SSLContext:
    """A client's context from ``{ca, cert, key, verify}`` (docs/internals.md: target.tls). UsageError names a file that does not serve."""
    settings = settings or {}
    ca, cert, key = settings.get("ca"), settings.get("cert"), settings.get("key")
    try:
        made = ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"target.tls.ca: {ca} cannot be used: {_reason(error)}; a PEM file of certificates is due") from None
    if cert:
        try:
            made.load_cert_chain(cert, key)
        except (OSError, ssl.SSLError) as error:
            raise UsageError(
                f"target.tls.cert, key: {cert} and {key} cannot be used: {_reason(error)}; two PEM files that belong together are due"
            ) from None
    if settings.get("verify") is False:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    made.set_alpn_protocols(["http/1.1"])
    return made


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or getattr(error, "reason", None) or type(error).__name__
