"""Payloads built from sizes where a trace tells only those: the same for the same arrival and seed, on every worker.

Prompts are made of common short words, about one token each in the usual vocabularies; the exact number depends on the
tokenizer. Where the trace has hash ids of prefix blocks, the same id gives the same text, so that a prefix cache hits as it
did in production.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from shapes.mix import uniforms

_COMMON = """
the of and to in is you that it he was for on are as with his they at be this have from or one had by word but not what all were
we when your can said there use an each which she do how their if will up other about out many then them these so some her would
make like him into time has look two more write go see number no way could people my than first water been call who oil its now
"""
WORDS = _COMMON.split()
HASH_BLOCK_TOKENS = 512
MOST_TOKENS = 2_000_000


def prompt(tokens: int, seed: int, k: int, hash_ids: str = "") -> str:
    """A prompt of ``tokens`` words for arrival ``k``; ``hash_ids`` is JSON text with a list of the prefix blocks' ids.

    Raises ValueError for a number of tokens below 0 or beyond MOST_TOKENS.
    """
    if not 0 <= tokens <= MOST_TOKENS:
        raise ValueError(f"tokens: found {tokens}; allowed is 0 to {MOST_TOKENS}")
    parts: list[str] = []
    for block in _blocks(hash_ids):
        take = min(HASH_BLOCK_TOKENS, tokens - len(parts))
        if take <= 0:
            break
        parts += _words(take, seed, block, "prefix")
    parts += _words(tokens - len(parts), seed, k, "prompt")
    return " ".join(parts)


def body(size_bytes: int, seed: int, k: int) -> bytes:
    """``size_bytes`` of printable ASCII for arrival ``k``."""
    if size_bytes < 0:
        raise ValueError(f"size_bytes: found {size_bytes}; allowed is 0 or more")
    random = np.random.Generator(np.random.Philox(key=[seed & (2**64 - 1), k & (2**64 - 1)]))
    return (random.integers(0, 94, size_bytes, dtype=np.uint8) + np.uint8(33)).tobytes()


def _blocks(hash_ids: str) -> Sequence[int]:
    try:
        ids = json.loads(hash_ids) if hash_ids else []
    except ValueError:
        return []
    return [number for number in ids if isinstance(number, int) and 0 <= number < 2**40] if isinstance(ids, list) else []


def _words(n: int, seed: int, number: int, dimension: str) -> list[str]:
    if n <= 0:
        return []
    draws = uniforms(number * MOST_TOKENS + np.arange(n), seed, dimension)
    return [WORDS[at] for at in (draws * len(WORDS)).astype(int).tolist()]
