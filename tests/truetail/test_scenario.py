"""Right scenarios: what they resolve to, overrides, secrets, files beside them, and the pages and examples that go with the schema."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from truetail import scenario_rules
from truetail.overrides import split
from truetail.scenario import Scenario, ScenarioError, load, loads
from truetail.scenario_reference import BEGIN, replaced
from truetail.scenario_rules import warnings

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = sorted((ROOT / "scenarios").glob("*.yaml"))

INTERNALS = """\
name: poisson
description: What to expect.
target:
  embedded: {mode: batch, a: 10ms, c: 0.5ms, max_batch: 16, max_delay: 2ms, max_queue: 1024, replicas: 1}
  ready: {path: /readyz, deadline: 30s}
users: rest
requests:
  - {name: predict, weight: 1, method: POST, path: /predict, json: {x: [1, 2, 3]}, headers: {}, deadline: 5s, expect: {status: 200}}
arrivals:
  rate: 60/s
  spacing: poisson
duration: 60s
warmup: 5s
seed: 42
pool: 200
lateness_deadline: 1s
deadline: 10s
drain: 15s
fleet: {workers: 2, on_loss: invalid, muster: 30s, max_clock_residual: 5ms}
collectors: {gpu: auto, host: true, prometheus: [{name: target, url: http://127.0.0.1:8000/metrics}], period: 100ms}
slos: ["p99 < 50ms", "error_rate < 0.1%"]
validity: {lateness_p99: 5ms, lateness_max: 250ms, dropped: 0, rate_error: 2%}
"""
SHORT = "name: a\ntarget: {url: 'http://127.0.0.1:8000'}\nrequests: [{name: x}]\narrivals: {rate: 60/s}\nduration: 60s\n"


@pytest.fixture(autouse=True)
def _locustfiles(tmp_path, monkeypatch):
    """The stem `rest` exists, whatever the repository has."""
    (tmp_path / "rest_users.py").touch()
    monkeypatch.setattr(scenario_rules, "LOCUSTFILES", tmp_path)


def resolved(text: str, *overrides: str) -> dict:
    return loads(text, overrides=overrides).resolved()


def test_the_contract_resolves_as_written():
    """The example of docs/internals.md section 3, in canonical units, key by key."""
    assert resolved(INTERNALS) == {
        "name": "poisson",
        "description": "What to expect.",
        "target": {
            "url": None,
            "embedded": {"mode": "batch", "a": "10ms", "c": "0.5ms", "max_batch": 16, "max_delay": "2ms", "max_queue": 1024, "replicas": 1},
            "ready": {"path": "/readyz", "deadline_s": 30.0},
            "headers": {}, "auth": None, "tls": None, "proxy": None, "keep_alive": "reuse",
        },
        "users": "rest",
        "requests": [
            {
                "name": "predict", "weight": 1.0, "method": "POST", "path": "/predict", "json": {"x": [1, 2, 3]}, "body": None,
                "headers": {}, "deadline_s": 5.0, "expect": {"status": 200, "contains": None, "json": None}, "protocol": {}, "payload": {},
            }
        ],
        "protocol": {},
        "payload": {},
        "arrivals": {"rate": {"kind": "constant", "rate_rps": 60.0}, "spacing": {"kind": "poisson"}},
        "duration_s": 60.0,
        "warmup_s": 5.0,
        "warmup_requests": 0,
        "seed": {"schedule": 42, "payload": 42, "mix": 42},
        "pool": 200,
        "lateness_deadline_s": 1.0,
        "deadline_s": 10.0,
        "drain_s": 15.0,
        "fleet": {
            "workers": 2, "on_loss": "invalid", "join": "refuse", "lease_s": 5.0, "muster_s": 30.0, "max_clock_residual_s": 0.005,
        },
        "collectors": {
            "gpu": "auto", "host": True, "period_s": 0.1,
            "prometheus": [{"name": "target", "url": "http://127.0.0.1:8000/metrics", "families": None, "preset": None}],
        },
        "tracing": None,
        "slos": ["p99 < 50ms", "error_rate < 0.1%"],
        "validity": {"lateness_p99_s": 0.005, "lateness_max_s": 0.25, "dropped": 0.0, "lost": 0.0, "rate_error": 0.02},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("rate", "expected"),
    [
        ("60/s", {"kind": "constant", "rate_rps": 60.0}),
        ("{constant: 60}", {"kind": "constant", "rate_rps": 60.0}),
        ("{ramp: {from: 10/s, to: 100/s, over: 30s}}", {"kind": "ramp", "from_rps": 10.0, "to_rps": 100.0, "over_s": 30.0}),
        ("{steps: [{rate: 10/s, for: 10s}, {rate: 0/s, for: 1m}]}",
         {"kind": "steps", "steps": [{"rate_rps": 10.0, "for_s": 10.0}, {"rate_rps": 0.0, "for_s": 60.0}]}),
        ("{diurnal: {mean: 50/s, amplitude: 0.5, period: 24h, peak_at: 14h}}",
         {"kind": "diurnal", "mean_rps": 50.0, "amplitude": 0.5, "period_s": 86400.0, "peak_at_s": 50400.0}),
        ("{hour_burst: {base: 20/s, clients: 200, period: 3600s, jitter: {exponential: 2s}, align: start, offset: 0s}}",
         {"kind": "hour_burst", "base_rps": 20.0, "clients": 200, "period_s": 3600.0, "jitter": {"kind": "exponential", "width_s": 2.0},
          "align": "start", "offset_s": 0.0}),
    ],
)  # fmt: skip
def test_rates_resolve_to_what_shapes_reads(rate, expected):
    """Every kind of rate, with exactly the keys of the contract."""
    assert resolved(SHORT.replace("60/s", rate))["arrivals"]["rate"] == expected


@pytest.mark.parametrize(
    ("spacing", "expected"),
    [
        ("fixed", {"kind": "fixed"}),
        ("{poisson: {}}", {"kind": "poisson"}),
        ("{gamma: {cv: 2}}", {"kind": "gamma", "cv": 2.0}),
        ("{groups: {size: 4, spacing: fixed}}", {"kind": "groups", "size": 4, "spacing": {"kind": "fixed"}}),
        (
            "{groups: {size: 4, spacing: {gamma: {cv: 0.5}}}}",
            {"kind": "groups", "size": 4, "spacing": {"kind": "gamma", "cv": 0.5}},
        ),
    ],
)
def test_spacings_resolve_to_what_shapes_reads(spacing, expected):
    """Every kind of spacing."""
    assert resolved(SHORT, f"arrivals.spacing={spacing}")["arrivals"]["spacing"] == expected


def test_every_arrival_process_of_the_contract_can_be_planned():
    """`shapes` takes the resolved form as it is: no key is missing, misnamed or too much."""
    schedule = pytest.importorskip("shapes.schedule")
    rates = ["60/s", "{ramp: {from: 0, to: 9, over: 5}}", "{steps: [{rate: 5, for: 2}]}", "{diurnal: {mean: 5/s, amplitude: 50%}}",
             "{hour_burst: {base: 2, clients: 5, period: 4s, jitter: {uniform: 1s}}}"]  # fmt: skip
    spacings = ["fixed", "poisson", "{gamma: {cv: 2}}", "{groups: {size: 2, spacing: poisson}}"]
    for rate in rates:
        for spacing in spacings:
            document = resolved(SHORT, f"arrivals.rate={rate}", f"arrivals.spacing={spacing}", "duration=8s")
            assert schedule.Schedule(document["arrivals"], document["duration_s"], document["seed"]["schedule"]).count() > 0


def test_a_trace_resolves_to_what_shapes_reads():
    """Windows and durations in seconds, under the names that the trace readers take."""
    trace = resolved(SHORT.replace("{rate: 60/s}", "{trace: {file: t.csv, window: {from: 1m, to: 2m}, offset: 5s, speed: 2}}"))[
        "arrivals"
    ]
    assert set(trace) == {"trace"}
    expected = {
        "file": "t.csv",
        "window_from_s": 60.0,
        "window_to_s": 120.0,
        "offset_s": 5.0,
        "speed": 2.0,
        "mode": "exact",
        "thin": 1.0,
    }
    assert expected.items() <= trace["trace"].items()
    spec = pytest.importorskip("shapes.traces.spec")
    assert set(trace["trace"]) == {*spec.DEFAULTS, "file"}


def test_what_is_left_out_is_filled_in():
    """Method, deadlines, drain, seeds and readiness have values after resolving."""
    document = resolved(SHORT)
    request = document["requests"][0]
    assert (request["method"], request["deadline_s"], request["expect"]["status"]) == ("GET", 10.0, None)
    assert document["drain_s"] == 10.0 + 1.0 + 1.0
    assert document["seed"] == {"schedule": 0, "payload": 0, "mix": 0}
    assert document["arrivals"]["spacing"] == {"kind": "poisson"}
    assert document["target"]["ready"] == {"path": None, "deadline_s": 30.0}
    assert resolved(SHORT, "target={embedded: {}}")["target"]["ready"]["path"] == "/readyz"
    assert resolved(SHORT, "requests.0.deadline=20s")["drain_s"] == 22.0


def test_one_seed_or_one_a_dimension():
    """A number stands for all three; 0 is a seed like any other."""
    assert resolved(SHORT, "seed=7")["seed"] == {"schedule": 7, "payload": 7, "mix": 7}
    assert resolved(SHORT, "seed={schedule: 1, mix: 2}")["seed"] == {"schedule": 1, "payload": 0, "mix": 2}


def test_resolving_is_strict_json_and_its_hash_is_stable():
    """run.json can hold it; equal scenarios have equal hashes, and one changed value another."""
    one = loads(INTERNALS)
    assert json.loads(json.dumps(one.resolved(), allow_nan=False)) == one.resolved()
    assert one.sha256() == loads("# a comment\n" + INTERNALS.replace("60s", "1m")).sha256()
    assert one.sha256() != loads(INTERNALS.replace("60s", "61s")).sha256()


def test_secrets_stay_references(monkeypatch):
    """The value of the variable is nowhere in what is resolved, though it is set."""
    monkeypatch.setenv("API_TOKEN", "s3cr3t-value")
    text = SHORT.replace(
        "'http://127.0.0.1:8000'",
        "'http://127.0.0.1:8000', auth: {env: API_TOKEN, prefix: 'Bearer '}, headers: {X-Api-Key: {env: KEY}, X-N: 5}",
    )
    document = resolved(text)
    assert document["target"]["auth"] == {"env": "API_TOKEN", "prefix": "Bearer "}
    assert document["target"]["headers"] == {"X-Api-Key": {"env": "KEY", "prefix": ""}, "X-N": "5"}
    assert "s3cr3t" not in json.dumps(document)


def test_free_text_may_hold_what_looks_like_a_variable():
    """Bodies and descriptions are sent and shown as they stand."""
    document = resolved(SHORT.replace("{name: x}", "{name: x, json: {a: '${HOME}'}}") + "description: costs ${MONEY}\n")
    assert document["requests"][0]["json"] == {"a": "${HOME}"}


def test_files_are_looked_for_beside_the_scenario(tmp_path):
    """A locustfile, a trace and certificates are relative to the scenario, not to where the command runs."""
    (tmp_path / "mine.py").touch()
    path = tmp_path / "s.yaml"
    path.write_text(
        "name: a\ntarget: {url: 'https://x', tls: {ca: ca.pem}}\nusers: mine.py\narrivals: {trace: {file: t.csv}}\nduration: 5s\n",
        encoding="utf-8",
    )
    document = load(path).resolved()
    assert document["users"] == str(tmp_path / "mine.py")
    assert document["arrivals"]["trace"]["file"] == str(tmp_path / "t.csv")
    assert document["target"]["tls"]["ca"] == str(tmp_path / "ca.pem")


def test_overrides_are_laid_over_the_file_in_order():
    """Values are YAML; lists are reached by number and appended to; mappings on the way are made; the last one wins."""
    document = resolved(
        SHORT, "arrivals.rate=120/s", "requests.0.weight=2", "requests.1={name: y}", "slos.0=p99 < 1s", "slos.1=max < 5s", "fleet.workers=3",
        "pool=5", "pool=6", "target.embedded={a: 5ms}", "target.url=null",
    )  # fmt: skip
    assert document["arrivals"]["rate"]["rate_rps"] == 120
    assert [(request["name"], request["weight"]) for request in document["requests"]] == [("x", 2.0), ("y", 1.0)]
    assert document["slos"] == ["p99 < 1s", "max < 5s"]
    assert (document["fleet"]["workers"], document["pool"]) == (3, 6)
    assert document["target"]["embedded"] == {"a": "5ms"}


def test_an_override_splits_at_the_first_equals_sign():
    """Values may hold further ones, as SLO lines do."""
    assert split("slos.0=p99 <= 5ms") == (("slos", 0), "p99 <= 5ms")
    assert split("target.url=http://127.0.0.1:8000/a=b") == (("target", "url"), "http://127.0.0.1:8000/a=b")


def test_aliases_are_values_of_their_own():
    """An override of one use of an alias leaves the other as it is."""
    text = SHORT.replace("[{name: x}]", "[{name: x, headers: &h {a: b}}, {name: y, headers: *h}]")
    document = resolved(text, "requests.0.headers.a=c")
    assert [request["headers"] for request in document["requests"]] == [{"a": "c"}, {"a": "b"}]


def test_warnings_are_not_faults():
    """What is allowed but hardly meant is said and not refused."""
    found = warnings(
        loads(SHORT, overrides=["drain=1s", "arrivals.rate={ramp: {from: 1, to: 2, over: 5m}}", "target.tls={verify: false}"])
    )
    assert [warning.split(" ")[0] for warning in found] == ["drain", "no", "the", "tls.verify"]
    assert warnings(loads(INTERNALS)) == []


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_the_scenarios_are_valid(path):
    """Each of scenarios/ loads, is named as its file, says what to expect, and has SLO lines."""
    scenario = load(path)
    assert scenario.name == path.stem
    assert scenario.description
    assert scenario.slos
    assert warnings(scenario) == []
    assert "# What to expect: " in path.read_text(encoding="utf-8")


def test_the_scenarios_are_the_ones_that_were_promised():
    """None is missing."""
    assert {"smoke", "fixed", "poisson", "gamma", "hour_burst", "interleave", "batch", "mm1", "two_replicas"} <= {
        path.stem for path in SCENARIOS
    }


def test_the_scenarios_have_their_locustfile(monkeypatch):
    """The stem that each names is in locustfiles/."""
    monkeypatch.setattr(scenario_rules, "LOCUSTFILES", ROOT / "locustfiles")
    for path in SCENARIOS:
        load(path)


def test_the_reference_is_up_to_date():
    """docs/scenario.md has the tables that the schema makes; if not: python -m truetail.scenario_reference docs/scenario.md."""
    page = (ROOT / "docs" / "scenario.md").read_text(encoding="utf-8")
    assert replaced(page) == page
    with pytest.raises(ValueError, match="marks"):
        replaced(page.replace(BEGIN, ""))


def test_the_page_s_example_is_valid():
    """The first YAML block of docs/scenario.md is a scenario."""
    page = (ROOT / "docs" / "scenario.md").read_text(encoding="utf-8")
    assert loads(page.split("```yaml\n")[1].split("```")[0]).name == "poisson"


def test_every_field_has_a_description():
    """The reference has a meaning for each key of each part."""
    from truetail.scenario_faults import parts

    todo, seen = [Scenario], set()
    while todo:
        model = todo.pop()
        if model not in seen:
            seen.add(model)
            assert model.__doc__
            assert all(info.description for info in model.model_fields.values()), model
            todo.extend(parts(model).values())
    assert len(seen) > 20


def test_requests_may_name_values_of_the_arrival():
    """${k} passes in a request's path and headers, where it is filled in for each arrival; an environment variable does not."""
    text = INTERNALS.replace("path: /predict", "path: '/predict?k=${k}'").replace("headers: {}", "headers: {x-number: '${k}'}")
    assert loads(text).requests[0].headers == {"x-number": "${k}"}
    with pytest.raises(ScenarioError, match=r"found \$\{TOKEN\}, which is not replaced"):
        loads(text.replace("'${k}'", "'${k} ${TOKEN}'"))
