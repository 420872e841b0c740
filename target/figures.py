"""What the simulated device would tell a monitor: busy share, memory, clock, throttling, power. Pure.

A simple model, said to be one (``source: simulated``): power is idle power plus a dynamic part in proportion to busy share and
clock. With a real model only what was measured is told; the rest is absent.
"""

from __future__ import annotations

from typing import Any

from target.effects import Effects
from target.replica import Replica
from target.units import NS

CLOCK_MHZ = 1410.0
MEMORY_BYTES = 16 * 2**30
WEIGHTS_BYTES = 2 * 2**30
INSTANCE_BYTES = 32 * 2**20
IDLE_W, DYNAMIC_W = 60.0, 190.0


def source_of(measured: bool) -> str:
    """The source's name: "simulated", or "service" when a real model runs."""
    return "service" if measured else "simulated"


def device_figures(replica: Replica, effects: Effects, now_ns: int) -> dict[str, Any]:
    """The figures of one replica's device now; ``busy_share`` is that of the last second."""
    with replica.device.changed:
        station = replica.station
        share, busy_ns = station.busy.share(now_ns), station.busy.busy_ns(now_ns)
        waiting, running = station.waiting(), station.running()
    figures: dict[str, Any] = {
        "index": replica.index,
        "replica": replica.name,
        "busy_share": round(share, 6),
        "busy_seconds_total": busy_ns / NS,
        "batch_size": running,
        "queue_length": waiting,
    }
    if replica.model.measured:
        return figures
    clock = effects.clock_share(replica.index, now_ns)
    own_bytes = WEIGHTS_BYTES + min(running * INSTANCE_BYTES, MEMORY_BYTES - WEIGHTS_BYTES)
    pressed_bytes = int(effects.memory_share(replica.index, now_ns) * MEMORY_BYTES)
    figures.update(
        name="simulated accelerator",
        memory_used_bytes=max(own_bytes, pressed_bytes),
        memory_total_bytes=MEMORY_BYTES,
        clock_mhz=round(CLOCK_MHZ * clock, 1),
        clock_max_mhz=CLOCK_MHZ,
        throttling=clock < 1,
        throttle_reasons=["thermal_slowdown"] if clock < 1 else [],
        power_w=round(IDLE_W + DYNAMIC_W * share * clock, 3),
    )
    return figures
