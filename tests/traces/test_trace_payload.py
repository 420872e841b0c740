"""Payloads from sizes: of the stated size, the same again for the same arrival and seed, with prefixes shared by hash."""

from __future__ import annotations

import pytest

from shapes.traces.payload import HASH_BLOCK_TOKENS, body, prompt


def test_prompts_have_their_length_and_repeat() -> None:
    """Words as asked; (k, seed) decides the text, and either changes it."""
    assert [len(prompt(n, 1, 2).split()) for n in (0, 1, 1000)] == [0, 1, 1000]
    assert prompt(50, 1, 2) == prompt(50, 1, 2)
    assert len({prompt(50, 1, 2), prompt(50, 1, 3), prompt(50, 2, 2)}) == 3


def test_equal_hash_ids_are_equal_prefixes() -> None:
    """Two arrivals that share the first two blocks share exactly those words, whatever follows."""
    first, second = prompt(1300, 1, 7, "[4,5,6]").split(), prompt(1500, 1, 8, "[4,5,9]").split()
    shared = 2 * HASH_BLOCK_TOKENS
    assert (len(first), len(second)) == (1300, 1500)
    assert first[:shared] == second[:shared]
    assert first[shared : shared + 50] != second[shared : shared + 50]


@pytest.mark.parametrize("hash_ids", ["not json", "{}", '["a", -1, 1e99]', "[]"])
def test_odd_hash_ids_are_left_aside(hash_ids: str) -> None:
    """Text from a trace is not trusted: what is no list of ids gives the plain prompt."""
    assert prompt(20, 1, 2, hash_ids) == prompt(20, 1, 2)


def test_bodies_have_their_size() -> None:
    """Printable ASCII, exactly as long, the same again; a negative size is an error."""
    assert len(body(12_345, 1, 2)) == 12_345
    assert body(100, 1, 2) == body(100, 1, 2) != body(100, 1, 3)
    assert all(33 <= byte < 127 for byte in body(1000, 0, 0))
    with pytest.raises(ValueError, match="size_bytes"):
        body(-1, 1, 2)
