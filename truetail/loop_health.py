"""How late this worker's event loop runs, and how much of a core it uses: the generator's own limits."""

from __future__ import annotations

import time
from typing import Any

import gevent

from truetail.histogram import Histogram
from truetail.messages import Generator

PERIOD_S = 0.02


class LoopHealth:
    """A repeating loop timer whose lateness is the stall that any other callback would have seen."""

    def __init__(self) -> None:
        self._stalls = Histogram()
        self._due_ns = 0
        self._timer: Any = None
        self._cpu_at = (time.monotonic(), time.process_time())
        self._cpu_max = 0.0

    def start(self) -> None:
        """Begin to watch; called at the epoch, so that start-up does not count."""
        self._cpu_at = (time.monotonic(), time.process_time())
        self._next()

    def _next(self) -> None:
        loop: Any = gevent.get_hub().loop
        loop.update_now()
        self._due_ns = time.monotonic_ns() + int(PERIOD_S * 1e9)
        self._timer = loop.timer(PERIOD_S)
        self._timer.start(self._fired)

    def _fired(self) -> None:
        self._stalls.record_ns(max(0, time.monotonic_ns() - self._due_ns))
        self._timer.close()
        self._next()

    def read(self) -> Generator:
        """CPU share since the last reading, and the stalls so far (cumulative)."""
        now = (time.monotonic(), time.process_time())
        elapsed_s = now[0] - self._cpu_at[0]
        share = (now[1] - self._cpu_at[1]) / elapsed_s if elapsed_s > 0 else 0.0
        self._cpu_at = now
        if elapsed_s > 0.5:
            self._cpu_max = max(self._cpu_max, share)
        p99_ns = self._stalls.percentile_ns("99") or 0
        return Generator(
            cpu_share=round(share, 4),
            cpu_share_max=round(self._cpu_max, 4),
            loop_stall_max_ms=max(self._stalls.max_ns, 0) / 1e6,
            loop_stall_p99_ms=p99_ns / 1e6,
        )

    def stop(self) -> None:
        """Stop watching."""
        if self._timer is not None:
            self._timer.close()
            self._timer = None
