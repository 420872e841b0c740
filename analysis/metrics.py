"""What is measured of a request, as int64 nanoseconds per record: a failure is infinite, what was not told is marked so.

Three times, never mixed: lateness (intended to sent), service (sent to done), response (intended to done).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from analysis.record_columns import Records
from truetail.records import OK

INFINITE_NS = int(np.iinfo(np.int64).max)
"""A request that never gave its answer: slower than any that did."""
NOT_TOLD_NS = int(np.iinfo(np.int64).min)
"""The metric does not exist for this request (no stream, a server that tells no stages): it takes part in nothing."""

Values = NDArray[np.int64]


def _response(records: Records) -> Values:
    return _answered(records, records["done_ns"] - records["intended_ns"])


def _service(records: Records) -> Values:
    return _answered(records, records["done_ns"] - records["sent_ns"])


def _lateness(records: Records) -> Values:
    """Of every request that was sent, answered or not; a dropped arrival was never sent."""
    sent_ns = records["sent_ns"]
    return np.where(sent_ns >= 0, sent_ns - records["intended_ns"], INFINITE_NS)


def _since_intended(column: str) -> Callable[[Records], Values]:
    def values(records: Records) -> Values:
        at_ns = records[column]
        return _answered(records, np.where(at_ns >= 0, at_ns - records["intended_ns"], NOT_TOLD_NS))

    return values


def _told_us(column: str) -> Callable[[Records], Values]:
    def values(records: Records) -> Values:
        with np.errstate(invalid="ignore"):  # a damaged file may hold signalling NaNs
            told_us = records[column].astype(np.float64)
        good = np.isfinite(told_us) & (told_us >= 0) & (told_us < 1e15)
        told_ns = np.rint(np.where(good, told_us, 0.0) * 1000).astype(np.int64)
        return _answered(records, np.where(good, told_ns, NOT_TOLD_NS))

    return values


def _answered(records: Records, values: Values) -> Values:
    return np.where(records["outcome"] == OK, values, INFINITE_NS)


METRICS: Mapping[str, Callable[[Records], Values]] = {
    "response": _response,
    "service": _service,
    "lateness": _lateness,
    "first_byte": _since_intended("first_byte_ns"),
    "ttft": _since_intended("first_token_ns"),
    "connect": _told_us("connect_us"),
    "itl": _told_us("itl_max_us"),
    "queue": _told_us("queue_us"),
    "preprocess": _told_us("preprocess_us"),
    "inference": _told_us("inference_us"),
    "postprocess": _told_us("postprocess_us"),
    "dependency": _told_us("dependency_us"),
}


def measure(records: Records, metric: str, mask: NDArray[np.bool_]) -> Values:
    """The metric of the records in ``mask`` for which it exists (failures included, as infinite)."""
    values = METRICS[metric](records)
    if not mask.all():
        values = values[mask]
    told = values != NOT_TOLD_NS
    # Where nobody told it, failures alone are no data on it.
    if not (told & (values != INFINITE_NS)).any() and not told.all():
        return values[:0]
    return values if told.all() else values[told]


def tokens_per_s(records: Records, mask: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Output tokens per second of service time; a failure has 0. Only requests with tokens, or failed ones."""
    ok = records["outcome"] == OK
    tokens = records["tokens_out"].astype(np.float64)
    seconds = np.maximum((records["done_ns"] - records["sent_ns"]) / 1e9, 1e-9)
    chosen = mask & ((tokens > 0) | ~ok)
    rates: NDArray[np.float64] = np.where(ok, tokens / seconds, 0.0)[chosen]
    return rates if (tokens[mask & ok] > 0).any() else rates[:0]
