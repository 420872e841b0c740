"""Poisson arrivals: ``locust -f my_users.py,shapes/poisson.py --rate 50``. What many independent users make together."""

from __future__ import annotations

from typing import Any

from shapes.open_loop import OpenLoopShape


class PoissonShape(OpenLoopShape):
    """Exponential gaps at a constant rate."""

    def spacing(self) -> dict[str, Any]:
        """Exponential gaps."""
        return {"kind": "poisson"}
