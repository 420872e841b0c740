"""Records of a run folder as plain numpy columns: for benchmarks and tests that check the report against something that is not it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from truetail.records import RECORD


def read(folder: Path) -> np.ndarray[Any, Any]:
    """Numeric columns of every worker's records (raw while running, Parquet once reported), first requests of arrivals only."""
    parts = [np.fromfile(file, RECORD) for file in sorted((folder / "records").glob("*.rec"))]
    reported = sorted((folder / "records").glob("*.parquet"))
    names = [name for name in RECORD.names or () if name not in ("name", "replica", "error")]
    raw = [np.rec.fromarrays([part[name] for name in names], names=names) for part in parts]
    for file in reported:
        if not file.with_suffix(".rec").exists():
            table: pa.Table = pq.read_table(file, columns=names)
            raw.append(np.rec.fromarrays([table[name].to_numpy() for name in names], names=names))
    rows = np.concatenate(raw)
    return rows[(rows["k"] >= 0) & (rows["part"] == 0)]
