"""Token times of one streamed answer: first token, gaps between tokens, their number."""

from __future__ import annotations

from truetail.exchange import Exchange

MAX_GAPS = 100_000
"""Most gaps kept for a histogram; the longest gap and the number of tokens are exact beyond it."""


class TokenTimes:
    """Counts tokens as they arrive. Several choices in one stream are kept apart: a gap is between tokens of the same choice.

    A token's instant is that of the recv which completed its event; tokens that came in one packet came at the same time.
    """

    def __init__(self) -> None:
        self.count = 0
        self.first_ns = -1
        self.gaps_ns: list[int] = []
        self.longest_ns = -1
        self._last_ns: dict[int, int] = {}

    def add(self, now_ns: int, choice: int = 0) -> None:
        """A token of ``choice`` has arrived."""
        self.count += 1
        if self.first_ns < 0:
            self.first_ns = now_ns
        last_ns = self._last_ns.get(choice)
        self._last_ns[choice] = now_ns
        if last_ns is None:
            return
        gap_ns = now_ns - last_ns
        self.longest_ns = max(self.longest_ns, gap_ns)
        if len(self.gaps_ns) < MAX_GAPS:
            self.gaps_ns.append(gap_ns)

    def tell(self, exchange: Exchange) -> None:
        """Put what was seen into the account; a number of tokens that the server told itself is kept."""
        exchange.first_token_ns = self.first_ns
        exchange.tokens_out = exchange.tokens_out or self.count
        if self.longest_ns >= 0:
            exchange.itl_max_us = self.longest_ns / 1e3
