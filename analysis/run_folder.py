"""A run folder opened for analysis, also one whose master, worker or machine died: everything that can be had, and what is missing.

run.json must be sound (RunFolderError otherwise). In every other file a bad line, a torn row or an absent file is not fatal: it is
named in ``Run.missing``, and what concerns the records makes the run INVALID later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from analysis.manifest_model import Ledger, Manifest, RunFolderError, Scenario, parse_json, read_manifest
from analysis.parquet import parquet_rows
from analysis.record_columns import Records
from analysis.record_files import RecordFile
from analysis.text import plain
from truetail.histogram import Histogram
from truetail.records import RECORD, TABLES

__all__ = ["Run", "RunFolderError", "Snapshot", "open_run"]

MOST_LINE_BYTES = 8 << 20
MOST_EVENTS = 10_000
SERIES_KEPT = 200


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A worker's newest word: cumulative since the epoch, so no earlier one is needed."""

    worker: str
    seq: int
    at_ns: int
    ledger: Ledger
    series: Mapping[str, Histogram]


@dataclass
class Run:
    """A run folder. ``missing`` names in words what could not be had; ``damage`` is that part of it which concerns the records."""

    path: Path
    manifest: Manifest
    files: list[RecordFile]
    snapshots: dict[str, Snapshot]
    events: list[dict[str, Any]]
    missing: list[str] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)

    @property
    def scenario(self) -> Scenario:
        """What was asked for."""
        return self.manifest.scenario

    @cached_property
    def records(self) -> Records:
        """Every worker's records as columns."""
        return Records(self.files)

    def replace_files(self, files: list[RecordFile]) -> None:
        """Read the records from other files from now on (the same rows, as Parquet)."""
        self.files = files
        self.__dict__.pop("records", None)

    @property
    def window_ns(self) -> tuple[int, int]:
        """The measured window of intended time: from the end of the warm-up to the end of the arrivals."""
        return min(self.manifest.warmup_ns, self.manifest.end_ns), self.manifest.end_ns


def open_run(path: Path, prepare: Callable[[Run], None] | None = None) -> Run:
    """Open a run folder; ``prepare`` is called before a record is read. Raises RunFolderError when it has no sound manifest."""
    manifest = read_manifest(Path(path))
    run = Run(Path(path), manifest, [], {}, [])
    _note_state(run)
    run.files = _record_files(run)
    run.snapshots = _snapshots(run)
    run.events = _events(run)
    _note_absent(run)
    if prepare is not None:
        prepare(run)
    records = run.records
    if records.damaged_rows:
        run.damage.append(f"records: {records.damaged_rows} rows have an outcome that does not exist; they are left out")
    return run


def _note_state(run: Run) -> None:
    state = run.manifest.state
    if state != "ended":
        run.missing.append(
            f"run.json says '{state}': the master did not write its last word, so its ledger and the workers' states are old"
        )
    if run.manifest.schedule is None:
        run.missing.append("run.json holds no schedule: nothing was planned")


def _record_files(run: Run) -> list[RecordFile]:
    """One file a worker: Parquet, unless a raw file beside it has other rows (a worker that wrote on after it was converted)."""
    folder = run.path / "records"
    found: dict[str, RecordFile] = {}
    for path in sorted(folder.glob("*.parquet")):
        try:
            found[path.stem] = RecordFile(path.stem, path, *parquet_rows(path))
        except RunFolderError as error:
            run.damage.append(str(error))
    for path in sorted(folder.glob("*.rec")):
        if path.is_symlink() or not path.is_file():
            run.damage.append(f"records/{plain(path.name)}: not a plain file")
            continue
        rows, torn = divmod(path.stat().st_size, RECORD.itemsize)
        other = found.get(path.stem)
        if other is None or other.rows != rows:
            found[path.stem] = RecordFile(
                path.stem, path, rows, torn, tables=_tables(run, path.with_name(f"{path.stem}.names.jsonl"))
            )
    for file in found.values():
        if file.torn_bytes:
            run.missing.append(f"records/{file.path.name}: the last row was torn ({file.torn_bytes} bytes, cut off)")
    return [found[worker] for worker in sorted(found)]


