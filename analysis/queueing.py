"""Queueing formulas: what a service with random arrivals would do in the steady state.

Rates are per second, times in seconds. ``utilisation`` is the share of the servers' time that is busy; at 1 or above no steady
state exists and Unstable is raised. Kendall's notation: arrivals / service times / servers; M = exponential, D = constant,
G = any distribution. All queues are first in, first out, without a bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from analysis.root import increasing_root

HIGHEST_MD1_UTILISATION = 0.999


class Unstable(ValueError):
    """The load is at or above capacity: the queue would grow without bound, so there is no steady state to describe."""


@dataclass(frozen=True, slots=True)
class Steady:
    """Means of a queue in the steady state; times in s. ``exact`` is False for an approximation, and ``source`` names it."""

    model: str
    source: str
    utilisation: float
    wait_mean_s: float
    response_mean_s: float
    in_system_mean: float
    exact: bool = True


def utilisation(arrival_rps: float, service_s: float, servers: int = 1) -> float:
    """lambda E[S] / c. Raises ValueError for rates, times or counts that make no sense, Unstable at 1 or above."""
    if not (math.isfinite(arrival_rps) and arrival_rps > 0 and math.isfinite(service_s) and service_s > 0 and servers >= 1):
        raise ValueError(
            f"a queue needs an arrival rate > 0, a service time > 0 and at least 1 server, "
            f"found {arrival_rps}/s, {service_s} s, {servers}"
        )
    rho = arrival_rps * service_s / servers
    if rho >= 1:
        raise Unstable(
            f"utilisation {rho:.3g} is not below 1: {arrival_rps:g}/s at {service_s * 1e3:g} ms on {servers} server(s) "
            f"with capacity {servers / service_s:g}/s; the queue grows without bound"
        )
    return rho


def _steady(model: str, source: str, arrival_rps: float, service_s: float, rho: float, wait_s: float) -> Steady:
    response_s = wait_s + service_s
    return Steady(model, source, rho, wait_s, response_s, arrival_rps * response_s)


def mm1(arrival_rps: float, service_s: float) -> Steady:
    """M/M/1: W = 1 / (mu - lambda)."""
    rho = utilisation(arrival_rps, service_s)
    return _steady("M/M/1", "Kleinrock 1975, section 3.2", arrival_rps, service_s, rho, rho * service_s / (1 - rho))


def mm1_quantile_s(q: float, arrival_rps: float, service_s: float) -> float:
    """The q-quantile of M/M/1's response time, which is exponential with rate mu - lambda."""
    rho = utilisation(arrival_rps, service_s)
    return -math.log1p(-_share(q)) * service_s / (1 - rho)


def mg1(arrival_rps: float, service_s: float, service_cv: float) -> Steady:
    """M/G/1 by Pollaczek and Khinchine: Wq = rho / (1 - rho) (1 + Cs^2) / 2 E[S]."""
    rho = utilisation(arrival_rps, service_s)
    wait_s = rho / (1 - rho) * (1 + service_cv**2) / 2 * service_s
    return _steady("M/G/1", "Pollaczek 1930, Khinchine 1932", arrival_rps, service_s, rho, wait_s)


def md1(arrival_rps: float, service_s: float) -> Steady:
    """M/D/1: Pollaczek-Khinchine with constant service, half of M/M/1's wait."""
    steady = mg1(arrival_rps, service_s, 0.0)
    return _steady("M/D/1", steady.source, arrival_rps, service_s, steady.utilisation, steady.wait_mean_s)


def erlang_c(servers: int, offered: float) -> float:
    """The chance that an arrival at M/M/c waits (Erlang 1917); ``offered`` = lambda E[S], below ``servers``.

    By the recursion of Erlang B, which neither overflows nor cancels.
    """
    if offered >= servers:
        raise Unstable(f"offered load {offered:g} is not below {servers} server(s)")
    blocked = 1.0
    for n in range(1, servers + 1):
        blocked = offered * blocked / (n + offered * blocked)
    return blocked / (1 - offered / servers * (1 - blocked))


def mmc(arrival_rps: float, service_s: float, servers: int) -> Steady:
    """M/M/c: c servers behind one queue (Erlang C)."""
    rho = utilisation(arrival_rps, service_s, servers)
    wait_s = erlang_c(servers, arrival_rps * service_s) * service_s / (servers * (1 - rho))
    return _steady(f"M/M/{servers}", "Erlang 1917", arrival_rps, service_s, rho, wait_s)


