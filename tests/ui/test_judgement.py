"""The validity light and the SLO lines while a run lasts, case by case."""

import numpy as np
import pytest

from truetail.histogram import Histogram
from truetail.scenario import loads
from truetail.timeline import Merged
from truetail.ui.judgement import Standing, light, slo_states

MS = 1_000_000
SCENARIO = """
name: judged
target: {url: http://127.0.0.1:9}
requests: [{name: predict, path: /predict}]
arrivals: {rate: 100/s, spacing: poisson}
duration: 60s
warmup: 0s
fleet: {workers: 2}
slos: [%s]
"""


def histogram_of(values_ns):
    """A histogram of durations."""
    made = Histogram()
    made.record_many_ns(np.asarray(values_ns, dtype=np.int64))
    return made


def standing(slos='"p99 < 50ms"', lost=(), stop="", at_s=30.0, planned=1000, residual_ns=0, ledger=None, **series):
    """A run of 1000 arrivals at 30 s; series in ms."""
    merged = {name.replace("__", "/"): Merged.of([histogram_of(np.array(values) * MS)]) for name, values in series.items()}
    counts = {"sent": 1000, "dropped": 0, "lost": 0} | (ledger or {})
    return Standing(loads(SCENARIO % slos).resolved(), merged, counts, at_s, planned, lost, residual_ns, stop)


ON_TIME = [1] * 1000


@pytest.mark.parametrize(
    ("changes", "colour", "says"),
    [
        ({}, "green", "no worker was lost"),
        ({"lost": ("worker-1",)}, "red", "1 workers lost: worker-1"),
        ({"ledger": {"dropped": 3}}, "red", "3 arrivals dropped"),
        ({"ledger": {"lost": 7, "sent": 993}}, "red", "7 arrivals were lost"),
        ({"lateness": [1] * 980 + [9] * 20}, "red", "lateness p99 9"),
        ({"lateness": [1] * 999 + [300]}, "red", "lateness max 300 ms"),
        ({"lateness": [1] * 980 + [4.5] * 20}, "amber", "lateness p99 4.5"),
        ({"ledger": {"sent": 900}}, "amber", "sent 900 of 1,000"),
        ({"residual_ns": 6 * MS}, "red", "clocks agree within 6 ms"),
        ({"stop": "interrupted"}, "red", "stopped: interrupted"),
    ],
)
def test_light(changes, colour, says):
    """Each rule alone turns the light, and says what was found and what is allowed; the worst is said first."""
    found, said = light(standing(**({"lateness": ON_TIME} | changes)))
    assert found == colour
    assert any(says in text for _, text in said), said
    assert said[0][0] == colour


def test_light_before_the_warm_up_is_over():
    """Without data it is not green."""
    assert light(standing())[0] == "amber"


@pytest.mark.parametrize(
    ("slo", "series", "state", "measured"),
    [
        ("p99 < 50ms", {"response": [10] * 1000}, "met", "10"),
        ("p99 < 50ms", {"response": [10] * 985 + [80] * 15}, "missed", "80"),
        ("p99 < 50ms", {"response": [10] * 100}, "few", "10"),
        ("p99 < 50ms", {"response": [10] * 980, "failed": [1] * 20}, "missed", "inf (failed)"),
        ("p50 < 10ms", {"response": [10] * 1000}, "close", "10"),
        ("error_rate < 1%", {"response": [10] * 995, "failed": [1] * 5}, "met", "0.500%"),
        ("error_rate < 1%", {"response": [10] * 980, "failed": [1] * 20}, "missed", "2.000%"),
        ("goodput(20ms) > 90%", {"response": [10] * 850 + [30] * 100, "failed": [1] * 50}, "missed", "85.000%"),
        ("mean < 20ms", {"response": [10] * 1000}, "met", "10"),
        ("max < 20ms", {"response": [10] * 999 + [30]}, "missed", "30"),
        ("rate > 30/s", {"response": [10] * 1000}, "met", "33.33/s"),
        ("p95[predict] < 20ms", {"response__predict": [10] * 100}, "met", "10"),
        ("p95(service) < 20ms", {"response": [30] * 100, "service": [10] * 100}, "met", "10"),
        ("p95(queue) < 20ms", {"response": [30] * 100}, "report", "queue"),
        ("p99 < 50ms", {}, "none", "no data yet"),
    ],
)
def test_slo(slo, series, state, measured):
    """A line's state so far: percentiles over failures too, few requests and near misses said as such, what is not measured left open."""
    (found,) = slo_states(standing(f'"{slo}"', **series))
    assert (found.text, found.state) == (slo, state)
    assert measured in found.measured
