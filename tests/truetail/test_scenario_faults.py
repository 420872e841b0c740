"""Wrong scenarios, each with the exact text of its faults; a table, so that a change of wording is seen."""

from __future__ import annotations

import json

import pytest

from truetail import scenario_rules
from truetail.errors import ExitCode
from truetail.scenario import ScenarioError, load, loads

GOOD = """\
name: good
target: {url: "http://127.0.0.1:8000"}
requests: [{name: predict, path: /predict}, {name: other}]
arrivals: {rate: 60/s, spacing: poisson}
duration: 60s
slos: [p99 < 50ms]
"""
DURATION = "allowed is a duration like 50ms, 1.5s, 2m or 1h30m (ns, us, ms, s, m, h, d; a bare number is seconds)"
RATE = "allowed is a rate like 60/s, 1200/min or 3.6k/h (a bare number is per second)"
SPACING = "allowed is fixed, poisson, {gamma: {cv: 2}} or {groups: {size: 4, spacing: fixed}}"
EXAMPLES = "examples: p99 < 50ms, p99[predict](ttft) < 200ms, error_rate < 0.1%, goodput(100ms) > 99%, rate > 95/s"


@pytest.fixture(autouse=True)
def _locustfiles(tmp_path, monkeypatch):
    """Two known stems, whatever the repository has."""
    for stem in ("rest", "openai"):
        (tmp_path / f"{stem}_users.py").touch()
    monkeypatch.setattr(scenario_rules, "LOCUSTFILES", tmp_path)


def faults(text: str, *overrides: str) -> list[str]:
    with pytest.raises(ScenarioError) as error:
        loads(text, "x.yaml", overrides)
    assert error.value.exit_code == ExitCode.USAGE
    return list(error.value.faults)


def with_line(key: str, line: str) -> str:
    """GOOD with the line of ``key`` replaced (or one added)."""
    lines = GOOD.splitlines()
    kept = [line if old.startswith(f"{key}:") else old for old in lines]
    return "\n".join(kept if line in kept else [*kept, line]) + "\n"


