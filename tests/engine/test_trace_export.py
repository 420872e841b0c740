"""Records followed while they grow, and the bounded queue between them and a collector."""

from __future__ import annotations

import json

import numpy as np
import pytest

from truetail import trace_export
from truetail.record_follow import RecordFollower, followed
from truetail.records import DROPPED, RECORD
from truetail.trace_export import Following
from truetail.tracing import Tracer


def rows_of(ks, **columns):
    """Records of these arrivals."""
    rows = np.zeros(len(ks), RECORD)
    rows["k"], rows["sent_ns"], rows["done_ns"], rows["name"] = ks, 1000, 2000, 1
    for column in ("queue_us", "preprocess_us", "inference_us", "postprocess_us", "dependency_us"):
        rows[column] = np.nan
    for column, values in columns.items():
        rows[column] = values
    return rows


def write(folder, worker, data, names=("predict",)):
    """Append raw bytes to a worker's records."""
    (folder / "records").mkdir(exist_ok=True)
    path = folder / "records" / f"{worker}.rec"
    if not path.exists():
        lines = [json.dumps({"table": "name", "id": i, "text": text}) for i, text in enumerate(names, 1)]
        path.with_name(f"{worker}.names.jsonl").write_text("\n".join(lines) + "\n")
    with path.open("ab") as file:
        file.write(data)
    return path


def test_rows_are_read_once_and_whole(tmp_path):
    """Each row comes once, in order, with its texts; a torn row comes when its rest does."""
    data = rows_of(range(5)).tobytes()
    path = write(tmp_path, "w", data[:-50])
    follower = RecordFollower(path)
    first = follower.rows()
    assert first["k"].tolist() == [0, 1, 2, 3]
    assert follower.row(first[0]).name == "predict"
    assert len(follower.rows()) == 0
    write(tmp_path, "w", data[-50:])
    assert follower.rows()["k"].tolist() == [4]
    assert len(RecordFollower(tmp_path / "records" / "absent.rec").rows()) == 0


def test_workers_that_come_later_are_followed(tmp_path):
    """A remote worker's file appears with its first chunk."""
    known: dict = {}
    assert followed(tmp_path / "records", known) == []
    write(tmp_path, "a", rows_of([0]).tobytes())
    assert [follower.worker for follower in followed(tmp_path / "records", known)] == ["a"]
    write(tmp_path, "b", rows_of([1]).tobytes())
    assert [follower.worker for follower in followed(tmp_path / "records", known)] == ["a", "b"]


def test_only_the_sampled_that_were_sent(tmp_path):
    """Arrivals that were dropped and requests of no arrival have no span; the rest is exactly what the tracer samples."""
    tracer = Tracer("run", 0.2)
    write(tmp_path, "a", rows_of(range(0, 4000, 2)).tobytes())
    write(tmp_path, "b", rows_of(range(1, 4000, 2)).tobytes())
    write(tmp_path, "b", rows_of([-1, 4000, 4001], sent_ns=[5, -1, -1], outcome=[0, DROPPED, DROPPED]).tobytes())
    following = Following(tmp_path, tracer)
    following.read()
    assert {int(row.values["k"]) for row in following.waiting} == {k for k in range(4000) if tracer.sampled(k)}
    sent = []
    while following.waiting:
        assert following.send(lambda rows: sent.extend(rows) or True)
    assert len(sent) == following.exported == following.sampled
    assert following.dropped == 0


def test_what_waits_is_bounded_and_what_is_dropped_counted(tmp_path):
    """A collector that refuses: the queue stays at its limit, the oldest go, and every span is in one of the counts."""
    write(tmp_path, "a", rows_of(range(3000)).tobytes())
    following = Following(tmp_path, Tracer("run", 1.0), most=1000)
    following.read()
    assert not following.send(lambda rows: False)
    assert len(following.waiting) == 1000
    assert int(following.waiting[0].values["k"]) == 2000
    assert following.send(lambda rows: True)
    following.give_up()
    told = following.told("refused\n" * 100)
    assert told["sampled"] == told["exported"] + told["dropped"] == 3000
    assert told["exported"] == trace_export.BATCH
    assert len(told["last_error"]) <= 300


