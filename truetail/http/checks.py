"""Whether an answer is the right one: what the scenario's ``expect`` says, judged after the clock has stopped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from truetail.classify import by_status
from truetail.http.answer import Answer
from truetail.http.errors import Failure


class Check:
    """``expect: {status, contains, json}`` of one entry of the mix. Without a status any 2xx is right."""

    def __init__(self, expect: Mapping[str, Any] | None = None) -> None:
        expect = expect or {}
        status = expect.get("status")
        self._statuses = frozenset([status] if isinstance(status, int) else status or ())
        contains = expect.get("contains")
        self._contains = contains.encode() if contains else None
        self._json = expect.get("json")

    def status(self, status: int) -> None:
        """Raises Failure unless the status is a right one."""
        if status in self._statuses or (not self._statuses and 200 <= status < 300):
            return
        if 300 <= status < 400:
            raise Failure("redirect", str(status))
        raise Failure(by_status(status) or "wrong-content", str(status))

    def body(self, body: bytes) -> None:
        """Raises Failure: wrong-content where it lacks what is due, malformed where it should be JSON and is not."""
        if self._contains is not None and self._contains not in body:
            raise Failure("wrong-content", "text is missing")
        if self._json is not None:
            found = parse_json(body)
            place = _missing(self._json, found, "$")
            if place:
                raise Failure("wrong-content", f"{place} differs")

    def judge(self, answer: Answer) -> None:
        """Let the account say so where the answer is not the right one. An exchange that has failed already stays as it is."""
        if answer.failed:
            return
        try:
            self.status(answer.status)
            self.body(answer.body)
        except Failure as failure:
            answer.fail(failure)


def parse_json(body: bytes | str) -> Any:
    """A body as JSON. Raises Failure malformed: no UTF-8, no JSON, NaN or Infinity, or nested too deep."""
    try:
        return json.loads(body, parse_constant=_refuse)
    except UnicodeDecodeError:
        raise Failure("malformed", "no UTF-8") from None
    except RecursionError:
        raise Failure("malformed", "JSON nested too deep") from None
    except ValueError:
        raise Failure("malformed", "no JSON") from None


def _refuse(name: str) -> None:
    raise ValueError(name)


def _missing(due: Any, found: Any, place: str) -> str:
    """The first place at which ``found`` lacks what is ``due``; '' when it holds all of it. Mappings may hold more."""
    if isinstance(due, Mapping):
        if not isinstance(found, Mapping):
            return place
        for key, value in due.items():
            if key not in found:
                return f"{place}.{key}"
            differs = _missing(value, found[key], f"{place}.{key}")
            if differs:
                return differs
        return ""
    same_kind = isinstance(due, bool) == isinstance(found, bool)
    return "" if same_kind and due == found else place
