"""What the page is told: the fleet's own figures to the last digit, under 100 kB after two hours, markup only ever as text."""

import json

import numpy as np
import pytest

from truetail.histogram import Histogram
from truetail.ui.payload import Payload

RNG = np.random.default_rng(11)
MARKUP = '<script>alert("x")</script><img src=x onerror=alert(1)>'


def histogram_of(values_ns):
    """A histogram of durations."""
    made = Histogram()
    made.record_many_ns(np.asarray(values_ns, dtype=np.int64))
    return made


def strict(payload):
    """The payload as the page gets it: strict JSON, compact."""
    return json.dumps(payload.build(), allow_nan=False, separators=(",", ":"))


def test_before_the_first_word(make_master):
    """A page opened during the muster gets figures without data, not an error."""
    master = make_master()
    master.document["state"], master.document["epoch_wall_ns"], master.epoch_mono_ns, master.planned_per_s = (
        "planned",
        None,
        0,
        [],
    )
    told = json.loads(strict(Payload(master.live)))
    assert told["state"] == "muster"
    assert told["percentiles"] == {}
    assert told["plan"]["rate"] == []
    assert told["light"]["colour"] == "amber"


def test_figures_are_those_of_the_merged_snapshots(make_master):
    """Percentiles, counts and mean equal those of Histogram.merge over the workers' snapshots: equality, no tolerance."""
    master = make_master(workers=3)
    reference = Histogram()
    for slot in range(3):
        part = histogram_of(RNG.exponential(20e6, 700 + slot))
        reference.merge(part)
        master.say(slot, 10.0, {"response": part, "replica/a": part}, sent=700, ok=700)
    told = json.loads(strict(Payload(master.live)))["percentiles"]["response"]
    assert told["n"] == reference.n == 2103
    for percentile in ("50", "95", "99", "99.9"):
        assert told[f"p{percentile}"] == round(reference.percentile_ns(percentile) / 1e6, 3)
    assert told["max"] == round(reference.max_ns / 1e6, 3)


def test_mean_of_p99s_beside_the_true_one(make_master):
    """97 % of the requests at a replica with p99 46 ms, 3 % at one with 636 ms (exponential): the mean says 341 ms. True: beyond the fast
    one's tail, 0.03 exp(-t ln 100 / 636) = 0.01, so t = 636 ln 3 / ln 100 = 151.7 ms.
    """
    quantiles = lambda n, p99_ms: -np.log1p(-(np.arange(n) + 0.5) / n) * p99_ms * 1e6 / np.log(100)  # noqa: E731
    a, b = quantiles(97_000, 46.0), quantiles(3_000, 636.0)
    master = make_master(workers=1)
    both = histogram_of(np.concatenate((a, b)))
    master.say(0, 10.0, {"response": both, "replica/a": histogram_of(a), "replica/b": histogram_of(b)}, sent=100_000, ok=100_000)
    told = Payload(master.live).build()["replicas"]
    assert told["mean_of_p99s_ms"] == pytest.approx(341, rel=0.005)
    assert told["true_p99_ms"] == pytest.approx(636 * np.log(3) / np.log(100), rel=0.005)
    assert told["true_p99_ms"] == Payload(master.live).build()["percentiles"]["response"]["p99"]


