"""Run folders that are torn, damaged or hostile: a clear error or a named loss, never a crash; Parquet equals the raw rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from analysis import ledger
from analysis.report import build
from analysis.run_folder import RunFolderError, open_run
from tests.analysis.run_folders import NAMES, Plan, edit_manifest, fail, rows_of, write_run
from truetail.records import FAILED, FIELDS, RECORD, TABLES

PLAN = Plan(rate_rps=100, duration_s=4, slos=["p95 < 50ms"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", PLAN, rows_of(PLAN, 10.0))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "line 1, column 1"),
        (b"{", "line 1"),
        (b"[]", "list"),
        (b'{"format": NaN}', "NaN"),
        (b"\xff\xfe", "UTF-8"),
        (b"[" * 100_000, "run.json"),
        (b'{"format": 2}', "format"),
        (b'{"format": 1, "run_id": 7}', "run_id"),
    ],
)
def test_a_manifest_that_is_none(folder: Path, text: bytes, said: str) -> None:
    """Broken JSON, another kind of document, another format: the error names the file and the place."""
    (folder / "run.json").write_bytes(text)
    with pytest.raises(RunFolderError) as error:
        open_run(folder)
    assert "run.json" in str(error.value)
    assert said in str(error.value)


def test_every_wrong_field_is_named(folder: Path) -> None:
    """Several wrong fields come in one answer, with their place and what was found, control characters made harmless."""
    document = json.loads((folder / "run.json").read_text())
    document["workers"][1]["slot"] = "\x1b[31mtwo"
    document["scenario"]["duration_s"] = -1
    document["schedule"]["digest"] = "x" * 100_000
    (folder / "run.json").write_text(json.dumps(document))
    with pytest.raises(RunFolderError) as error:
        open_run(folder)
    text = str(error.value)
    assert "workers.1.slot" in text
    assert "scenario.duration_s" in text
    assert "schedule.digest" in text
    assert "\x1b" not in text
    assert len(text) < 2000


def test_no_manifest(tmp_path: Path) -> None:
    """A folder that is no run folder is an error with a hint."""
    with pytest.raises(RunFolderError, match=r"run\.json"):
        open_run(tmp_path)


@pytest.mark.parametrize("torn", [1, 7, 111])
def test_a_torn_last_row_is_cut_off_and_counted(folder: Path, torn: int) -> None:
    """Whatever part of the last row was written, the whole rows before it are read and the loss is named."""
    path = folder / "records" / "worker-0.rec"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) - RECORD.itemsize + torn])
    run = open_run(folder)
    assert len(run.records) == 399
    assert any(f"{torn} bytes" in text for text in run.missing)
    assert ledger.check(run).missing == 1


def test_damaged_rows_are_left_out_and_counted(folder: Path) -> None:
    """Rows of random bytes: those with an impossible outcome go, times are kept inside the axis, nothing overflows."""
    path = folder / "records" / "worker-1.rec"
    rows = np.fromfile(path, RECORD)
    rows["outcome"][3] = 77
    rows["done_ns"][5], rows["sent_ns"][5] = np.iinfo(np.int64).max, np.iinfo(np.int64).min
    rows["queue_us"][6] = np.inf
    rows.tofile(path)
    run = open_run(folder)
    assert len(run.records) == 399
    assert any("1 rows" in text for text in run.damage)
    assert build(folder).status == "INVALID"


def test_random_bytes_everywhere_never_crash(tmp_path: Path) -> None:
    """Thirty folders with noise in place of records, names, snapshots or events: a report each time, INVALID each time (fixed seed)."""
    rng = np.random.default_rng(11)
    for turn in range(30):
        folder = write_run(tmp_path / f"run{turn}", PLAN, rows_of(PLAN, 10.0))
        (folder / "snapshots").mkdir()
        noise = rng.bytes(int(rng.integers(1, 3000)))
        target = (
            "records/worker-0.rec",
            "records/worker-0.names.jsonl",
            "snapshots/worker-0.jsonl",
            "events.jsonl",
            "records/worker-1.parquet",
        )[turn % 5]
        (folder / target).write_bytes(noise)
        run = open_run(folder)
        assert run.missing or run.damage
        ledger.check(run)


def test_parquet_holds_the_raw_rows(tmp_path: Path) -> None:
    """After a report the raw files are gone and the Parquet files hold every value, strings for ids, read by Arrow alone."""
    rows = rows_of(PLAN, 10.0)
    rows["queue_us"][::3] = 1.5
    rows["replica"][::2] = 1
    fail(rows, slice(5, 9), FAILED)
    names = {**NAMES, "replica": ["replica-é"]}
    folder = write_run(tmp_path / "run", PLAN, rows, names)
    first = build(folder)
    assert not list((folder / "records").glob("*.rec"))
    table = pq.read_table(folder / "records" / "worker-0.parquet")
    mine = rows[rows["k"] % 2 == 0]
    for name, _ in FIELDS:
        column = table.column(name).to_pylist()
        wanted = [["", *names[name]][i] for i in mine[name].tolist()] if name in TABLES else mine[name].tolist()
        assert str(column) == str(wanted), name  # as text, so that NaN equals itself
    again = build(folder)
    assert again.document == first.document


def test_raw_records_stay_while_someone_may_still_write(folder: Path) -> None:
    """The master died, or a worker was lost: the raw file is kept, and rows that come later are seen."""
    edit_manifest(folder, state="running", stop_reason=None)
    build(folder)
    path = folder / "records" / "worker-0.rec"
    assert path.exists()
    late = np.fromfile(path, RECORD)[:1]
    with path.open("ab") as file:
        late.tofile(file)
    assert ledger.check(open_run(folder)).doubled == 1


def test_dead_master_is_named_and_everything_else_is_there(folder: Path) -> None:
    """state 'running', no ledger, no workers' states: all records are read and what is missing is said."""
    document = json.loads((folder / "run.json").read_text())
    for worker in document["workers"]:
        worker |= {"state": "running", "ledger": None}
    edit_manifest(folder, state="running", stop_reason=None, ledger=None, workers=document["workers"])
    run = open_run(folder)
    assert len(run.records) == 400
    assert any("running" in text for text in run.missing)
    summary = build(folder)
    assert summary.status == "INVALID"
    assert summary.document["response"]["n"] == 400


