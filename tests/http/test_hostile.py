"""Every fault of a hostile server is classified, and bounded in time and memory."""

from __future__ import annotations

import gzip
import itertools
import socket
import sys
import time
import tracemalloc
from pathlib import Path

import pytest

from truetail.http.client import HttpClient
from truetail.records import FAILED, OK, TIMED_OUT

sys.path.insert(0, str(Path(__file__).parent))
from hostile import CHUNKED, Server, answering, chunk, forever, hold, read_request, reset, with_length
from hostile import OK as OK_LINE

DEADLINE_S = 0.5
CAP = 1_000_000
BOMB = gzip.compress(bytes(50_000_000))


def dribble():
    yield b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"
    while True:
        time.sleep(0.02)
        yield b"x"


def dribbled_head():
    yield b"HTTP/1.1 200 OK\r\n"
    while True:
        time.sleep(0.02)
        yield b"x"


def endless_headers():
    yield OK_LINE
    for n in itertools.count():
        yield b"".join(b"X-%d-%d: %s\r\n" % (n, i, b"v" * 100) for i in range(50))


def huge_body():
    yield b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n"
    for _ in range(1000):
        yield bytes(100_000)


def huge_body_of_unknown_length():
    yield b"HTTP/1.1 200 OK\r\n\r\n"
    while True:
        yield bytes(100_000)


