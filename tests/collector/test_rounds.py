"""Rounds: sources that share a thread do so only while all of them are prompt."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from collector.clocks import Ticks
from collector.journal import Journal
from collector.rounds import PATIENCE_NS, Round
from collector.sampler import Sampler


class Scripted:
    """A source that does what the test says at each reading."""

    folder, name = "gpu", "nvml"

    def __init__(self, index: int) -> None:
        self.key = {"gpu": index}
        self.wait = threading.Event()
        self.hang = False
        self.slow_s = 0.0
        self.threads: list[int] = []

    def read(self, now_ns: int) -> dict[str, Any]:
        """Hang until told, or be slow; remember which thread asked."""
        self.threads.append(threading.get_ident())
        if self.hang:
            self.wait.wait(20)
        time.sleep(self.slow_s)
        return {"x": 1}


def started(
    tmp_path: Path, count: int, period_ms: int
) -> tuple[list[Scripted], list[Round], threading.Event, list[threading.Thread]]:
    """Sources in one running round; rounds that are split off are started and listed too."""
    stop, rounds, threads = threading.Event(), [], []
    journal = Journal(tmp_path, "h", {})
    sources = [Scripted(i) for i in range(count)]
    period_ns = period_ms * 1_000_000

    def start(it: Round) -> None:
        rounds.append(it)
        threads.append(threading.Thread(target=it.run, daemon=True))
        threads[-1].start()

    ticks_start = (time.monotonic_ns() // period_ns + 1) * period_ns
    samplers = [Sampler(s, journal, lambda *a, **k: None, Ticks(ticks_start, period_ns)) for s in sources]  # type: ignore[arg-type]
    start(Round(samplers, stop, start))
    return sources, rounds, stop, threads


def test_prompt_sources_share_one_thread(tmp_path: Path, wait_until: Any) -> None:
    """While nothing is slow there is one thread for all, and each is read at every tick."""
    sources, rounds, stop, threads = started(tmp_path, 4, 50)
    wait_until(lambda: all(len(s.threads) >= 5 for s in sources))
    stop.set()
    threads[0].join(10)
    assert len({t for s in sources for t in s.threads}) == len(rounds) == 1


def test_hung_source_keeps_the_thread_and_the_others_leave(tmp_path: Path, wait_until: Any) -> None:
    """A rescue before the patience is over does nothing; after it the others go on in a new thread, the hung one later in its own."""
    sources, rounds, stop, threads = started(tmp_path, 3, 20)
    wait_until(lambda: sources[2].threads)
    sources[1].hang = True
    wait_until(
        lambda: rounds[0].current and rounds[0].current.source is sources[1] and rounds[0].current.progress.reading_since_ns
    )
    since = rounds[0].current.progress.reading_since_ns  # type: ignore[union-attr]
    rounds[0].rescue(since + PATIENCE_NS - 1)
    assert len(rounds) == 1
    rounds[0].rescue(since + PATIENCE_NS)
    rounds[0].rescue(since + PATIENCE_NS)
    assert len(rounds) == 2, "rescued once"
    before = len(sources[0].threads)
    wait_until(lambda: len(sources[0].threads) > before + 3 and len(sources[2].threads) > before + 2)
    sources[1].hang = False
    sources[1].wait.set()
    hung_for = len(sources[1].threads)
    wait_until(lambda: len(sources[1].threads) > hung_for + 3)
    stop.set()
    for thread in threads:
        thread.join(10)
    assert sources[0].threads[-1] == sources[2].threads[-1] != sources[1].threads[-1]
    assert len(set(sources[1].threads)) == 1


def test_slow_source_leaves_the_round(tmp_path: Path, wait_until: Any) -> None:
    """A source that takes most of the period twice in a row gets its own thread, unasked."""
    sources, rounds, stop, threads = started(tmp_path, 2, 50)
    sources[1].slow_s = 0.04
    wait_until(lambda: len(rounds) >= 2 and sources[0].threads and sources[1].threads[-1] != sources[0].threads[-1])
    stop.set()
    for thread in threads:
        thread.join(10)
