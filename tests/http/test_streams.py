"""Event streams: framing, cuts, faults; and token times against the instants at which a server sent."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from truetail.exchange import Exchange
from truetail.http.client import HttpClient
from truetail.http.errors import Failure
from truetail.http.sse import MAX_EVENT_BYTES, EventStream
from truetail.http.tokens import TokenTimes

sys.path.insert(0, str(Path(__file__).parent))
from hostile import EVENTS, Server, answering, chunk, forever

TEXT = "data: one\n\ndata: two\ndata: three\n\n: comment\n\nevent: x\nid: 7\nretry: 3\ndata:four ☃\n\ndata\n\n"
DUE = ["one", "two\nthree", "four ☃", ""]


def events(pieces):
    stream = EventStream()
    return [event for piece in pieces for event in stream.feed(piece)], stream


@given(st.sampled_from(["\n", "\r\n", "\r"]), st.booleans(), st.lists(st.integers(0, 200), max_size=12))
def test_framing_does_not_depend_on_cuts_or_line_ends(end, bom, cuts):
    """Whatever the line ends and wherever the bytes are cut (inside CRLF, inside a snowman, inside the BOM): the same events."""
    raw = ("\ufeff" * bom + TEXT.replace("\n", end)).encode()
    places = sorted({0, len(raw), *(cut % len(raw) for cut in cuts)})
    found, stream = events(raw[a:b] for a, b in pairwise(places))
    assert found == DUE
    assert not stream.unfinished


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_event_is_told_by_its_last_byte(end):
    """Byte by byte: an event comes with the first byte that completes it, not with the next event."""
    stream = EventStream()
    told = [bool(list(stream.feed(bytes([byte])))) for byte in b"data: x" + end + end + b"data: y"]
    assert told.index(True) == len(b"data: x" + end)


def test_cut_stream_is_seen():
    """A stream that stops inside an event says so."""
    assert events([b"data: x\n\ndata: y"])[1].unfinished
    assert events([b"data: x\n\ndata: y\n"])[1].unfinished


def test_invalid_utf8_is_malformed():
    """Bytes that are no UTF-8 are no token."""
    with pytest.raises(Failure, match="malformed"):
        events([b"data: \xff\xfe\n\n"])


@pytest.mark.parametrize("line", [b"x" * 1000, b"data: " + b"x" * 1000 + b"\n"])
def test_endless_event_is_bounded(line):
    """An event without an end stops at the cap."""
    with pytest.raises(Failure, match="too-large"):
        events(line for _ in range(MAX_EVENT_BYTES // 500))


def test_gaps_are_per_choice():
    """Interleaved choices: first token of any, gaps only within a choice; against a plain recomputation."""
    times = TokenTimes()
    arrivals = [(0, 10), (1, 11), (0, 30), (1, 41), (1, 42)]
    for choice, now in arrivals:
        times.add(now, choice)
    exchange = Exchange(0)
    times.tell(exchange)
    assert (exchange.first_token_ns, exchange.tokens_out, exchange.itl_max_us) == (10, 5, 0.03)
    assert sorted(times.gaps_ns) == [1, 20, 30]


STREAM_FAULTS = {
    "cut in a chunk": (EVENTS + b"20\r\ndata: 1", "truncated"),
    "closed between events": (EVENTS + chunk(b"data: 1\n\n"), "truncated"),
    "broken chunk": (EVENTS + chunk(b"data: 1\n\n") + b"xyz\r\n", "malformed"),
    "invalid UTF-8": (EVENTS + chunk(b"data: \xc3\x28\n\n") + chunk(b""), "malformed"),
}


@pytest.mark.parametrize("name", STREAM_FAULTS)
def test_faults_in_a_stream(name):
    """What breaks after the first event is classified like anything else; the events before it were told."""
    raw, expected = STREAM_FAULTS[name]
    stream, told = EventStream(), []
    with Server(answering(raw)) as server:
        client = HttpClient(server.url, deadline_s=1)
        answer = client.send(client.prepare("GET", "/"), sink=lambda piece, now: told.extend(stream.feed(piece)))
    assert answer.exchange.error_class == expected


def test_endless_stream_ends_at_the_deadline():
    """Events for ever: timeout-body, and what came before is known."""

    def pieces():
        yield EVENTS
        while True:
            time.sleep(0.01)
            yield chunk(b"data: x\n\n")

    stream, told = EventStream(), []
    with Server(forever(pieces())) as server:
        client = HttpClient(server.url, deadline_s=0.3)
        answer = client.send(client.prepare("GET", "/"), sink=lambda piece, now: told.extend(stream.feed(piece)))
    assert answer.exchange.error_class == "timeout-body"
    assert len(told) > 5


SENDER = """
import socket, sys, time, json
listener = socket.socket(); listener.bind(("127.0.0.1", 0)); listener.listen(8)
print(listener.getsockname()[1], flush=True)
sock, _ = listener.accept(); sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
sock.recv(65536)
sock.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Type: text/event-stream\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n")
sent = []
for n in range(400):
    time.sleep(0.005)
    data = b"data: %d\\n\\n" % n
    now = time.monotonic_ns()
    sock.sendall(b"%x\\r\\n%b\\r\\n" % (len(data), data))
    sent.append(now)
sock.sendall(b"0\\r\\n\\r\\n")
print(json.dumps(sent), flush=True)
"""


@pytest.mark.slow
def test_token_times_agree_with_the_instants_of_sending(capsys):
    """400 tokens from another process that notes when it sent each (same CLOCK_MONOTONIC): error p99 below 2 ms."""
    sender = subprocess.Popen([sys.executable, "-c", SENDER], stdout=subprocess.PIPE, text=True)
    assert sender.stdout is not None
    port = int(sender.stdout.readline())
    stream, arrived = EventStream(), []
    client = HttpClient(f"http://127.0.0.1:{port}", deadline_s=30)
    client.send(client.prepare("GET", "/"), sink=lambda piece, now: arrived.extend(now for _ in stream.feed(piece)))
    sent = json.loads(sender.stdout.readline())
    sender.wait(10)
    errors_ms = (np.array(arrived) - np.array(sent)) / 1e6
    assert len(errors_ms) == 400
    assert errors_ms.min() >= 0, "nothing arrives before it was sent"
    p50, p99, worst = np.percentile(errors_ms, [50, 99, 100])
    with capsys.disabled():
        print(f"\ntoken times: error p50 {p50:.3f} ms, p99 {p99:.3f} ms, max {worst:.3f} ms (n = 400)")
    assert p99 < 20, "the target is 2 ms on a quiet machine; this bound only catches buffering"
