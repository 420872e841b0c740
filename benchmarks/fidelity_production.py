"""The traffic of a production stand-in: open-loop HTTP requests from the standard library alone.

    python benchmarks/fidelity_production.py --url http://127.0.0.1:8000/predict --law gamma:2 --rate 60 --seconds 180 --seed 1

It shares no code with Truetail, so that a fault of Truetail's schedules or clients cannot hide by being on both sides of the
comparison. What counts as production's arrivals is what the server's access log says, not what was planned here: this sender may be
a millisecond late without harm. Prints one line of JSON: how many were sent and answered, and how late the sends were.
"""

import argparse
import asyncio
import itertools
import json
import random
import sys
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

BODY = json.dumps({"t2m_k": 285.4, "rh": 72}).encode()
DEADLINE_S = 30.0
KEPT_S = 2.0  # servers close connections that were idle for long (uvicorn: 5 s); a request must not meet that
ON_OFF_PHASE_S = 1.0
ON_OFF_SWING = 0.75


def gaps(law: str, rate_rps: float, random_: random.Random) -> Iterator[float]:
    """Gaps in seconds, without end: ``poisson``, ``gamma:CV`` or ``on-off`` (Poisson at 1.75 and 0.25 of the rate in turn,
    phases exponential of 1 s). Raises ValueError for another law.
    """
    name, _, parameter = law.partition(":")
    if law == "poisson":
        while True:
            yield random_.expovariate(rate_rps)
    elif name == "gamma":
        shape = 1 / float(parameter) ** 2
        while True:
            yield random_.gammavariate(shape, 1 / (shape * rate_rps))
    elif law == "on-off":
        yield from _on_off(rate_rps, random_)
    else:
        raise ValueError(f"found the law {law!r}; allowed are poisson, gamma:CV, on-off")


def _on_off(rate_rps: float, random_: random.Random) -> Iterator[float]:
    sign, left_s, gap_s = 1, random_.expovariate(1 / ON_OFF_PHASE_S), 0.0
    while True:
        step_s = random_.expovariate(rate_rps * (1 + sign * ON_OFF_SWING))
        if step_s < left_s:
            left_s -= step_s
            yield gap_s + step_s
            gap_s = 0.0
        else:  # exponential gaps have no memory, so a new one may be drawn where the rate changes
            gap_s, sign, left_s = gap_s + left_s, -sign, random_.expovariate(1 / ON_OFF_PHASE_S)


def instants(law: str, rate_rps: float, seconds: float, seed: int) -> list[float]:
    """The planned instants in seconds from the start, below ``seconds``."""
    times = itertools.accumulate(gaps(law, rate_rps, random.Random(seed)))
    return list(itertools.takewhile(lambda at: at < seconds, times))


class Sender:
    """Sends on kept connections: an idle one if there is one, else a new one, so no request ever waits for another."""

    def __init__(self, url: str, body: bytes = BODY) -> None:
        parts = urlsplit(url)
        self.host, self.port = parts.hostname or "127.0.0.1", parts.port or 80
        head = f"POST {parts.path or '/'} HTTP/1.1\r\nhost: {parts.netloc}\r\ncontent-type: application/json\r\n"
        self.request = head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body
        self.idle: list[tuple[float, asyncio.StreamReader, asyncio.StreamWriter]] = []
        self.answered = self.failed = 0
        self.late_s: list[float] = []

    def fresh(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """The connection that was used last, if that is not long ago."""
        while self.idle:
            since, reader, writer = self.idle.pop()
            if asyncio.get_running_loop().time() - since < KEPT_S:
                return reader, writer
            writer.close()
        return None

    async def send(self) -> None:
        """One request, counted as answered (status 200) or failed."""
        try:
            async with asyncio.timeout(DEADLINE_S):
                reader, writer = self.fresh() or await asyncio.open_connection(self.host, self.port)
                writer.write(self.request)
                head = await reader.readuntil(b"\r\n\r\n")
                lengths = [line[15:] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                await reader.readexactly(int(lengths[0]))
        except (OSError, TimeoutError, EOFError, IndexError, ValueError):
            self.failed += 1
            return
        self.idle.append((asyncio.get_running_loop().time(), reader, writer))
        ok = head.split(b" ", 2)[1] == b"200"
        self.answered += ok
        self.failed += not ok

    async def send_all(self, times_s: list[float]) -> None:
        """Each at its instant, whatever became of those before it; returns when all have ended."""
        loop = asyncio.get_running_loop()
        start, tasks = time.monotonic() + 0.2, []

        def begin(at: float) -> None:
            self.late_s.append(time.monotonic() - start - at)
            tasks.append(loop.create_task(self.send()))

        def tick() -> None:
            for at in times_s:
                time.sleep(max(0.0, start + at - time.monotonic()))
                loop.call_soon_threadsafe(begin, at)

        # A thread keeps the time: the event loop's own timers are rounded to a millisecond, which bunches the arrivals.
        await asyncio.to_thread(tick)
        await asyncio.sleep(0)
        await asyncio.gather(*tasks)
        for *_, writer in self.idle:
            writer.close()


def main() -> int:
    """Send the traffic; exit code 1 when any request failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True)
    parser.add_argument("--law", default="poisson", help="poisson, gamma:CV, on-off")
    parser.add_argument("--rate", type=float, default=60.0, help="requests per second")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--body", default=BODY.decode(), help="JSON text that every request carries")
    args = parser.parse_args()
    times_s = instants(args.law, args.rate, args.seconds, args.seed)
    sender = Sender(args.url, args.body.encode())
    asyncio.run(sender.send_all(times_s))
    late = sorted(sender.late_s)
    told = {"sent": len(late), "answered": sender.answered, "failed": sender.failed}
    print(json.dumps(told | {"late_p99_ms": round(1e3 * late[len(late) * 99 // 100], 3)}))
    return 1 if sender.failed else 0


if __name__ == "__main__":
    sys.exit(main())
