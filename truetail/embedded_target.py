"""The arguments of the reference service, checked by the service itself in a process of its own (nobody here imports the judged)."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from typing import Any

from truetail import roles
from truetail.errors import ExitCode

PATIENCE_S = 30.0


def faults(embedded: Mapping[str, Any]) -> list[str]:
    """A line for each fault of ``target.embedded``; nothing is served. Raises nothing: a check that does not come to an end is a fault."""
    try:
        done = subprocess.run(roles.target_check(embedded), capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return [f"target.embedded: cannot be checked: {error}"]
    if done.returncode == 0:
        return []
    lines = [line.removeprefix("target: ") for line in done.stderr.splitlines() if line.strip()]
    known = done.returncode == ExitCode.USAGE
    return [f"target.embedded: {line}" for line in (lines if known else lines[-1:])] or ["target.embedded: cannot be checked"]
