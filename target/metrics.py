"""GET /metrics: counters, stage histograms and the devices' figures in the Prometheus text format."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

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


class Metrics:
    """One registry per app, so that two apps in a process stay apart."""

    def __init__(self, figures: Callable[[], dict[str, Any]]) -> None:
        self.registry = CollectorRegistry()
        self._figures = figures
        self._requests = Counter("target_requests", "Answers by path and status", ["path", "status"], registry=self.registry)
        stages = Histogram(
            "target_stage_seconds", "Time by stage of answered predictions", ["stage"],
            buckets=SECONDS_BUCKETS, registry=self.registry,
        )  # fmt: skip
        self.stage = {name: stages.labels(name).observe for name in STAGES}
        batch = Histogram("target_batch_size", "Instances per call of the model", buckets=BATCH_BUCKETS, registry=self.registry)
        self.batch = batch.observe
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
