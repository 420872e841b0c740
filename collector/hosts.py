"""The machine that the collector runs on: CPU, memory, page faults, context switches, network. Counters where there are any."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

FOLDER = "host"
LOOPBACK = ("lo", "lo0", "Loopback Pseudo-Interface 1")


def page_faults() -> dict[str, int]:
    """Page faults since boot (all, and major ones that waited for a disk); empty where /proc/vmstat is not offered."""
    if not sys.platform.startswith("linux"):
        return {}
    try:
        with Path("/proc/vmstat").open(encoding="ascii") as lines:
            found = dict(line.split() for line in lines if line.startswith(("pgfault ", "pgmajfault ")))
    except (OSError, ValueError):
        return {}
    names = {"pgfault": "page_faults_total", "pgmajfault": "major_page_faults_total"}
    return {names[key]: int(value) for key, value in found.items()}


def network() -> dict[str, int]:
    """Bytes, packets, errors and drops since boot: real interfaces summed, loopback apart."""
    values: dict[str, int] = {}
    for name, io in psutil.net_io_counters(pernic=True).items():
        prefix = "loopback" if name in LOOPBACK else "network"
        told = {
            "sent_bytes_total": io.bytes_sent,
            "received_bytes_total": io.bytes_recv,
            "sent_packets_total": io.packets_sent,
            "received_packets_total": io.packets_recv,
            "errors_total": io.errin + io.errout,
            "dropped_total": io.dropin + io.dropout,
        }
        for key, value in told.items():
            values[f"{prefix}_{key}"] = values.get(f"{prefix}_{key}", 0) + value
    return values


class Host:
    """This machine as a source."""

    folder = FOLDER

    def __init__(self, name: str) -> None:
        self.name = name
        self.key: Mapping[str, Any] = {}

    def read(self, now_ns: int) -> Mapping[str, Any]:
        """One sample; seconds of CPU time are summed over all CPUs (``cpu_count`` is in the file's header)."""
        cpu, memory, swap, stats = psutil.cpu_times(), psutil.virtual_memory(), psutil.swap_memory(), psutil.cpu_stats()
        values: dict[str, Any] = {
            f"cpu_{mode}_s_total": round(getattr(cpu, mode), 2)
            for mode in ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
            if hasattr(cpu, mode)
        }
        values |= {
            "memory_total_bytes": memory.total,
            "memory_used_bytes": memory.total - memory.available,
            "swap_used_bytes": swap.used,
            "context_switches_total": stats.ctx_switches,
            "interrupts_total": stats.interrupts,
        }
        if hasattr(os, "getloadavg"):
            values["load_1min"] = os.getloadavg()[0]
        return values | page_faults() | network()
