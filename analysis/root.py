"""The zero of an increasing function, by bisection: slow, and cannot miss."""

from __future__ import annotations

from collections.abc import Callable

DOUBLINGS, HALVINGS = 200, 200


def increasing_root(f: Callable[[float], float], low: float, step: float, relative: float = 1e-12) -> float:
    """The x >= ``low`` at which ``f`` reaches 0; the search widens by ``step``, ``2 step``, ... Raises ValueError."""
    high = low + step
    for _ in range(DOUBLINGS):
        if f(high) >= 0:
            break
        low, step = high, 2 * step
        high = low + step
    else:
        raise ValueError("the function stays below zero: nothing to find")
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if f(middle) >= 0 else (middle, high)
        if high - low <= relative * abs(high):
            break
    return high
