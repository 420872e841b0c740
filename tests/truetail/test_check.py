"""`truetail check`: the plan in figures, against theory and counts of our own; faults and files that cannot be written."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from truetail import scenario_rules
from truetail.cli import main
from truetail.commands.check import columns, sparkline
from truetail.scenario import loads
from truetail.scenario_preview import Gaps, dispersion, need_of, preview, share_of
from truetail.slo import parse

SCENARIO = """\
name: plan
target: {url: 'http://127.0.0.1:8000', auth: {env: TRUETAIL_TEST_TOKEN}}
requests: [{name: predict, weight: 3}, {name: other}]
arrivals: {rate: 100/s, spacing: poisson}
duration: 100s
warmup: 10s
seed: 3
pool: 50
fleet: {workers: 3}
slos: [p99 < 100ms, "error_rate[other] < 0.1%"]
"""


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A scenario file; the stem `rest` exists."""
    (tmp_path / "rest_users.py").touch()
    monkeypatch.setattr(scenario_rules, "LOCUSTFILES", tmp_path)
    file = tmp_path / "plan.yaml"
    file.write_text(SCENARIO, encoding="utf-8")
    return file


def figures(capsys, *arguments: str) -> dict:
    assert main(["check", "--json", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_poisson_plan_has_poissons_figures(path, capsys):
    """Count, gaps and dispersion of a planned Poisson process lie within 4 standard errors of theory (alpha 6e-5 each, seed fixed)."""
    plan = figures(capsys, str(path))["schedule"]
    n = plan["count"]
    assert plan["expected_count"] == 10_000
    assert abs(n - 10_000) < 4 * math.sqrt(10_000)
    assert abs(plan["mean_gap_s"] - 0.01) < 4 * 0.01 / math.sqrt(n)
    assert abs(plan["gap_scv"] - 1) < 4 * math.sqrt(4 / n)  # delta method: the SCV of n exponential gaps has variance 4 / n
    assert abs(plan["dispersion"]["1s"] - 1) < 4 * math.sqrt(2 / 99)  # chi-square with 99 degrees of freedom, over 99
    assert sum(plan["worker_counts"]) == sum(plan["counts"]) == n
    assert max(plan["worker_counts"]) - min(plan["worker_counts"]) <= 1
    assert plan["peak"]["count"] == max(plan["counts"])
    assert plan["counts"][int(plan["peak"]["start_s"])] == plan["peak"]["count"]


def test_a_fixed_plan_is_exact(path, capsys):
    """Fixed gaps: count, gaps, peak and shares follow by arithmetic."""
    plan = figures(capsys, str(path), "--set", "arrivals.spacing=fixed")["schedule"]
    assert plan["count"] == pytest.approx(10_000, abs=1)
    assert plan["measured"] == pytest.approx(9_000, abs=1)
    assert plan["mean_gap_s"] == pytest.approx(0.01, rel=1e-6)
    assert plan["gap_scv"] == pytest.approx(0, abs=1e-9)
    assert plan["at_once_share"] == 0


def test_groups_meet(path, capsys):
    """Groups of 4: three of four gaps are 0, and the SCV is 3 (mean g/4, second moment g^2/4)."""
    plan = figures(capsys, str(path), "--set", "arrivals.spacing={groups: {size: 4, spacing: fixed}}")["schedule"]
    assert plan["at_once_share"] == pytest.approx(0.75, abs=1e-3)
    assert plan["gap_scv"] == pytest.approx(3, abs=1e-2)


def test_the_digest_is_the_schedules_own(path, capsys):
    """Same scenario, same digest; another seed, another."""
    one, again = (figures(capsys, str(path))["schedule"]["digest"] for _ in range(2))
    other = figures(capsys, str(path), "--set", "seed=4")["schedule"]["digest"]
    assert one == again != other


def test_needs_and_pool(path, capsys, monkeypatch):
    """Requests of a name are counted by their weight; Little's law sizes the pool; variables are told as set or not, never shown."""
    monkeypatch.setenv("TRUETAIL_TEST_TOKEN", "s3cr3t")
    found = figures(capsys, str(path))
    plan, (p99, errors) = found["schedule"], found["slos"]
    assert p99["planned"] == plan["measured"]
    assert errors["planned"] == round(plan["measured"] / 4)
    assert errors["bound"] == 2995  # ln 0.05 / ln 0.999
    peak_rps = plan["peak"]["count"]
    assert found["pool"]["at_slo"] == pytest.approx(peak_rps / 3 * 0.1)
    assert found["pool"]["rides_out_s"] == pytest.approx(50 / (peak_rps / 3))
    assert found["environment"] == {"TRUETAIL_TEST_TOKEN": True}
    assert "s3cr3t" not in json.dumps(found)
    assert any("2995 are needed" in warning for warning in found["warnings"])


def test_fewer_workers_need_a_larger_pool(path, capsys):
    """A pool that Little's law calls too small is warned of."""
    found = figures(capsys, str(path), "--workers", "1", "--set", "pool=3")
    assert any(warning.startswith("pool (3 per worker) is too small") for warning in found["warnings"])


def test_the_terminal_says_it_all(path, capsys, monkeypatch):
    """Text for people: figures, picture, and that nothing was sent."""
    monkeypatch.delenv("TRUETAIL_TEST_TOKEN", raising=False)
    assert main(["check", str(path)]) == 0
    out = capsys.readouterr().out
    for words in (
        "plan: poisson at 100/s for 1m40s, seed 3",
        "digest",
        "workers     3:",
        "TRUETAIL_TEST_TOKEN is NOT set here",
        "nothing was sent",
    ):
        assert words in out
    assert max(map(len, out.splitlines())) < 180


def test_faults_come_as_lines_or_as_json(path, capsys):
    """A wrong scenario: exit code 2, all faults on standard error, or as JSON for a program."""
    wrong = ["--set", "pool=0", "--set", "warmup=5m"]
    assert main(["check", str(path), *wrong]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[2] for line in lines] == ["--set pool=0", "--set warmup=5m"]
    assert main(["check", "--json", str(path), *wrong]) == 2
    document = json.loads(capsys.readouterr().out)
    assert (document["ok"], len(document["faults"])) == (False, 2)


def test_a_trace_that_is_not_there(path, capsys):
    """What cannot be planned is a clear line with exit code 2."""
    assert main(["check", str(path), "--set", "arrivals={trace: {file: no.csv}}"]) == 2
    assert "no.csv" in capsys.readouterr().err


def test_an_embedded_target_is_checked(path, capsys):
    """Options that the reference service would refuse are faults, each with its line, in text and as JSON; right ones are none."""
    wrong = "target={embedded: {mode: batsch, max_batch: 0, replica: 2}}"
    assert main(["check", str(path), "--set", wrong]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert all(f"{path}: target.embedded: " in line for line in lines)
    assert main(["check", str(path), "--json", "--set", wrong]) == 2
    assert len(json.loads(capsys.readouterr().out)["faults"]) == 3
    assert main(["check", str(path), "--set", "target={embedded: {mode: fifo, service_mean: 5ms}}"]) == 0


def test_a_plan_of_nothing_is_a_fault(path, capsys):
    """A scenario that sends nothing proves nothing: exit code 2."""
    assert main(["check", str(path), "--set", "arrivals.rate=0.001/s", "--set", "duration=1s", "--set", "warmup=0s"]) == 2
    assert "not a single one is planned" in capsys.readouterr().err


def test_pictures(path, tmp_path, capsys):
    """--png writes a PNG; a place that cannot be written is a clear line."""
    assert main(["check", str(path), "--png", str(tmp_path / "plan.png")]) == 0
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")
    assert main(["check", str(path), "--png", str(tmp_path / "no" / "plan.png")]) == 2
    assert "cannot be written: No such file or directory" in capsys.readouterr().err


@pytest.mark.parametrize("share", ["150%", "nan", "99.5%", "x"])
def test_utilisation_is_a_share(path, share):
    """Beyond 99 % no length of run is known to do."""
    with pytest.raises(SystemExit) as error:
        main(["check", str(path), "--utilisation", share])
    assert error.value.code == 2


def test_gaps_over_blocks_equal_gaps_of_the_whole():
    """The streamed mean and SCV equal numpy's over the whole, wherever the blocks are cut."""
    rng = np.random.default_rng(5)
    offsets = np.cumsum(rng.exponential(1e7, 5000)).astype(np.int64)
    offsets[100:110] = offsets[100]
    gaps = Gaps()
    for block in np.split(offsets, [0, 1, 2, 2, 105, 4000]):
        gaps.add(block)
    whole = np.diff(offsets) / 1e9
    assert gaps.mean_s == pytest.approx(whole.mean(), rel=1e-12)
    assert gaps.scv == pytest.approx(whole.var() / whole.mean() ** 2, rel=1e-9)
    assert gaps.at_once_share == pytest.approx((whole == 0).mean())
    empty = Gaps()
    assert (empty.mean_s, empty.scv, empty.at_once_share) == (None, None, None)


def test_dispersion_needs_windows():
    """Fewer than ten windows give no figure in place of a poor one."""
    assert dispersion(np.array([3] * 9), 1.0, 9.0) == {}
    assert dispersion(np.array([3, 5] * 10), 1.0, 20.0) == {"1s": pytest.approx(20 / 19 / 4)}


@pytest.mark.parametrize(
    ("line", "bound"),
    [
        ("p99 < 1s", 2937),
        ("p95 < 1s", 576),
        ("p99.9 < 1s", 29497),
        ("error_rate < 1%", 299),
        ("goodput(1s) > 99%", 299),
        ("mean < 1s", None),
        ("max < 1s", None),
        ("p100 < 1s", None),
        ("error_rate <= 0", None),
        ("goodput(1s) >= 100%", None),
    ],
)
def test_the_fewest_requests_of_a_claim(line, bound):
    """On an idle server what the verdict asks for at least, and 299 for a share of 1 % by (1 - p)^n <= 5 %; none where no number is enough."""
    assert need_of(parse(line), 10, 0.0).bound == bound


def test_a_busy_server_needs_more():
    """Neighbours in a queue are alike."""
    needs = [need_of(parse("p99 < 1s"), 10, utilisation) for utilisation in (0.0, 0.5, 0.9)]
    assert needs[0].bound < needs[1].bound < needs[2].bound
    assert all(need.interval >= need.bound for need in needs)


def test_shares_of_the_mix():
    """By weight; a name that is not in the mix has none."""
    mix = [{"name": "a", "weight": 3}, {"name": "b", "weight": 1}]
    assert [share_of(name, mix) for name in (None, "a", "b", "c")] == [1, 0.75, 0.25, 0]
    assert share_of("a", []) == 0


def test_sparklines():
    """From nothing to the highest column, never wider than asked."""
    assert sparkline(np.array([0, 1, 2, 3, 4, 5, 6, 7, 8])) == "▁▂▃▄▅▆▇██"
    assert sparkline(np.zeros(5)) == "▁" * 5
    assert len(sparkline(np.arange(1000))) == 72
    assert columns(np.arange(1000), 10)[0] == 49.5


def test_a_long_plan_has_bounded_bins(tmp_path, path):
    """A year-long scenario is counted in at most 200,000 bins."""
    scenario = loads(SCENARIO, overrides=["arrivals.rate=100/d", "duration=365d", "warmup=0s"])
    plan = preview(scenario.resolved(), 0.0)
    assert len(plan.counts) <= 200_000
    assert plan.counts.sum() == plan.count == pytest.approx(36_500, abs=4 * math.sqrt(36_500))
