"""The OpenAI user as it is, which also writes the instants of its tokens to a file: TRUETAIL_TOKENS names the folder."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any

from locustfiles.openai_users import OpenAiUser
from truetail.exchange import Exchange
from truetail.http.mix import Entry


class StampedUser(OpenAiUser):
    """One streamed chat per arrival."""

    def report(self, entry: Entry, exchange: Exchange, told: Mapping[str, Any] | None = None) -> None:
        """Report as ever; then a line ``{"k", "arrived_ns": [...]}`` with the instants that first token and gaps say."""
        super().report(entry, exchange, told)
        if self.arrival is not None and told is not None:
            arrived_ns = list(accumulate(told["inter_token_ns"], initial=exchange.first_token_ns))
            line = json.dumps({"k": self.arrival.k, "arrived_ns": arrived_ns}) + "\n"
            with (Path(os.environ["TRUETAIL_TOKENS"]) / f"{os.getpid()}.jsonl").open("a", encoding="utf-8") as file:
                file.write(line)


del OpenAiUser  # Locust runs every user class that it finds in a locustfile
