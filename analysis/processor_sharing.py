"""Processor sharing: n kernels that interleave on one device each run at 1/n of its speed."""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from analysis.queueing import Steady, utilisation


def mg1_ps(arrival_rps: float, service_s: float) -> Steady:
    """M/G/1-PS: E[response] = E[S] / (1 - rho), whatever the distribution of S (Sakata, Noguchi and Oizumi 1971)."""
    rho = utilisation(arrival_rps, service_s)
    response_s = service_s / (1 - rho)
    source = "Sakata, Noguchi and Oizumi 1971"
    return Steady("M/G/1-PS", source, rho, response_s - service_s, response_s, arrival_rps * response_s)


def simulate(arrivals_s: NDArray[np.float64], work_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Response times (s) of requests that arrive at sorted ``arrivals_s`` and would take ``work_s`` alone.

    In virtual time, which advances at 1/n of real time while n are inside, each request leaves at (its entry + its work): the
    next to leave is the top of a heap. O(n log n).
    """
    arrivals, work = np.asarray(arrivals_s, dtype=float).tolist(), np.asarray(work_s, dtype=float).tolist()
    if len(arrivals) != len(work):
        raise ValueError(f"{len(arrivals)} arrivals but {len(work)} amounts of work")
    response = np.empty(len(arrivals))
    inside: list[tuple[float, int]] = []
    now = virtual = 0.0
    for k, (at, need) in enumerate(zip(arrivals, work, strict=True)):
        while inside and (leaves := now + (inside[0][0] - virtual) * len(inside)) <= at:
            virtual, i = heapq.heappop(inside)
            now = leaves
            response[i] = now - arrivals[i]
        if inside:
            virtual += (at - now) / len(inside)
        now = at
        heapq.heappush(inside, (virtual + need, k))
    while inside:
        finish, i = inside[0]
        now += (finish - virtual) * len(inside)
        heapq.heappop(inside)
        virtual = finish
        response[i] = now - arrivals[i]
    return response