def _tables(run: Run, path: Path) -> dict[str, dict[int, str]]:
    tables: dict[str, dict[int, str]] = {table: {} for table in TABLES}
    for where, line in _lines(run, path):
        table, number, text = line.get("table"), line.get("id"), line.get("text")
        if table not in tables or type(number) is not int or not 0 <= number < 1 << 16 or not isinstance(text, str):
            run.missing.append(f"{where}: not a name of ours; left out")
            continue
        tables[table][number] = plain(text)
    return tables


def _snapshots(run: Run) -> dict[str, Snapshot]:
    """The last sound snapshot of each worker."""
    newest: dict[str, Snapshot] = {}
    for path in sorted((run.path / "snapshots").glob("*.jsonl")):
        last: tuple[str, dict[str, Any]] | None = None
        for where, line in _lines(run, path):
            if type(line.get("seq")) is int and (last is None or line["seq"] > last[1]["seq"]):
                last = where, line
        if last is None:
            continue
        try:
            newest[path.stem] = _snapshot(path.stem, last[1])
        except ValueError as error:
            run.missing.append(f"{last[0]}: not a snapshot of ours: {plain(error, 160)}")
    return newest


def _snapshot(worker: str, line: Mapping[str, Any]) -> Snapshot:
    series, at_ns = line.get("series"), line.get("at_ns")
    if not isinstance(series, dict) or type(at_ns) is not int:
        raise ValueError("it needs series and at_ns")
    histograms = {}
    for name, data in list(series.items())[:SERIES_KEPT]:
        if not isinstance(data, dict):
            raise ValueError("a histogram is an object")
        histograms[plain(name)] = Histogram.from_json(data)
    return Snapshot(worker, line["seq"], at_ns, Ledger.model_validate(line.get("ledger")), histograms)


def _events(run: Run) -> list[dict[str, Any]]:
    """Events in the order of their instants; those without one (before the epoch was known) first."""
    events: list[dict[str, Any]] = []
    for where, line in _lines(run, run.path / "events.jsonl"):
        at_ns = line.get("at_ns")
        if not isinstance(line.get("kind"), str) or not (at_ns is None or (type(at_ns) is int and abs(at_ns) < 1 << 62)):
            run.missing.append(f"{where}: not an event of ours; left out")
        elif len(events) < MOST_EVENTS:
            events.append({"at_ns": at_ns, "kind": plain(line["kind"], 60), "text": plain(line.get("text", ""))})
        else:
            run.missing.append(f"{where}: more than {MOST_EVENTS} events; the rest is not shown")
            break
    return sorted(events, key=lambda event: -(1 << 62) if event["at_ns"] is None else event["at_ns"])


def _lines(run: Run, path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(``file:line``, object) of each sound line; a bad one is named in ``missing``. A torn last line is what a crash leaves."""
    where = f"{path.parent.name}/{path.name}" if path.parent != run.path else path.name
    try:
        with path.open("rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(MOST_LINE_BYTES), b""), 1):
                try:
                    document = parse_json(line, f"{where}:{number}")
                    if not isinstance(document, dict):
                        raise RunFolderError(f"{where}:{number}: not a JSON object")
                except RunFolderError as error:
                    torn = "torn last line" if not line.endswith(b"\n") and len(line) < MOST_LINE_BYTES else str(error)
                    run.missing.append(f"{where}:{number}: left out ({plain(torn, 160)})")
                    continue
                yield f"{where}:{number}", document
    except FileNotFoundError:
        return
    except OSError as error:
        run.missing.append(f"{where}: cannot be read ({error.strerror})")


def _note_absent(run: Run) -> None:
    """Workers of the manifest without records."""
    have = {file.worker for file in run.files}
    for worker in run.manifest.workers:
        if worker.name not in have:
            told = " (its last snapshot stands in)" if worker.name in run.snapshots else ""
            run.damage.append(f"records of {worker.name}: not there{told}")
    if not run.files and not run.manifest.workers:
        run.missing.append("records/: no worker wrote any")
