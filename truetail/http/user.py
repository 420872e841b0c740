"""The base of our HTTP users: one client a process, the mix made ready, one report per request."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import gevent
from locust import User
from locust.env import Environment

from shapes.traces.drops import TraceError
from truetail import plugin
from truetail.arrival import Arrival
from truetail.errors import UsageError
from truetail.exchange import Exchange
from truetail.http import redirects, retry_after
from truetail.http import target as targets
from truetail.http.answer import Answer, Sink
from truetail.http.client import Counts, HttpClient
from truetail.http.errors import Failure
from truetail.http.mix import Entry
from truetail.http.request import PreparedRequest
from truetail.payloads import replayed
from truetail.payloads.payload import Payload

COMMON_KEYS = (*targets.KEYS, "follow_redirects", "retry_after")


class Service:
    """What the users of one process share: the client and the mix."""

    def __init__(self, scenario: Mapping[str, Any], url: str, default: Sequence[Mapping[str, Any]], folder: Path) -> None:
        self.scenario = scenario
        self.url = url
        self.client: HttpClient = targets.client_of(scenario, url)
        seed = int((scenario.get("seed") or {}).get("payload", 0))
        payload: Mapping[str, Any] = scenario.get("payload") or {}
        shared = Payload(payload, seed, folder)
        self.entries: dict[str, Entry] = {}
        for spec in scenario.get("requests") or default:
            own = spec.get("payload")
            entry = Entry(
                {**spec, "protocol": {**(scenario.get("protocol") or {}), **(spec.get("protocol") or {})}},
                self.client,
                Payload({**payload, **own}, seed, folder) if own else shared,
            )
            self.entries[entry.name] = entry
        self.identity: dict[str, Mapping[str, Any]] = {}
        """What the server tells of each entry's model, for the manifest."""
        self.prepared: dict[str, Any] = {}
        """What a protocol has built ahead for each entry."""
        self.default = next(iter(self.entries.values()))


_SERVICES: WeakKeyDictionary[Environment, dict[type, Service]] = WeakKeyDictionary()


def connection_counts(environment: Environment) -> Counts:
    """Connections opened and requests sent again in this process, over all users of :class:`HttpLoadUser`."""
    counts = [service.client.counts for service in _SERVICES.get(environment, {}).values()]
    return Counts(sum(count.opened for count in counts), sum(count.resent for count in counts))


def identities(environment: Environment) -> dict[str, Mapping[str, Any]]:
    """What the server told of the model behind each request of the mix, by the request's name; for the manifest."""
    found: dict[str, Mapping[str, Any]] = {}
    for service in _SERVICES.get(environment, {}).values():
        found |= service.identity
    return found


