"""The process that turns sampled records into OpenTelemetry spans and sends them: ``python -m truetail.trace_export RUN``.

It reads the records that the workers write anyway, in a process of its own, so that no collector, however slow or dead, can hold up an event loop or
delay a request. What is read but not yet sent is bounded; beyond that the oldest spans are dropped, and counted. It ends when the run has ended and
everything is sent, or :data:`END_S` later; ``traces.json`` in the run's folder says what became of the spans.
"""

from __future__ import annotations

import contextlib
import json
import logging
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from truetail import manifest, tracing
from truetail.record_follow import RecordFollower, Row, followed

BATCH = 512
MOST_WAITING = 20_000
"""Spans that are read and not sent: about 10 MB. A collector that is away for a minute is ridden out at 300 sampled requests per second."""
END_S = 10.0
"""After the run's end: so long is a collector that does not answer waited for."""
PAUSE_S = 0.5
AFTER_FAILURE_S = 2.0
MAX_TEXT = 300

Export = Callable[[Sequence[Row]], bool]


class Following:
    """The sampled rows of a run that wait to be sent, and what became of the others."""

    def __init__(self, folder: Path, tracer: tracing.Tracer, most: int = MOST_WAITING) -> None:
        self._records = folder / "records"
        self._tracer = tracer
        self._followers: dict[str, RecordFollower] = {}
        self._most = most
        self.waiting: deque[Row] = deque()
        self.sampled = self.exported = self.dropped = 0

    def read(self) -> None:
        """Take in every row that has been written by now."""
        for follower in followed(self._records, self._followers):
            while len(rows := follower.rows()):
                sent = rows["sent_ns"] >= 0  # an arrival that was dropped has no span
                picked = [
                    i
                    for i, (k, sent) in enumerate(zip(rows["k"].tolist(), sent.tolist(), strict=True))
                    if sent and self._tracer.sampled(k)
                ]
                for values in rows[picked]:  # a copy: what waits must not keep the whole piece in memory
                    self._add(follower.row(values))

    def _add(self, row: Row) -> None:
        self.sampled += 1
        self.waiting.append(row)
        if len(self.waiting) > self._most:
            self.waiting.popleft()
            self.dropped += 1

    def send(self, export: Export) -> bool:
        """One batch of the oldest; whether it went out (or there was none). A refused batch waits on."""
        batch = [self.waiting[i] for i in range(min(BATCH, len(self.waiting)))]
        if batch and not export(batch):
            return False
        for _ in batch:
            self.waiting.popleft()
        self.exported += len(batch)
        return True

    def give_up(self) -> None:
        """What still waits is dropped."""
        self.dropped += len(self.waiting)
        self.waiting.clear()

    def told(self, error: str) -> dict[str, Any]:
        """For ``traces.json``."""
        return {
            "sampled": self.sampled,
            "exported": self.exported,
            "dropped": self.dropped,
            "waiting": len(self.waiting),
            "last_error": error[:MAX_TEXT],
        }


class _LastWord(logging.Handler):
    """What the exporter last complained of; its own text, which may quote the collector's."""

    text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text = " ".join(record.getMessage().split())[:MAX_TEXT]


class _TimeIsUp(BaseException):
    """Raised by a signal: not an Exception, so that no library takes it for a failed attempt."""


@contextlib.contextmanager
def _until_told() -> Iterator[None]:
    """SIGTERM and the alarm end what is under way, also a request that never gets an answer."""

    def stop(*_: object) -> None:
        raise _TimeIsUp

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
        signal.signal(number, stop)
    try:
        with contextlib.suppress(_TimeIsUp):
            yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
            signal.signal(number, signal.SIG_IGN)
        signal.setitimer(signal.ITIMER_REAL, 0)


def follow(folder: Path, following: Following, export: Export) -> None:
    """Read and send until the run has ended and nothing waits."""
    ended = False
    while True:
        was_ended = ended
        ended = ended or manifest.read(folder)["state"] == "ended"
        if ended and not was_ended:
            signal.setitimer(signal.ITIMER_REAL, END_S)
        following.read()
        sent = following.send(export)
        if ended and was_ended and not following.waiting:  # read once more after the end was seen
            return
        if not sent:
            time.sleep(AFTER_FAILURE_S)
        elif len(following.waiting) < BATCH:
            time.sleep(0.0 if ended else PAUSE_S)


def main(folder: Path) -> int:
    """Wait for the epoch, then follow the run; 0 also where nothing could be sent: a run does not fail by its collector."""
    last = _LastWord()
    logging.basicConfig(level=logging.WARNING, handlers=[last, logging.StreamHandler()])
    document = manifest.read(folder)
    tracer = tracing.tracer_of(document["scenario"], tracing.key_of(document))
    if tracer is None:
        return 0
    following = Following(folder, tracer)
    with _until_told():
        while (document := manifest.read(folder))["epoch_wall_ns"] is None and document["state"] != "ended":
            time.sleep(PAUSE_S)
        if document["epoch_wall_ns"] is not None:
            follow(folder, following, _otlp(document, tracer))
    following.read()
    following.give_up()
    (folder / "traces.json").write_text(json.dumps(following.told(last.text)) + "\n", encoding="utf-8")
    return 0


def _otlp(document: dict[str, Any], tracer: tracing.Tracer) -> Export:
    """Sends rows as spans over OTLP/HTTP, wherever the environment says."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import SpanExportResult

    from truetail.trace_spans import Spans

    exporter, spans = OTLPSpanExporter(), Spans(document, tracer)
    return lambda rows: exporter.export(spans.of(list(rows), time.time_ns())) is SpanExportResult.SUCCESS


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
