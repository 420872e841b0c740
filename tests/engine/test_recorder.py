"""The recorder: rows on disk are what happened, the ledger counts every arrival once, hostile text stays small."""

import json
import os

import numpy as np
import pytest

from truetail.arrival import Arrival
from truetail.exchange import Exchange
from truetail.recorder import MAX_IDS, OTHER, Recorder, StringTable
from truetail.records import DROPPED, FAILED, FLAG_WARMUP, RECORD, TIMED_OUT

MS = 1_000_000
EPOCH = 5_000 * MS


@pytest.fixture
def recorder(tmp_path):
    """A recorder with a warm-up of 10 ms and an epoch that is not zero."""
    made = Recorder(tmp_path / "records", "w0", warmup_ns=10 * MS)
    made.epoch_mono_ns = EPOCH
    return made


def arrival(k, at_ms):
    return Arrival(k, at_ms * MS, EPOCH + at_ms * MS, {"name": "predict"})


def rows_of(recorder):
    recorder.flush()
    return np.fromfile(recorder.rows_path, RECORD)


def test_row_holds_offsets_from_the_epoch(recorder):
    """Instants are stored relative to the epoch, what did not happen as -1, texts as announced ids."""
    x = Exchange(EPOCH + 21 * MS, done_ns=EPOCH + 40 * MS, status=200, replica="r1", batch=4, queue_us=1.5, response_bytes=7)
    recorder.exchange(arrival(3, 20), "predict", x)
    (row,) = rows_of(recorder)
    assert (row["k"], row["intended_ns"], row["sent_ns"], row["done_ns"], row["first_byte_ns"]) == (
        3,
        20 * MS,
        21 * MS,
        40 * MS,
        -1,
    )
    assert (row["status"], row["batch"], row["queue_us"], row["response_bytes"], row["flags"]) == (200, 4, 1.5, 7, 0)
    assert np.isnan(row["inference_us"])
    names = [json.loads(line) for line in recorder.rows_path.with_name("w0.names.jsonl").read_text().splitlines()]
    assert {(name["table"], name["text"]): name["id"] for name in names} == {
        ("name", "predict"): row["name"],
        ("replica", "r1"): row["replica"],
    }


def test_only_the_first_request_of_an_arrival_is_in_the_ledger(recorder):
    """Further requests of the same task are parts 1, 2, ... measured from their own sending; requests outside have k = -1."""
    a = arrival(0, 20)
    for _ in range(3):
        recorder.exchange(a, "predict", Exchange(EPOCH + 30 * MS, done_ns=EPOCH + 31 * MS))
    recorder.exchange(None, "login", Exchange(EPOCH, done_ns=EPOCH + MS))
    rows = rows_of(recorder)
    assert rows["part"].tolist() == [0, 1, 2, 0]
    assert rows["k"].tolist() == [0, 0, 0, -1]
    assert rows["intended_ns"].tolist()[1:3] == [30 * MS, 30 * MS]
    assert recorder.sent == 1


def test_requests_before_the_epoch_get_its_axis(tmp_path):
    """on_start and warm-up requests end before anyone knows the epoch: their instants are negative then, and they count nowhere."""
    early = Recorder(tmp_path / "records", "w1", warmup_ns=0)
    early.exchange(None, "login", Exchange(EPOCH - 3 * MS, done_ns=EPOCH - 2 * MS, first_byte_ns=EPOCH - 2 * MS))
    assert len(rows_of(early)) == 0
    early.epoch_mono_ns = EPOCH
    early.exchange(None, "again", Exchange(EPOCH + MS, done_ns=EPOCH + 2 * MS))
    rows = rows_of(early)
    assert rows["sent_ns"].tolist() == rows["intended_ns"].tolist() == [-3 * MS, MS]
    assert rows["done_ns"].tolist() == [-2 * MS, 2 * MS]
    assert rows["k"].tolist() == [-1, -1]
    assert early.sent == 0
    assert not early.histograms


def test_histograms_hold_answered_requests_after_the_warmup(recorder):
    """Warm-up rows and failures are on disk but not in the live percentiles; lateness counts every sent arrival."""
    recorder.exchange(arrival(0, 5), "predict", Exchange(EPOCH + 5 * MS, done_ns=EPOCH + 6 * MS))
    recorder.exchange(arrival(1, 20), "predict", Exchange(EPOCH + 21 * MS, done_ns=EPOCH + 50 * MS))
    recorder.exchange(
        arrival(2, 30),
        "predict",
        Exchange(EPOCH + 30 * MS, done_ns=EPOCH + 90 * MS, outcome=TIMED_OUT, error_class="timeout-body"),
    )
    recorder.without_request(arrival(3, 40), DROPPED, "")
    rows = rows_of(recorder)
    assert (rows["flags"] & FLAG_WARMUP).tolist() == [1, 0, 0, 0]
    assert recorder.histograms["response"].n == 1
    assert recorder.histograms["response"].max_ns == 30 * MS
    assert recorder.histograms["response/predict"].n == 1
    assert recorder.histograms["lateness"].n == 2
    assert recorder.counts == {"ok": 2, "failed": 0, "timed_out": 1, "abandoned": 0, "dropped": 1}


def test_task_without_a_request_is_a_failure_with_its_reason(recorder):
    """An arrival whose task sent nothing still balances the ledger and says why."""
    recorder.without_request(arrival(0, 20), FAILED, "task-error: KeyError: 'x'", EPOCH + 20 * MS)
    (row,) = rows_of(recorder)
    assert row["outcome"] == FAILED
    assert row["done_ns"] == -1
    assert "task-error" in recorder.rows_path.with_name("w0.names.jsonl").read_text()


def test_long_and_endless_texts_are_capped():
    """A text is cut at 300 characters; after 65,535 different ones all others are '(other)'."""
    announced: list[str] = []
    table = StringTable("error", announced.append)
    assert table.id_of("x" * 10_000) == table.id_of("x" * 300)
    for i in range(MAX_IDS + 100):
        last = table.id_of(f"e{i}")
    assert last == table.id_of(OTHER)
    assert max(json.loads(line)["id"] for line in announced) < MAX_IDS


def test_full_disk_loses_nothing_that_was_buffered(recorder):
    """When the disk is full flush raises and keeps its rows; when there is room again they are written."""
    real = recorder._rows_fd
    recorder.exchange(arrival(0, 20), "predict", Exchange(EPOCH + 21 * MS, done_ns=EPOCH + 22 * MS))
    recorder._rows_fd = os.open("/dev/full", os.O_WRONLY)
    with pytest.raises(OSError, match="No space"):
        recorder.flush()
    os.close(recorder._rows_fd)
    recorder._rows_fd = real
    assert len(rows_of(recorder)) == 1
    assert recorder.rows_written == 1


def test_buffer_grows_and_every_row_survives(recorder):
    """More rows between two flushes than the buffer first held: all are written, in order."""
    for k in range(5000):
        recorder.exchange(arrival(k, 20), "predict", Exchange(EPOCH + 21 * MS, done_ns=EPOCH + 22 * MS))
    assert rows_of(recorder)["k"].tolist() == list(range(5000))
