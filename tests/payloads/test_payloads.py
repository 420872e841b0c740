"""Payloads: the same on every worker, distributed as asked for, alike or unlike as asked for; wrong ones say what is allowed."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from truetail.arrival import Arrival
from truetail.errors import UsageError
from truetail.payloads import laws, pool, template, tensors
from truetail.payloads.draws import Draws
from truetail.payloads.payload import Payload
from truetail.payloads.text import WORDS, mark

ALPHA = 1e-4


def sample(spec, n=20_000):
    law, draws = laws.parse(spec, "payload.tokens"), Draws(7)
    return np.array([law(draws.uniform(k, "tokens"), None) for k in range(n)])


def test_draws_do_not_depend_on_the_order_of_asking():
    """Two workers that see other arrivals in other orders draw the same number for the same k."""
    one, other = Draws(3), Draws(3)
    forward = [one.uniform(k, "a") for k in range(5000)]
    backward = [other.uniform(k, "a") for k in reversed(range(5000))]
    assert forward == backward[::-1]
    assert Draws(4).uniform(0, "a") != forward[0]
    assert one.uniform(0, "b") != forward[0]


def test_laws_against_scipy():
    """Each law's sample against scipy's distribution, Kolmogorov-Smirnov at alpha 1e-4 on values spread inside their unit (seeded)."""
    jitter = np.random.default_rng(1).random(20_000) - 0.5
    cases = [
        ({"exponential": {"mean": 500}}, stats.expon(scale=500)),
        ({"lognormal": {"median": 300, "cv": 1.5}}, stats.lognorm(np.sqrt(np.log1p(1.5**2)), scale=300)),
        ({"uniform": [100, 900]}, stats.uniform(99.5, 801)),
    ]
    for spec, law in cases:
        assert stats.kstest(sample(spec) + jitter, law.cdf).pvalue > ALPHA, spec
    counts = np.unique(sample({"choice": [1, 5, 9]}), return_counts=True)[1]
    assert stats.chisquare(counts).pvalue > ALPHA


def test_laws_keep_their_bounds():
    """min and max clip; a number is itself; a row's column is read."""
    values = sample({"lognormal": {"median": 300, "cv": 3, "min": 100, "max": 400}})
    assert (values.min(), values.max()) == (100, 400)
    assert set(sample(64, 10)) == {64}
    assert laws.parse({"row": "input"}, "x")(0.5, {"input": 17.0}) == 17
    with pytest.raises(UsageError, match="column 'input'"):
        laws.parse({"row": "input"}, "x")(0.5, {"other": 1})


@pytest.mark.parametrize(
    "spec", [-1, True, 1.5, "many", {}, {"uniform": [5, 1]}, {"uniform": 3}, {"normal": 1}, {"exponential": {"mean": 0}},
             {"exponential": {"mean": float("nan")}}, {"lognormal": {"median": 1}}, {"lognormal": {"median": 1, "cv": 1, "top": 2}},
             {"choice": []}, {"row": 3}, {"uniform": [1, 2], "row": "x"}, None],
)  # fmt: skip
def test_wrong_laws_say_what_is_allowed(spec):
    """With their place and what was found."""
    with pytest.raises(UsageError, match=r"payload\.tokens: found .*allowed is"):
        laws.parse(spec, "payload.tokens")


def test_text_has_its_number_of_words_and_its_prefix():
    """Exactly so many words; texts of a group share the prefix and part right after it; no two texts are equal."""
    payload = Payload({"tokens": 200, "prefix": {"groups": 3, "tokens": 120}}, seed=1)
    texts = [payload.text(k).split() for k in range(300)]
    assert {len(text) for text in texts} == {200}
    prefixes = {tuple(text[:120]) for text in texts}
    assert len(prefixes) == 3
    assert len({tuple(text[120:135]) for text in texts}) == 300
    assert len({" ".join(text) for text in texts}) == 300
    elsewhere = Payload({"tokens": 200, "prefix": {"groups": 3, "tokens": 120}}, seed=1)
    assert texts == [elsewhere.text(k).split() for k in range(300)]


def test_neighbours_differ_in_their_first_word():
    """Without a prefix a cache finds nothing in common between neighbours; marks are unique."""
    payload = Payload({"tokens": 20}, seed=1)
    assert all(payload.text(k).split()[0] != payload.text(k + 1).split()[0] for k in range(50))
    assert len({tuple(mark(k)) for k in [*range(5000), 10**15, 10**15 + 1, -1]}) == 5003
    assert len(set(WORDS)) == len(WORDS)


def test_token_ids_are_exact():
    """Their number, their range, the shared prefix; and unlike each other."""
    payload = Payload({"tokens": 64, "vocabulary": 512, "first_token": 3, "prefix": {"tokens": 16}}, seed=1)
    ids = [payload.token_ids(k) for k in range(100)]
    assert {len(found) for found in ids} == {64}
    assert min(map(min, ids)) >= 3
    assert max(map(max, ids)) < 512
    assert len({tuple(found[:16]) for found in ids}) == 1
    assert len({tuple(found[16:20]) for found in ids}) == 100


