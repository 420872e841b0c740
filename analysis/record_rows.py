"""A run's records as rows (``truetail.records.RECORD``), for the chapters that look at whole requests; and what it was told of t(b)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from analysis.batching import BatchRule, BatchTime
from analysis.record_columns import Records
from analysis.run_folder import Run
from truetail.records import OK, RECORD

MOST_ROWS = 500_000
"""Whole rows are 112 bytes and more columns come with them: beyond this a stretch stands for the run."""
TELLS = re.compile(r"'(a|c|max_batch|max_delay)': ([0-9.eE+-]{1,25})")


Rows = tuple[NDArray[np.void], str]
_kept: WeakKeyDictionary[Records, Rows] = WeakKeyDictionary()
"""Three chapters ask for the same rows; they are read once, and go with the records they were read from."""


def rows_of(run: Run) -> Rows:
    """(rows of arrivals sorted by intended time, which stretch of the run they are: empty for all of it).

    A longer run is represented by the MOST_ROWS consecutive arrivals with the most slow ones (above p99) among them.
    """
    if run.records not in _kept:
        _kept[run.records] = _read(run, MOST_ROWS)
    return _kept[run.records]


def _read(run: Run, most: int) -> Rows:
    records = run.records
    index = np.flatnonzero(records.arrivals)
    which = ""
    if len(index) > most:
        first = _worst_stretch(run, index, most)
        total = len(index)
        index = index[first : first + most]
        from_s, to_s = (records["intended_ns"][index[i]] / 1e9 for i in (0, -1))
        which = f"{most:,} of {total:,} arrivals, the stretch with the most slow ones: {from_s:.1f}-{to_s:.1f} s"
    rows = np.zeros(len(index), RECORD)
    for name, column in records.at(RECORD.names or (), index).items():
        rows[name] = column
    return rows, which


def _worst_stretch(run: Run, index: NDArray[np.intp], most: int) -> int:
    """The first of ``most`` arrivals with the most slow or failed ones among them."""
    done, intended, outcome = (run.records[name][index] for name in ("done_ns", "intended_ns", "outcome"))
    response = np.subtract(done, intended, out=done)
    slow = outcome != OK
    slow |= response > np.partition(response, int(0.99 * len(response)))[int(0.99 * len(response))]
    total = np.zeros(len(index) + 1, np.int64)
    np.cumsum(slow, out=total[1:])
    return int(np.argmax(total[most:] - total[:-most]))


def declared(run: Run) -> tuple[BatchTime, BatchRule] | None:
    """t(b) and the batching rule as the reference service told them at /version; None for any other target."""
    target = run.manifest.raw.get("target")
    version = target.get("version") if isinstance(target, dict) else None
    config = version.get("config") if isinstance(version, dict) and version.get("service") == "truetail-target" else None
    told: Mapping[str, Any] = (
        config if isinstance(config, dict) else dict(TELLS.findall(config)) if isinstance(config, str) else {}
    )
    try:
        return BatchTime(float(told["a"]), float(told["c"])), BatchRule(int(told["max_batch"]), float(told["max_delay"]))
    except (KeyError, ValueError, TypeError):
        return None
