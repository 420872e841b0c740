"""What is measured of a request, as int64 nanoseconds per record: a failure is infinite, what was not told is marked so.

Three times, never mixed: lateness (intended to sent), service (sent to done), response (intended to done).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.record_columns import Records, pieces
from truetail.records import OK

INFINITE_NS = int(np.iinfo(np.int64).max)
"""A request that never gave its answer: slower than any that did."""
NOT_TOLD_NS = int(np.iinfo(np.int64).min)
"""The metric does not exist for this request (no stream, a server that tells no stages): it takes part in nothing."""

Values = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Metric:
    """What a metric is worked out of, and how: from some rows of the columns, in that order, ns."""

    columns: tuple[str, ...]
    of: Callable[..., Values]


def _from(column: str) -> Metric:
    """Since another instant of the request; infinite unless it was answered."""
    return Metric(("outcome", "done_ns", column), lambda outcome, done_ns, since_ns: _answered(outcome, done_ns - since_ns))


def _late(sent_ns: Values, intended_ns: Values) -> Values:
    """Of every request that was sent, answered or not; a dropped arrival was never sent."""
    return np.where(sent_ns >= 0, sent_ns - intended_ns, INFINITE_NS)


def _since_intended(column: str) -> Metric:
    def of(outcome: NDArray[np.uint8], at_ns: Values, intended_ns: Values) -> Values:
        return _answered(outcome, np.where(at_ns >= 0, at_ns - intended_ns, NOT_TOLD_NS))

    return Metric(("outcome", column, "intended_ns"), of)


def _told_us(column: str) -> Metric:
    def of(outcome: NDArray[np.uint8], told: NDArray[np.float32]) -> Values:
        with np.errstate(invalid="ignore"):  # a damaged file may hold signalling NaNs
            told_us = told.astype(np.float64)
        good = np.isfinite(told_us) & (told_us >= 0) & (told_us < 1e15)
        told_ns = np.rint(np.where(good, told_us, 0.0) * 1000).astype(np.int64)
        return _answered(outcome, np.where(good, told_ns, NOT_TOLD_NS))

    return Metric(("outcome", column), of)


def _answered(outcome: NDArray[np.uint8], values: Values) -> Values:
    return np.where(outcome == OK, values, INFINITE_NS)


METRICS: Mapping[str, Metric] = {
    "response": _from("intended_ns"),
    "service": _from("sent_ns"),
    "lateness": Metric(("sent_ns", "intended_ns"), _late),
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
    """The metric of the records in ``mask`` for which it exists (failures included, as infinite), in order of intended time."""
    columns = [records[name] for name in METRICS[metric].columns]
    wanted, filled, some = int(mask.sum()), 0, False
    values = np.empty(wanted, np.int64)
    for piece in pieces(len(mask)):
        if not (inside := mask[piece]).any():
            continue
        found = METRICS[metric].of(*(column[piece] for column in columns))
        found = found if inside.all() else found[inside]
        if not (told := found != NOT_TOLD_NS).all():
            found = found[told]
        some = some or bool((found != INFINITE_NS).any())
        values[filled : filled + len(found)] = found
        filled += len(found)
    # Where nobody told it, failures alone are no data on it.
    if filled < wanted and not some:
        return values[:0]
    return values[:filled].copy() if filled < wanted // 2 else values[:filled]


def seconds(values: Values) -> NDArray[np.float64]:
    """Nanoseconds as seconds, +inf for what is infinite."""
    found = values / 1e9
    found[values == INFINITE_NS] = np.inf
    return found


def tokens_per_s(records: Records, mask: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Output tokens per second of service time; a failure has 0. Only requests with tokens, or failed ones."""
    ok = records["outcome"] == OK
    tokens = records["tokens_out"].astype(np.float64)
    seconds = np.maximum((records["done_ns"] - records["sent_ns"]) / 1e9, 1e-9)
    chosen = mask & ((tokens > 0) | ~ok)
    rates: NDArray[np.float64] = np.where(ok, tokens / seconds, 0.0)[chosen]
    return rates if (tokens[mask & ok] > 0).any() else rates[:0]
