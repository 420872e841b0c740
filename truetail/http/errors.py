"""How a request can fail, by class. docs/internals.md section 5 lists the classes."""

from __future__ import annotations

import ssl

from truetail.records import FAILED, TIMED_OUT

TIMEOUTS = frozenset({"timeout-connect", "timeout-first-byte", "timeout-body"})


class Failure(Exception):
    """A request failed. ``error_class`` is one of the contract's classes; ``detail`` is short and holds nothing that differs each time."""

    def __init__(self, error_class: str, detail: str = "") -> None:
        super().__init__(f"{error_class}: {detail}" if detail else error_class)
        self.error_class = error_class
        self.detail = detail

    @property
    def outcome(self) -> int:
        """TIMED_OUT for a deadline that passed, FAILED for everything else."""
        return TIMED_OUT if self.error_class in TIMEOUTS else FAILED


def of_tls(error: Exception) -> Failure:
    """A failed handshake, in OpenSSL's words (they name the cause: expired, wrong host, unknown authority)."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return Failure("tls", error.verify_message)
    if isinstance(error, ssl.SSLError):
        return Failure("tls", (error.reason or "handshake failed").lower().replace("_", " "))
    return Failure("tls", "connection lost in the handshake")


def of_os(error: OSError, phase: str) -> Failure:
    """``phase`` ("connect" or "reset") is the class of a socket error; the detail is the system's word for it."""
    return Failure(phase, (error.strerror or type(error).__name__).lower())
