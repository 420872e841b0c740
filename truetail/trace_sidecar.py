"""The span exporter beside a run: started where tracing is asked for and the environment names a collector, and waited for at the end."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from truetail import manifest, tracing
from truetail.children import Children
from truetail.errors import UsageError
from truetail.trace_export import END_S

NAME = "traces"
EXPORTER = "opentelemetry.exporter.otlp.proto.http"
GRACE_S = END_S + 5.0


def wanted(resolved: Mapping[str, Any]) -> bool:
    """Whether spans are to be sent: without an endpoint the service still gets its ``traceparent``."""
    return bool(resolved["tracing"]) and tracing.has_endpoint(os.environ)


def check(resolved: Mapping[str, Any]) -> None:
    """Raises UsageError where spans are to be sent and the libraries for it are not installed."""
    try:
        there = not wanted(resolved) or find_spec(EXPORTER) is not None
    except ModuleNotFoundError:
        there = False
    if not there:
        raise UsageError(
            "tracing: the extra otel is not installed: pip install 'truetail[otel]', or unset OTEL_EXPORTER_OTLP_ENDPOINT"
        )


def start(resolved: Mapping[str, Any], folder: Path, children: Children) -> None:
    """Start the exporter, if one is wanted."""
    if wanted(resolved):
        children.start(NAME, [sys.executable, "-m", "truetail.trace_export", str(folder)])


def finish(folder: Path, children: Children) -> None:
    """Let the exporter send what is left, for a bounded time, and say on standard error what was lost."""
    if manifest.read(folder)["state"] == "ended":
        with contextlib.suppress(KeyboardInterrupt):  # the run itself is over: only the rest of the spans is given up
            children.wait(NAME, GRACE_S)
    children.end(NAME)
    told = read(folder)
    if told is not None and told.get("dropped"):
        print(
            f"tracing: {told['dropped']} of {told['sampled']} spans were not exported: {told['last_error']}",
            file=sys.stderr,
            flush=True,
        )


def read(folder: Path) -> dict[str, Any] | None:
    """``traces.json``: sampled, exported, dropped, last_error; None where there is none."""
    try:
        told = json.loads((folder / "traces.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return told if isinstance(told, dict) else None
