"""Uniform numbers for payloads: from the arrival's number, the payload seed and the name of what is drawn, on any worker the same."""

from __future__ import annotations

import numpy as np

from shapes.mix import uniforms

BLOCK = 1024


class Draws:
    """``uniform(k, what)`` in (0, 1). Drawn in blocks of consecutive k, because one at a time would cost 100 us each."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._blocks: dict[str, tuple[int, list[float]]] = {}

    def uniform(self, k: int, what: str) -> float:
        """The number of arrival ``k`` in the dimension ``what``. Arrivals outside the schedule (k < 0) get one of their own."""
        number = k // BLOCK
        held, values = self._blocks.get(what, (None, []))
        if held != number:
            ks = np.arange(number * BLOCK, (number + 1) * BLOCK)
            values = uniforms(ks, self._seed, what).tolist()
            self._blocks[what] = (number, values)
        return values[k - number * BLOCK]
