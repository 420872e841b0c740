"""A bad network between a namespace and the bridge, in user space: delay, jitter and loss of Ethernet frames (for kernels without netem).

    python link.py NAMESPACE OUTSIDE      then lines on standard input: DELAY_S JITTER_S LOSS DELAY_BACK_S

Two TAP devices, ``eth0`` in the namespace and OUTSIDE on this side; frames go from one to the other in order. Loss is random
with a fixed seed. Ends at the end of standard input. Prints "ready" once both devices are there.
"""

import contextlib
import ctypes
import fcntl
import heapq
import os
import random
import select
import struct
import sys
import time
from pathlib import Path

TUNSETIFF, TAP, NO_INFO = 0x400454CA, 0x0002, 0x1000
NEWNET = 0x40000000
MOST_QUEUED = 10_000


def tap(name):
    """A TAP device in the present namespace."""
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH", name.encode(), TAP | NO_INFO))
    return fd


def enter(path):
    """Go into a network namespace; devices made from here on lie there, open ones stay where they are."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path(path).open() as namespace:
        if libc.setns(namespace.fileno(), NEWNET):
            raise OSError(ctypes.get_errno(), "setns")


def main():
    """Forward until standard input ends."""
    namespace, outside = sys.argv[1:]
    outer = tap(outside)
    with Path("/proc/self/ns/net").open() as home:
        enter(f"/run/netns/{namespace}")
        inner = tap("eth0")
        ctypes.CDLL(None).setns(home.fileno(), NEWNET)
    print("ready", flush=True)
    chance = random.Random(1)
    delay_s, jitter_s, loss, back_s = 0.0, 0.0, 0.0, 0.0
    queue, last_due, number = [], {inner: 0.0, outer: 0.0}, 0
    while True:
        wait_s = max(0.0, queue[0][0] - time.monotonic()) if queue else None
        ready, _, _ = select.select([sys.stdin, inner, outer], [], [], wait_s)
        if sys.stdin in ready:
            line = sys.stdin.readline()
            if not line:
                return
            delay_s, jitter_s, loss, back_s = map(float, line.split())
        now = time.monotonic()
        for fd in {inner, outer} & set(ready):
            frame = os.read(fd, 65536)
            if len(queue) >= MOST_QUEUED or chance.random() < loss:
                continue
            to = outer if fd == inner else inner
            due = now + (delay_s if fd == inner else back_s) + chance.uniform(-jitter_s, jitter_s)
            last_due[to] = max(last_due[to], due)  # a link keeps the order
            number += 1
            heapq.heappush(queue, (last_due[to], number, to, frame))
        while queue and queue[0][0] <= time.monotonic():
            *_, to, frame = heapq.heappop(queue)
            with contextlib.suppress(OSError):  # the device is down or full: a lost frame, as on a wire
                os.write(to, frame)


if __name__ == "__main__":
    main()
