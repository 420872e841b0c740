"""What the active faults do, at any instant: the one place where descriptions become speeds, delays, sizes and absences."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from target.faults import (
    ColdStart,
    DependencyStall,
    Deploy,
    Fault,
    MemoryPressure,
    NetworkDelay,
    Overload,
    OversizedInputs,
    Pause,
    QueueDelay,
    SlowPreprocess,
    Throttle,
)
from target.units import NEVER_NS, to_ns

F = TypeVar("F", bound=Fault)


@dataclass(slots=True)
class Placed:
    """A fault and the instant that its window counts from; ``served`` counts the requests per replica of a cold start."""

    id: int
    fault: Fault
    origin_ns: int
    served: dict[int, int] = field(default_factory=dict)

    def active(self, at_ns: int) -> bool:
        """Whether its window is open."""
        return self.fault.window(at_ns - self.origin_ns)[0]

    def next_change_ns(self, at_ns: int) -> int:
        """The instant at which its window opens or closes next."""
        return min(NEVER_NS, self.origin_ns + self.fault.window(at_ns - self.origin_ns)[1])


class Effects:
    """The faults in force. Changed by the event loop only; device threads read ``placed``, a tuple replaced as a whole."""

    def __init__(self, seed: int = 0) -> None:
        self.placed: tuple[Placed, ...] = ()
        self._rng = random.Random(f"{seed}/effects")
        self._next_id = 1

    def add(self, fault: Fault, origin_ns: int) -> Placed:
        """Put a fault in force; its window counts from ``origin_ns``."""
        placed = Placed(self._next_id, fault, origin_ns)
        self._next_id += 1
        self.placed += (placed,)
        return placed

    def remove(self, fault_id: int) -> bool:
        """Take a fault out; False: there is none with this id."""
        before = len(self.placed)
        self.placed = tuple(placed for placed in self.placed if placed.id != fault_id)
        return len(self.placed) < before

    def clear(self) -> None:
        """Take all faults out."""
        self.placed = ()

    def active(self, kind: type[F], at_ns: int) -> Iterator[F]:
        """The faults of a kind whose windows are open."""
        for placed in self.placed:
            if isinstance(placed.fault, kind) and placed.active(at_ns):
                yield placed.fault

    def preprocess(self, at_ns: int) -> tuple[float, float]:
        """Extra seconds of preprocessing: waiting, and computing on the event loop."""
        faults = list(self.active(SlowPreprocess, at_ns)) if self.placed else []
        return sum(fault.delay for fault in faults if not fault.cpu), sum(fault.delay for fault in faults if fault.cpu)

    def network_s(self, at_ns: int) -> float:
        """Extra seconds on the way here; drawn anew for each request when there is jitter."""
        if not self.placed:
            return 0.0
        return sum(fault.delay + self._rng.uniform(0, fault.jitter) for fault in self.active(NetworkDelay, at_ns))

    def dependency_s(self, at_ns: int) -> float:
        """Seconds that the dependency takes."""
        return sum(fault.delay for fault in self.active(DependencyStall, at_ns)) if self.placed else 0.0

    def queue_s(self, at_ns: int) -> float:
        """Extra seconds before a request may join a batch."""
        return sum(fault.delay for fault in self.active(QueueDelay, at_ns)) if self.placed else 0.0

    def size_factor(self, at_ns: int) -> float:
        """By how much the next request is larger than it says (1: it is not)."""
        factor = 1.0
        for fault in self.active(OversizedInputs, at_ns) if self.placed else ():
            if self._rng.random() < fault.share:
                factor *= fault.size
        return factor

    def overload(self, at_ns: int) -> tuple[float, float]:
        """Rate (1/s) of the other clients' requests, and their mean size."""
        faults = list(self.active(Overload, at_ns))
        rate = sum(fault.rate for fault in faults)
        return rate, sum(fault.rate * fault.size for fault in faults) / rate if rate else 1.0

    def pause_until_ns(self, at_ns: int) -> int | None:
        """When the pause that is on now ends; None: there is none. A pause of one replica does not stop the event loop."""
        ends = [p.next_change_ns(at_ns) for p in self.placed if _stops_the_world(p.fault) and p.active(at_ns)]
        return max(ends, default=None)

    def next_change_ns(self, at_ns: int) -> int:
        """The next instant at which any window opens or closes; NEVER_NS: none will."""
        return min((placed.next_change_ns(at_ns) for placed in self.placed), default=NEVER_NS)

    def down(self, replica: int, at_ns: int) -> bool:
        """Whether a deployment has this replica out of service."""
        for placed in self.placed:
            fault = placed.fault
            if isinstance(fault, Deploy) and fault.hits(replica):
                turn = 0 if fault.replica is not None else replica
                if fault.window(at_ns - placed.origin_ns, turn * to_ns(fault.duration))[0]:
                    return True
        return False

    def memory_share(self, replica: int, at_ns: int) -> float:
        """Share of the device's memory that other things hold; 0 without memory pressure."""
        return max((fault.used for fault in self.active(MemoryPressure, at_ns) if fault.hits(replica)), default=0.0)

    def clock_share(self, replica: int, at_ns: int) -> float:
        """The device's clock as a share of its nominal one."""
        share = 1.0
        for fault in self.active(Throttle, at_ns):
            share /= fault.factor if fault.hits(replica) else 1.0
        return share