FAULTS = {
    "never answers": (hold, "timeout-first-byte"),
    "answers after the deadline": (answering(b"", with_length(b"late"), pause_s=2.0), "timeout-first-byte"),
    "body by a byte": (forever(dribble()), "timeout-body"),
    "headers by a byte": (forever(dribbled_head()), "timeout-body"),
    "half a body, then silence": (answering(OK_LINE + b"Content-Length: 10\r\n\r\nabc", then=hold), "timeout-body"),
    "closes before any byte": (answering(), "reset"),
    "resets before any byte": (answering(then=reset), "reset"),
    "closes in the headers": (answering(OK_LINE + b"Content-Le"), "truncated"),
    "closes in the body": (answering(OK_LINE + b"Content-Length: 10\r\n\r\nabc"), "truncated"),
    "closes in a chunk": (answering(CHUNKED + b"a\r\nabc"), "truncated"),
    "closes between chunks": (answering(CHUNKED + chunk(b"abc")), "truncated"),
    "resets in the body": (answering(OK_LINE + b"Content-Length: 10\r\n\r\nabc", b"", pause_s=0.1, then=reset), "truncated"),
    "garbage status line": (answering(b"SSH-2.0-OpenSSH_9.2\r\n"), "malformed"),
    "binary garbage": (answering(bytes(range(256))), "malformed"),
    "HTTP/2 status line": (answering(b"HTTP/2 200\r\nContent-Length: 0\r\n\r\n"), "malformed"),
    "100 MB body": (forever(huge_body()), "too-large"),
    "endless body": (forever(huge_body_of_unknown_length()), "too-large"),
    "endless headers": (forever(endless_headers()), "too-large"),
    "one endless header": (answering(OK_LINE + b"X: " + b"v" * 200_000, then=hold), "too-large"),
    "body longer than its length": (answering(OK_LINE + b"Content-Length: 3\r\n\r\nabcdef"), "malformed"),
    "two lengths": (answering(OK_LINE + b"Content-Length: 3\r\nContent-Length: 5\r\n\r\nabcde"), "malformed"),
    "length and chunks": (answering(OK_LINE + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), "malformed"),
    "negative length": (answering(OK_LINE + b"Content-Length: -3\r\n\r\nabc"), "malformed"),
    "length overflow": (answering(OK_LINE + b"Content-Length: 99999999999999999999999\r\n\r\n"), "malformed"),
    "chunk size is no number": (answering(CHUNKED + b"zz\r\nabc\r\n"), "malformed"),
    "chunk longer than told": (answering(CHUNKED + b"2\r\nabc\r\n0\r\n\r\n"), "malformed"),
    "gzip bomb": (answering(with_length(BOMB, b"Content-Encoding: gzip")), "too-large"),
    "damaged gzip": (answering(with_length(b"not gzip", b"Content-Encoding: gzip")), "malformed"),
    "cut gzip": (answering(with_length(gzip.compress(b"hello")[:-6], b"Content-Encoding: gzip")), "truncated"),
    "unknown encoding": (answering(with_length(b"x", b"Content-Encoding: br")), "malformed"),
    "flood of 1xx": (forever(itertools.repeat(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")), "malformed"),
    "1xx and nothing after": (answering(b"HTTP/1.1 100 Continue\r\n\r\n"), "truncated"),
    "1xx by and by": (forever(b"HTTP/1.1 102 Processing\r\n\r\n" for _ in iter(lambda: time.sleep(0.03), 1)), "timeout-body"),
    "switches protocols": (answering(b"HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n\0"), "malformed"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_classified_and_bounded(name):
    """The class is the contract's, time stays below the deadline and a margin, memory below the cap and the buffers."""
    fault, expected = FAULTS[name]
    with Server(fault) as server:
        client = HttpClient(server.url, deadline_s=DEADLINE_S, max_response_bytes=CAP)
        tracemalloc.start()
        begun = time.monotonic()
        answer = client.send(client.prepare("POST", "/predict", {}, b"{}"))
        took = time.monotonic() - begun
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    exchange = answer.exchange
    assert exchange.error_class == expected, exchange
    assert exchange.outcome == (TIMED_OUT if expected.startswith("timeout") else FAILED)
    assert took < DEADLINE_S + 1.5
    assert peak < 8 * CAP
    assert exchange.sent_ns <= exchange.done_ns
    assert len(client._pool) == 0, "a connection in doubt is never used again"


@pytest.mark.parametrize("status", [429, 503])
def test_late_refusal_is_an_answer(status):
    """A 429 that comes late is no timeout: the status and its instant are told."""
    fault = answering(b"", with_length(b"busy", b"Retry-After: 3", status=b"%d no" % status), pause_s=0.25)
    with Server(fault) as server:
        client = HttpClient(server.url, deadline_s=2.0)
        answer = client.send(client.prepare("POST", "/", {}, b"{}"))
    assert (answer.status, answer.exchange.error_class, answer.headers["retry-after"]) == (status, "", "3")
    assert answer.exchange.done_ns - answer.exchange.sent_ns >= 0.24e9


def test_refusal_before_the_body_is_read():
    """A server that answers 413 and closes while we still send is heard, not reported as a reset."""

    def fault(sock):
        sock.recv(1000)
        sock.sendall(with_length(b"too big", b"Connection: close", status=b"413 Too Large"))
        sock.shutdown(socket.SHUT_WR)
        time.sleep(0.2)

    with Server(fault) as server:
        client = HttpClient(server.url, deadline_s=5.0)
        answer = client.send(client.prepare("POST", "/", {}, bytes(20_000_000)))
    assert (answer.status, answer.exchange.error_class) == (413, "")


def test_server_that_does_not_read_is_a_timeout():
    """A body that nobody takes ends at the deadline."""
    with Server(lambda sock: time.sleep(1.2)) as server:
        client = HttpClient(server.url, deadline_s=DEADLINE_S)
        begun = time.monotonic()
        exchange = client.send(client.prepare("POST", "/", {}, bytes(50_000_000))).exchange
        took = time.monotonic() - begun
    assert exchange.error_class == "timeout-first-byte"
    assert took < DEADLINE_S + 1.0


def test_interim_answers_are_passed_over():
    """A few 1xx before the answer are legal, and their headers are not its headers."""
    interim = b"HTTP/1.1 103 Early Hints\r\nx-replica-id: 9\r\n\r\n"
    with Server(answering(interim * 3 + with_length(b"y"))) as server:
        client = HttpClient(server.url)
        answer = client.send(client.prepare("GET", "/"))
    assert (answer.status, answer.body, answer.exchange.outcome) == (200, b"y", OK)
    assert "x-replica-id" not in answer.headers


def test_fault_leaves_the_next_request_alone():
    """After a broken answer the next request gets a connection of its own, and its own answer."""
    bodies = iter(
        [OK_LINE + b"Content-Length: 3\r\n\r\nabcHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", with_length(b"good")]
    )

    def fault(sock):
        while read_request(sock):
            sock.sendall(next(bodies))

    with Server(fault) as server:
        client = HttpClient(server.url)
        request = client.prepare("GET", "/")
        assert client.send(request).exchange.error_class == "malformed"
        assert client.send(request).body == b"good"