class HttpLoadUser(User):
    """Sends one entry of the mix per task over the process's client, and reports it with its exact instants.

    A locustfile combines it with the mixin: ``class RestUser(OpenLoop, HttpLoadUser)``, gives ``default_requests`` for a run without a
    scenario, and names the settings of ``protocol`` that it knows in ``protocol_keys``. With ``replays_log`` a trace that tells paths and a scenario
    without requests send what the trace says.
    """

    abstract = True
    arrival: Arrival | None = None
    default_requests: ClassVar[Sequence[Mapping[str, Any]]] = ({"name": "root", "method": "GET", "path": "/"},)
    protocol_keys: ClassVar[tuple[str, ...]] = ()
    replays_log: ClassVar[bool] = False

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self.service = self.set_up(environment)
        self.http = self.service.client

    @classmethod
    def set_up(cls, environment: Environment) -> Service:
        """The process's service for this class, made on the first call. Raises UsageError for anything that the scenario gets wrong."""
        services = _SERVICES.setdefault(environment, {})
        if cls not in services:
            engine = getattr(environment, "truetail", None)
            scenario: Mapping[str, Any] = getattr(engine, "scenario", None) or {}
            url = getattr(engine, "target_url", "") or environment.host or cls.host
            if not url:
                raise UsageError("no target: give a scenario with target.url, or --host")
            try:
                scenario = replayed.filled_in(scenario, cls.default_requests, cls.replays_log)
            except TraceError as error:
                raise UsageError(f"arrivals.trace: {error}") from None
            services[cls] = cls.make_service(scenario, str(url))
        return services[cls]

    @classmethod
    def make_service(cls, scenario: Mapping[str, Any], url: str) -> Service:
        """Client and mix; what else a protocol prepares once is prepared in an override."""
        service = Service(scenario, url, cls.default_requests, Path())
        allowed = (*COMMON_KEYS, *cls.protocol_keys)
        faults = [
            f"requests {entry.name}: protocol.{key} is unknown to {cls.__name__}; allowed are {', '.join(allowed)}"
            for entry in service.entries.values()
            for key in entry.protocol
            if key not in allowed
        ]
        if faults:
            raise UsageError(*faults)
        return service

    def entry(self) -> Entry:
        """The entry of the mix that the arrival at hand asks for; the first one where it does not say."""
        arrival = self.arrival
        if arrival is not None and arrival.request is not None:
            return self.service.entries[str(arrival.request["name"])]
        return self.service.default

    def send_entry(self) -> Answer:
        """Send the arrival's entry, judge the answer, report it."""
        entry = self.entry()
        answer = self.send(entry, entry.request(self.arrival))
        entry.check.judge(answer)
        self.report(entry, answer.exchange)
        return self._again(entry, answer)

    def send(self, entry: Entry, request: PreparedRequest, sink: Sink | None = None) -> Answer:
        """One request and its answer under the entry's deadline, redirects followed where ``protocol.follow_redirects`` asks for it."""
        begun_ns = time.monotonic_ns()
        request = self.traced(request)
        answer = self.http.send(request, entry.deadline_s, sink)
        most = entry.protocol.get("follow_redirects", 0)
        if most and answer.status in redirects.STATUSES:
            answer = redirects.follow(self.http, request, answer, int(most), begun_ns + int(entry.deadline_s * 1e9))
        return answer

    def traced(self, request: PreparedRequest, part: int | None = None) -> PreparedRequest:
        """The request, with a ``traceparent`` where its arrival is sampled; ``part`` as in :func:`truetail.plugin.trace_headers`."""
        headers = plugin.trace_headers(self, part)
        return request.with_headers(headers) if headers else request

    def report(self, entry: Entry, exchange: Exchange, told: Mapping[str, Any] | None = None) -> None:
        """Tell Locust, and through it the recorder, of one request: exactly one event. ``told`` goes into the event's context."""
        failure = Failure(exchange.error_class, exchange.error_detail) if exchange.error_class else None
        self.environment.events.request.fire(
            request_type=entry.method,
            name=entry.name,
            response_time=(exchange.done_ns - exchange.sent_ns) / 1e6,
            response_length=exchange.response_bytes,
            exception=failure,
            context={**self.context(), **told} if told else self.context(),
            exchange=exchange,
        )

    def _again(self, entry: Entry, answer: Answer) -> Answer:
        """After a refusal wait as the server asks and try again, only where ``protocol.retry_after`` says so.

        The arrival's outcome stays the refusal; what follows is recorded as further requests of its task.
        """
        settings = entry.protocol.get("retry_after")
        if not settings or answer.exchange.error_class != "shed":
            return answer
        most, longest_s = retry_after.settings(settings)
        for _ in range(most):
            wait_s = retry_after.seconds(answer.headers.get("retry-after", ""), time.time())
            if wait_s is None or wait_s > longest_s:
                break
            gevent.sleep(wait_s)
            answer = self.send(entry, entry.request(self.arrival))
            entry.check.judge(answer)
            self.report(entry, answer.exchange)
            if answer.exchange.error_class != "shed":
                break
        return answer