@pytest.mark.slow
def test_two_hours_four_workers_twenty_series_under_100_kb(make_master):
    """The payload at the end of two hours with 20 series, 4 workers, 40 long events and 16 telemetry tracks is below 100 kB."""
    master = make_master(workers=4, duration="2h", slos=", ".join(f'"p{p} < 1s"' for p in (50, 90, 95, 99)))
    names = [
        "response",
        "service",
        "lateness",
        "ttft",
        *(f"response/name-{i}" for i in range(8)),
        *(f"replica/replica-{i}" for i in range(8)),
    ]
    cumulative = {name: Histogram() for name in names}
    steps = [*range(40, 7080, 40), *range(7080, 7201)]  # the last two minutes by the second, what is before in strides
    for second in steps:
        for name in names:
            cumulative[name].record_many_ns((RNG.lognormal(3, 0.5, 10) * 1e6).astype(np.int64))
        for slot in range(4):
            master.say(
                slot,
                second,
                cumulative if second % 400 == 0 or second > 7080 else {"response": cumulative["response"]},
                sent=25 * second,
                ok=25 * second,
            )
        master.live.look()
    (master.folder / "gpu").mkdir()
    epoch = master.document["epoch_wall_ns"]
    values = {f"devices.{d}.{key}": 71.25 for d in range(8) for key in ("busy_share", "power_w", "clock_mhz")}
    lines = [json.dumps({"wall_ns": epoch + s * 10**9, "mono_ns": s, "simulated": True, "values": values}) for s in range(7200)]
    (master.folder / "gpu" / "simulated-target.jsonl").write_text("\n".join(lines) + "\n")
    event = {"at_ns": 1, "wall_ns": 1, "kind": "worker-lost", "text": "x" * 1000}
    (master.folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for _ in range(100)))
    payload = Payload(master.live)
    for _ in range(4):  # long files are read a piece at a time
        text = strict(payload)
    told = json.loads(text)
    assert len(told["whole"]["to_s"]) > 100
    assert told["width_s"] == 64.0
    assert len(told["recent"]["to_s"]) == 120
    assert len(told["telemetry"]) == 16
    assert len(told["events"]) == 40
    assert told["whole"]["response_p99"][-1] > 20
    assert len(text) < 100_000, len(text)


def test_rates_and_the_plan(make_master):
    """Sent per second over each window against the plan of the same window; the plan also covers what is ahead."""
    master = make_master()
    for second in range(1, 11):
        for slot in range(2):
            master.say(slot, float(second), {}, sent=45 * second, ok=45 * second)
        master.live.look()
    told = Payload(master.live).build()
    assert told["recent"]["sent"] == [90.0] * 10
    assert told["recent"]["planned"] == [100.0] * 10
    assert len(told["plan"]["rate"]) == 60
    assert sum(told["plan"]["rate"]) == master.count
    ledger = told["ledger"]
    assert ledger["scheduled"] == ledger["sent"] + ledger["dropped"] + ledger["lost"] + ledger["unsent"]


def test_markup_stays_text_and_is_cut(make_master):
    """Names, events and hosts from outside come as plain strings of bounded length; nothing in our scripts writes HTML."""
    master = make_master()
    part = histogram_of([1_000_000] * 10)
    master.say(0, 1.0, {f"response/{MARKUP}": part, f"replica/{MARKUP * 4}": part, f"failed/{MARKUP}": part}, sent=10, ok=10)
    (master.folder / "events.jsonl").write_text(
        json.dumps({"at_ns": None, "kind": MARKUP, "text": MARKUP * 20}) + "\nnot json\n[1]\n"
    )
    told = Payload(master.live).build()
    assert told["names"][0]["name"] == MARKUP
    assert told["names"][0]["failed"] == 10
    assert len(told["replicas"]["rows"][0]["name"]) == 200
    assert told["events"][0]["kind"] == MARKUP
    assert len(told["events"][0]["text"]) == 200
    from truetail.ui.guard import STATIC

    for script in STATIC.glob("*.js"):
        if not script.name.startswith("uPlot"):
            text = script.read_text()
            for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
                assert way not in text, (script.name, way)


def test_a_lost_worker_keeps_its_figures(make_master):
    """A worker that is lost stays in the table with its last figures, and turns the light red."""
    master = make_master()
    for slot in range(2):
        master.say(slot, 5.0, {"lateness": histogram_of([1_000_000] * 100)}, sent=100, ok=100)
    master.fleet.lost("client-1", 6 * 10**9)
    told = Payload(master.live).build()
    assert [worker["state"] for worker in told["workers"]] == ["running", "lost"]
    assert told["workers"][1]["sent"] == 100
    assert told["light"]["colour"] == "red"
    assert told["ledger"]["lost"] > 0


def test_verdict_once_the_report_is_there(make_master):
    """The verdict comes from summary.json after the end; a torn or strange file is no verdict."""
    master = make_master()
    master.finished = True
    payload = Payload(master.live)
    for text in ("{", '{"verdict": 3}', "[]", '{"verdict": {"status": "PASS"}}'):
        (master.folder / "summary.json").write_text(text)
        assert payload.build()["verdict"] is None
    (master.folder / "summary.json").write_text(json.dumps({"verdict": {"status": "FAIL", "reasons": ["p99 < 50ms is missed"]}}))
    assert payload.build()["verdict"] == {"status": "FAIL", "reasons": ["p99 < 50ms is missed"]}
