"""Exit codes, and the errors that a user is expected to meet (one clear message, no traceback)."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum


class ExitCode(IntEnum):
    """What a command's exit code says; design section 6."""

    PASS = 0
    FAIL = 1
    USAGE = 2
    INVALID = 3
    TARGET_NOT_READY = 4
    INTERRUPTED = 130


class UsageError(Exception):
    """Wrong input from the user: nothing was sent. ``faults`` holds every fault found, a line each."""

    exit_code = ExitCode.USAGE

    def __init__(self, *faults: str) -> None:
        super().__init__("\n".join(faults))
        self.faults: Sequence[str] = faults


class TargetNotReady(UsageError):
    """The target did not become ready before its deadline."""

    exit_code = ExitCode.TARGET_NOT_READY


class RunFailed(UsageError):
    """The run could not be carried out or its folder could not be written: it proves nothing."""

    exit_code = ExitCode.INVALID
