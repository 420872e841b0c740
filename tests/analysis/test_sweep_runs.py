"""From run folders to a sweep's points, theory curve and page, on the simulated batcher; theory against formulas and the planner."""

from __future__ import annotations

import json
import math
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest

from analysis import capacity, queueing, report, sweep_page, sweep_point, sweep_question, sweep_result, sweep_theory
from analysis.batching import BatchRule, BatchTime, simulate
from analysis.run_folder import open_run
from analysis.sweep_search import Answer, Kind, Length, Outcome
from truetail.errors import UsageError
from truetail.records import RECORD
from truetail.slo import parse

_spec = spec_from_file_location("simulated_run", Path(__file__).with_name("simulated_run.py"))
simulated = sys.modules["simulated_run"] = module_from_spec(_spec)
_spec.loader.exec_module(simulated)

POISSON = {"kind": "poisson"}
LESSON, RULE = BatchTime(0.010, 0.0005), BatchRule(16, 0.002)


def run_of_batcher(
    folder: Path, rate: float, seconds: float, tells: bool = True, late_ms: float = 0.0, slow_s: float = 0.0, **manifest
) -> Path:
    """The folder of a run at ``rate`` on the lesson's batcher; ``late_ms`` of lateness for all, ``slow_s`` more of service, batches told or not."""

    def serve(arrivals_s):
        seen = simulate(arrivals_s, LESSON, RULE)
        records = np.zeros(len(arrivals_s), RECORD)
        intended = np.rint(arrivals_s * 1e9).astype(np.int64)
        records["sent_ns"] = intended + int(late_ms * 1e6) + 20_000
        records["done_ns"] = records["sent_ns"] + np.rint((seen.response_s + slow_s) * 1e9).astype(np.int64)
        records["first_byte_ns"], records["first_token_ns"], records["replica"], records["status"] = (
            records["done_ns"],
            -1,
            1,
            200,
        )
        for column in (
            "connect_us",
            "queue_us",
            "preprocess_us",
            "inference_us",
            "postprocess_us",
            "dependency_us",
            "itl_max_us",
        ):
            records[column] = np.nan
        if tells:
            records["batch"], records["inference_us"] = seen.batch, 1e3 * (10 + 0.5 * seen.batch)
        return records

    folder.parent.mkdir(parents=True, exist_ok=True)
    return simulated.write_run(folder, serve, rate, seconds, **manifest)


def target(**config):
    """A manifest's target as the reference service tells of itself."""
    told = {"mode": "batch", "a": 0.01, "c": 0.0005, "max_batch": 16, "max_delay": 0.002, "service": "exponential", "service_mean": 0.01,
            "service_cv": 1.0, "replicas": 1, "balance": "round-robin"} | config  # fmt: skip
    return {"url": "http://127.0.0.1:1", "embedded": True, "version": {"service": "truetail-target", "config": str(told)}}


def model_of(tmp_path, **config):
    """The model of a run folder whose target tells ``config``."""
    folder = run_of_batcher(tmp_path / "run", 50, 10, target=target(**config))
    return sweep_theory.of_target(open_run(folder), POISSON)


def test_the_batchers_capacity_is_the_planners(tmp_path):
    """p99 < 80 ms: within 1 % of analysis.capacity, which searches by other arrivals."""
    model, why = model_of(tmp_path)
    assert model is not None, why
    assert model.wall_rps == pytest.approx(16 / 0.018)
    other = capacity.highest_batch_rate_rps(LESSON, RULE, 0.99, 0.08)
    assert sweep_theory.capacity_rps(model, 0.99, 0.08) == pytest.approx(other, rel=0.01)


