"""What a large fleet costs the master: real snapshot messages of 100 workers, parsed, merged and told, as a share of one core.

    python benchmarks/bench_fleet.py [--workers 100] [--seconds 10]

Messages are packed and unpacked with msgpack as Locust does, so that decoding is paid for. Load is simulated (lognormal latencies, 10 request
names); the network is not. The last line merges 1,000 workers' histograms once.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgpack
import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from truetail import messages
from truetail.fleet import Fleet, State
from truetail.histogram import Histogram
from truetail.inbox import Inbox
from truetail.messages import Hello, Planned

NAMES = [f"response/request-{i}" for i in range(10)]
DIGEST = "a" * 64


def snapshot(worker: int, second: int, rng: np.random.Generator) -> bytes:
    """One worker's cumulative snapshot after so many seconds at 10,000/s: with as many cells in use as a long run has."""
    n = 10_000 * (second + 1)
    series = {}
    for name in ("response", "service", "lateness", *NAMES):
        histogram = Histogram()
        histogram.record_many_ns(rng.lognormal(16.5, 0.6, n if "/" not in name else n // 10).astype(np.int64))
        series[name] = histogram.to_wire()
    ledger = {
        "scheduled": 10**6,
        "sent": n,
        "dropped": 0,
        "unsent": 10**6 - n,
        "ok": n,
        "failed": 0,
        "timed_out": 0,
        "abandoned": 0,
    }
    generator = {"cpu_share": 0.1, "cpu_share_max": 0.2, "loop_stall_max_ms": 1.0, "loop_stall_p99_ms": 0.5}
    data = {"seq": second + 1, "at_ns": second * 10**9, "ledger": ledger, "in_flight": 3, "idle": 97, "backlog": 0, "last_handed_k": n,
            "generator": generator, "series": series, "trouble": ""}  # fmt: skip
    packed: bytes = msgpack.packb(data)
    return packed


def fleet_of(workers: int, folder: Path) -> tuple[Any, dict[str, Any]]:
    """A master that keeps what it is told, with its inbox' listeners by message."""
    listeners: dict[str, Any] = {}
    runner = SimpleNamespace(register_message=lambda kind, listener, concurrent=False: listeners.update({kind: listener}),
                             send_message=lambda *_: None)  # fmt: skip
    master = SimpleNamespace(folder=folder, fleet=Fleet(workers), digest=DIGEST, count=10**8, event=print, stop=print, clock=None)
    for i in range(workers):
        member = master.fleet.hello(f"id{i}", Hello(name=f"w{i}", host="h", pid=1, boot_id="b", versions={}))
        master.fleet.planned(f"id{i}", Planned(digest=DIGEST, count=10**8, slot_count=10**6), DIGEST, 10**8)
        member.state = State.RUNNING
    Inbox(master, runner).register()
    return master, listeners


def main() -> None:
    """Print the share of a core, and what one second of it is made of."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=100)
    parser.add_argument("--seconds", type=int, default=10)
    args = parser.parse_args()
    rng = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        master, listeners = fleet_of(args.workers, Path(folder))
        inbox_s = merge_s = 0.0
        size = 0
        for second in range(args.seconds):
            wire = [snapshot(i, second, rng) for i in range(args.workers)]
            size = len(wire[0])
            begun = time.process_time()
            for i, packed in enumerate(wire):
                data = msgpack.unpackb(packed, strict_map_key=False)
                listeners[messages.SNAPSHOT](environment=None, msg=SimpleNamespace(data=data, node_id=f"id{i}"))
            inbox_s += time.process_time() - begun
            begun = time.process_time()
            merged = master.fleet.merged()
            master.fleet.ledger(10**8)
            merge_s += time.process_time() - begun
            assert merged["response"].n == args.workers * 10_000 * (second + 1)
    print(f"{args.workers} workers, {3 + len(NAMES)} series each, {size / 1000:.1f} kB a snapshot in the last second")
    print(f"inbox {inbox_s / args.seconds:.3f} s, merge and ledger {merge_s / args.seconds:.3f} s of CPU per second of run: "
          f"{(inbox_s + merge_s) / args.seconds:.1%} of a core")  # fmt: skip
    many = []
    for _ in range(1000):
        histogram = Histogram()
        histogram.record_many_ns(rng.lognormal(16.5, 0.6, 2000).astype(np.int64))
        many.append(histogram)
    begun = time.process_time()
    whole = Histogram()
    for histogram in many:
        whole.merge(histogram)
    print(
        f"merge of 1,000 workers' histograms ({np.count_nonzero(many[0].cells)} cells each): {time.process_time() - begun:.3f} s; n = {whole.n:,}"
    )


if __name__ == "__main__":
    main()
