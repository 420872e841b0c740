"""What Truetail changes in Locust itself, in one place, each with its reason (measured on 2.47)."""

from __future__ import annotations

import functools
from typing import Any

import locust.runners
import locust.stats
from locust import argument_parser
from locust.runners import MasterRunner

from truetail.fast_keepalive import mend as mend_keepalive


def three_digits(response_time: float) -> float:
    """Bucket of a response time in ms: three significant digits (Locust keeps two: 1365 and 1442 ms would both print as 1400)."""
    if response_time <= 0:
        return 0
    if response_time >= 1000:
        return float(round(response_time, 2 - len(str(int(response_time))) + 1))
    if response_time >= 100:
        return float(round(response_time))
    return round(response_time, 1 if response_time >= 10 else 2)


def mend(runner: Any) -> None:
    """Apply every change; harmless when called twice."""
    # A worker rebuilds its whole option parser once per option on every spawn message: 65 ms of frozen event loop.
    if not hasattr(argument_parser.default_args_dict, "cache_info"):
        argument_parser.default_args_dict = functools.cache(argument_parser.default_args_dict)
    locust.stats.bucket_response_time = three_digits  # type: ignore[assignment]  # floats work in all of Locust's outputs
    mend_keepalive()
    if isinstance(runner, MasterRunner):
        # A minute after a worker's death Locust forgets it and restarts the ramp from zero users on the living.
        locust.runners.HEARTBEAT_DEAD_INTERNAL = -(10**9)