def test_pool_is_read_whole_and_faults_are_told_together(tmp_path):
    """Every wrong line with its number; empty lines pass; random and cycled picks are from the pool."""
    good = tmp_path / "good.jsonl"
    good.write_text('{"prompt": "a"}\n\n{"prompt": "b"}\r\n{"prompt": "c"}', encoding="utf-8")
    assert [line["prompt"] for line in pool.read(good)] == ["a", "b", "c"]
    cycled = Payload({"file": "good.jsonl", "pick": "cycle"}, 0, tmp_path)
    assert [cycled.value("line.prompt", k) for k in range(4)] == ["a", "b", "c", "a"]
    drawn = Payload({"file": "good.jsonl"}, 0, tmp_path)
    assert {drawn.value("line.prompt", k) for k in range(50)} == {"a", "b", "c"}
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"a": 1}\n{oops\n[1,]\n', encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        pool.read(bad)
    assert [fault.split(": ")[0].rsplit(":", 1)[1] for fault in caught.value.faults] == ["2", "3"]
    for name, text in (("none", None), ("empty", b""), ("latin", b"\xe9\n")):
        if text is not None:
            (tmp_path / name).write_bytes(text)
        with pytest.raises(UsageError, match=name):
            pool.read(tmp_path / name)


def test_template_keeps_types():
    """A text that is a name alone becomes the value; inside a text it is written out; keys too."""
    payload = Payload({"tokens": 3, "max_tokens": 9}, 0)
    value = payload.values(Arrival(5, 0, 0, row={"in": {"deep": [1, 2]}}))
    body = {
        "n": "${k}",
        "list": ["${row.in.deep}", "k is ${k}!", 1.5, None, True],
        "x${k}": {"m": "${max_tokens}"},
        "$": "$5 {k}",
    }
    assert template.fill(body, value) == {"n": 5, "list": [[1, 2], "k is 5!", 1.5, None, True], "x5": {"m": 9}, "$": "$5 {k}"}
    assert template.names(body) == {"k", "row.in.deep", "max_tokens"}
    assert len({payload.value("uuid", k) for k in range(-2, 100)}) == 102


@pytest.mark.parametrize("name", ["nothing", "row.x", "line", "text", "line.a.b", "__class__", "k.real"])
def test_unknown_names_are_refused(name):
    """There is no way from a template to anything but the listed values."""
    with pytest.raises(UsageError):
        Payload({}, 0).value(name, 1, {})


@pytest.mark.parametrize(
    "spec",
    [
        {"tokenz": 1},
        {"prefix": 3},
        {"prefix": {"groups": 0}},
        {"unique": "maybe"},
        {"pick": "first"},
        {"vocabulary": 1},
        {"first_token": 32_000},
    ],
)
def test_wrong_payloads_are_refused(spec):
    """Unknown keys and values out of range, with what is allowed."""
    with pytest.raises(UsageError, match="allowed"):
        Payload(spec, 0)


def test_tensors_have_shape_type_and_range():
    """Every data type: bytes of the right length, JSON numbers in range, deterministic, variants differ."""
    for datatype, dtype in tensors.DTYPES.items():
        (tensor,) = tensors.parse([{"name": "x", "shape": [4, 50], "datatype": datatype}], "t")
        values = tensor.values(1, 0)
        assert values.shape == (4, 50)
        assert values.dtype == np.dtype(dtype)
        assert len(tensor.as_bytes(values)) == 200 * np.dtype(dtype).itemsize
        assert np.array_equal(np.frombuffer(tensor.as_bytes(values), dtype).reshape(4, 50), values)
        assert np.array_equal(values, tensor.values(1, 0))
        assert not np.array_equal(values, tensor.values(1, 1))
        assert len(tensor.as_json(values)["data"]) == 200
    (text,) = tensors.parse([{"name": "s", "shape": [2], "datatype": "BYTES"}], "t")
    raw = text.as_bytes(text.values(1, 0))
    first = int.from_bytes(raw[:4], "little")
    assert 0 <= float(raw[4 : 4 + first]) < 1


@pytest.mark.parametrize(
    "spec", [3, [], [{"name": "x"}], [{"name": "x", "shape": [-1], "datatype": "FP32"}], [{"name": "x", "shape": [1], "datatype": "float"}],
             [{"name": "x", "shape": [10**6, 10**6], "datatype": "FP32"}], [{"name": "x", "shape": [1], "datatype": "UINT8", "high": 300}],
             [{"name": "x", "shape": [1], "datatype": "FP32", "low": 2, "high": 1}], [{"nom": "x"}]],
)  # fmt: skip
def test_wrong_tensors_are_refused(spec):
    """With their place in the scenario."""
    with pytest.raises(UsageError, match=r"payload\.tensors.*allowed|payload\.tensors.*due|payload\.tensors.*fit"):
        tensors.parse(spec, "payload.tensors")
