"""The chapters of the report, and `truetail plan` and `compare`, on run folders whose contents are known."""

import json
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from analysis.run_folder import open_run
from analysis.sections import SECTIONS, compute
from truetail import cli
from truetail.records import FAILED

OURS = {"How sure", "Arrivals certified", "Sanity laws", "Diagnosis", "Theory beside measurement"}
VERSION = {"service": "truetail-target", "config": {"a": 0.010, "c": 0.0005, "max_batch": 16, "max_delay": 0.002}}


def beside(name):
    """A module that lies beside this file."""
    spec = spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


sim, folders = beside("simulated_service"), beside("simulated_run")


def folder(tmp_path, name="run", service=None, rate=100.0, seed=1, **manifest):
    """A run folder of a simulated service."""
    served = service or sim.Service()
    return folders.write_run(tmp_path / name, lambda at: sim.serve(served, at, seed), rate, seed=seed, **manifest)


def chapters(path):
    """Our chapters of a run, by title."""
    ours = [entry for entry in SECTIONS if entry[0] in OURS]
    found = {chapter.title: chapter for chapter in compute(open_run(path), ours)}
    assert not [chapter.failure for chapter in found.values() if chapter.failure]
    return found


def words(chapter):
    """What a chapter says."""
    return " ".join(chapter.section.findings)


def test_all_chapters_of_a_clean_run(tmp_path):
    """A clean run: certified, laws hold, no accusation, theory within 25 %; every plot is an SVG; data is strict JSON."""
    found = chapters(folder(tmp_path, rate=300.0, target={"version": VERSION}))
    assert set(found) == OURS
    assert "Certified" in words(found["Arrivals certified"])
    assert "Little's law holds" in words(found["Sanity laws"])
    assert "the service keeps up" in words(found["Sanity laws"])
    assert "No cause stands out" in words(found["Diagnosis"])
    assert "queueing explains it" in words(found["Theory beside measurement"])
    assert "delay 2 ms" in found["Theory beside measurement"].section.tables[0].rows[1][0]
    for chapter in found.values():
        json.dumps(chapter.section.data, allow_nan=False)
        assert all(plot.svg.startswith("<svg") for plot in chapter.section.plots)


def test_predicted_and_measured_agree(tmp_path):
    """The replay of the batching rule gives the simulated service's p99 within 5 %, at 400/s and at 700/s."""
    for rate in (400.0, 700.0):
        data = chapters(folder(tmp_path, f"r{rate}", rate=rate, target={"version": VERSION}))[
            "Theory beside measurement"
        ].section.data
        measured, predicted = data["predicted"]
        assert predicted["p99_s"] == pytest.approx(measured["p99_s"], rel=0.05)


def test_a_service_that_serves_one_at_a_time(tmp_path):
    """One exponential request a call: Lindley's replay agrees with the measurement, and M/M/1 stands beside it."""
    found = chapters(folder(tmp_path, service=sim.Service(mode="fifo", a=0.01), rate=50.0))["Theory beside measurement"].section
    measured, replayed, mm1 = found.data["predicted"]
    assert replayed["p99_s"] == pytest.approx(measured["p99_s"], rel=0.02)
    assert mm1["model"].startswith("M/M/1")
    assert mm1["mean_s"] == pytest.approx(0.020, rel=0.15)


def test_a_paused_service(tmp_path):
    """Pauses every 5 s: the diagnosis names them with their period, and theory says that queueing does not explain the tail."""
    path = folder(tmp_path, service=sim.Service(pauses=[(t, t + 0.2) for t in range(8, 60, 5)]), rate=200.0)
    found = chapters(path)
    assert "stood still" in words(found["Diagnosis"])
    assert "every 5 s" in words(found["Diagnosis"])
    assert "something else than queueing" in words(found["Theory beside measurement"])


def test_a_short_run_says_how_long_it_should_be(tmp_path):
    """Fifteen seconds at 20/s: p99 is bounded from below only, and the needed number of requests is told."""
    text = words(chapters(folder(tmp_path, rate=20.0, duration_s=15.0))["How sure"])
    assert "too short" in text
    assert "requests are needed" in text


