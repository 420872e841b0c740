"""The warm-up is fixed before a run. MSER-5 afterwards says whether it was long enough: an alarm, never a cut.

Cutting where the data say so would delete a real slow phase from a loaded, stationary run and flatter it (docs/statistics.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

GROUP = 5
FEWEST = 10 * GROUP


@dataclass(frozen=True, slots=True)
class WarmupAlarm:
    """``cut`` values would have been cut by MSER-5 of ``n`` after the warm-up; ``excess``: how much slower they were."""

    n: int
    cut: int
    excess: float
    alarm: bool


def mser5(values: NDArray[np.floating]) -> int:
    """How many leading values MSER-5 would cut: the cut that minimises the squared standard error of the rest (White 1997).

    Looked for in the first half only, as usual: a minimum further on means that the rule found none. 0 for fewer than 50 values.
    """
    x = np.asarray(values, dtype=float)
    if len(x) < FEWEST:
        return 0
    y = x[: len(x) // GROUP * GROUP].reshape(-1, GROUP).mean(axis=1)
    left = np.arange(len(y), 0, -1, dtype=float)
    y = y - y.mean()  # keeps digits: only differences matter
    total, squares = np.cumsum(y[::-1])[::-1], np.cumsum((y**2)[::-1])[::-1]
    error = (squares - total**2 / left) / left**2
    return int(np.argmin(error[: max(1, len(y) // 2)])) * GROUP


def alarm(values: NDArray[np.floating], least_share: float = 0.01, least_excess: float = 0.25) -> WarmupAlarm:
    """Whether the values after the warm-up still begin with one: MSER-5 cuts at least ``least_share`` of them, and the cut ones
    were slower than the rest by ``least_excess`` (medians). Failures (infinite) are left out."""
    x = np.asarray(values, dtype=float)
    x = x[np.isfinite(x)]
    cut = mser5(x)
    if not cut:
        return WarmupAlarm(len(x), 0, 0.0, False)
    excess = float(np.median(x[:cut]) / max(np.median(x[cut:]), 1e-12) - 1)
    return WarmupAlarm(len(x), cut, excess, cut >= least_share * len(x) and excess >= least_excess)