def test_mm1_and_md1_are_exact(tmp_path):
    """fifo mode: M/M/1's capacity is mu - ln(100) / limit; the curve is the formula's; a fixed service is M/D/1."""
    model, _ = model_of(tmp_path, mode="fifo")
    assert sweep_theory.capacity_rps(model, 0.99, 0.25) == pytest.approx(100 - math.log(100) / 0.25, rel=0.003)
    curve = sweep_theory.curve(model, [50, 80, 120], ["50", "99"], (0.99, 0.25))
    assert curve.quantiles_s["99"] == pytest.approx([queueing.mm1_quantile_s(0.99, r, 0.01) for r in (50, 80)])
    assert list(curve.rates_rps) == [50, 80]  # 120/s is beyond the wall
    model, _ = model_of(tmp_path / "fixed", mode="fifo", service="fixed")
    assert model.label.startswith("M/D/1")
    assert model.quantile_s(0.99, 80) == pytest.approx(queueing.md1_quantile_s(0.99, 80, 0.01))


def test_the_simulated_fifo_meets_the_formula():
    """Lindley's recursion on 500,000 requests at rho 0.5 against M/M/1: p99 within 4 %."""
    model = sweep_theory.fifo_model("", 0.01, lambda rng, n: rng.exponential(0.01, n), 1, POISSON)
    assert model.quantile_s(0.99, 50, 500_000) == pytest.approx(queueing.mm1_quantile_s(0.99, 50, 0.01), rel=0.04)


def test_replicas_get_turns(tmp_path):
    """Two replicas in turns: twice the wall, and at 90/s a shorter tail than two M/M/1 with random splitting, since gaps are smoother."""
    model, _ = model_of(tmp_path, mode="fifo", replicas=2)
    assert model.wall_rps == pytest.approx(200)
    assert model.quantile_s(0.99, 90) < queueing.mm1_quantile_s(0.99, 45, 0.01)


@pytest.mark.parametrize(
    ("config", "word"), [({"mode": "shared"}, "sharing"), ({"replicas": 2, "balance": "least-loaded"}, "round-robin")]
)
def test_what_is_not_modelled_is_said(tmp_path, config, word):
    """No curve is better than a wrong one."""
    model, why = model_of(tmp_path, **config)
    assert model is None
    assert word in why


def test_another_service_is_fitted_from_what_it_told(tmp_path):
    """t(b) comes back within 1 % from the answers of two runs; without batches told there is no model, and a reason."""
    runs = [open_run(run_of_batcher(tmp_path / str(rate), rate, 20)) for rate in (100, 500)]
    assert sweep_theory.of_target(runs[0], POISSON)[0] is None
    model, why = sweep_theory.fitted(runs, POISSON)
    assert model is not None, why
    assert "t(b) = 10 + 0.5 b ms" in model.label
    untold = open_run(run_of_batcher(tmp_path / "untold", 100, 10, tells=False))
    assert sweep_theory.fitted([untold], POISSON)[0] is None


def test_a_limit_below_an_idle_request_has_no_capacity(tmp_path):
    """t(1) + delay is 12.5 ms: p99 < 12 ms is met at no rate."""
    model, _ = model_of(tmp_path)
    assert sweep_theory.capacity_rps(model, 0.99, 0.012) is None


def point_of(folder, slo="p99 < 80ms", length=Length.FULL, rate=400.0):
    """The run in ``folder`` as a point of a sweep."""
    if not (folder / "summary.json").exists():
        report.build(folder)
    summary = json.loads((folder / "summary.json").read_text())
    return sweep_point.measure(open_run(folder), summary, parse(slo), sweep_point.Asked(1, rate, length, 30.0, 7))


def test_points_meet_miss_and_stay_unsure(tmp_path):
    """At 400/s p99 is 27.7 ms: met under 80 ms in full, not by a short try; missed under 20 ms; unsure under 27.6 ms."""
    folder = run_of_batcher(tmp_path / "run", 400, 40)
    assert point_of(folder).outcome is Outcome.MEETS
    assert point_of(folder, length=Length.SHORT).outcome is Outcome.UNSURE
    assert point_of(folder, "p99 < 20ms").outcome is Outcome.MISSES
    assert point_of(folder, "p99 < 27.6ms").outcome is Outcome.UNSURE
    point = point_of(folder)
    assert [q.percentile for q in point.percentiles] == ["50", "95", "99"]
    assert point.slo.value_s == pytest.approx(0.0277, rel=0.03)
    assert point.slo.low_s < point.slo.value_s < point.slo.high_s
    assert point.completed_rps == pytest.approx(400, rel=0.05)


