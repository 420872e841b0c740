"""Text of a given number of tokens, alike or unlike at its start: what a prefix cache sees is under control.

Without the server's tokenizer the number is nominal: one token a word, of words that common vocabularies hold whole. Where it must be
exact send ``${token_ids}``, or read the server's own count from its usage.
"""

from __future__ import annotations

from itertools import chain, repeat

import numpy as np

from shapes.mix import uniforms

_LIST = """
time year people way day man thing woman life child world school state family student group country problem hand
part place case week company system program question work government number night point home water room mother
area money story fact month lot right study book eye job word business issue side kind head house service friend
father power hour game line end member law car city community name president team minute idea body information
back parent face others level office door health person art war history party result change morning reason
research girl guy moment air teacher force education
"""
WORDS = tuple(_LIST.split())
STREAM = 1 << 16
MARK_WORDS = 10
"""Words that write an arrival's number, most significant last, so that texts of neighbours differ in their first word."""


class Texts:
    """Words of one seed: a long stream, of which every text is a stretch."""

    def __init__(self, seed: int) -> None:
        drawn = uniforms(np.arange(STREAM), seed, "words")
        self._words = [WORDS[int(u * len(WORDS))] for u in drawn.tolist()]

    def words(self, start: float, count: int) -> list[str]:
        """``count`` words from the place ``start`` in (0, 1) of the stream, which repeats itself."""
        at = int(start * STREAM)
        if at + count <= STREAM:
            return self._words[at : at + count]
        whole, rest = divmod(at + count - STREAM, STREAM)
        return list(chain(self._words[at:], chain.from_iterable(repeat(self._words, whole)), self._words[:rest]))


def mark(k: int) -> list[str]:
    """The arrival's number as words: no two arrivals have the same."""
    found = []
    k = k if k >= 0 else (1 << 63) - k
    for _ in range(MARK_WORDS):
        k, digit = divmod(k, len(WORDS))
        found.append(WORDS[digit])
    return found


def token_ids(start: float, count: int, vocabulary: int, first: int) -> list[int]:
    """``count`` token numbers from ``first`` to ``vocabulary`` - 1: a scrambled count that starts at a place in (0, 1)."""
    span = vocabulary - first
    at = int(start * (1 << 52))
    # Multiplying by an odd constant spreads neighbours over the vocabulary (Knuth's multiplicative hashing).
    ids = (np.arange(at, at + count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)
    found: list[int] = (ids % np.uint64(span) + np.uint64(first)).tolist()
    return found
