"""Child processes of ``truetail run``: started with their output in the run folder, ended whatever happens."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from truetail.errors import RunFailed

_PR_SET_PDEATHSIG = 1
GRACE_S = 5.0
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_TRIM_THRESHOLD_": "131072"}
"""glibc's settings for a process that lives for hours: large blocks go back to the kernel when freed. By default the bounds grow with
the blocks seen, and a heap then keeps its largest second. One's own environment goes before these."""


def _end_with_parent() -> Callable[[], None] | None:
    """What the child runs before exec: ask the kernel for SIGTERM when the parent dies (Linux only)."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)
    return lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class Children:
    """A context that ends every child it started: SIGTERM, a grace period, SIGKILL; in the reverse order of starting."""

    def __init__(self, log_folder: Path) -> None:
        self._logs = log_folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *_: object) -> None:
        self.end_all()

    def start(self, name: str, command: Sequence[str], env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start a child in its own session, so that Ctrl-C reaches only us and we decide the order of the end."""
        try:
            self._logs.mkdir(parents=True, exist_ok=True)
            with (self._logs / f"{name}.log").open("ab") as log:
                child = subprocess.Popen(
                    list(command),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    env={**ALLOCATOR, **os.environ, "TRUETAIL_PARENT": str(os.getpid()), **(env or {})},
                    preexec_fn=_end_with_parent(),
                )
        except OSError as error:
            raise RunFailed(f"{name} cannot be started: {error.strerror or error}") from None
        self._running[name] = child
        return child

    def wait(self, name: str, deadline_s: float) -> bool:
        """Wait for a child to end by itself; whether it did (or was never started)."""
        child = self._running.get(name)
        return child is None or wait_until(lambda: child.poll() is not None, deadline_s)

    def log_tail(self, name: str, lines: int = 12) -> str:
        """The last lines that a child wrote."""
        try:
            text = (self._logs / f"{name}.log").read_bytes()[-8000:].decode(errors="replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    def end(self, name: str, number: int = signal.SIGTERM, grace_s: float = GRACE_S) -> None:
        """End one child and wait for it."""
        child = self._running.pop(name, None)
        if child is None:
            return
        if child.poll() is None:
            child.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(grace_s)
        # A stopped process takes no SIGTERM, and a child may have children: the session ends as a whole.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()

    def end_all(self) -> None:
        """End every child, the last started first."""
        for name in reversed(list(self._running)):
            self.end(name)


def wait_until(done: Callable[[], bool], deadline_s: float, step_s: float = 0.05) -> bool:
    """Poll until ``done()`` or the deadline; whether it was done."""
    deadline = time.monotonic() + deadline_s
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(step_s)
    return True
