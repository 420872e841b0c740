"""How well the reference service keeps time: measured through real sockets against theory.

    python benchmarks/bench_target.py [--seconds 20] [--only light,mm1,...] [--json]

The client here is small and independent of the load side: one asyncio process, Poisson arrivals at absolute instants over
kept-alive connections. Times are taken from the moment of sending. Theory: t(b) = a + c b; M/M/1 W = 1/(mu - lambda),
p99 = ln(100) W; the batch figures are those of the lesson's simulation.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import re
import selectors
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

BODY = b'{"t2m_k": 285.1, "rh": 71}'
HEAD = b"POST /predict HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(BODY)
REQUEST = HEAD + BODY
STAGE = re.compile(rb"(\w+);dur=([0-9.]+)")


@dataclass
class Load:
    """What came back: (client latency in ns, whole answer), read after the run: reading would delay what else has come."""

    answers: list[tuple[int, bytes]] = field(default_factory=list)
    latency_ms: list[float] = field(default_factory=list)
    batch: list[int] = field(default_factory=list)
    stages_ms: list[dict[str, float]] = field(default_factory=list)
    refused: int = 0

    def read(self) -> None:
        """Take latencies (ms), batch sizes and stages (ms) from the answers; count the refusals."""
        for latency_ns, data in self.answers:
            head, _, body = data.partition(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 200"):
                self.refused += 1
                continue
            self.latency_ms.append(latency_ns / 1e6)
            self.batch.append(json.loads(body)["batch"])
            self.stages_ms.append({name.decode(): float(value) for name, value in STAGE.findall(head)})


class Connection(asyncio.Protocol):
    """One kept-alive connection with at most one request in flight."""

    def __init__(self, load: Load, idle: list[Connection]) -> None:
        self.load, self.idle = load, idle
        self.sent_ns, self.data = 0, b""
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        """Ready for a request."""
        self.transport = transport

    def send(self) -> None:
        """Send the request now."""
        self.sent_ns = time.monotonic_ns()
        self.transport.write(REQUEST)

    def data_received(self, data: bytes) -> None:
        """Note the answer once it is whole."""
        done_ns = time.monotonic_ns()
        self.data += data
        if not self.data.endswith(b"}"):
            return
        self.load.answers.append((done_ns - self.sent_ns, self.data))
        self.data = b""
        self.idle.append(self)


async def poisson_load(port: int, rate: float, seconds: float, seed: int) -> Load:
    """Poisson arrivals for so many seconds, open loop; ends when all are answered (or after 10 s)."""
    loop, load, rng = asyncio.get_running_loop(), Load(), random.Random(seed)
    idle: list[Connection] = []
    connections = [
        (await loop.create_connection(lambda: Connection(load, idle), "127.0.0.1", port))[1] for _ in range(int(40 + rate / 4))
    ]
    idle.extend(connections)
    start, at, sent = loop.time() + 0.1, 0.0, 0
    while (at := at + rng.expovariate(rate)) < seconds:
        if (wait := start + at - loop.time()) > 0:
            await asyncio.sleep(wait)
        if not idle:
            raise SystemExit("the client ran out of connections: the service is behind, nothing can be said")
        idle.pop().send()
        sent += 1
    deadline = loop.time() + 10
    while len(load.answers) < sent and loop.time() < deadline:
        await asyncio.sleep(0.01)
    for connection in connections:
        connection.transport.close()
    load.read()
    return load


FLOOR = r"""
import asyncio
ANSWER = (b'HTTP/1.1 200 OK\r\nserver-timing: queue;dur=0, preprocess;dur=0, inference;dur=0, postprocess;dur=0\r\n'
          b'content-length: 11\r\n\r\n{"batch":1}')
class Echo(asyncio.Protocol):
    def connection_made(self, transport): self.transport = transport
    def data_received(self, data): self.transport.write(ANSWER)
