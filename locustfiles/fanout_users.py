"""Fan-out: one arrival asks n backends at once and waits for all, as a search over shards does. Its time is that of the slowest.

``protocol: {backends: [http://127.0.0.1:8001, http://127.0.0.1:8002]}``, or ``{backends: 20}`` for so many requests to the target itself.
The arrival's own record comes first; those of its backends follow it as further requests named ``NAME/0``, ``NAME/1``, ...
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gevent
from locust import task

from truetail.errors import UsageError
from truetail.exchange import Exchange
from truetail.http.answer import Answer
from truetail.http.mix import Entry
from truetail.http.target import client_of
from truetail.http.user import HttpLoadUser, Service
from truetail.open_loop import OpenLoop

MOST = 1000


class FanOutUser(OpenLoop, HttpLoadUser):
    """One request to every backend per arrival."""

    protocol_keys = ("backends",)
    default_requests = ({"name": "fan-out", "path": "/predict", "json": {"t2m_k": 285.4, "rh": 72}, "protocol": {"backends": 4}},)

    @classmethod
    def make_service(cls, scenario: Mapping[str, Any], url: str) -> Service:
        """With an entry, and for another address a client, for each backend."""
        service = super().make_service(scenario, url)
        clients = {url: service.client}
        for entry in service.entries.values():
            shards = service.prepared[entry.name] = []
            for number, backend in enumerate(_backends(entry, url)):
                if backend not in clients:
                    clients[backend] = client_of(scenario, backend)
                spec = {**entry.spec, "name": f"{entry.name}/{number}"}
                shards.append(Entry(spec, clients[backend], entry.payload))
        return service

    @task
    def fan_out(self) -> None:
        """Ask all, wait for all."""
        entry = self.entry()
        shards: list[Entry] = self.service.prepared[entry.name]
        asked = [gevent.spawn(self._ask, shard, number) for number, shard in enumerate(shards)]
        try:
            gevent.joinall(asked, raise_error=True)
        except BaseException:
            gevent.killall(asked, block=False)
            raise
        answers = [greenlet.value for greenlet in asked]
        self.report(entry, together([answer.exchange for answer in answers]))
        for shard, answer in zip(shards, answers, strict=True):
            self.report(shard, answer.exchange)

    def _ask(self, shard: Entry, number: int) -> Answer:
        request = self.traced(shard.request(self.arrival), number + 1)  # the arrival itself is part 0, and is reported first
        answer: Answer = shard.client.send(request, shard.deadline_s)
        shard.check.judge(answer)
        return answer


def together(exchanges: list[Exchange]) -> Exchange:
    """The account of a fan-out: from the first sending to the last end; it fails as its first failure does. The replica is the slowest shard's number."""
    slowest = max(range(len(exchanges)), key=lambda i: exchanges[i].done_ns)
    failed = next((exchange for exchange in exchanges if exchange.error_class), None)
    return Exchange(
        sent_ns=min(exchange.sent_ns for exchange in exchanges),
        first_byte_ns=max(exchange.first_byte_ns for exchange in exchanges),
        done_ns=exchanges[slowest].done_ns,
        status=(failed or exchanges[slowest]).status,
        outcome=failed.outcome if failed else exchanges[slowest].outcome,
        error_class=failed.error_class if failed else "",
        error_detail=failed.error_detail if failed else "",
        request_bytes=sum(exchange.request_bytes for exchange in exchanges),
        response_bytes=sum(exchange.response_bytes for exchange in exchanges),
        replica=f"shard {slowest}",
    )


def _backends(entry: Entry, url: str) -> list[str]:
    wanted = entry.protocol.get("backends")
    if isinstance(wanted, int) and not isinstance(wanted, bool) and 1 <= wanted <= MOST:
        return [url] * wanted
    if isinstance(wanted, list) and 1 <= len(wanted) <= MOST and all(isinstance(backend, str) for backend in wanted):
        return wanted
    raise UsageError(
        f"requests {entry.name}: protocol.backends: found {wanted!r}; allowed is a list of URLs or a number from 1 to {MOST}"
    )