def test_an_overloaded_service_grows(tmp_path):
    """1000/s is beyond the wall: plain in 8 s, also by a short try."""
    assert point_of(run_of_batcher(tmp_path / "run", 1000, 8, warmup_s=1.0), length=Length.SHORT).outcome is Outcome.GROWING


def test_a_late_generator_is_invalid_but_a_slow_service_is_to_blame(tmp_path):
    """100 ms late everywhere: INVALID though every response is beyond the limit; with the service itself 2 s slow it is the service."""
    late = point_of(run_of_batcher(tmp_path / "late", 100, 20, late_ms=100))
    assert late.outcome is Outcome.INVALID
    assert "lateness p99" in late.reason
    assert point_of(run_of_batcher(tmp_path / "slow", 100, 20, late_ms=100, slow_s=2)).outcome is Outcome.GROWING


def test_another_line_missed_is_a_miss(tmp_path):
    """p99 holds but the scenario's mean does not: the rate does not meet the SLOs, and the line is named."""
    folder = run_of_batcher(tmp_path / "run", 400, 40)
    text = (folder / "run.json").read_text().replace('"slos": ["p99 < 50ms"]', '"slos": ["p99 < 80ms", "mean < 5ms"]')
    (folder / "run.json").write_text(text)
    point = point_of(folder)
    assert point.outcome is Outcome.MISSES
    assert "mean < 5ms" in point.reason


def test_run_lengths_follow_load_and_rate():
    """Bounded by 20 s and 120 s; longer near the wall; a short try is an eighth, at least 5 s."""
    slo = parse("p99 < 80ms")
    assert sweep_point.full_seconds(slo, 10, None) == 120
    assert sweep_point.full_seconds(slo, 1e6, None) == 20
    assert 20 <= sweep_point.full_seconds(slo, 2000, 8000) < sweep_point.full_seconds(slo, 2000, 2500) <= 120
    assert sweep_point.short_seconds(120) == 15
    assert sweep_point.short_seconds(20) == 5


def sweep_of(points, **changes):
    """A sweep with an answer."""
    answer = sweep_result.found(Answer(Kind.FOUND, 400.0, 1000.0, 700.0, "700/s meets the SLO"))
    values = {"name": "batch", "scenario_file": "batch.yaml", "scenario_sha256": "0" * 64, "points": points, "answer": answer,
              "settings": sweep_result.Settings(slo="p99 < 80ms", low_rps=400, high_rps=1000)}  # fmt: skip
    return sweep_result.Sweep(**(values | changes))


def test_the_file_comes_back_and_a_broken_one_is_refused(tmp_path):
    """Written and read the sweep is equal, infinities included; a wrong field is named; a missing file says what belongs there."""
    points = [
        point_of(run_of_batcher(tmp_path / "r", 400, 20)),
        point_of(run_of_batcher(tmp_path / "g", 1000, 8, warmup_s=1.0), rate=1000.0),
    ]
    sweep = sweep_of(points)
    sweep_result.write(tmp_path, sweep)
    assert sweep_result.read(tmp_path) == sweep
    assert [t.outcome for t in sweep.tried] == [p.outcome for p in points]
    (tmp_path / "sweep.json").write_text(sweep.to_json().replace('"rate_rps": 400.0', '"rate_rps": -1'))
    with pytest.raises(UsageError, match=r"points\.0\.rate_rps"):
        sweep_result.read(tmp_path)
    (tmp_path / "sweep.json").write_text('{"format": 1')
    with pytest.raises(UsageError, match="not JSON"):
        sweep_result.read(tmp_path)
    with pytest.raises(UsageError, match="a sweep's folder holds"):
        sweep_result.read(tmp_path / "r")


