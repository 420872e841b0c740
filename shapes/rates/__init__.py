"""Rates: lambda(t) in arrivals per second, its integral Lambda(t), and the inverse of that, as a scenario names them.

One file a rate. ``build_rate`` makes one from the resolved dict of a scenario.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from shapes.rates.base import Rate
from shapes.rates.diurnal import Diurnal
from shapes.rates.hour_burst import HourBurst
from shapes.rates.piecewise import Constant, Piecewise, steps
from shapes.rates.ramp import Ramp

__all__ = ["KINDS", "Constant", "Diurnal", "HourBurst", "Piecewise", "Ramp", "Rate", "build_rate", "steps"]

KINDS: dict[str, Callable[[Mapping[str, Any], float], Rate]] = {
    "constant": lambda spec, _: Constant(spec["rate_rps"]),
    "ramp": lambda spec, _: Ramp(spec["from_rps"], spec["to_rps"], spec["over_s"]),
    "steps": lambda spec, _: steps([(step["rate_rps"], step["for_s"]) for step in spec["steps"]]),
    "piecewise": lambda spec, _: Piecewise(spec["times_s"], spec["rates_rps"]),
    "diurnal": lambda spec, _: Diurnal(spec["mean_rps"], spec["amplitude"], spec["period_s"], spec.get("peak_at_s", 0.0)),
    "hour_burst": HourBurst.of_spec,
}


def build_rate(spec: Mapping[str, Any], epoch_wall_s: float = 0.0) -> Rate:
    """The rate that a resolved scenario describes: ``{"kind": "constant", "rate_rps": 60.0}``.

    ``epoch_wall_s`` is the wall time (Unix, s) of the run's t = 0; only rates aligned to the wall clock read it. Raises ValueError
    with the field and what is allowed.
    """
    kind = spec.get("kind")
    if kind not in KINDS:
        raise ValueError(f"rate kind: found {kind!r}; allowed: {', '.join(KINDS)}")
    try:
        return KINDS[kind](spec, epoch_wall_s)
    except KeyError as missing:
        raise ValueError(f"rate {kind}: {missing.args[0]} is missing") from None
