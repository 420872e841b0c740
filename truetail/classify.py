"""What kind of failure an exception or a status is: one dict of rules, for any HTTP client that Locust users bring.

Our own client classifies as it goes (it knows the phase); this is for the others, from the exception alone.
"""

from __future__ import annotations

import re

from truetail.records import FAILED, OK, TIMED_OUT

CLASSES_BY_NAME: dict[str, str] = {
    "gaierror": "dns",
    "NameResolutionError": "dns",
    "ConnectionRefusedError": "connect",
    "NewConnectionError": "connect",
    "ConnectTimeout": "timeout-connect",
    "ConnectTimeoutError": "timeout-connect",
    "Timeout": "timeout-body",
    "TimeoutError": "timeout-body",
    "timeout": "timeout-body",
    "ReadTimeout": "timeout-body",
    "ReadTimeoutError": "timeout-body",
    "SSLError": "tls",
    "SSLCertVerificationError": "tls",
    "ConnectionResetError": "reset",
    "BrokenPipeError": "reset",
    "ConnectionAbortedError": "reset",
    "HTTPConnectionClosed": "reset",
    "RemoteDisconnected": "reset",
    "ProtocolError": "reset",
    "IncompleteRead": "truncated",
    "ChunkedEncodingError": "truncated",
    "HTTPParseError": "malformed",
    "BadStatusLine": "malformed",
    "JSONDecodeError": "malformed",
    "TooManyRedirects": "redirect",
    "CatchResponseError": "wrong-content",
}
_VOLATILE = re.compile(r"0x[0-9a-f]+|\b[0-9a-f]{8}-[0-9a-f-]{27}\b|\d+")


def by_status(status: int) -> str:
    """The class of an HTTP status, '' for one that is no failure."""
    if status in (429, 503):
        return "shed"
    if status >= 500:
        return "http-5xx"
    return "http-4xx" if status >= 400 else ""


def by_exception(exception: BaseException | str, status: int) -> tuple[int, str, str]:
    """(outcome, error class, detail) of a failure reported with this exception and HTTP status (0: none)."""
    of_status = by_status(status)
    if of_status:
        return FAILED, of_status, str(status)
    for cause in _causes(exception):
        error_class = CLASSES_BY_NAME.get(type(cause).__name__)
        if error_class:
            return TIMED_OUT if error_class.startswith("timeout") else FAILED, error_class, ""
    return FAILED, "wrong-content", normalised(str(exception))


def without_exception(status: int) -> tuple[int, str, str]:
    """(outcome, error class, detail) of a request that its client reported as a success: the client's word stands."""
    return OK, "", "" if status < 400 else str(status)


def normalised(text: str) -> str:
    """An error's text without what differs each time (ids, numbers, addresses), so that equal errors count as one."""
    return _VOLATILE.sub("N", " ".join(text.split()))[:120]


def _causes(exception: BaseException | str) -> list[BaseException]:
    found: list[BaseException] = []
    queue: list[object] = [exception]
    while queue and len(found) < 8:
        current = queue.pop(0)
        if isinstance(current, BaseException) and not any(current is known for known in found):
            found.append(current)
            queue += [current.__cause__, current.__context__, getattr(current, "reason", None), *current.args[:2]]
    return found
