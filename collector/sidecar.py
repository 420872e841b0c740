"""The sidecar's life: sources and their threads started, watched once in a while, and ended in good order."""

from __future__ import annotations

import argparse
import os
import select
import socket
import stat
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from collector import gpus, hosts, simulated
from collector.clocks import NANOSECONDS, Ticks, anchor
from collector.epoch import describe, read_epoch
from collector.events import Events
from collector.exposition import Page, serve
from collector.fetch import shown
from collector.gpu_fields import UNITS
from collector.journal import Journal, safe_name
from collector.prometheus import Endpoint
from collector.rounds import Round
from collector.sampler import Sampler, Source

WATCH_S = 0.2
ANCHOR_NS = 10 * NANOSECONDS
EPOCH_NS = NANOSECONDS
GPU_START_S = 10.0
JOIN_S = 2.5  # a scrape under way ends within its own bound of 2 s


def boot_id() -> str:
    """Tells one boot of one machine from another: equal ids share a monotonic clock. "" where it is not offered."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


class Sidecar:
    """Everything that runs. ``start``, then ``watch`` every fifth of a second, then ``finish``."""

    def __init__(self, args: argparse.Namespace, stop: threading.Event) -> None:
        self.args, self.stop = args, stop
        self.out: Path = args.out
        self.host = safe_name(args.host_name or socket.gethostname())
        self.events = Events(self.out, self.host)
        self.samplers: list[Sampler] = []
        self.rounds: list[Round] = []
        self.threads: list[threading.Thread] = []
        self.gpus_found = threading.Event()
        self.epoch_file: Path = args.epoch_file or self.out / "run.json"
        self.epoch_wall_ns: int | None = None
        self.parent: int = args.exit_with_parent or os.getppid()
        self._anchor_at_ns = self._epoch_at_ns = 0
        self._complained: dict[int, str] = {}

    def start(self) -> int:
        """Start all sources; returns the port of /metrics (-1: none). Raises OSError when that port is taken."""
        args = self.args
        port = -1 if args.metrics_port < 0 else serve(Page(self.samplers, self.events, self.host), args.metrics_port)
        if args.gpu != "no":
            self._thread("discover", gpus.discover, args.gpu, self.events, self._gpus, self.stop)
        for item in args.prometheus:
            journal = self._journal(
                "server", item.name, "prometheus", args.server_period, url=shown(item.url), families=item.patterns
            )
            self._sample([Endpoint(item.name, item.url, item.patterns, journal, item.token)], journal, args.server_period)
        for name, url in args.simulated:
            source = simulated.SimulatedDevice(name, url)
            note = "simulated device of the reference service; not measured on a GPU"
            journal = self._journal("gpu", source.name, "simulated", args.period, url=shown(url), simulated=True, note=note)
            self._sample([source], journal, args.period)
        if not args.no_host:
            journal = self._journal("host", self.host, "host", args.host_period, cpu_count=psutil.cpu_count())
            self._sample([hosts.Host(self.host)], journal, args.host_period)
        return port

    def wait_for_gpu(self) -> bool:
        """For ``--gpu yes``: whether a GPU was found before the deadline."""
        discovering = self.threads[0]
        deadline = time.monotonic() + GPU_START_S
        while discovering.is_alive() and time.monotonic() < deadline and not self.gpus_found.wait(0.05):
            pass
        return self.gpus_found.is_set()

    def watch(self, now_ns: int) -> None:
        """Look after everything once: hung calls, anchors, the epoch, full disks, the parent."""
        for it in list(self.rounds):
            it.rescue(now_ns)
        for sampler in list(self.samplers):
            sampler.watch(now_ns)
            self._complain(sampler.journal)
        if now_ns >= self._anchor_at_ns:
            self._anchor_at_ns = now_ns + ANCHOR_NS
            for journal in self._journals():
                journal.anchor(anchor())
        if self.epoch_wall_ns is None and now_ns >= self._epoch_at_ns:
            self._epoch_at_ns = now_ns + EPOCH_NS
            self.epoch_wall_ns = read_epoch(self.epoch_file)
            if self.epoch_wall_ns is not None:
                for journal in self._journals():
                    journal.append({"epoch": describe(self.epoch_wall_ns, anchor())})
        if self.args.exit_with_parent is not None and self._parent_gone():
            self.stop.set()

    def finish(self) -> bool:
        """End: last anchors and totals written, threads awaited for a moment; False when one hangs in a call."""
        self.stop.set()
        deadline = time.monotonic() + JOIN_S
        for thread in self.threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        for sampler in self.samplers:
            done = sampler.progress
            counts = {"samples": done.samples, "missed": done.missed, "failures": done.failures, "late_ns_max": done.late_ns_max}
            sampler.journal.append({"end": {**sampler.source.key, **counts, "dropped_lines": sampler.journal.dropped}})
        for journal in self._journals():
            journal.anchor(anchor())
            journal.close()
        return not any(thread.is_alive() for thread in self.threads)

    def _gpus(self, found: list[gpus.Gpu], driver: str) -> None:
        journal = self._journal("gpu", self.host, "nvml", self.args.period, driver=driver, gpus=len(found))
        self._sample(found, journal, self.args.period)
        self.gpus_found.set()

    def _journal(self, folder: str, name: str, source: str, period_ns: int, **more: Any) -> Journal:
        header: Mapping[str, Any] = {
            "content": "samples", "source": source, "name": name, "host": self.host, "boot_id": boot_id(), "pid": os.getpid(),
            "period_ns": period_ns, "units": UNITS, **more,
        }  # fmt: skip
        journal = Journal(self.out / folder, name, header)
        journal.anchor(anchor())
        return journal

    def _sample(self, sources: Sequence[Source], journal: Journal, period_ns: int) -> None:
        """Sample these together from the next multiple of the period on."""
        start_ns = (time.monotonic_ns() // period_ns + 1) * period_ns
        samplers = [Sampler(source, journal, self.events, Ticks(start_ns, period_ns)) for source in sources]
        self.samplers.extend(samplers)
        self._round(Round(samplers, self.stop, self._round))

    def _round(self, it: Round) -> None:
        self.rounds.append(it)
        self._thread(f"round-{len(self.rounds)}", it.run)

    def _thread(self, name: str, run: Any, *arguments: Any) -> None:
        thread = threading.Thread(target=run, args=arguments, name=name, daemon=True)
        self.threads.append(thread)
        thread.start()

    def _journals(self) -> list[Journal]:
        return list({id(sampler.journal): sampler.journal for sampler in list(self.samplers)}.values())

    def _complain(self, journal: Journal) -> None:
        """Say once when a file cannot be written, and once when it can again."""
        if self._complained.get(id(journal), "") != journal.error:
            self._complained[id(journal)] = journal.error
            text = journal.error or f"{journal.name}: writing again, {journal.dropped} lines were lost"
            self.events(journal.folder.name, journal.name, "file-trouble", text, dropped=journal.dropped)

    def _parent_gone(self) -> bool:
        """The parent process ended, or closed its end of a pipe on stdin (/dev/null and terminals say nothing)."""
        if os.getppid() != self.parent:
            return True
        try:
            kind = os.fstat(0).st_mode
            if not (stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)):
                return False
            readable, _, _ = select.select([0], [], [], 0)
            return bool(readable) and os.read(0, 4096) == b""
        except OSError:
            return False


def announce(sidecar: Sidecar, port: int) -> None:
    """One line on stderr that says what was started."""
    sources = ", ".join(f"{s.source.folder}/{s.source.name}" for s in sidecar.samplers) or "nothing but GPUs"
    page = f"; metrics on http://127.0.0.1:{port}/metrics" if port >= 0 else ""
    sys.stderr.write(f"collector: sampling {sources} into {sidecar.out}{page}\n")  # in one piece: other threads log there too
    sys.stderr.flush()
