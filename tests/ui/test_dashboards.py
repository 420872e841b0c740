"""Dashboards and CI files as code: every metric and every command that they name exists."""

import json
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from ruamel.yaml import YAML

from truetail.histogram import Histogram
from truetail.metrics import exposition
from truetail.roles import free_port

ROOT = Path(__file__).parents[2]
DASHBOARDS = ROOT / "dashboards"
METRIC = re.compile(r"\btruetail_[a-z0-9_]+")


def yaml(path):
    return YAML(typ="safe").load(path.read_text())


def expressions():
    """Every PromQL expression of the dashboard and the rules."""
    board = json.loads((DASHBOARDS / "grafana" / "dashboards" / "truetail.json").read_text())
    found = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    found += [variable["definition"] for variable in board["templating"]["list"]]
    return found + [rule["expr"] for group in yaml(DASHBOARDS / "rules.yml")["groups"] for rule in group["rules"]]


@pytest.fixture
def full(make_master):
    """A master with every kind of series, so that every family is exported."""
    master = make_master()
    part = Histogram()
    part.record_many_ns(np.arange(1, 1000) * 100_000)
    for slot in range(2):
        series = ("response", "service", "lateness", "ttft", "response/predict", "replica/a", "failed")
        master.say(slot, 5.0, dict.fromkeys(series, part), sent=1000, ok=999, failed=1)
    (master.folder / "gpu").mkdir()
    line = {
        "wall_ns": master.document["epoch_wall_ns"] + 10**9,
        "mono_ns": 1,
        "gpu": 0,
        "values": {"utilization_gpu_percent": 50},
    }
    (master.folder / "gpu" / "h.jsonl").write_text(json.dumps(line) + "\n")
    return master


def test_every_metric_of_the_dashboards_is_exported(full):
    """Each name that a panel, a variable or a rule uses stands in the exposition; and the exposition is not empty."""
    exported = set(re.findall(r"^(truetail_[a-z0-9_]+)", exposition(full.live).decode(), re.MULTILINE))
    used = {name for expression in expressions() for name in METRIC.findall(expression)}
    assert len(used) > 12
    assert used <= exported, used - exported


def test_labels_and_values_that_expressions_select(full):
    """What a selector asks for exists: series, quantiles, units and outcomes."""
    text = exposition(full.live).decode()
    for expression in expressions():
        for name, selector in re.findall(r"(truetail_\w+)\{([^}]*)\}", expression):
            for label, value in re.findall(r'(\w+)="([^"$]*)"', selector):
                assert re.search(rf'^{name}\{{[^}}]*{label}="{re.escape(value)}"', text, re.MULTILINE), (name, label, value)


def test_panels_do_not_overlap_and_use_the_provisioned_source():
    """The dashboard's grid is whole, and its data source is the one that is provisioned."""
    board = json.loads((DASHBOARDS / "grafana" / "dashboards" / "truetail.json").read_text())
    (source,) = yaml(DASHBOARDS / "grafana" / "datasources" / "prometheus.yml")["datasources"]
    taken = set()
    for panel in board["panels"]:
        assert panel["datasource"]["uid"] == source["uid"]
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells


def test_scrape_targets_are_loopback():
    """The configuration scrapes this machine only, more often than a run is short."""
    config = yaml(DASHBOARDS / "prometheus.yml")
    targets = [target for job in config["scrape_configs"] for each in job["static_configs"] for target in each["targets"]]
    assert targets and all(target.startswith("127.0.0.1:") for target in targets)
    assert config["global"]["scrape_interval"] == "2s"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs Debian's package prometheus")
