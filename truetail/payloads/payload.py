"""The values that an arrival's request may use: its number, its line of a pool, its row of the trace, texts and sizes."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from truetail.arrival import Arrival
from truetail.errors import UsageError
from truetail.payloads import laws, pool, prefixes
from truetail.payloads.draws import Draws
from truetail.payloads.text import Texts, mark, token_ids

KEYS = (
    "file",
    "pick",
    "tokens",
    "max_tokens",
    "size",
    "prefix",
    "unique",
    "vocabulary",
    "first_token",
    "tensors",
    "binary",
    "items",
)
NAMES = "k, uuid, random, line, line.FIELD, row.COLUMN, text, token_ids, max_tokens, bytes, items"


class Payload:
    """What ``payload`` of a scenario or of one request describes; values by name, deterministic in (k, seed).

    ``file`` a JSONL pool, ``pick`` random or cycle; ``tokens``, ``max_tokens``, ``size``, ``items`` laws of sizes; ``prefix: {groups, tokens}``
    the part that texts of a group share; ``unique`` whether each text goes on in its own way (a cache finds the prefix only);
    ``vocabulary`` and ``first_token`` the range of token numbers.
    """

    def __init__(self, spec: Mapping[str, Any], seed: int, folder: Path = Path()) -> None:
        unknown = [key for key in spec if key not in KEYS]
        if unknown:
            raise UsageError(f"payload: found {', '.join(map(repr, unknown))}; allowed are {', '.join(KEYS)}")
        self.seed = seed
        self._draws = Draws(seed)
        self._lines = pool.read(folder / spec["file"]) if "file" in spec else []
        self._cycle = _one_of(spec, "pick", ("random", "cycle")) == "cycle"
        self._laws = {name: laws.parse(spec[name], f"payload.{name}") for name in _SIZES if name in spec}
        self._unique = _one_of(spec, "unique", (True, False))
        prefix = spec.get("prefix", {})
        if not isinstance(prefix, Mapping) or not prefix.keys() <= {"groups", "tokens"}:
            raise UsageError(f"payload.prefix: found {prefix!r}; allowed is {{groups: 4, tokens: 500}}")
        self._groups = _count(prefix.get("groups", 1), "payload.prefix.groups", 1)
        self._prefix_tokens = _count(prefix.get("tokens", 0), "payload.prefix.tokens", 0)
        self._vocabulary = _count(spec.get("vocabulary", 32_000), "payload.vocabulary", 2)
        self._first_token = _count(spec.get("first_token", 0), "payload.first_token", 0)
        if self._first_token >= self._vocabulary:
            raise UsageError(
                f"payload.first_token: found {self._first_token}; allowed is less than vocabulary {self._vocabulary}"
            )

    @cached_property
    def _texts(self) -> Texts:
        return Texts(self.seed)

    def values(self, arrival: Arrival | None) -> Callable[[str], Any]:
        """The value of each name for this arrival; None stands for a request outside the schedule."""
        k, row = (arrival.k, arrival.row) if arrival is not None else (-1, None)
        return lambda name: self.value(name, k, row)

    def value(self, name: str, k: int, row: Mapping[str, Any] | None = None) -> Any:
        """One value. Raises UsageError for a name that there is not."""
        first, _, rest = name.partition(".")
        make = _VALUES.get(first)
        if make is None:
            raise UsageError(f"template: found ${{{name}}}; allowed are {NAMES}")
        found = make(self, k, row)
        for field in rest.split(".") if rest else ():
            if not isinstance(found, Mapping) or field not in found:
                raise UsageError(f"template: ${{{name}}}: there is no {field!r} in {first} of arrival {k}")
            found = found[field]
        return found

    def uniform(self, k: int, what: str) -> float:
        """A number in (0, 1) of the arrival, one for each ``what``."""
        return self._draws.uniform(k, what)

    def size(self, law: str, k: int, row: Mapping[str, Any] | None = None) -> int:
        """A size drawn from one of the laws: tokens, max_tokens, size or items. Raises UsageError where the scenario has none."""
        if law not in self._laws:
            raise UsageError(f"payload.{law} is missing: the request asks for it; {laws.ALLOWED}")
        return self._laws[law](self.uniform(k, law), row)

    def has(self, law: str) -> bool:
        """Whether the scenario gives this law."""
        return law in self._laws

    def text(self, k: int, row: Mapping[str, Any] | None = None) -> str:
        """As many words as ``tokens`` says: the prefix of its group, or that of the trace's ``hash_ids``, then the arrival's own mark and words."""
        count = self.size("tokens", k, row)
        shared = [word for start, tokens in self._shared(k, row, count) for word in self._texts.words(start, tokens)]
        own = count - len(shared)
        marked = mark(k)[:own] if self._unique else []
        return " ".join([*shared, *marked, *self._texts.words(self.uniform(k, "own text"), own - len(marked))])

    def token_ids(self, k: int, row: Mapping[str, Any] | None = None) -> list[int]:
        """The same as token numbers, exactly as many as ``tokens`` says."""
        count = self.size("tokens", k, row)
        shared = self._shared(k, row, count)
        start = (abs(k) * 0.6180339887498949 + 0.25) % 1.0 if self._unique else self.uniform(k, "own text")
        of = self._vocabulary, self._first_token
        own = count - sum(tokens for _, tokens in shared)
        return [number for part in [*shared, (start, own)] for number in token_ids(*part, *of)]

    def line(self, k: int) -> Any:
        """The arrival's line of the pool."""
        if not self._lines:
            raise UsageError("payload.file is missing: the request asks for ${line}")
        return self._lines[k % len(self._lines) if self._cycle else int(self.uniform(k, "line") * len(self._lines))]

    def bytes_(self, k: int, row: Mapping[str, Any] | None = None) -> str:
        """ASCII text of ``size`` bytes."""
        count = self.size("size", k, row)
        return " ".join(self._texts.words(self.uniform(k, "bytes"), count // 4 + 2))[:count]

    def _shared(self, k: int, row: Mapping[str, Any] | None, count: int) -> list[tuple[float, int]]:
        """What the text has in common with others, as (start, tokens): the trace's own prefix blocks, else those of its group."""
        blocks = prefixes.blocks(str((row or {}).get("hash_ids", "")), self.seed, count)
        return blocks or [(self._group_start(k), min(self._prefix_tokens, count))]

    def _group_start(self, k: int) -> float:
        group = int(self.uniform(k, "prefix group") * self._groups)
        return (group * 0.6180339887498949 + 0.1) % 1.0  # golden ratio: groups start far apart in the stream


def _uuid(payload: Payload, k: int) -> str:
    """Differs for every arrival and seed: for cache-busting."""
    return str(uuid.UUID(int=(payload.seed & (1 << 64) - 1) << 64 | k & (1 << 64) - 1))


_SIZES = ("tokens", "max_tokens", "size", "items")
_VALUES: dict[str, Callable[[Payload, int, Mapping[str, Any] | None], Any]] = {
    "k": lambda payload, k, row: k,
    "uuid": lambda payload, k, row: _uuid(payload, k),
    "random": lambda payload, k, row: payload.uniform(k, "random"),
    "line": lambda payload, k, row: payload.line(k),
    "row": lambda payload, k, row: row or {},
    "text": lambda payload, k, row: payload.text(k, row),
    "token_ids": lambda payload, k, row: payload.token_ids(k, row),
    "max_tokens": lambda payload, k, row: payload.size("max_tokens", k, row),
    "bytes": lambda payload, k, row: payload.bytes_(k, row),
    "items": lambda payload, k, row: payload.size("items", k, row),
}


def _one_of(spec: Mapping[str, Any], key: str, allowed: tuple[Any, ...]) -> Any:
    value = spec.get(key, allowed[0])
    if value not in allowed:
        raise UsageError(f"payload.{key}: found {value!r}; allowed are {', '.join(map(repr, allowed))}")
    return value


def _count(value: Any, place: str, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= laws.MOST:
        raise UsageError(f"{place}: found {value!r}; allowed is a whole number from {least} to {laws.MOST}")
    return value