async def main():
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0)
    print(f"ready on http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()
asyncio.run(main())
"""
"""A server that answers at once without reading anything: what client, sockets and machine cost by themselves."""


@contextmanager
def target(*flags: str) -> Iterator[int]:
    """A service process with these flags (or the floor); its port once it is ready."""
    command = ["-c", FLOOR] if flags == ("floor",) else ["-m", "target", *flags]
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("ready on "):
                yield int(line.rsplit(":", 1)[1])
                break
    finally:
        process.terminate()
        process.wait(10)


def percentile(values: list[float], share: float) -> float:
    """Nearest rank."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


FIFO_50 = ("--mode", "fifo", "--service", "exponential", "--service-mean", "20ms", "--seed", "3")
BATCH = ("--mode", "batch", "--a", "10ms", "--c", "0.5ms", "--max-batch", "16", "--max-delay", "2ms")
SHARED = ("--mode", "shared", "--service", "fixed", "--service-mean", "50ms")
NOTHING = ("--mode", "batch", "--a", "0", "--c", "0", "--max-delay", "0", "--max-batch", "64")
CASES: dict[str, tuple[tuple[str, ...], float, str]] = {
    "floor100": (("floor",), 100, "a socket that answers at once, 100/s: the floor of client and machine"),
    "light": (BATCH, 20, "batch, 20/s: theory mean 13.2 ms"),
    "batch400": (BATCH, 400, "batch, 400/s: theory batch 5.0, mean 19.3, p99 27.7 ms"),
    "batch800": (BATCH, 800, "batch, 800/s: theory batch 13.3, mean 28, p99 48-49 ms"),
    "mm1": (FIFO_50, 25, "M/M/1, 25/s, mu 50: theory mean 40, p99 184 ms"),
    "shared": (SHARED, 10, "shared, 10/s of 50 ms: M/D/1-PS, theory mean 100 ms"),
    "bare100": (NOTHING, 100, "no device time, 100/s: what the service itself adds"),
    "bare500": (NOTHING, 500, "no device time, 500/s"),
    "bare1000": (NOTHING, 1000, "no device time, 1000/s"),
}


def measure(case: str, seconds: float, seed: int) -> dict[str, Any]:
    """One case: the client's latency, and its excess over the planned queue and device time."""
    flags, rate, text = CASES[case]
    # select() takes microseconds where epoll's timeout is whole milliseconds.
    precise = asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector()))
    with target(*flags) as port, precise as runner:
        load = runner.run(poisson_load(port, rate, seconds, seed))
    excess = [ms - stage["queue"] - stage["inference"] for ms, stage in zip(load.latency_ms, load.stages_ms, strict=True)]
    inside = [stage["preprocess"] + stage["postprocess"] for stage in load.stages_ms]
    return {
        "case": case, "text": text, "n": len(load.latency_ms), "refused": load.refused,
        "mean_ms": float(np.mean(load.latency_ms)), "p99_ms": percentile(load.latency_ms, 0.99),
        "mean_batch": len(load.batch) / sum(1 / b for b in load.batch),
        "excess_p50_ms": percentile(excess, 0.5), "excess_p99_ms": percentile(excess, 0.99),
        "inside_p50_ms": percentile(inside, 0.5),
    }  # fmt: skip


def main() -> None:
    """Measure and print a line per case."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--seconds", type=float, default=20)
    flags.add_argument("--seed", type=int, default=1)
    flags.add_argument("--only", default=",".join(CASES), help=f"cases, by commas: {', '.join(CASES)}")
    flags.add_argument("--json", action="store_true", help="a JSON line per case")
    args = flags.parse_args()
    for case in args.only.split(","):
        if case not in CASES:
            flags.error(f"no case {case!r}")
        figures = measure(case, args.seconds, args.seed)
        if args.json:
            print(json.dumps(figures, allow_nan=False), flush=True)
            continue
        print(
            "{text}\n    n {n}, refused {refused}: mean {mean_ms:.2f}, p99 {p99_ms:.2f} ms, mean batch {mean_batch:.2f}; "
            "over planned queue and device time: p50 {excess_p50_ms:.2f}, p99 {excess_p99_ms:.2f} ms "
            "(of this in the service: p50 {inside_p50_ms:.2f})".format(**figures),
            flush=True,
        )


if __name__ == "__main__":
    main()