def test_a_huge_claimed_count_takes_no_memory(folder: Path) -> None:
    """A manifest that claims 10^15 arrivals is counted, not allocated."""
    document = json.loads((folder / "run.json").read_text())
    document["schedule"]["count"] = 10**15
    (folder / "run.json").write_text(json.dumps(document))
    found = ledger.check(open_run(folder))
    assert found.missing == 10**15 - 400
    assert found.missing_k == [400, 401, 402, 403, 404]


def test_records_are_matched_by_number(folder: Path) -> None:
    """One record less and another twice: the totals agree, the ledger does not."""
    path = folder / "records" / "worker-0.rec"
    rows = np.fromfile(path, RECORD)
    rows["k"][7] = rows["k"][8]
    rows.tofile(path)
    found = ledger.check(open_run(folder))
    assert (found.missing, found.doubled, found.missing_k, found.doubled_k) == (1, 1, [14], [16])
    assert not found.balanced


def test_a_name_whose_text_is_lost_is_said(folder: Path) -> None:
    """Rows that use an id without a text are counted, not guessed."""
    (folder / "records" / "worker-1.names.jsonl").unlink()
    summary = build(folder)
    assert summary.status == "INVALID"
    assert any("lost" in reason for reason in summary.reasons)


def test_symbolic_links_are_not_followed(folder: Path, tmp_path: Path) -> None:
    """A records file that is a link to elsewhere is refused by name."""
    (folder / "records" / "worker-9.rec").symlink_to(tmp_path / "elsewhere")
    assert any("worker-9" in text for text in open_run(folder).damage)


def test_the_fleet_ledger_is_the_sum_of_its_workers(folder: Any) -> None:
    """Both laws hold in every line, and the lines add up."""
    found = ledger.check(open_run(folder))
    assert found.balanced
    for line in (found.fleet, *found.workers):
        c = line.counts
        assert c["scheduled"] == c["sent"] + c["dropped"] + c["lost"] + c["unsent"]
        assert c["sent"] == c["ok"] + c["failed"] + c["timed_out"] + c["abandoned"]
    for name in ledger.COLUMNS:
        assert found.fleet.counts[name] == sum(line.counts[name] for line in found.workers)