def test_a_waiting_row_keeps_only_itself(tmp_path):
    """The piece of the file that it was read from can be freed."""
    write(tmp_path, "a", rows_of(range(8000)).tobytes())
    following = Following(tmp_path, Tracer("run", 0.001))
    following.read()
    kept = {id(row.values.base): row.values.base.nbytes for row in following.waiting if row.values.base is not None}
    assert sum(kept.values()) <= 10 * RECORD.itemsize * max(1, len(following.waiting))


def test_spans_hold_what_the_record_holds():
    """Instants on the wall clock, ids of the tracer, status and attributes by the conventions; a further request lies under the first."""
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.trace import SpanKind, StatusCode

    from truetail.record_follow import Row
    from truetail.trace_spans import Spans

    request = {"name": "predict", "method": "POST", "path": "/predict?x=1"}
    manifest = {
        "epoch_wall_ns": 10**18, "run_id": "r", "scenario": {"name": "s", "requests": [request]},
        "target": {"url": "http://h:8000/base/"}, "versions": {"truetail": "1"},
    }  # fmt: skip
    tracer = Tracer("run", 1.0)
    (values, failed, abandoned) = rows_of(
        [5, 5, 6], part=[0, 1, 0], intended_ns=[400, 1000, 0], first_byte_ns=[1500, -1, -1], first_token_ns=-1, status=[200, 503, 0],
        outcome=[0, 1, 3], batch=[4, 0, 0], queue_us=[1500.0, np.nan, np.nan], done_ns=[2000, 2500, -1], request_bytes=77,
    )  # fmt: skip
    rows = [
        Row("worker-0", values, "predict", "replica-0", ""),
        Row("worker-0", failed, "predict/0", "", "shed: 503"),
        Row("worker-0", abandoned, "predict", "", ""),
    ]
    first, further, open_end = Spans(manifest, tracer).of(rows, 2 * 10**18)
    assert (first.start_time, first.end_time) == (10**18 + 1000, 10**18 + 2000)
    assert (first.context.trace_id, first.context.span_id) == (tracer.trace_id(5), tracer.span_id(5))
    assert (first.kind, first.name, first.parent) == (SpanKind.CLIENT, "POST /predict", None)
    assert first.status.status_code is StatusCode.UNSET
    assert [(event.name, event.timestamp) for event in first.events] == [("first byte", 10**18 + 1500)]
    expected = {
        "http.request.method": "POST", "url.full": "http://h:8000/base/predict?x=1", "server.address": "h", "server.port": 8000,
        "http.response.status_code": 200, "http.request.size": 77, "truetail.arrival": 5, "truetail.intended_unix_ns": 10**18 + 400,
        "truetail.lateness_ms": 0.0006, "truetail.response_ms": 0.0016, "truetail.batch_size": 4, "truetail.queue_ms": 1.5,
        "truetail.replica": "replica-0", "truetail.outcome": "ok", "truetail.worker": "worker-0", "truetail.run": "r",
    }  # fmt: skip
    assert {name: first.attributes[name] for name in expected} == expected
    assert "truetail.inference_ms" not in first.attributes
    assert first.resource.attributes["service.name"] == "truetail"
    assert (further.parent.span_id, further.context.trace_id) == (tracer.span_id(5), tracer.trace_id(5))
    assert further.context.span_id == tracer.span_id(5, 1)
    assert (further.status.status_code, further.status.description) == (StatusCode.ERROR, "shed: 503")
    assert further.attributes["error.type"] == "503"
    assert (open_end.end_time, open_end.status.description) == (2 * 10**18, "abandoned")