def test_the_page_is_self_contained_and_hostile_text_is_harmless(tmp_path):
    """Nothing is loaded, links go to the runs, markup in names and reasons is escaped, the curve has SLO, bracket, theory and knee."""
    point = point_of(run_of_batcher(tmp_path / "r", 400, 20))
    evil = "<script>alert(1)</script>"
    others = [point.model_copy(update={"number": n, "rate_rps": float(r)}) for n, r in ((2, 600), (3, 1000))]
    model = sweep_theory.batch_model(LESSON, RULE, 1, POISSON, "declared")
    theory = sweep_result.theory_of(sweep_theory.curve(model, [400, 700], sweep_result.SHOWN, (0.99, 0.08)))
    page = sweep_page.render(
        sweep_of([point.model_copy(update={"reason": evil}), *others], name=evil, theory=theory, knee_rps=600.0)
    )
    assert "<script>alert" not in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert f'href="points/{point.run}/report.html"' in page
    for text in ("p99 &lt; 80ms", "knee", "bracket", "p99, theory", "700/s"):
        assert text in page, text


def test_an_unfinished_or_empty_sweep_has_a_page():
    """Before the first run, and without an answer."""
    assert "unfinished" in sweep_page.render(sweep_of([], answer=None))


def test_the_knee_is_where_power_peaks():
    """M/M/1: rate over p99 is largest at rho 1/2 (Kleinrock); at an end there is none."""
    rates = [10.0, 30.0, 50.0, 70.0, 90.0]
    assert sweep_result.knee(rates, [queueing.mm1_quantile_s(0.99, r, 0.01) for r in rates]) == 50
    assert sweep_result.knee(rates, [0.01] * 5) is None
    assert sweep_result.knee(rates[:2], [0.01, 0.02]) is None


def test_the_question_is_one_line_on_a_percentile():
    """The scenario's only one; with none or two the user chooses; other kinds are refused; other lines are kept."""
    lines = [parse("p99 < 50ms"), parse("error_rate < 1%"), parse("p50 < 20ms")]
    assert sweep_question.objective(lines[:2], None) == lines[0]
    assert sweep_question.objective(lines, "p99.9 < 1s").ppm == 999_000
    for wrong in (lines, lines[1:2]):
        with pytest.raises(UsageError, match="--slo"):
            sweep_question.objective(wrong, None)
    for text in ("mean < 5ms", "p99 <", "p100 < 1s", "p50(tokens_per_s) > 5/s"):
        with pytest.raises(UsageError, match="--slo"):
            sweep_question.objective(lines, text)
    assert sweep_question.kept_lines(lines, parse("p95 < 9ms")) == ["p95 < 9ms", "error_rate < 1%"]


@pytest.mark.parametrize("text", ["100", "a..b", "5..5", "9/s..3/s", "0..5"])
def test_ranges_that_are_none(text):
    """A range is A..B with 0 < A < B, and the error says so."""
    with pytest.raises(UsageError, match="--rates"):
        sweep_question.rates(text)


def test_resuming_another_question_is_refused():
    """Another scenario, SLO, range or grid; longer runs and more of them are welcome."""
    sweep = sweep_of([])
    same = sweep.settings.model_copy(update={"seconds": 90.0, "most": 50})
    assert sweep_question.go_on(sweep, same, "0" * 64, "x").settings.seconds == 90
    for asked, digest in (
        (same, "1" * 64),
        (same.model_copy(update={"slo": "p99 < 1s"}), "0" * 64),
        (same.model_copy(update={"grid": [1.0]}), "0" * 64),
    ):
        with pytest.raises(UsageError, match="start a new one"):
            sweep_question.go_on(sweep, asked, digest, "x")