def test_a_cold_start_after_the_warm_up_alarms(tmp_path):
    """A service that is slow for 10 s with a warm-up of 2 s raises the alarm; nothing is cut."""
    service = sim.Service(slow_windows=[(0.0, 12.0, 3.0)])
    section = chapters(folder(tmp_path, service=service, rate=50.0, warmup_s=2.0))["How sure"].section
    assert section.data["warmup_alarm"]
    assert "Alarm" in " ".join(section.findings)


def test_missing_and_late_arrivals_are_not_certified(tmp_path):
    """A generator that sends a tenth of the requests 20 ms late, and loses some, gets no certificate."""

    def serve(at):
        records = sim.serve(sim.Service(), at, 1)
        records["sent_ns"][::10] += 20_000_000
        records["outcome"][5::500] = FAILED
        records["sent_ns"][5::500] = -1
        return records

    section = chapters(folders.write_run(tmp_path / "late", serve))["Arrivals certified"].section
    assert not section.data["certified"]
    assert any("lateness p99" in fault for fault in section.data["faults"])
    assert any("were not sent" in fault for fault in section.data["faults"])


def test_a_run_without_stages_or_answers(tmp_path):
    """No stages: theory and stages are said to be not measured. No answer at all: the chapters do not break."""
    bare = chapters(folder(tmp_path, "bare", service=sim.Service(tells=False)))
    assert "Not measured" in words(bare["Theory beside measurement"])
    assert "not measured" in words(bare["Sanity laws"])
    dead = chapters(folder(tmp_path, "dead", service=sim.Service(away=[(0, 0.0, 1e9)])))
    assert "No diagnosis" in words(dead["Diagnosis"])


def arm(tmp_path, name, scale, seeds, **manifest):
    """Runs whose service takes ``scale`` times as long."""
    service = {"a": 0.010 * scale, "c": 0.0005 * scale}
    start = 10**18
    return [
        str(
            folder(
                tmp_path, f"{name}{s}", sim.Service(**service), seed=s, rate=150.0, started_wall_ns=start + s * 10**12, **manifest
            )
        )
        for s in seeds
    ]


def test_compare_gates(tmp_path, capsys):
    """+30 %: exit 1; the same: 0 within 20 %; one pair: 3, and called indicative."""
    base, same, slower = (
        arm(tmp_path, n, s, seeds) for n, s, seeds in (("b", 1, (1, 3, 5)), ("s", 1, (2, 4, 6)), ("w", 1.3, (2, 4, 6)))
    )
    assert cli.main(["compare", *base, "--", *slower]) == 1
    assert "worse" in capsys.readouterr().out
    assert cli.main(["compare", "--margin", "20%", *base, "--", *same]) == 0
    capsys.readouterr()
    assert cli.main(["compare", base[0], "--", slower[0]]) == 3
    assert "indicative" in capsys.readouterr().out


def test_compare_json(tmp_path, capsys):
    """The JSON has the ratio with its interval around the true one, and says that a single pair is indicative."""
    base, slower = arm(tmp_path, "b", 1, (1,)), arm(tmp_path, "w", 1.3, (2,))
    assert cli.main(["compare", "--json", *base, "--", *slower]) == 3
    found = json.loads(capsys.readouterr().out)
    assert found["indicative"]
    assert found["base"][0]["run"] == "b1"
    assert found["ratio"] > 1.2


