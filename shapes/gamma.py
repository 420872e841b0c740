"""Gamma gaps: ``locust -f my_users.py,shapes/gamma.py --rate 50 --cv 3``. Steadier than Poisson below cv 1, burstier above."""

from __future__ import annotations

from typing import Any

from shapes.open_loop import OpenLoopShape


class GammaShape(OpenLoopShape):
    """Gamma gaps with coefficient of variation ``cv`` at a constant rate."""

    cv: float = 2.0

    def spacing(self) -> dict[str, Any]:
        """Gamma gaps."""
        return {"kind": "gamma", "cv": self.cv}
