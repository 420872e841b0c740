"""A share of the schedule: a slot, or the part of a lost worker's share that another takes over from a stated instant on.

A worker starts with the whole of its slot. When it is lost, each of its shares is split over the living by turns, and each of those parts can be
split again. Whoever may hold it, an arrival is in exactly one part of each split, so nothing is ever sent twice.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

NEVER_NS = 2**62
"""An instant after every arrival: a share from here on is empty."""

Ints = np.ndarray[Any, np.dtype[np.int64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]


class Split(BaseModel):
    """Part ``index`` of ``parts``, of the arrivals intended at or after ``from_ns``."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    parts: Annotated[int, Field(ge=1, le=100_000)]
    index: Annotated[int, Field(ge=0)]
    from_ns: Annotated[int, Field(ge=0)]


class Share(BaseModel):
    """Arrivals k with k mod n_slots = slot, narrowed by each split in turn."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    slot: Annotated[int, Field(ge=0)]
    n_slots: Annotated[int, Field(ge=1, le=100_000)]
    splits: list[Split] = Field(default_factory=list, max_length=1000)

    def mask(self, ks: Ints, offsets_ns: Ints) -> Mask:
        """Which arrivals of the slot (numbers and offsets) are in this share."""
        turn = ks // self.n_slots
        keep = np.ones(len(ks), np.bool_)
        for split in self.splits:
            keep &= (offsets_ns >= split.from_ns) & (turn % split.parts == split.index)
            turn = turn // split.parts
        return keep

    @property
    def is_empty(self) -> bool:
        """Whether it begins after every arrival."""
        return any(split.from_ns >= NEVER_NS for split in self.splits)

    def divided(self, parts: int, from_ns: int) -> list[Share]:
        """This share from an instant on, in so many disjoint parts whose union is the whole."""
        return [
            Share(slot=self.slot, n_slots=self.n_slots, splits=[*self.splits, Split(parts=parts, index=index, from_ns=from_ns)])
            for index in range(parts)
        ]
