"""The written reports: strict, readable by others' parsers, harmless whatever names the run met."""

from __future__ import annotations

import csv
import html.parser
import io
import json
import math
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader
from junitparser import JUnitXml

from analysis import sections
from analysis.report import build
from analysis.run_folder import Run, open_run
from tests.analysis import hlog_decoder
from tests.analysis.run_folders import EPOCH_WALL_NS, Plan, fail, rows_of, write_run
from truetail.cli import main
from truetail.histogram import HIGHEST_US
from truetail.records import FAILED

HOSTILE = (
    "<script>alert(1)</script>", "</style><img src=x onerror=alert(1)>", "=cmd|' /C calc'!A0", "+1", "-1+1", "@SUM(A1)", "\x1b[31mred\x00\x07",
    "$\\frac{1}{0}$ _x_ |a|b| `c` [l](javascript:1)", "]]>&amp;\"'", "\u202eevil", "A" * 1_000_000, "{{ 7*7 }}{% for %}",
)  # fmt: skip


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose names, replicas, errors, scenario and events are all hostile."""
    text = "<script>alert(2)</script>\x1b[31m=1+1"
    plan = Plan(rate_rps=200, duration_s=10, slos=["p99 < 50ms", "p99[<b>x] < 1s"], scenario={"description": text, "name": text})
    rows = rows_of(plan, 10.0)
    n = len(rows)
    rows["name"] = rows["replica"] = np.arange(n) % len(HOSTILE) + 1
    fail(rows, slice(0, n, 7), FAILED)
    rows["error"] = np.where(rows["outcome"] == FAILED, rows["name"], 0)
    folder = tmp_path_factory.mktemp("hostile") / "run"
    write_run(folder, plan, rows, {"name": HOSTILE, "replica": HOSTILE, "error": HOSTILE}, git_commit=text, host={text: text})
    with (folder / "events.jsonl").open("a") as file:
        file.write(json.dumps({"at_ns": 5, "kind": text, "text": text * 1000}) + "\n")
    build(folder)
    return folder


class Elements(html.parser.HTMLParser):
    """Collects what a browser would take for elements and attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_hostile_names_make_no_element(hostile: Path) -> None:
    """One script (ours), no image, no handler, nothing that loads; a policy that would refuse it anyway; a bounded size."""
    page = (hostile / "report.html").read_text(encoding="utf-8")
    found = Elements()
    found.feed(page)
    tags = [tag for tag, _ in found.tags]
    assert tags.count("script") == 1
    assert not {"img", "iframe", "object", "embed", "link", "b", "foreignobject"} & set(tags)
    assert not [name for _, attributes in found.tags for name in attributes if name.startswith("on")]
    references = [
        value for _, attributes in found.tags for name, value in attributes.items() if name in ("src", "href", "xlink:href")
    ]
    assert all(value is not None and value.startswith("#") for value in references)
    assert "default-src 'none'" in page
    assert "49" not in re.findall(r"\{\{ 7\*7 \}\}|>49<", page)
    assert len(page) < 3_000_000
    assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u202e]", page)


def test_hostile_names_in_markdown_junit_and_csv(hostile: Path) -> None:
    """Markdown has no markup of theirs, JUnit parses, no CSV cell is a formula, no control character is anywhere."""
    page = (hostile / "summary.md").read_text(encoding="utf-8")
    assert "<script" not in page
    assert "](" not in page
    for name in ("percentiles.csv", "over_time.csv"):
        text = (hostile / name).read_text(encoding="utf-8")
        for line in csv.reader(io.StringIO(text)):
            assert not any(cell.lstrip().startswith(("=", "+", "@", "\t")) for cell in line)
            assert not any(cell.startswith("-") and not re.fullmatch(r"-?[0-9.e-]+", cell) for cell in line)
    ET.fromstring((hostile / "junit.xml").read_bytes())
    for name in ("summary.md", "junit.xml", "percentiles.csv", "summary.json"):
        assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", (hostile / name).read_text(encoding="utf-8"))
        assert (hostile / name).stat().st_size < 300_000


def test_summary_is_strict_json(hostile: Path) -> None:
    """No NaN and no Infinity, although percentiles are infinite; these are null and named."""

    def refuse(constant: str) -> Any:
        raise AssertionError(constant)

    document = json.loads((hostile / "summary.json").read_text(encoding="utf-8"), parse_constant=refuse)
    assert document["response"]["all_s"]["p99"] is None
    assert "p99" in document["response"]["infinite"]
    assert document["response"]["successes_s"]["p99"] > 0
    assert document["verdict"]["exit_code"] == 3


