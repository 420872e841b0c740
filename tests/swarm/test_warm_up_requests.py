"""Requests before the start, through a real swarm: sent and recorded, in no ledger and no percentile."""

import pyarrow.parquet as pq
import pytest

pytestmark = [pytest.mark.swarm, pytest.mark.usefixtures("no_child_left")]


def rows_outside(done):
    """Records that belong to no arrival."""
    files = sorted((done.folder / "records").glob("*.parquet"))
    return [row for file in files for row in pq.read_table(file).to_pylist() if row["k"] < 0]


def test_warm_up_requests_are_kept_apart(runs):
    """21 over two workers, each answered before the epoch with a text of its own; the load is what it would be without them."""
    done = runs.run(warmup_requests=21, requests=[{"name": "predict", "path": "/predict", "json": {"t2m_k": 285.1, "rh": 71}}])
    assert done.code == 0, done.err
    outside = rows_outside(done)
    assert [row["name"] for row in outside] == ["predict"] * 21
    assert all(row["k"] == -1 and row["sent_ns"] < row["done_ns"] < 0 and row["status"] == 200 for row in outside)
    warmed = [worker["warm_up"] for worker in done.manifest["workers"]]
    assert warmed == [{"done": n, "failed": 0, "unsent": 0, "error": ""} for n in (11, 10)]
    assert [event["done"] for event in done.events if event["kind"] == "warm-up"] == [21]
    ledger = done.manifest["ledger"]
    assert ledger["scheduled"] == ledger["ok"] == done.manifest["schedule"]["count"]
    assert sorted(done.rows()["k"].tolist()) == list(range(ledger["scheduled"]))


def test_failed_warm_up_requests_are_told(runs):
    """The run goes on, and says how many failed and why; its own failures are counted as ever."""
    done = runs.run(warmup_requests=4, users="rest", duration="2s", requests=[{"name": "lost", "path": "/nowhere"}])
    (event,) = [event for event in done.events if event["kind"] == "warm-up"]
    assert (event["done"], event["failed"]) == (4, 4)
    assert "http-4xx" in event["text"]
    assert done.manifest["ledger"]["failed"] == done.manifest["ledger"]["scheduled"] > 0
