"""``python -m collector``: parse, start, watch until told to end."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading
import time

from collector.clocks import NANOSECONDS
from collector.options import parse
from collector.sidecar import WATCH_S, Sidecar, announce

SWITCH_S = 0.001  # a scrape being parsed must not hold up a GPU's tick by the interpreter's default of 5 ms


def main(arguments: list[str] | None = None) -> int:
    """Run the collector; the exit code: 0 ended in order, 2 wrong usage, no writable folder, no GPU with ``--gpu yes``."""
    args = parse(arguments)
    logging.basicConfig(level=logging.WARNING, format="collector: %(message)s", stream=sys.stderr)
    sys.setswitchinterval(SWITCH_S)
    stop = threading.Event()
    told: list[int] = []  # signals; a handler that set the event could meet its own lock held by the code it interrupts
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: told.append(number))
    try:
        args.out.mkdir(parents=True, exist_ok=True)
        sidecar = Sidecar(args, stop)
        port = sidecar.start()
    except OSError as error:
        print(f"collector: cannot start: {error.filename or ''} {error.strerror or error}".replace("  ", " "), file=sys.stderr)
        return 2
    if args.gpu == "yes" and not sidecar.wait_for_gpu():
        print("collector: --gpu yes, but no GPU was found", file=sys.stderr)
        sidecar.finish()
        return 2
    announce(sidecar, port)
    gc.collect()
    gc.freeze()  # what lives now lives to the end: later collections need not walk it
    end_ns = time.monotonic_ns() + args.duration if args.duration else None
    while not told and not stop.is_set() and (end_ns is None or time.monotonic_ns() < end_ns):
        sidecar.watch(time.monotonic_ns())
        left = WATCH_S if end_ns is None else min(WATCH_S, (end_ns - time.monotonic_ns()) / NANOSECONDS)
        time.sleep(max(0.0, left))
    if not sidecar.finish():
        sys.stderr.flush()
        os._exit(0)  # a thread hangs in a driver call: the interpreter would wait for it; the files are closed
    return 0


if __name__ == "__main__":
    sys.exit(main())
