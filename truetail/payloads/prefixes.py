"""Prefix blocks of a trace: Mooncake's ``hash_ids`` name blocks of 512 tokens that prompts have in common; equal ids give equal text,
so that a prefix cache hits as it did in production."""

from __future__ import annotations

import json

from shapes.mix import uniforms

BLOCK_TOKENS = 512
MOST_TEXT = 1_000_000


def blocks(hash_ids: str, seed: int, tokens: int) -> list[tuple[float, int]]:
    """(place in (0, 1) of the stream of words, tokens) per block, together at most ``tokens``; none for text that is no list of ids."""
    ids = _ids(hash_ids)[: -(-tokens // BLOCK_TOKENS)]
    places = uniforms(ids, seed, "prefix block").tolist() if ids else []
    return [(place, min(BLOCK_TOKENS, tokens - number * BLOCK_TOKENS)) for number, place in enumerate(places)]


def _ids(text: str) -> list[int]:
    if not text or len(text) > MOST_TEXT:
        return []
    try:
        ids = json.loads(text)
    except (ValueError, RecursionError):
        return []
    whole = [n for n in ids if isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 2**40] if isinstance(ids, list) else []
    return whole if isinstance(ids, list) and len(whole) == len(ids) else []