def test_promtool_accepts_config_rules_and_exposition(full):
    """Prometheus' own checker finds no fault in the configuration, the rules, or the metrics' names, types and help."""
    for arguments, data in (
        (["check", "config", str(DASHBOARDS / "prometheus.yml")], None),
        (["check", "rules", str(DASHBOARDS / "rules.yml")], None),
        (["check", "metrics"], exposition(full.live)),
    ):
        done = subprocess.run(["promtool", *arguments], input=data, capture_output=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs Debian's package prometheus")
def test_prometheus_scrapes_a_real_run(tmp_path):
    """A real Prometheus scrapes a real run's --metrics-port; what it stored at the end is the run's own count of requests."""
    users = tmp_path / "my_users.py"
    users.write_text((Path(__file__).parent / "mix_users.py").read_text())
    scenario = {
        "name": "scraped", "target": {"embedded": {"mode": "fifo", "service": "fixed", "service_mean": "2ms"}}, "users": "./my_users.py",
        "requests": [{"name": "predict", "path": "/predict", "json": {"t2m_k": 285.1, "rh": 71}}], "arrivals": {"rate": "40/s", "spacing": "poisson"},
        "duration": "15s", "warmup": "0s", "drain": "5s", "fleet": {"workers": 2}, "slos": ["p99 < 9s"], "validity": {"lateness_p99": "5s", "lateness_max": "9s"},
    }  # fmt: skip
    (tmp_path / "scenario.yaml").write_text(json.dumps(scenario))
    port, own = free_port(), free_port()
    config = (
        (DASHBOARDS / "prometheus.yml")
        .read_text()
        .replace("127.0.0.1:9464", f"127.0.0.1:{port}")
        .replace("scrape_interval: 2s", "scrape_interval: 250ms")
    )
    (tmp_path / "prometheus.yml").write_text(config.replace("scrape_timeout: 2s", "scrape_timeout: 250ms"))
    (tmp_path / "rules.yml").write_text((DASHBOARDS / "rules.yml").read_text())
    options = [
        f"--config.file={tmp_path}/prometheus.yml",
        f"--storage.tsdb.path={tmp_path}/data",
        f"--web.listen-address=127.0.0.1:{own}",
    ]
    with (tmp_path / "log").open("wb") as log:
        prometheus = subprocess.Popen(["prometheus", *options], stdout=log, stderr=log)
    try:
        command = [sys.executable, "-m", "truetail", "run", "scenario.yaml", "--plain", "--metrics-port", str(port)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=180)
        assert done.returncode == 0, done.stderr
        (manifest,) = (tmp_path / "runs").glob("*/run.json")
        ledger = json.loads(manifest.read_text())["ledger"]
        query = "max_over_time(truetail_arrivals_sent_total[10m])"
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            url = f"http://127.0.0.1:{own}/api/v1/query?query={urllib.request.quote(query)}"
            with urllib.request.urlopen(url) as answer:
                found = json.loads(answer.read())["data"]["result"]
            if found:
                break
            time.sleep(0.5)
        (series,) = found
        assert series["metric"]["run"] == manifest.parent.name
        assert ledger["sent"] * 0.8 <= float(series["value"][1]) <= ledger["sent"]
    finally:
        prometheus.terminate()
        prometheus.wait(20)


@pytest.mark.parametrize("file", ["github-actions.yml", "gitlab-ci.yml"])
def test_ci_examples_name_commands_and_files_that_exist(file):
    """Each truetail command in a CI example parses as written; the scenario is there; reports are kept whatever the outcome."""
    from truetail.cli import COMMANDS

    text = (ROOT / "examples" / "ci" / file).read_text()
    document = yaml(ROOT / "examples" / "ci" / file)
    assert document
    commands = re.findall(r"(?:run: |- )truetail (\w+) (\S+)(.*)", text)
    assert [name for name, _, _ in commands] == ["check", "run"]
    for name, scenario, rest in commands:
        import argparse
        import importlib

        assert (ROOT / scenario).is_file()
        parser = argparse.ArgumentParser()
        importlib.import_module(COMMANDS[name].module).add_arguments(parser)
        parser.parse_args([scenario, *rest.split()])
    assert "always" in text
    for output in ("summary.md", "junit.xml"):
        assert output in text
