"""Equal gaps: ``locust -f my_users.py,shapes/fixed.py --rate 50``. Kinder to a queue than production is; kept to show by how much."""

from __future__ import annotations

from typing import Any

from shapes.open_loop import OpenLoopShape


class FixedShape(OpenLoopShape):
    """Arrivals at (k + 1/2) / rate."""

    def spacing(self) -> dict[str, Any]:
        """Equal gaps."""
        return {"kind": "fixed"}
