"""The collector's own /metrics, on 127.0.0.1 only: how it is doing, and the latest sample of every GPU and of the host."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from collector.events import Events
from collector.sampler import Sampler

ADDRESS = "127.0.0.1"
OWN = {
    "samples": "samples taken",
    "missed": "ticks that went by without a sample",
    "failures": "readings that failed",
}


class Page(Collector):
    """Builds the page from what the samplers hold; nothing is stored for it, so its size is that of the sources."""

    def __init__(self, samplers: list[Sampler], events: Events, host: str) -> None:
        self.samplers, self.events, self.host = samplers, events, host

    def collect(self) -> Iterator[Metric]:
        """All families: own counters, hung sources, dropped lines, events by kind, latest values."""
        samplers = list(self.samplers)
        for name, text in OWN.items():
            family = CounterMetricFamily(
                f"truetail_collector_{name}", f"Of each source: {text}", labels=["folder", "source", "gpu"]
            )
            for sampler in samplers:
                family.add_metric(self._labels(sampler), getattr(sampler.progress, name))
            yield family
        hung = GaugeMetricFamily(
            "truetail_collector_hung", "1 while a source's call does not come back", labels=["folder", "source", "gpu"]
        )
        for sampler in samplers:
            hung.add_metric(self._labels(sampler), float(sampler.progress.hung))
        yield hung
        dropped = CounterMetricFamily("truetail_collector_dropped_lines", "Lines that could not be written", labels=["file"])
        for journal in {id(s.journal): s.journal for s in samplers}.values():
            dropped.add_metric([f"{journal.folder.name}/{journal.name}"], journal.dropped)
        yield dropped
        events = CounterMetricFamily("truetail_collector_events", "Events by kind", labels=["kind"])
        for kind, count in list(self.events.counts.items()):
            events.add_metric([kind], count)
        yield events
        yield from self._latest(samplers)

    def _latest(self, samplers: list[Sampler]) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for sampler in samplers:
            if sampler.source.folder == "server":
                continue  # a server's figures have an endpoint of their own
            for key, value in list(sampler.progress.latest.items()):
                if isinstance(value, int | float):
                    self._add(families, sampler, key, float(value))
        yield from families.values()

    def _add(self, families: dict[str, Metric], sampler: Sampler, key: str, value: float) -> None:
        name = f"truetail_{sampler.source.folder}_{re.sub('[^a-zA-Z0-9_]', '_', key)}"
        family = families.get(name)
        if family is None:
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            family = families[name] = kind(name, "Latest sample", labels=["host", "source", "gpu"])
        labels = [self.host, *self._labels(sampler)[1:]]
        family.add_metric(labels, value)  # type: ignore[attr-defined]

    @staticmethod
    def _labels(sampler: Sampler) -> list[str]:
        key: Any = sampler.source.key
        return [sampler.source.folder, sampler.source.name, str(key.get("gpu", ""))]


def serve(page: Page, port: int) -> int:
    """Serve the page on 127.0.0.1 (port 0: any free one) in a daemon thread; returns the port. Raises OSError when taken."""
    registry = CollectorRegistry()
    registry.register(page)
    server, _ = start_http_server(port, addr=ADDRESS, registry=registry)
    return int(server.server_address[1])
