"""A run folder of Truetail as a trace: every arrival of the run at its intended instant, to replay the run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from shapes.traces.drops import Drops, TraceError
from shapes.traces.rows import Rows, Source

BATCH_ROWS = 50_000
NEEDED = ("k", "part", "intended_ns")
# Our names to the records' columns; a record's 0 tokens are tokens that nobody told.
CARRIED = {"name": "name", "prompt_tokens": "tokens_in", "output_tokens": "tokens_out", "request_bytes": "request_bytes"}


def read(source: Source, drops: Drops) -> Iterator[Rows]:
    """The run's arrivals in order, over all its workers. Raises TraceError when the records are not Parquet yet, or none are
    there.
    """
    import duckdb

    folder = source.path if source.path.name == "records" else source.path / "records"
    files = sorted(str(path) for path in folder.glob("*.parquet"))
    if not files:
        raw = any(folder.glob("*.rec"))
        raise TraceError(
            f"{source.path}: its records are not in Parquet yet; run `truetail report` on it first"
            if raw
            else f"{source.path}: no records/*.parquet, so this is no finished run folder"
        )
    with duckdb.connect(config={"memory_limit": "128MB", "threads": 1}) as database:
        try:
            database.execute("SET enable_progress_bar = false")  # it would be printed among our output
            yield from _rows(database, files, drops)
        except duckdb.Error as fault:
            raise TraceError(f"{source.path}: the records cannot be read: {str(fault).splitlines()[0][:160]}") from None


def _rows(database: Any, files: list[str], drops: Drops) -> Iterator[Rows]:
    found = {row[0] for row in database.execute("DESCRIBE SELECT * FROM read_parquet(?, union_by_name=true)", [files]).fetchall()}
    missing = [name for name in NEEDED if name not in found]
    if missing:
        raise TraceError(f"{drops.file}: records without the column {missing[0]}")
    carried = {ours: theirs for ours, theirs in CARRIED.items() if theirs in found}
    chosen = ", ".join(["k", "intended_ns"] + [f'"{theirs}" AS "{ours}"' for ours, theirs in carried.items()])
    # Only names of our own (CARRIED) are put into the text.
    query = f"SELECT {chosen} FROM read_parquet(?, union_by_name=true) WHERE part = 0 AND k >= 0 ORDER BY k"  # noqa: S608
    result = database.execute(query, [files])
    last = -1
    while (batch := _fetch(result)) is not None:
        ks = batch["k"]
        fresh = np.diff(ks, prepend=last) > 0
        if not fresh.all():
            for k in ks[~fresh].tolist():
                drops.drop("an arrival recorded twice", k, "k", k)
        last = int(ks[-1])
        columns = {ours: _column(ours, batch[ours]) for ours in carried}
        yield Rows(batch["intended_ns"], columns, ks, "start").take(fresh)


def _fetch(result: Any) -> dict[str, Any] | None:
    rows = result.fetchmany(BATCH_ROWS)
    if not rows:
        return None
    names = [description[0] for description in result.description]
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    return {
        name: np.array(values, np.int64) if name in ("k", "intended_ns") else np.array(values, object)
        for name, values in columns.items()
    }


def _column(name: str, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if name == "name":
        return np.array([value or "" for value in values.tolist()], object)
    return np.array([value or -1 for value in values.tolist()], np.int64)
