"""A pool of lines to send: one JSON value a line, read whole before the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from truetail.errors import UsageError

MAX_BYTES = 512 * 2**20
MAX_FAULTS = 20


def read(path: Path) -> list[Any]:
    """The values of a JSONL file; empty lines are passed over. Raises UsageError with file, line and fault, all at once."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise UsageError(f"{path}: is larger than {MAX_BYTES // 2**20} MiB; a pool is held in memory by every worker")
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: is no UTF-8 (byte {error.start})") from None
    values, faults = [], []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                values.append(json.loads(line))
            except (ValueError, RecursionError) as error:
                faults.append(f"{path}:{number}: found {line.strip()[:60]!r}; a JSON value is due ({error})")
    if faults:
        raise UsageError(*faults[:MAX_FAULTS])
    if not values:
        raise UsageError(f"{path}: holds no line; at least one JSON value is due")
    return values