def _stops_the_world(fault: Fault) -> bool:
    return isinstance(fault, Pause) and fault.replica is None


class ReplicaPace:
    """How one replica's device gets on under the faults; the ``station.Pace`` that is shipped."""

    def __init__(self, effects: Effects, replica: int) -> None:
        self._effects = effects
        self._replica = replica

    def speed(self, at_ns: int) -> tuple[float, int]:
        """Speed (1 = undisturbed, 0 = standing still), and the instant until which it holds."""
        speed, until_ns = 1.0, NEVER_NS
        for placed in self._effects.placed:
            fault = placed.fault
            if not (fault.slowdown or isinstance(fault, Pause)) or not fault.hits(self._replica):
                continue
            until_ns = min(until_ns, placed.next_change_ns(at_ns))
            if placed.active(at_ns):
                speed *= 0.0 if isinstance(fault, Pause) else 1.0 / float(getattr(fault, "factor", 1.0))
        return speed, until_ns

    def finish_ns(self, start_ns: int, work_ns: float) -> int:
        """The instant at which work begun at ``start_ns`` is done: speed integrated from window to window."""
        if not self._effects.placed:
            return start_ns + round(work_ns)
        at_ns, left_ns = start_ns, work_ns
        while True:
            speed, until_ns = self.speed(at_ns)
            if speed > 0 and left_ns <= (until_ns - at_ns) * speed:
                return at_ns + round(left_ns / speed)
            if until_ns >= NEVER_NS:
                return NEVER_NS
            left_ns -= (until_ns - at_ns) * speed
            at_ns = until_ns

    def work_ns(self, start_ns: int, end_ns: int) -> float:
        """Work done between two instants: the integral of the speed."""
        work, at_ns = 0.0, start_ns
        while at_ns < end_ns:
            speed, until_ns = self.speed(at_ns)
            step_ns = min(until_ns, end_ns)
            work += (step_ns - at_ns) * speed
            at_ns = step_ns
        return work

    def dearer(self, jobs: int, at_ns: int) -> float:
        """Factor on the work of the next ``jobs`` jobs: a cold start's, while its requests last."""
        factor = 1.0
        for placed in self._effects.placed:
            fault = placed.fault
            if isinstance(fault, ColdStart) and fault.hits(self._replica) and placed.active(at_ns):
                served = placed.served.get(self._replica, 0)
                if served < fault.requests:
                    factor *= fault.factor
                    placed.served[self._replica] = served + jobs
        return factor

    def batch_limit(self, at_ns: int) -> int:
        """The largest batch that memory allows; ``sys.maxsize`` without memory pressure."""
        if not self._effects.placed:
            return sys.maxsize
        pressures = self._effects.active(MemoryPressure, at_ns)
        return min((f.max_batch for f in pressures if f.max_batch and f.hits(self._replica)), default=sys.maxsize)
