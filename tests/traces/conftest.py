from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shapes.traces.recording import Recording
from shapes.traces.rows import Rows, concatenate
from shapes.traces.spec import parse_spec

REPO = Path(__file__).resolve().parents[2]
PUBLIC = REPO.parent / "shared" / "traces"


@pytest.fixture
def public() -> Path:
    """The samples of public traces that lie beside the checkout; they are not shipped in it."""
    if not PUBLIC.is_dir():
        pytest.skip("the samples of public traces (../shared/traces) are not here")
    return PUBLIC


@pytest.fixture
def samples() -> Path:
    """Our own small sample files."""
    return Path(__file__).parent / "samples"


Whole = tuple[Rows, Recording]


@pytest.fixture
def read_whole() -> Callable[..., Whole]:
    """Reads a trace whole: (all rows on the trace's own clock, the recording with its drops)."""

    def read(file: Path, **said: Any) -> Whole:
        recording = Recording(parse_spec({"file": str(file), **said}, seed=1))
        parts = list(recording.rows())
        rows = concatenate(parts)
        return rows._replace(times_ns=rows.times_ns + recording.origin_ns), recording

    return read
