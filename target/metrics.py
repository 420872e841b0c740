"""GET /metrics: counters, stage histograms and the devices' figures in the Prometheus text format."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

STAGES = ("queue", "preprocess", "inference", "postprocess", "dependency")
SECONDS_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
BATCH_BUCKETS = (1, 2, 4, 6, 8, 12, 16, 24, 32, 64)

PATHS = frozenset({"/healthz", "/readyz", "/version", "/predict", "/predict_batch", "/metrics", "/faults", "/device"})

GAUGES = {
    "busy_share": "Share of the last second in which the device was busy",
    "batch_size": "Instances in the device now",
    "queue_length": "Requests waiting for the device",
    "memory_used_bytes": "Device memory in use",
    "memory_total_bytes": "Device memory",
    "clock_mhz": "Clock of the device",
    "clock_max_mhz": "Clock of the device when nothing throttles it",
    "throttling": "1 while the clock is lowered",
    "power_w": "Power drawn",
}


class Buckets:
    """A Prometheus histogram for one thread: prometheus_client's takes a lock per bucket, 20 us a request for five stages."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count a value in the first bucket whose bound it does not exceed."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def cumulative(self) -> tuple[list[tuple[str, float]], float]:
        """(bound, number at or below it) up to "+Inf", and the sum: what the exposition wants."""
        bounds = [*(str(float(bound)) for bound in self.bounds), "+Inf"]
        return list(zip(bounds, map(float, accumulate(self.counts)), strict=True)), self.total


class Metrics:
    """One registry per app, so that two apps in a process stay apart."""

    def __init__(self, figures: Callable[[], dict[str, Any]]) -> None:
        self.registry = CollectorRegistry()
        self._figures = figures
        self._requests = Counter("target_requests", "Answers by path and status", ["path", "status"], registry=self.registry)
        self.stage = {name: Buckets(SECONDS_BUCKETS) for name in STAGES}
        self.batch = Buckets(BATCH_BUCKETS)
        self._count: dict[tuple[str, int], Callable[[], None]] = {}
        self.registry.register(self)

    def answered(self, path: str, status: int) -> None:
        """Count an answer; unknown paths share one label, so that strangers cannot grow the registry."""
        key = (path if path in PATHS else "other", status)
        count = self._count.get(key)
        if count is None:
            count = self._count[key] = self._requests.labels(key[0], str(status)).inc
        count()

    def collect(self) -> Iterable[Metric]:
        """The devices' figures at the moment of the scrape, labelled with their source."""
        figures = self._figures()
        ready = GaugeMetricFamily("target_ready", "1 when the service takes requests")
        ready.add_metric([], float(figures["ready"]))
        yield ready
        stages = HistogramMetricFamily("target_stage_seconds", "Time by stage of answered predictions", labels=["stage"])
        for name, buckets in self.stage.items():
            stages.add_metric([name], *buckets.cumulative())
        yield stages
        batch = HistogramMetricFamily("target_batch_size", "Instances per call of the model")
        batch.add_metric([], *self.batch.cumulative())
        yield batch
        yield from self._device_families(figures)

    @staticmethod
    def _device_families(figures: dict[str, Any]) -> Iterable[Metric]:
        labels = ["replica", "source"]
        busy = CounterMetricFamily("target_device_busy_seconds", "Time in which the device was busy", labels=labels)
        for device in figures["devices"]:
            busy.add_metric([device["replica"], figures["source"]], device["busy_seconds_total"])
        yield busy
        for field, text in GAUGES.items():
            gauge = GaugeMetricFamily(f"target_device_{field}", text, labels=labels)
            for device in figures["devices"]:
                if field in device:  # what is not known is absent, not zero
                    gauge.add_metric([device["replica"], figures["source"]], float(device[field]))
            yield gauge

    def text(self) -> bytes:
        """The exposition."""
        return generate_latest(self.registry)