# (key of the line that is replaced, the wrong line, the fault after "x.yaml:")
CASES = [
    ("name", "name: Good", "1:7: name: found 'Good'; allowed is a name of a-z, 0-9, _ and -, at most 64 characters"),
    ("name", "name: 5", "1:7: name: found 5; allowed is text"),
    ("name", "name:", "1:1: name: found nothing; allowed is text"),
    ("name", "name: ../x", "1:7: name: found '../x'; allowed is a name of a-z, 0-9, _ and -, at most 64 characters"),
    ("target", "target: {}", "2:9: target: found none of them; allowed is exactly one of url, embedded"),
    ("target", "target: {url: 'http://x', embedded: {}}", "2:9: target: found url and embedded; allowed is exactly one of url, embedded"),
    ("target", "target: http://x", "2:9: target: found 'http://x'; allowed is a mapping"),
    ("target", "target: {url: 'htp://x'}",
     "2:15: target.url: found 'htp://x'; allowed is a URL like http://127.0.0.1:8000 (http, https, grpc, grpcs, unix)"),
    ("target", "target: {url: 'http://x:99999'}",
     "2:15: target.url: found 'http://x:99999' (Port out of range 0-65535); allowed is a URL like http://127.0.0.1:8000 "
     "(http, https, grpc, grpcs, unix)"),
    ("target", "target: {url: 'http://me:secret@x'}", "2:15: target.url: a URL must not hold a user or password: use auth: {env: NAME}"),
    ("target", "target: {url: 'http://x', headers: {Authorization: abc}}",
     "2:36: target.headers: header Authorization is a secret: write {env: NAME} in place of its text, and set NAME in the environment"),
    ("target", "target: {url: 'http://x', headers: {a: {env: 'A B'}}}",
     "2:46: target.headers.a.env: found 'A B'; allowed is the name of an environment variable, like API_TOKEN"),
    ("target", "target: {url: 'http://x', headers: {a: \"b\\r\\nc: d\"}}",
     "2:40: target.headers.a: found 'b\\r\\nc: d'; allowed is text without line breaks or control characters"),
    ("target", "target: {url: 'http://x', headers: {a: [1]}}",
     "2:40: target.headers.a: found [1]; allowed is text, or a secret as {env: NAME}"),
    ("target", "target: {url: 'http://x', headers: {A: b, a: b}}", "2:36: target.headers: header 'a' stands here twice, in different case"),
    ("target", "target: {url: '${HOST}/x'}",
     "2:15: target.url: found ${HOST}, which is not replaced; headers and auth take {env: NAME}, other values --set"),
    ("target", "target: {url: 'https://x', tls: {cert: a.pem}}", "2:33: target.tls: cert and key belong together: give both or neither"),
    ("target", "target: {url: 'http://x', keep_alive: reuze}",
     "2:39: target.keep_alive: found 'reuze'; allowed is 'reuse' or 'per-request'; did you mean 'reuse'?"),
    ("target", "target: {url: 'http://x', ready: {path: readyz}}",
     "2:41: target.ready.path: found 'readyz'; allowed is a path that starts with / and has no blanks"),
    ("users", "users: rset", "7:8: users: found 'rset'; allowed is openai, rest, or a path ending in .py; did you mean 'rest'?"),
    ("users", "users: mine.py", "7:8: users: found 'mine.py', but there is no file mine.py"),
    ("requests", "requests: []", "3:1: requests: is empty: the rest users send what the mix says; add an entry"),
    ("requests", "requests: {name: a}", "3:11: requests: found a mapping; allowed is a list"),
    ("requests", "requests: [{path: /}]", "3:12: requests.0.name: is missing; what statistics and SLO lines call it"),
    ("requests", "requests: [{name: a, weight: 0}]", "3:30: requests.0.weight: found 0; allowed is more than 0"),
    ("requests", "requests: [{name: a, weight: -1.5}]", "3:30: requests.0.weight: found -1.5; allowed is more than 0"),
    ("requests", "requests: [{name: a, weight: .inf}]", "3:30: found '.inf'; a number must be finite"),
    ("requests", "requests: [{name: a}, {name: b}, {name: a}]",
     "3:11: requests: entries 0 and 2 are both named 'a'; names must be unique"),
    ("requests", "requests: [{name: 'a[b]'}]",
     "3:19: requests.0.name: found 'a[b]'; allowed is a name of 1 to 100 characters without brackets or control characters"),
    ("requests", "requests: [{name: a, method: post}]",
     "3:30: requests.0.method: found 'post'; allowed is 'GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'HEAD', 'OPTIONS' or '${row.method}'"
     "; did you mean 'POST'?"),
    ("requests", "requests: [{name: a, path: 'http://x/'}]",
     "3:28: requests.0.path: found 'http://x/'; allowed is a path that starts with /, ${row. or ${line. and has no blanks"),
    ("requests", "requests: [{name: a, json: 1, body: x}]", "3:12: requests.0: found json and body; allowed is at most one of them"),
    ("requests", "requests: [{name: a, expect: {status: 99}}]", "3:39: requests.0.expect.status: found 99; allowed is 100 or more"),
    ("requests", "requests: [{name: a, expect: {status: [200, '204']}}]",
     "3:45: requests.0.expect.status.1: found '204'; allowed is a whole number"),
    ("requests", "requests: [{name: a, deadline: 0s}]", "3:32: requests.0.deadline: found '0s'; allowed is more than 0"),
    ("requests", "requests: [{name: a, wieght: 2}]",
     "3:22: requests.0.wieght: unknown key; did you mean 'weight'? allowed: name, weight, method, path, json, body, headers, "
     "deadline, expect, protocol, payload"),
    ("arrivals", "arrivals: {}", "4:11: arrivals: found none of them; allowed is exactly one of rate, trace"),
    ("arrivals", "arrivals: {rate: 1/s, trace: {file: x}}", "4:11: arrivals: found rate and trace; allowed is exactly one of rate, trace"),
    ("arrivals", "arrivals: {rate: fast}", f"4:18: arrivals.rate: found 'fast'; {RATE}"),
    ("arrivals", "arrivals: {rate: -5/s}", f"4:18: arrivals.rate: found '-5/s'; {RATE}"),
    ("arrivals", "arrivals: {rate: 0}", "4:18: arrivals.rate: found 0; allowed is more than 0"),
    ("arrivals", "arrivals: {rate: 1e9/s}", "4:18: arrivals.rate: found '1e9/s'; allowed is at most 10M/s"),
    ("arrivals", "arrivals: {rate: {}}",
     "4:18: arrivals.rate: found none of them; allowed is exactly one of constant, ramp, steps, diurnal, hour_burst"),
    ("arrivals", "arrivals: {rate: {ramp: {from: 0, to: 0, over: 5s}}}", "4:25: arrivals.rate.ramp: a ramp from 0 to 0 has no arrivals"),
    ("arrivals", "arrivals: {rate: {ramp: {from: 1/s, over: 5s}}}",
     "4:19: arrivals.rate.ramp.to: is missing; rate at the end, and from then on"),
    ("arrivals", "arrivals: {rate: {steps: []}}", "4:26: arrivals.rate.steps: found a list of 0; allowed is a list of 1 or more"),
    ("arrivals", "arrivals: {rate: {steps: [{rate: 1/s, for: 0s}]}}", "4:44: arrivals.rate.steps.0.for: found '0s'; allowed is more than 0"),
    ("arrivals", "arrivals: {rate: {steps: [{rate: 0/s, for: 1s}]}}", "4:18: arrivals.rate: every step has the rate 0: there are no arrivals"),
    ("arrivals", "arrivals: {rate: {diurnal: {mean: 5/s, amplitude: 1.5}}}",
     "4:51: arrivals.rate.diurnal.amplitude: found 1.5; allowed is a share between 0 and 1, like 0.1% or 0.001; did you mean 1.5%?"),
    ("arrivals", "arrivals: {rate: {diurnal: {mean: 5/s, amplitude: 50%, period: 1h, peak_at: 2h}}}",
     "4:28: arrivals.rate.diurnal: peak_at (2h) must be less than period (1h)"),
    ("arrivals", "arrivals: {rate: {hour_burst: {base: 1/s, clients: 5, period: 60s, jitter: {exponential: 60s}}}}",
     "4:31: arrivals.rate.hour_burst: jitter.exponential (1m) must be less than period (1m)"),
    ("arrivals", "arrivals: {rate: {hour_burst: {base: 1/s, clients: 5, jitter: {uniform: 1s, normal: 1s}}}}",
     "4:63: arrivals.rate.hour_burst.jitter: found uniform and normal; allowed is exactly one of uniform, exponential, normal"),
    ("arrivals", "arrivals: {rate: 1/s, spacing: posson}", f"4:32: arrivals.spacing: found 'posson'; {SPACING}; did you mean 'poisson'?"),
    ("arrivals", "arrivals: {rate: 1/s, spacing: gamma}", f"4:32: arrivals.spacing: gamma needs its settings; {SPACING}"),
    ("arrivals", "arrivals: {rate: 1/s, spacing: {gamma: {cv: 0}}}", "4:45: arrivals.spacing.gamma.cv: found 0; allowed is more than 0"),
    ("arrivals", "arrivals: {rate: 1/s, spacing: {groups: {size: 2, spacing: {groups: {size: 2, spacing: fixed}}}}}",
     "4:60: arrivals.spacing.groups.spacing: groups cannot stand within groups; a larger size does the same"),
    ("arrivals", "arrivals: {trace: {file: x.csv}, spacing: fixed}",
     "4:11: arrivals: a trace brings its own spacing: leave spacing out, or choose the trace's mode"),
    ("arrivals", "arrivals: {trace: {file: x.csv, window: {from: 5m, to: 1m}}}",
     "4:41: arrivals.trace.window: from (5m) must be less than to (1m)"),
    ("arrivals", "arrivals: {trace: {file: x.csv, mode: exakt}}",
     "4:39: arrivals.trace.mode: found 'exakt'; allowed is 'exact', 'poisson', 'fixed' or 'model'; did you mean 'exact'?"),
    ("arrivals", "arrivals: {trace: {file: x.csv, offset: 2m}}", "4:41: arrivals.trace.offset: found 2m; allowed is less than duration (1m)"),
    ("arrivals", "arrivals: {trace: {file: x.csv, timezone: Mars/Base}}",
     "4:43: arrivals.trace.timezone: found 'Mars/Base'; allowed is a time zone like UTC or Europe/Berlin"),
    ("duration", "duration: 5 parsec", f"5:11: duration: found '5 parsec'; {DURATION}"),
    ("duration", "duration: 0s", "5:11: duration: found '0s'; allowed is more than 0"),
    ("duration", "duration: 367d", "5:11: duration: found '367d'; allowed is at most 366d"),
    ("duration", "duration: true", f"5:11: duration: found True; {DURATION}"),
    ("warmup", "warmup: 60s", "7:9: warmup: found 1m; allowed is less than duration (1m)"),
    ("seed", "seed: -1", "7:7: seed: found -1; allowed is a whole number from 0 to 2^63 - 1, or schedule, payload and mix each"),
    ("seed", "seed: {schedule: 1, mx: 2}", "7:21: seed.mx: unknown key; did you mean 'mix'? allowed: schedule, payload, mix"),
    ("pool", "pool: 0", "7:7: pool: found 0; allowed is 1 or more"),
    ("pool", "pool: '200'", "7:7: pool: found '200'; allowed is a whole number"),
    ("pool", "pool: yes", "7:7: pool: found 'yes'; allowed is a whole number"),
    ("pool", "pool: true", "7:7: pool: found true; allowed is a whole number"),
    ("fleet", "fleet: {workers: 0}", "7:18: fleet.workers: found 0; allowed is 1 or more"),
    ("fleet", "fleet: {on_loss: ignore}", "7:18: fleet.on_loss: found 'ignore'; allowed is 'invalid' or 'repartition'"),
    ("collectors", "collectors: {gpu: off}", "7:19: collectors.gpu: found 'off'; allowed is 'auto', true or false"),
    ("collectors", "collectors: {prometheus: [{name: a, url: 'http://x/m'}, {name: a, url: 'http://y/m'}]}",
     "7:26: collectors.prometheus: two endpoints are named 'a'; names must be unique"),
    ("validity", "validity: {rate_error: 200%}",
     "7:24: validity.rate_error: found '200%'; allowed is a share between 0 and 1, like 0.1% or 0.001"),
    ("slos", "slos: [p99 < 50]",
     f"6:8: slos.0: SLO 'p99 < 50', position 7 ('50'): the limit: found '50' without a unit; write 50ms or 50s; {EXAMPLES}"),
    ("slos", "slos: ['p99[predit] < 5ms']",
     "6:8: slos.0: names request 'predit', which is not in the mix: predict, other; did you mean 'predict'?"),
    ("slos", "slos: [p99 < 20s]", "6:8: slos.0: allows 20s, but a request is cut off after 10s (deadline)"),
    ("slos", "slos: [p99 < 50ms, max < 1s, p99<50ms]", "6:30: slos.2: repeats slos.0, 'p99 < 50ms'"),
    ("slos", "slos: p99 < 50ms", "6:7: slos: found 'p99 < 50ms'; allowed is a list"),
    ("durration", "durration: 5s",
     "7:1: durration: unknown key; did you mean 'duration'? allowed: name, description, target, users, requests, protocol, payload, "
     "arrivals, duration, warmup, warmup_requests, seed, pool, lateness_deadline, deadline, drain, fleet, collectors, tracing, slos, validity"),
    ("again", "name: again", "7:1: key 'name' stands here again: it is already on line 1"),
    ("tagged", "description: !!python/object:os.system x",
     "7:14: tag 'tag:yaml.org,2002:python/object:os.system' is not allowed: plain YAML only"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("key", "line", "fault"), CASES, ids=[f"{index}-{line[:40]}" for index, (_, line, _) in enumerate(CASES)]
)
def test_wrong_scenarios_say_exactly_what_is_wrong(key, line, fault):
    """One wrong line, one fault, with its place, what was found and what is allowed."""
    lines = GOOD.splitlines()
    at = next((index for index, old in enumerate(lines) if old.startswith(f"{key}:")), len(lines))
    lines[at : at + 1] = [line]
    assert faults("\n".join(lines) + "\n") == [f"x.yaml:{fault}"]


# Whole texts that are no scenario at all.
TEXTS = [
    ("", "1:1: found nothing; a scenario is a mapping that starts with name, target, arrivals, duration"),
    ("# only a comment\n", "1:1: found nothing; a scenario is a mapping that starts with name, target, arrivals, duration"),
    ("- a\n", "1:1: found ['a']; a scenario is a mapping that starts with name, target, arrivals, duration"),
    ("just text", "1:1: found 'just text'; a scenario is a mapping that starts with name, target, arrivals, duration"),
    ("name: a\n\ttarget: b\n", "2:1: a tab: YAML is indented with blanks only"),
    ("name: a\n---\nname: b\n", "2:1: a second document (---): a file holds one"),
    ("name: [a\n", "2:1: not YAML: expected ',' or ']', but got '<stream end>' (while parsing a flow sequence)"),
    ("name: a: b\n", "1:8: not YAML: mapping values are not allowed here"),
    ("name: *nowhere\n", "1:7: not YAML: found undefined alias 'nowhere'"),
    ("name: a\x00b\n", "1:8: character '\\x00' is not allowed in YAML"),
    ("a: &a [*a]\n", "1:4: an alias stands within the value that it names"),
    ("a: " + "[" * 60 + "]" * 60, "1:54: nested deeper than 50 levels"),
    ("[" * 20_000, "1:1: nested deeper than 50 levels"),
    ("a: &a [1,1,1,1,1,1,1,1,1,1]\n" + "".join(
        f"{name}: &{name} [{','.join([f'*{of}'] * 10)}]\n" for name, of in ("ba", "cb", "dc", "ed")
     ), "1:26: the file unfolds to more than 100000 values (aliases of aliases?)"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "fault"), TEXTS, ids=range(len(TEXTS)))
def test_what_is_no_scenario_says_so(text, fault):
    """Empty, broken or hostile YAML: one clear line, no traceback, no endless work."""
    assert faults(text) == [f"x.yaml:{fault}"]


@pytest.mark.parametrize(
    ("raw", "fault"),
    [
        (b"\xff\xfen\x00", ":1:1: the file is UTF-16; save it as UTF-8"),
        (b"name: a\nb: \xe9t\xe9\n", ":2:4: byte 0xe9 is not UTF-8; save the file as UTF-8"),
        (b"#" * (2**20 + 1), ":1:1: the file is larger than 1 MiB, the most that is read"),
    ],
)
def test_files_that_cannot_be_read_as_text(tmp_path, raw, fault):
    """Wrong encodings and files too large."""
    path = tmp_path / "x.yaml"
    path.write_bytes(raw)
    with pytest.raises(ScenarioError) as error:
        load(path)
    assert list(error.value.faults) == [f"{path}{fault}"]


def test_files_that_are_not_there(tmp_path):
    """A missing file and a folder are told apart from wrong content."""
    for path, why in ((tmp_path / "no.yaml", "No such file or directory"), (tmp_path, "Is a directory")):
        with pytest.raises(ScenarioError) as error:
            load(path)
        assert list(error.value.faults) == [f"{path}: cannot be read: {why}"]


def test_a_byte_order_mark_is_no_fault(tmp_path):
    """Editors on Windows write one before UTF-8."""
    path = tmp_path / "x.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    assert load(path).name == "good"


def test_all_faults_come_at_once():
    """Faults of syntax, schema, exclusive keys and rules between fields in one answer, in the order of the file."""
    found = faults(
        """\
nam: Good
target: {url: "htp://x", embedded: {}, raedy: 5}
requests:
  - {name: predict, weight: 0}
arrivals: {rate: {rmp: {}}, spacing: posson}
duration: 10s
warmup: 20s
pool: 1
pool: 2
slos: ["p99 < 5", "p99[predit] < 5ms"]
"""
    )
    places = [fault.removeprefix("x.yaml:").split(": ")[0:2] for fault in found]
    assert places == [
        ["1:1", "name"], ["1:1", "nam"], ["2:9", "target"], ["2:15", "target.url"], ["2:40", "target.raedy"],
        ["4:29", "requests.0.weight"], ["5:19", "arrivals.rate.rmp"], ["5:38", "arrivals.spacing"], ["7:9", "warmup"],
        ["9:1", "key 'pool' stands here again"], ["10:8", "slos.0"], ["10:19", "slos.1"],
    ]  # fmt: skip


def test_endless_faults_are_cut():
    """A file of rubbish gives a page, not a flood."""
    found = faults("".join(f"k{index}: 1\n" for index in range(200)))
    assert len(found) == 101
    assert found[-1] == "x.yaml: and 104 more faults"


OVERRIDES = [
    ("pool=0", "--set pool=0: pool: found 0; allowed is 1 or more"),
    ("pool", "--set pool: found 'pool'; an override has the form key.path=value, like arrivals.rate=120/s or requests.0.weight=2"),
    ("=5", "--set =5: found '=5'; an override has the form key.path=value, like arrivals.rate=120/s or requests.0.weight=2"),
    ("a..b=5", "--set a..b=5: found 'a..b=5'; an override has the form key.path=value, like arrivals.rate=120/s or requests.0.weight=2"),
    ("arrivals.rate=[1", "--set arrivals.rate=[1: not YAML: expected ',' or ']', but got '<stream end>' (while parsing a flow sequence)"),
    ("arrivals.rate=fast", f"--set arrivals.rate=fast: arrivals.rate: found 'fast'; {RATE}"),
    ("arrivals.rate.ramp=1", "--set arrivals.rate.ramp=1: arrivals.rate holds '60/s', so it has no 'ramp'; set it as a whole"),
    ("requests.7.weight=1", "--set requests.7.weight=1: requests is a list of 2: 7 is no place in it"),
    ("requests.first.weight=1", "--set requests.first.weight=1: requests is a list of 2: 'first' is no place in it"),
    ("requests.0.weight=0", "--set requests.0.weight=0: requests.0.weight: found 0; allowed is more than 0"),
    ("fleet.wrokers=2",
     "--set fleet.wrokers=2: fleet.wrokers: unknown key; did you mean 'workers'? allowed: workers, on_loss, join, lease, muster, "
     "max_clock_residual"),
    ("slos.0=p99 < 5", f"--set slos.0=p99 < 5: slos.0: SLO 'p99 < 5', position 7 ('5'): the limit: found '5' without a unit; "
     f"write 5ms or 5s; {EXAMPLES}"),
    ("warmup=2m", "--set warmup=2m: warmup: found 2m; allowed is less than duration (1m)"),
]  # fmt: skip


@pytest.mark.parametrize(("override", "fault"), OVERRIDES)
def test_wrong_overrides_name_the_override(override, fault):
    """The place of a fault from the command line is the override itself."""
    assert faults(GOOD, override) == [fault]


def test_text_of_a_scenario_cannot_forge_lines():
    """What is quoted in a fault is quoted as a literal: no line breaks, no terminal sequences."""
    found = faults(with_line("name", 'name: "a\\nx.yaml:1:1: all is well\\e[2J"'))
    assert found == [
        "x.yaml:1:7: name: found 'a\\nx.yaml:1:1: all is well\\x1b[2J'; allowed is a name of a-z, 0-9, _ and -, at most 64 characters"
    ]


def test_json_is_a_scenario_too():
    """The resolved arrivals of other tools come as JSON, which is YAML."""
    text = json.dumps(
        {"name": "a", "target": {"url": "http://x"}, "requests": [{"name": "a"}], "arrivals": {"rate": 1}, "duration": 5}
    )
    assert loads(text).duration == 5
