"""What a client saw of one request: the raw instants and facts, before they become a record."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan

from truetail.records import OK


@dataclass(slots=True)
class Exchange:
    """One request as its client saw it. Instants are absolute ``time.monotonic_ns()``; -1 = did not happen."""

    sent_ns: int
    done_ns: int = -1
    first_byte_ns: int = -1
    first_token_ns: int = -1
    connect_us: float = nan
    status: int = 0
    outcome: int = OK
    error_class: str = ""
    error_detail: str = ""
    request_bytes: int = 0
    response_bytes: int = 0
    replica: str = ""
    batch: int = 0
    queue_us: float = nan
    preprocess_us: float = nan
    inference_us: float = nan
    postprocess_us: float = nan
    dependency_us: float = nan
    tokens_in: int = 0
    tokens_out: int = 0
    itl_max_us: float = nan