def test_junit_has_a_case_for_each_line_and_rule(hostile: Path) -> None:
    """Read by another parser: the counts of cases, failures and errors are those of the summary."""
    document = json.loads((hostile / "summary.json").read_text(encoding="utf-8"))
    suites = list(JUnitXml.fromfile(str(hostile / "junit.xml")))
    assert [len(list(suite)) for suite in suites] == [len(document["slos"]), len(document["rules"])]
    assert suites[0].failures == sum(slo["met"] is False for slo in document["slos"])
    assert suites[0].errors == sum(slo["met"] is None for slo in document["slos"])
    assert suites[1].errors == sum(rule["met"] is False for rule in document["rules"])


def test_hlog_is_read_back_with_equal_counts(tmp_path: Path) -> None:
    """HdrHistogram's own reader finds, second by second and by tag, as many values as the records have, and their percentiles."""
    plan = Plan(rate_rps=300, duration_s=8, spacing={"kind": "poisson"}, warmup_s=1)
    rng = np.random.default_rng(4)
    rows = rows_of(plan, rng.lognormal(3, 0.7, plan.schedule.count()))
    rows["name"] = rng.integers(1, 3, len(rows))
    fail(rows, rng.random(len(rows)) < 0.02, FAILED)
    folder = write_run(tmp_path / "run", plan, rows, {"name": ["a b,c", "d"], "replica": [], "error": ["x"]})
    build(folder)
    mine = rows[(rows["flags"] == 0)]
    ok = mine[mine["outcome"] == 0]
    response_us = (ok["done_ns"] - ok["intended_ns"]) // 1000
    total, tags = HdrHistogram(1, HIGHEST_US, 3), {}
    reader = HistogramLogReader(str(folder / "fleet.hlog"), HdrHistogram(1, HIGHEST_US, 3))
    while (interval := reader.get_next_interval_histogram()) is not None:
        if interval.get_tag() is None:
            second = round(interval.get_start_time_stamp() / 1000 - EPOCH_WALL_NS / 1e9)
            assert interval.get_total_count() == int((ok["intended_ns"] // 10**9 == second).sum())
            total.add(interval)
        else:
            tags[interval.get_tag()] = tags.get(interval.get_tag(), 0) + interval.get_total_count()
    assert total.get_total_count() == len(ok)
    for q in (50, 90, 99):
        exact = np.sort(response_us)[math.ceil(q * len(ok) / 100) - 1]
        assert total.get_value_at_percentile(q) == pytest.approx(exact, rel=0.002)
    assert tags["service"] == len(ok)
    assert tags["lateness"] == len(mine)
    table = json.loads((folder / "fleet.tags.json").read_text())
    assert set(table) == set(tags)
    assert sorted(count for tag, count in tags.items() if tag.startswith("response/")) == sorted(
        int((ok["name"] == i).sum()) for i in (1, 2)
    )
    assert all(re.fullmatch(r"[A-Za-z0-9_./|:-]+", tag) for tag in tags)


def test_hlog_is_read_by_a_second_reader(tmp_path: Path) -> None:
    """Decoded by hand from the format's description, without HdrHistogram: second by second every value lies in a cell that is counted."""
    plan = Plan(rate_rps=300, duration_s=8, spacing={"kind": "poisson"})
    rows = rows_of(plan, np.random.default_rng(4).lognormal(3, 1.5, plan.schedule.count()))
    folder = write_run(tmp_path / "run", plan, rows)
    build(folder)
    intended_s = rows["intended_ns"] // 10**9
    response_us = (rows["done_ns"] - rows["intended_ns"]) // 1000
    seconds = 0
    for tag, start, length, largest, counts in hlog_decoder.lines((folder / "fleet.hlog").read_text()):
        if tag:
            continue
        values = response_us[(intended_s >= start) & (intended_s < start + length)]
        assert largest == pytest.approx(values.max() / 1000, abs=0.001)
        for (lowest, width), count in counts.items():
            assert count == int(((values >= lowest) & (values < lowest + width)).sum())
        assert sum(counts.values()) == len(values)
        seconds += 1
    assert seconds == 8


def test_failures_are_told_beside_the_percentiles(tmp_path: Path) -> None:
    """2 % failed: page and Markdown say which percentiles of all are infinite and that successes leave the failures out; 0.5 %: nothing."""
    for share, told in ((0.02, True), (0.005, False)):
        plan = Plan(rate_rps=200, duration_s=20)
        rows = rows_of(plan, 10.0)
        fail(rows, slice(0, round(share * len(rows))), FAILED)
        folder = write_run(tmp_path / f"run{share}", plan, rows, {"name": ["a"], "replica": [], "error": ["x"]})
        build(folder)
        for name in ("report.html", "summary.md"):
            text = (folder / name).read_text(encoding="utf-8")
            assert ("p99 and everything beyond it is infinite" in text) is told


def test_the_same_run_gives_the_same_page(tmp_path: Path) -> None:
    """Byte for byte: nothing of the clock, of hashing or of chance is in it."""
    plan = Plan(rate_rps=100, duration_s=4)
    folder = write_run(tmp_path / "run", plan, rows_of(plan, 10.0))
    build(folder)
    first = (folder / "report.html").read_bytes()
    build(folder)
    assert (folder / "report.html").read_bytes() == first


def test_a_page_says_what_it_shows(tmp_path: Path) -> None:
    """The verdict stands before any table; each plot has a title, a caption with its sample size, and units on its axes."""
    plan = Plan(rate_rps=100, duration_s=4)
    rows = rows_of(plan, 10.0)
    rows["queue_us"] = 1000
    folder = write_run(tmp_path / "run", plan, rows)
    build(folder)
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert page.index('class="word"') < page.index("<table")
    figures = re.findall(r"<figure>.*?</figure>", page, re.DOTALL)
    assert len(figures) >= 7
    for figure in figures:
        assert re.search(r"<h3>.+?</h3>", figure)
        assert re.search(r"<figcaption>[^<]*(n = [0-9]|[0-9] requests)", figure)
        assert re.search(r"\((ms|s)|per second|gap in", figure)
        assert not re.search(r"#0101[0-9a-f]{2}", figure)


def test_a_broken_chapter_is_said_and_breaks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A section that raises, or is not there, is shown with its reason; the others and the verdict stay."""
    monkeypatch.setattr(
        sections,
        "SECTIONS",
        [("Breaks", f"{__name__}:breaks"), ("Absent", "analysis.not_there:x"), ("Speaks", f"{__name__}:speaks")],
    )
    monkeypatch.setitem(
        sys.modules, __name__, sys.modules.get(__name__) or __import__("types").SimpleNamespace(breaks=breaks, speaks=speaks)
    )
    plan = Plan(rate_rps=100, duration_s=8, slos=["p95 < 50ms"])
    folder = write_run(tmp_path / "run", plan, rows_of(plan, 10.0))
    assert build(folder).status == "PASS"
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "could not be computed" in page
    assert "ZeroDivisionError" in page
    assert "not_there" in page
    assert "&lt;b&gt;found&lt;/b&gt;" in page


def breaks(run: Run) -> None:
    """A chapter that fails."""
    raise ZeroDivisionError(run.path.name)


def speaks(run: Run) -> dict[str, Any]:
    """A chapter in plain types."""
    return {"findings": ["<b>found</b>"], "tables": [{"title": "t", "header": ["a"], "rows": [[len(run.records)]]}]}


def test_the_command_tells_the_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`truetail report` on a folder: verdict, figures, path and exit code; --json is the summary; no folder is a usage error."""
    plan = Plan(rate_rps=100, duration_s=10)
    folder = write_run(tmp_path / "run", plan, rows_of(plan, 60.0))
    command = [sys.executable, "-m", "truetail", "report"]
    done = subprocess.run([*command, str(folder)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("FAIL")
    assert "60.05 ms" in done.stdout
    assert "\x1b" not in done.stdout
    assert main(["report", str(folder), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["verdict"]["status"] == "FAIL"
    assert main(["report", str(tmp_path / "none")]) == 2
    assert "no such folder" in capsys.readouterr().err


def test_analysis_reads_without_the_load_side(tmp_path: Path) -> None:
    """Opening and reporting a run imports neither locust nor gevent."""
    plan = Plan(rate_rps=100, duration_s=4)
    folder = write_run(tmp_path / "run", plan, rows_of(plan, 10.0))
    code = "import sys, pathlib; from analysis.report import build; build(pathlib.Path(sys.argv[1])); print(sorted({'locust', 'gevent'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"
    assert len(open_run(folder).records) == 400
