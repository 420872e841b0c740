"""A burst on the hour: ``locust -f my_users.py,shapes/hour_burst.py --rate 20 --clients 200 --period-s 60 --jitter-width-s 2``."""

from __future__ import annotations

from typing import Any

from shapes.open_loop import OpenLoopShape


class HourBurstShape(OpenLoopShape):
    """A base rate, plus ``clients`` that each poll once a period at about the same instant; Poisson arrivals at that rate."""

    clients: int = 200
    period_s: float = 3600.0
    jitter: str = "exponential"
    jitter_width_s: float = 2.0
    burst_align: str = "start"
    burst_offset_s: float = 0.0

    def rate(self) -> dict[str, Any]:
        """The base rate and the bursts."""
        return {
            "kind": "hour_burst", "base_rps": self.rate_rps, "clients": self.clients, "period_s": self.period_s,
            "jitter": {"kind": self.jitter, "width_s": self.jitter_width_s}, "align": self.burst_align, "offset_s": self.burst_offset_s,
        }  # fmt: skip

    def spacing(self) -> dict[str, Any]:
        """Exponential gaps."""
        return {"kind": "poisson"}
