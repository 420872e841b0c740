"""What a trace tells of its requests reaches them where the scenario is silent, and prefix blocks are shared by their ids."""

from __future__ import annotations

import pytest

from truetail.errors import UsageError
from truetail.payloads import laws, replayed
from truetail.payloads.payload import Payload
from truetail.payloads.prefixes import BLOCK_TOKENS

MINE = {"name": "mine", "payload": {"tokens": 5}}


def scenario(tmp_path, text, **more):
    file = tmp_path / "trace.csv"
    file.write_text(text)
    return {"arrivals": {"trace": {"file": str(file)}}, **more}


def test_sizes_come_from_the_columns(tmp_path):
    """Both token columns become laws, the user's own example sizes give way, and what the scenario says stays."""
    tokens = scenario(tmp_path, "time,prompt_tokens,output_tokens\n0,7,3\n1,9,0\n")
    filled = replayed.filled_in(tokens, [{"name": "chat", "payload": {"tokens": 100, "unique": False}}], log=False)
    assert filled["requests"] == [{"name": "chat", "payload": {"unique": False}}]
    payload = Payload(filled["payload"], 1)
    assert payload.size("tokens", 0, {"prompt_tokens": 7}) == 7
    assert payload.size("max_tokens", 1, {"output_tokens": 0}) == 1, "servers refuse an answer of no token"
    assert replayed.filled_in({**tokens, "payload": {"tokens": 4}}, [MINE], log=False)["payload"]["tokens"] == 4
    assert replayed.filled_in({**tokens, "requests": [MINE]}, [], log=False)["requests"] == [MINE]


def test_a_log_gives_method_path_and_body(tmp_path):
    """Only to users that say that they replay logs, and only where the scenario names no requests."""
    log = scenario(tmp_path, "time,method,path,request_bytes\n0,PUT,/a,12\n")
    (asks,) = replayed.filled_in(log, [MINE], log=True)["requests"]
    assert (asks["method"], asks["path"], asks["body"]) == ("${row.method}", "${row.path}", "${bytes}")
    assert replayed.filled_in(log, [MINE], log=False)["requests"][0]["name"] == "mine"
    assert replayed.filled_in({**log, "requests": [MINE]}, [], log=True)["requests"] == [MINE]


def test_nothing_changes_without_a_trace():
    """The very same mapping."""
    plain = {"arrivals": {"rate": {}}}
    assert replayed.filled_in(plain, [MINE], log=True) is plain


def test_rows_that_do_not_tell():
    """-1 and NaN take the least where there is one, and are an error without; numbers are kept within their bounds."""
    law = laws.parse({"row": {"column": "n", "min": 2, "max": 9}}, "payload.tokens")
    assert [law(0.5, {"n": n}) for n in (-1, float("nan"), 1, 5, 50)] == [2, 2, 2, 5, 9]
    with pytest.raises(UsageError, match="column 'n'"):
        laws.parse({"row": "n"}, "payload.tokens")(0.5, {"n": -1})
    with pytest.raises(UsageError, match="allowed is"):
        laws.parse({"row": {"column": "n", "most": 2}}, "payload.tokens")


def test_equal_hash_ids_are_equal_prefixes():
    """Two arrivals that share the first two blocks share exactly those words, whatever follows; so do their token numbers."""
    payload = Payload({"tokens": {"row": "n"}}, 1)
    rows = {"n": 1300, "hash_ids": "[4,5,6]"}, {"n": 1500, "hash_ids": "[4,5,9]"}
    for first, second in (
        [payload.text(k, row).split() for k, row in enumerate(rows)],
        [payload.token_ids(k, row) for k, row in enumerate(rows)],
    ):
        shared = 2 * BLOCK_TOKENS
        assert (len(first), len(second)) == (1300, 1500)
        assert first[:shared] == second[:shared]
        assert first[shared : shared + 50] != second[shared : shared + 50]


@pytest.mark.parametrize("hash_ids", ["not json", "{}", '["a", -1, 1e99]', "[]", "[" * 100_000, "[true]"])
def test_odd_hash_ids_are_left_aside(hash_ids):
    """Text from a trace is not trusted: what is no list of ids gives the plain prompt."""
    payload = Payload({"tokens": 20}, 1)
    assert payload.text(2, {"hash_ids": hash_ids}) == payload.text(2)
