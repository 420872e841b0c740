"""What the master's plan means on a worker: the schedule, this worker's share of it, and where its records go."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from shapes.schedule import Schedule
from truetail import warm_up
from truetail.arrival import Arrival
from truetail.feed import Feed
from truetail.manifest import canonical, sha256
from truetail.share import Share
from truetail.shipping import shares_folder


class Assignment:
    """One worker's part of a run. ValueError for a plan that arrived damaged or cannot be planned."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        self.scenario: Mapping[str, Any] = plan["scenario"]
        if sha256(canonical(self.scenario)) != plan["sha256"]:
            raise ValueError("the scenario arrived damaged: its sha256 differs")
        scenario = self.scenario
        self.schedule = Schedule(scenario["arrivals"], scenario["duration_s"], scenario["seed"]["schedule"], plan["epoch_wall_s"])
        self.share = Share.model_validate(plan["share"])
        self.target_url = str(plan["target_url"])
        self.has_shared_folder = shares_folder(plan["folder"], plan["run_id"])
        self.folder = Path(plan["folder"]) if self.has_shared_folder else Path(tempfile.mkdtemp(prefix="truetail-"))

    def feed(self, share: Share) -> Feed:
        """The arrivals of a share, to be planned ahead."""
        blocks = self.schedule.slot_blocks(share.slot, share.n_slots)
        return Feed(blocks, self.scenario["requests"], self.scenario["seed"]["mix"], share)

    def warm_up(self) -> list[Arrival]:
        """This worker's share of the requests before the epoch. Of a trace they carry what its first rows say."""
        total = int(self.scenario.get("warmup_requests") or 0)
        rows = self._first_rows(total) if total and "trace" in self.scenario["arrivals"] else []
        return warm_up.arrivals(self.share.slot, self.share.n_slots, total, self.scenario["requests"], rows)

    def _first_rows(self, most: int) -> list[Mapping[str, Any] | None]:
        feed = self.feed(self.share)
        feed.plan_one()
        return [arrival.row for arrival in islice(iter(feed.next, None), most)]

    def count(self, share: Share) -> int:
        """How many arrivals a share has. Walks the whole schedule: call it off the event loop."""
        blocks = self.schedule.slot_blocks(share.slot, share.n_slots)
        return sum(int(share.mask(block.ks, block.offsets_ns).sum()) for block in blocks)

    def end_ns(self) -> int:
        """The last arrival of the whole schedule. Walks it: call it off the event loop."""
        return max((int(block.offsets_ns[-1]) for block in self.schedule.blocks() if len(block.offsets_ns)), default=0)

    def seconds(self, name: str) -> float:
        """A duration of the scenario, by its key without ``_s``."""
        return float(self.scenario[f"{name}_s"])
