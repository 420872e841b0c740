"""The faults that act on the whole process rather than on a device: stop-the-world pauses and other clients' load."""

from __future__ import annotations

import asyncio
import time

from target.batcher import Job
from target.service import Ask, NotReady, Service
from target.units import NS

LONGEST_NAP_NS = NS // 20
"""While any fault is in force its windows are looked at this often, so that taking one out works at once."""

OTHER_ROW = (285.0, 70.0, 0.0)


async def nap_until(service: Service, due_ns: int) -> None:
    """Sleep until then, or shortly if faults are in force, or until some are."""
    if not service.effects.placed:
        service.changed.clear()
        await service.changed.wait()
        return
    await asyncio.sleep(max(0, min(due_ns - time.monotonic_ns(), LONGEST_NAP_NS)) / NS)


async def stop_the_world(service: Service) -> None:
    """Hold the event loop during pauses. The devices stand still by their pace, so both stop and go together."""
    while True:
        now_ns = time.monotonic_ns()
        until_ns = service.effects.pause_until_ns(now_ns)
        if until_ns is not None:
            time.sleep((until_ns - now_ns) / NS)
        else:
            await nap_until(service, service.effects.next_change_ns(now_ns))


async def other_clients(service: Service) -> None:
    """Send the overload's requests: Poisson, at absolute instants, straight to the queues."""
    due_ns = 0
    while True:
        now_ns = time.monotonic_ns()
        rate, size = service.effects.overload(now_ns)
        if not rate:
            due_ns = 0
            await nap_until(service, service.effects.next_change_ns(now_ns))
            continue
        if not due_ns:
            due_ns = now_ns + round(service.rng.expovariate(rate) * NS)
        while due_ns <= now_ns:
            _send(service, size, now_ns)
            due_ns += round(service.rng.expovariate(rate) * NS)
        await nap_until(service, due_ns)


def _send(service: Service, size: float, now_ns: int) -> None:
    try:
        replica = service.pick(now_ns)
    except NotReady:
        return
    replica.submit(Job(now_ns, 1, size, Ask([OTHER_ROW], replica.name)))
