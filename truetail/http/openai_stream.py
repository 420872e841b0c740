"""Answers of OpenAI-compatible servers: streamed or whole, chat or plain completions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from truetail.http.answer import Answer
from truetail.http.checks import parse_json
from truetail.http.errors import Failure
from truetail.http.sse import EventStream
from truetail.http.tokens import TokenTimes

DONE = "[DONE]"
MAX_TOKENS = 2**32 - 1
MAX_MS = 1e9
"""Times beyond this (eleven days) are no times."""


class Completion:
    """One answer. Use it as the sink of a streamed request, then :meth:`finish`; or :meth:`whole` for one that is not streamed.

    A token is an event whose choice carries text (or reasoning, or a tool call). An event with empty text counts too where it neither opens nor
    ends the answer: the server decoded a token whose character is not complete yet.
    """

    def __init__(self) -> None:
        self.times = TokenTimes()
        self.text: list[str] = []
        self._events = EventStream()
        self._done = False
        self._usage: Mapping[str, Any] | None = None
        self._timings: Mapping[str, Any] = {}

    def __call__(self, piece: bytes, now_ns: int) -> None:
        """Take a piece of the body. Raises Failure for what is no stream of completions."""
        for event in self._events.feed(piece):
            if event.strip() == DONE:
                self._done = True
            else:
                self._chunk(parse_json(event), now_ns)

    def _chunk(self, chunk: Any, now_ns: int) -> None:
        if not isinstance(chunk, dict):
            raise Failure("malformed", "event is no JSON object")
        if chunk.get("error"):
            raise Failure("wrong-content", "the server reports an error within the stream")
        if self._done:
            raise Failure("malformed", "events after the end of the stream")
        self._note(chunk)
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if not isinstance(choice, dict):
                raise Failure("malformed", "choice is no JSON object")
            index = choice.get("index")
            if self._is_token(choice):
                self.times.add(now_ns, index if isinstance(index, int) else 0)

    def _note(self, told: Mapping[str, Any]) -> None:
        """The server's own account: tokens, and where it tells one (llama.cpp) the time that it took."""
        if isinstance(told.get("usage"), dict):
            self._usage = told["usage"]
        if isinstance(told.get("timings"), dict):
            self._timings = told["timings"]

    def _is_token(self, choice: Mapping[str, Any]) -> bool:
        delta = choice.get("delta")
        told = delta if isinstance(delta, dict) else choice
        text = told.get("content") if told is delta else told.get("text")
        if isinstance(text, str) and text:
            self.text.append(text)
            return True
        if any(told.get(field) for field in ("reasoning_content", "reasoning", "tool_calls")):
            return True
        return text == "" and "role" not in told and not choice.get("finish_reason")

    def finish(self, answer: Answer) -> None:
        """Judge the stream as a whole, and put times and tokens into the account."""
        if not answer.failed:
            if not answer.headers.get("content-type", "").lower().startswith("text/event-stream"):
                answer.fail(Failure("wrong-content", "no event stream"))
            elif not self._done:
                answer.fail(Failure("truncated", f"stream ends without {DONE}"))
            elif self.times.count == 0:
                answer.fail(Failure("wrong-content", "stream without a token"))
        self._count(answer)
        self.times.tell(answer.exchange)

    def whole(self, answer: Answer) -> None:
        """The same for an answer that came in one piece: no token times, but the server's usage."""
        if answer.failed:
            return
        try:
            body = parse_json(answer.body)
            choices = body.get("choices") if isinstance(body, dict) else None
            if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
                raise Failure("wrong-content", "no choices")
        except Failure as failure:
            answer.fail(failure)
            return
        message = choices[0].get("message")
        self.text.append(str((message or {}).get("content") or "" if isinstance(message, dict) else choices[0].get("text") or ""))
        self._note(body)
        self._count(answer)

    def _count(self, answer: Answer) -> None:
        """The server's own count of tokens, where it tells one; ours of the events stands in for it. Its time for prompt and tokens is inference."""
        if self._usage is not None:
            answer.exchange.tokens_in = _tokens(self._usage.get("prompt_tokens"))
            answer.exchange.tokens_out = _tokens(self._usage.get("completion_tokens"))
        prompt_ms, predicted_ms = _ms(self._timings.get("prompt_ms")), _ms(self._timings.get("predicted_ms"))
        if prompt_ms is not None and predicted_ms is not None:
            answer.exchange.inference_us = (prompt_ms + predicted_ms) * 1e3


def _ms(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < MAX_MS else None


def _tokens(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_TOKENS else 0