def mmc_exceeds(t_s: float, arrival_rps: float, service_s: float, servers: int) -> float:
    """P(response > t) in M/M/c: the wait is 0 or exponential with rate c mu - lambda, and service is independent of it."""
    utilisation(arrival_rps, service_s, servers)
    mu, spare = 1 / service_s, servers / service_s - arrival_rps
    waits = erlang_c(servers, arrival_rps * service_s)
    gap = (spare - mu) * t_s
    # With waiting: (spare e^{-mu t} - mu e^{-spare t}) / (spare - mu), written so that spare -> mu does not divide by zero.
    waited = math.exp(-mu * t_s) * (1 + (mu * t_s if abs(gap) < 1e-9 else -math.expm1(-gap) * mu / (spare - mu)))
    return (1 - waits) * math.exp(-mu * t_s) + waits * waited


def mmc_quantile_s(q: float, arrival_rps: float, service_s: float, servers: int) -> float:
    """The q-quantile of M/M/c's response time."""
    utilisation(arrival_rps, service_s, servers)
    _share(q)
    return increasing_root(lambda t_s: 1 - mmc_exceeds(t_s, arrival_rps, service_s, servers) - q, 0.0, service_s)


def ggc(arrival_rps: float, service_s: float, servers: int, arrival_cv: float, service_cv: float) -> Steady:
    """G/G/c by Allen and Cunneen: M/M/c's wait times (Ca^2 + Cs^2) / 2. An approximation; exact for M/M/c and M/G/1."""
    steady = mmc(arrival_rps, service_s, servers)
    wait_s = steady.wait_mean_s * (arrival_cv**2 + service_cv**2) / 2
    source = "Allen-Cunneen approximation (Allen 1990)"
    found = _steady(f"G/G/{servers}", source, arrival_rps, service_s, steady.utilisation, wait_s)
    return replace(found, exact=False)


def _md1_in_system(rho: float, most: int) -> NDArray[np.float64]:
    """P(N = 0 .. most) in M/D/1, by a recursion with positive terms only (no cancellation)."""
    # A_n = P(Poisson(rho) > n), summed from the far end so that small tails keep their digits.
    terms = np.exp(-rho + np.arange(most + 40) * math.log(rho) - np.array([math.lgamma(n + 1) for n in range(most + 40)]))
    above = np.concatenate([np.cumsum(terms[::-1])[::-1][1:], [0.0]])[: most + 1]
    p = np.zeros(most + 1)
    p[0] = 1 - rho
    for j in range(1, most + 1):
        p[j] = (above[j - 1] * p[0] + above[j - 1 : 0 : -1] @ p[1:j]) / terms[0]
    return p


def md1_wait_cdf(rho: float, most_services: int) -> Callable[[float], float]:
    """P(wait <= x service times) in M/D/1 for x < ``most_services``: Franx's form of Crommelin's formula, all terms positive."""
    at_most = np.cumsum(_md1_in_system(rho, most_services + 1))

    def cdf(x: float) -> float:
        k = int(x) + 1
        mean = rho * (k - x)
        j = np.arange(k)
        log_terms = j * math.log(mean) - mean - np.array([math.lgamma(i + 1) for i in range(k)]) if mean > 0 else None
        return float(at_most[k]) if log_terms is None else float(np.exp(log_terms) @ at_most[k - j])

    return cdf


def md1_quantile_s(q: float, arrival_rps: float, service_s: float) -> float:
    """The q-quantile of M/D/1's response time, from the exact distribution of the wait (Franx 2001).

    Raises ValueError above utilisation 0.999, where the exact sum is too long to be worth it.
    """
    rho = utilisation(arrival_rps, service_s)
    if rho > HIGHEST_MD1_UTILISATION:
        raise ValueError(f"M/D/1 percentiles are offered up to utilisation {HIGHEST_MD1_UTILISATION}, found {rho:.4g}")
    if _share(q) <= 1 - rho:
        return service_s  # such an arrival finds the server idle
    # M/M/1's wait is longer than M/D/1's in the sense of every quantile: a bound for the search.
    bound = -math.log((1 - q) / rho) / (1 - rho)
    cdf = md1_wait_cdf(rho, int(bound) + 3)
    return service_s * (1 + increasing_root(lambda x: cdf(x) - q, 0.0, bound + 1e-6))


def _share(q: float) -> float:
    if not 0 < q < 1:
        raise ValueError(f"a quantile's share lies between 0 and 1, found {q}")
    return q
