"""Redirects, followed only when asked for: so many, within the same origin, under the same deadline."""

from __future__ import annotations

import time
from urllib.parse import urljoin, urlsplit

from truetail.exchange import Exchange
from truetail.http.answer import Answer
from truetail.http.client import HttpClient
from truetail.http.errors import Failure
from truetail.http.request import PreparedRequest

STATUSES = frozenset({301, 302, 303, 307, 308})


def follow(client: HttpClient, request: PreparedRequest, answer: Answer, most: int, deadline_ns: int) -> Answer:
    """The answer at the end of the chain that begins with ``answer``, its account covering all of it.

    More than ``most`` steps (a loop, too) or one to another origin is class redirect.
    """
    first = answer.exchange
    for _ in range(most):
        if answer.failed or answer.status not in STATUSES:
            return _whole(first, answer)
        try:
            request = _next(client, request, answer)
        except Failure as failure:
            answer.fail(failure)
            return _whole(first, answer)
        answer = client.send(request, (deadline_ns - time.monotonic_ns()) / 1e9)
    if not answer.failed and answer.status in STATUSES:
        answer.fail(Failure("redirect", f"over {most} of them"))
    return _whole(first, answer)


def _next(client: HttpClient, request: PreparedRequest, answer: Answer) -> PreparedRequest:
    origin = client.origin
    absolute = "" if request.target.startswith("/") else f"{origin.scheme}://{origin.authority}"  # through a proxy
    here = request.target if absolute else f"{origin.scheme}://{origin.authority}{request.target}"
    try:
        there = urlsplit(urljoin(here, answer.headers.get("location", "")))
    except ValueError:
        raise Failure("redirect", "to no URL") from None
    if (there.scheme, there.netloc) != (origin.scheme, origin.authority):
        raise Failure("redirect", "to another origin")
    target = absolute + (there.path or "/") + (f"?{there.query}" if there.query else "")
    try:
        return request.towards(
            target, "GET" if answer.status == 303 or (request.method == "POST" and answer.status < 303) else ""
        )
    except ValueError:
        raise Failure("redirect", "to no URL") from None


def _whole(first: Exchange, answer: Answer) -> Answer:
    last = answer.exchange
    if last is not first:
        last.sent_ns, last.first_byte_ns, last.connect_us = first.sent_ns, first.first_byte_ns, first.connect_us
        last.request_bytes += first.request_bytes
    return answer
