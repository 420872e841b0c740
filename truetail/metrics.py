"""The run for Prometheus: a registry built from the fleet's state at each scrape, so that nothing is counted twice.

Every name begins with ``truetail_``; docs/live.md lists them. Counters are the fleet's own cumulative counts; a new run is a new
``run`` label, not a reset.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from truetail.live import Live
from truetail.timeline import PERCENTILES, PPMS, Merged

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
BUCKETS_S = (
    0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3,
    0.4, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0, 30.0, 60.0,
)  # fmt: skip
"""Upper bounds of the classic buckets: fine where services live, so that histogram_quantile is off by half a step at most."""
HISTOGRAMS = ("response", "service", "lateness", "ttft")
OUTCOMES = ("ok", "failed", "timed_out", "abandoned")
MOST_LABELS = 100
Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily | InfoMetricFamily


class FleetCollector(Collector):
    """Reads the live figures when it is asked."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def collect(self) -> Iterator[Family]:
        """All families of this moment."""
        run = self._live.master.folder.name
        yield from _run(self._live, run)
        yield from _arrivals(self._live, run)
        yield from _times(self._live, run)
        yield from _workers(self._live, run)
        yield _collected(self._live, run)


def exposition(live: Live) -> bytes:
    """The text that Prometheus scrapes."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(FleetCollector(live))
    text: bytes = generate_latest(registry)
    return text


def serve(live: Live, port: int) -> None:
    """Serve ``/metrics`` alone on 127.0.0.1, for runs without a web UI."""
    from gevent.pywsgi import WSGIServer

    def application(environ: dict[str, Any], start: Any) -> list[bytes]:
        if environ["PATH_INFO"] != "/metrics" or environ["REQUEST_METHOD"] != "GET":
            start("404 Not Found", [("Content-Type", "text/plain")])
            return [b"only GET /metrics\n"]
        start("200 OK", [("Content-Type", CONTENT_TYPE)])
        return [exposition(live)]

    WSGIServer(("127.0.0.1", port), application, log=None).start()


def _gauge(name: str, text: str, run: str, value: float) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=("run",))
    family.add_metric((run,), value)
    return family


def _run(live: Live, run: str) -> Iterator[Family]:
    master = live.master
    info = InfoMetricFamily("truetail_run", "The run that is under way.", labels=("run",))
    info.add_metric((run,), {"scenario": str(master.scenario["name"]), "digest": master.digest[:12]})
    yield info
    yield _gauge("truetail_run_elapsed_seconds", "Seconds since the epoch of the run; negative before it.", run, live.now_s)
    yield _gauge("truetail_run_duration_seconds", "How long arrivals are planned for.", run, float(master.scenario["duration_s"]))
    state = GaugeMetricFamily("truetail_run_state", "1 for the state that the run is in.", labels=("run", "state"))
    for name in ("waiting", "muster", "running", "draining", "ended"):
        state.add_metric((run, name), float(live.state == name))
    yield state


def _arrivals(live: Live, run: str) -> Iterator[Family]:
    ledger, levels = live.ledger, live.levels()
    planned = CounterMetricFamily("truetail_arrivals_planned", "Arrivals planned until now.", labels=("run",))
    planned.add_metric((run,), round(live.planned_until(max(0.0, min(live.now_s, live.master.scenario["duration_s"])))))
    yield planned
    yield _gauge("truetail_arrivals_scheduled", "Arrivals planned for the whole run.", run, ledger["scheduled"])
    for name, text in (("sent", "handed to a user and sent"), ("dropped", "that found no free user in time")):
        family = CounterMetricFamily(f"truetail_arrivals_{name}", f"Arrivals {text}.", labels=("run",))
        family.add_metric((run,), ledger[name])
        yield family
    yield _gauge(
        "truetail_arrivals_lost", "Arrivals that went with a lost worker and were taken over by nobody.", run, ledger["lost"]
    )
    yield _gauge("truetail_arrivals_unsent", "Arrivals not sent yet, or never since the run was stopped.", run, ledger["unsent"])
    requests = CounterMetricFamily("truetail_requests", "Requests that have ended, by outcome.", labels=("run", "outcome"))
    for outcome in OUTCOMES:
        requests.add_metric((run, outcome), ledger[outcome])
    yield requests
    yield _gauge("truetail_requests_in_flight", "Requests sent and not ended.", run, levels["in_flight"])
    yield _gauge("truetail_arrivals_waiting", "Arrivals due that wait for a free user.", run, levels["backlog"])


def _times(live: Live, run: str) -> Iterator[Family]:
    merged = live.merged
    for series in HISTOGRAMS:
        if series in merged:
            text = f"{series.capitalize()} of requests after the warm-up, merged over the fleet."
            family = HistogramMetricFamily(f"truetail_{series}_seconds", text, labels=("run",))
            family.add_metric((run,), _buckets(merged[series]), merged[series].sum_ns / 1e9)
            yield family
    exact = GaugeMetricFamily(
        "truetail_percentile_seconds",
        "True fleet-wide nearest-rank percentiles since the warm-up, within 0.1 %: do not average them.",
        labels=("run", "series", "percentile"),
    )
    for series in [*HISTOGRAMS, *sorted(key for key in merged if key.startswith(("response/", "replica/")))][:MOST_LABELS]:
        if series in merged:
            for percentile, value_ns in zip(PERCENTILES, merged[series].percentiles_ns(PPMS), strict=True):
                if value_ns is not None:
                    exact.add_metric((run, series, percentile), value_ns / 1e9)
    yield exact


def _buckets(merged: Merged) -> list[tuple[str, float]]:
    """Cumulative classic buckets: a value counts where its whole cell fits, so a bucket is short by at most the cell at its bound."""
    inside: list[tuple[str, float]] = [(f"{bound:g}", merged.at_most(round(bound * 1e9))) for bound in BUCKETS_S]
    return [*inside, ("+Inf", merged.n)]


WORKER_GAUGES = (
    ("truetail_worker_cpu_share", "Share of one core that the worker used in the last second."),
    ("truetail_worker_loop_stall_max_seconds", "Longest stall of the worker's event loop so far."),
    ("truetail_worker_lateness_p99_seconds", "p99 of the worker's lateness since the warm-up."),
    ("truetail_worker_in_flight", "Requests in flight on the worker."),
    ("truetail_worker_clock_offset_seconds", "The worker's monotonic clock against the master's."),
    ("truetail_worker_clock_residual_seconds", "How exactly that offset is known."),
    ("truetail_worker_up", "1 while the worker runs or has drained; 0 when it is lost."),
)


def _workers(live: Live, run: str) -> Iterator[Family]:
    families = [GaugeMetricFamily(name, text, labels=("run", "worker")) for name, text in WORKER_GAUGES]
    for member in live.members[:MOST_LABELS]:
        snapshot, lateness = member.snapshot, member.histograms.get("lateness")
        late_ns = lateness.percentile_ns("99") if lateness is not None else None
        values = (
            snapshot.generator.cpu_share if snapshot else None,
            snapshot.generator.loop_stall_max_ms / 1e3 if snapshot else None,
            late_ns / 1e9 if late_ns is not None else None,
            float(snapshot.in_flight) if snapshot else None,
            member.clock_offset_ns / 1e9,
            member.clock_residual_ns / 1e9,
            float(member.lost_at_ns is None),
        )
        for family, value in zip(families, values, strict=True):
            if value is not None:
                family.add_metric((run, member.hello.name), value)
    yield from families


def _collected(live: Live, run: str) -> Family:
    """The newest value of each GPU, server and host series that a collector has written into the run's folder."""
    live.telemetry.look(live.master.document["epoch_wall_ns"])
    labels = ("run", "source", "series", "unit", "simulated")
    family = GaugeMetricFamily("truetail_collected", "Newest value of a series that the collector records.", labels=labels)
    for track in list(live.telemetry.tracks.values())[:MOST_LABELS]:
        family.add_metric((run, track.source, track.title, track.unit, str(track.simulated).lower()), track.latest)
    return family