def test_compare_says_that_a_run_is_invalid_by_itself(tmp_path, capsys):
    """A base that is too short for its own SLO line is compared, since a comparison claims nothing of it; but a note says so."""
    base, other = (arm(tmp_path, n, 1, (seed,), slos=["p99.99 < 10s"]) for n, seed in (("b", 1), ("o", 2)))
    assert cli.main(["compare", *base, "--", *other]) == 3
    said = " ".join(capsys.readouterr().out.split())
    assert "b1 is INVALID by itself: long enough" in said
    assert "o2 is INVALID by itself: long enough" in said


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"host": {"name": "there", "cpus": 64}}, "different machines"),
        ({"state": "running"}, "INVALID"),
        ({"rate": 200.0}, "other work"),
    ],
)
def test_compare_refuses_unlike_runs(tmp_path, capsys, change, said):
    """Another machine, a run that did not end, another rate: refused with the reason (exit 2), compared with --unlike."""
    base, other = folder(tmp_path, "base"), folder(tmp_path, "other", seed=2, **change)
    assert cli.main(["compare", str(base), "--", str(other)]) == 2
    assert said in capsys.readouterr().err
    assert cli.main(["compare", "--unlike", str(base), "--", str(other)]) in (0, 1, 3)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["a", "b"], "put --"),
        (["a", "--"], "at least one"),
        (["a", "--", "a"], "twice"),
        (["nowhere", "--", "b"], "cannot be read"),
        (["--percentile", "101", "a", "--", "b"], "percentile"),
        (["--margin", "x", "a", "--", "b"], "share"),
    ],
)
def test_compare_says_what_is_wrong(given, said, capsys):
    """Each wrong use is one clear line and exit code 2."""
    assert cli.main(["compare", *given]) == 2
    assert said in capsys.readouterr().err


def plan(capsys, *given):
    """The JSON of a `truetail plan` command."""
    assert cli.main(["plan", *given, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_plan_gives_the_lessons_answers(capsys):
    """Replicas, batch settings, fan-out, sample size and one queue from the command line."""
    replicas = plan(capsys, "replicas", "--slo", "p99 < 250ms", "--peak", "120/s", "--service", "20ms")
    assert replicas["replicas"] == 4
    assert replicas["highest_rate_each_rps"] == pytest.approx(31.6, abs=0.05)
    given = (
        "--a",
        "10ms",
        "--c",
        "0.5ms",
        "--rate",
        "400/s",
        "--slo",
        "p99 < 50ms",
        "--max-batch",
        "8",
        "--max-batch",
        "16",
        "--delay",
        "2ms",
    )
    batch = plan(capsys, "batch", *given)
    assert batch["best"]["max_batch"] == 16
    assert batch["best"]["fixed_point"] == pytest.approx(5)
    assert batch["best"]["quantile_s"] == pytest.approx(0.0277, rel=0.02)
    assert plan(capsys, "fanout", "--backends", "20")["slow_share"] == pytest.approx(0.182, abs=5e-4)
    assert plan(capsys, "requests", "--utilisation", "50%", "--rate", "100/s")["claim_n"] == 8000
    queue = plan(capsys, "queue", "--rate", "45/s", "--service", "20ms")
    assert queue["quantiles_s"]["p99"] == pytest.approx(0.921, abs=5e-4)
    assert plan(capsys, "queue", "--rate", "45/s", "--service", "20ms", "--cv", "0")["wait_mean_s"] == pytest.approx(0.09)
    approximate = plan(capsys, "queue", "--rate", "150/s", "--service", "20ms", "--servers", "4", "--cv", "0.5")
    assert not approximate["exact"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["queue", "--rate", "55/s", "--service", "20ms"], "grows without bound"),
        (["replicas", "--slo", "p99 < 50ms", "--peak", "120/s", "--service", "20ms"], "more replicas cannot help"),
        (["fanout", "--backends", "0"], "at least one backend"),
        (["requests", "--utilisation", "100%"], "utilisation"),
    ],
)
def test_plan_says_where_theory_has_no_answer(given, said, capsys):
    """Unstable, unreachable and senseless questions are one clear line and exit code 2."""
    assert cli.main(["plan", *given]) == 2
    assert said in capsys.readouterr().err


def test_plan_tables_and_help(capsys):
    """The readable form has the answer in its first line; help shows the questions and examples; wrong units are explained."""
    assert cli.main(["plan", "replicas", "--slo", "p99 < 250ms", "--peak", "120/s", "--service", "20ms"]) == 0
    assert capsys.readouterr().out.startswith("4 replicas")
    with pytest.raises(SystemExit):
        cli.main(["plan", "--help"])
    assert "truetail plan batch" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        cli.main(["plan", "queue", "--rate", "fast", "--service", "20ms"])
    assert "a rate like 60/s" in capsys.readouterr().err
