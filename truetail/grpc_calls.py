"""One inference over gRPC and its account: a call with one answer, or a stream of them (decoupled models). Failures are told, not raised."""

from __future__ import annotations

import time
from typing import Any

from truetail.exchange import Exchange
from truetail.http.tokens import TokenTimes
from truetail.records import FAILED, TIMED_OUT

CLASSES = {
    "DEADLINE_EXCEEDED": "timeout-first-byte", "RESOURCE_EXHAUSTED": "shed", "UNAVAILABLE": "connect", "CANCELLED": "reset",
    "INVALID_ARGUMENT": "http-4xx", "NOT_FOUND": "http-4xx", "UNAUTHENTICATED": "http-4xx", "PERMISSION_DENIED": "http-4xx",
    "FAILED_PRECONDITION": "http-4xx", "OUT_OF_RANGE": "http-4xx", "UNIMPLEMENTED": "http-4xx", "ALREADY_EXISTS": "http-4xx",
}  # fmt: skip
"""gRPC's status to our error class; anything else is http-5xx."""
CONNECT_WORDS = ("failed to connect", "connection refused", "dns resolution failed", "no such file")
SHED_WORDS = ("exceeds maximum queue size", "request timeout expired")
"""How Triton refuses work within a stream, where no status tells it."""


def call(grpc: Any, infer: Any, message: bytes, deadline_s: float, metadata: Any) -> Exchange:
    """One request, one answer. gRPC hands the answer over whole, so there is no instant of its first byte."""
    exchange = Exchange(time.monotonic_ns(), request_bytes=len(message))
    try:
        answer = infer(message, timeout=deadline_s, metadata=metadata)
        exchange.done_ns = time.monotonic_ns()
        exchange.status, exchange.response_bytes = 200, answer.ByteSize()
        if not answer.outputs:
            _fail(exchange, "wrong-content", "no outputs")
    except grpc.RpcError as error:
        exchange.done_ns = time.monotonic_ns()
        classify(exchange, error.code().name, str(error.details() or ""))
    return exchange


def stream(grpc: Any, stream_infer: Any, message: bytes, deadline_s: float, metadata: Any) -> tuple[Exchange, TokenTimes]:
    """One request on a stream of its own, and every answer until the server ends it.

    An answer with outputs is a token; the first byte is that of the first answer. A stream that the server ends without an error is whole:
    the status comes last.
    """
    exchange = Exchange(time.monotonic_ns(), request_bytes=len(message))
    times = TokenTimes()
    answers = stream_infer(iter((message,)), timeout=deadline_s, metadata=metadata)
    try:
        for answer in answers:
            now_ns = time.monotonic_ns()
            if exchange.first_byte_ns < 0:
                exchange.first_byte_ns = now_ns
            exchange.response_bytes += answer.ByteSize()
            if answer.error_message and not exchange.error_class:
                refused = any(words in answer.error_message.lower() for words in SHED_WORDS)
                _fail(exchange, "shed" if refused else "wrong-content", "error within the stream")
            elif answer.infer_response.outputs:
                times.add(now_ns)
        exchange.done_ns = time.monotonic_ns()
        exchange.status = 200
        if times.count == 0 and not exchange.error_class:
            _fail(exchange, "wrong-content", "stream without outputs")
    except grpc.RpcError as error:
        exchange.done_ns = time.monotonic_ns()
        classify(exchange, error.code().name, str(error.details() or ""))
        if exchange.first_byte_ns >= 0:  # it broke off within the answer
            exchange.error_class = {"timeout-first-byte": "timeout-body", "reset": "truncated"}.get(
                exchange.error_class, exchange.error_class
            )
    finally:
        answers.cancel()  # where the user is killed in between; of no effect on a stream that has ended
    times.tell(exchange)
    return exchange, times


def classify(exchange: Exchange, code: str, details: str) -> None:
    """A failed call's outcome and class. UNAVAILABLE means refused work as well as no connection: its words tell them apart."""
    error_class = CLASSES.get(code, "http-5xx")
    if code == "UNAVAILABLE" and not any(word in details.lower() for word in CONNECT_WORDS):
        error_class = "reset" if "socket closed" in details.lower() else "shed"
    exchange.outcome = TIMED_OUT if error_class.startswith("timeout") else FAILED
    exchange.error_class, exchange.error_detail = error_class, code.lower().replace("_", " ")


def _fail(exchange: Exchange, error_class: str, detail: str) -> None:
    exchange.outcome, exchange.error_class, exchange.error_detail = FAILED, error_class, detail
