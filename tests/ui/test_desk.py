"""The form: what may be chosen, faults and plan before the start, an order that is checked."""

import json
import threading
import urllib.request

import pytest

from truetail.errors import RunFailed
from truetail.roles import free_port
from truetail.scenario import loads
from truetail.ui.curve import planned_curve
from truetail.ui.desk import Desk, application, take_order

TEXT = """
name: asked
target: {url: http://127.0.0.1:9}
users: ./my_users.py
requests: [{name: predict, path: /predict}]
arrivals: {rate: {steps: [{rate: 10/s, for: 10s}, {rate: 50/s, for: 10s}]}, spacing: fixed}
duration: 20s
slos: ["p99 < 50ms"]
"""


@pytest.fixture
def desk(tmp_path):
    """A desk with two scenarios."""
    (tmp_path / "my_users.py").write_text("")
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(TEXT)
    return Desk(sorted(tmp_path.glob("*.yaml")), None, 3, ["the last one failed"])


@pytest.fixture
def client(desk):
    """The form's client."""
    return application(desk, with_login=False).test_client()


def test_choose_and_read(client, desk, tmp_path):
    """Only the files of the list can be read, whatever is asked for; the notice of the last run is told."""
    told = client.get("/desk/scenarios").json
    assert told == {"files": ["a.yaml", "b.yaml"], "chosen": "a.yaml", "turn": 3, "notice": ["the last one failed"]}
    assert client.get("/desk/text?file=a.yaml").json["text"] == TEXT
    (tmp_path / "secret.txt").write_text("x")
    for name in ("secret.txt", "../secret.txt", "/etc/passwd", "", "my_users.py"):
        assert client.get(f"/desk/text?file={name}").status_code == 404


def test_plan_before_the_start(client):
    """The planned rate is that of the schedule, stretch by stretch; the number of workers can be set."""
    told = client.post("/desk/check", json={"file": "a.yaml", "text": TEXT, "workers": 4}).json
    plan = told["plan"]
    assert plan["count"] == sum(rate * plan["width_s"] for rate in plan["rate"])
    assert plan["rate"][1:9] == [10.0] * 8
    assert plan["rate"][11:19] == [50.0] * 8
    assert told["about"]["workers"] == 4


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("duration: 20s", "duration: soon"), "a.yaml:7"),
        (("rate:", "rat:"), "arrivals"),
        (("users: ./my_users.py", "users: nothing_like_it"), "nothing_like_it"),
        (("name: asked", "name: ["), "a.yaml:"),
    ],
)
def test_faults_are_told_and_nothing_starts(client, desk, change, says):
    """A fault comes with its line and what is allowed, from check and from start alike."""
    for path in ("/desk/check", "/desk/start"):
        answer = client.post(path, json={"file": "a.yaml", "text": TEXT.replace(*change), "workers": None})
        assert answer.status_code == 422
        assert any(says in fault for fault in answer.json["faults"]), answer.json
    assert not desk.ordered.is_set()


@pytest.mark.parametrize(
    "body",
    [
        "",
        "[]",
        "{}",
        '{"text": 5, "file": "a.yaml"}',
        json.dumps({"text": TEXT, "file": "../x"}),
        '{"text": "' + "x" * 300_000 + '"}',
    ],
)
def test_hostile_forms(client, desk, body):
    """What is no form is a fault, not an error."""
    assert client.post("/desk/start", data=body).status_code == 422
    assert not desk.ordered.is_set()


def test_start_takes_the_edited_text(client, desk):
    """The order holds the edited scenario and the file it began as."""
    answer = client.post("/desk/start", json={"file": "b.yaml", "text": TEXT.replace("20s", "15s"), "workers": 2})
    assert answer.status_code == 202
    assert desk.ordered.is_set()
    assert (desk.order.scenario.duration, desk.order.scenario.fleet.workers, desk.order.file.name) == (15.0, 2, "b.yaml")


def test_a_plan_of_nothing_cannot_be_started(client):
    """No arrivals at all: a fault, so that the start stays closed."""
    text = TEXT.replace("[{rate: 10/s, for: 10s}, {rate: 50/s, for: 10s}]", "[{rate: 0.001/s, for: 20s}]")
    answer = client.post("/desk/check", json={"file": "a.yaml", "text": text})
    assert answer.status_code == 422
    assert "not a single one" in answer.json["faults"][0]


def test_strangers_and_login(desk, monkeypatch):
    """Other origins are refused; with a login nothing but the login page and its looks is open."""
    assert (
        application(desk, False).test_client().post("/desk/start", headers={"Origin": "http://evil.example"}).status_code == 403
    )
    monkeypatch.setenv("TRUETAIL_UI_USER", "me")
    monkeypatch.setenv("TRUETAIL_UI_PASSWORD", "s3cret")
    monkeypatch.setenv("TRUETAIL_UI_SECRET", "0" * 64)
    client = application(desk, True).test_client()
    for path in ("/", "/desk/scenarios", "/desk/text?file=a.yaml"):
        assert client.get(path).status_code == 302
    assert client.post("/desk/start", json={"file": "a.yaml", "text": TEXT}).status_code == 302
    assert client.post("/login", data={"username": "me", "password": "no"}).headers["Location"] == "/login"
    assert client.get("/login/error").json == {"error": "Wrong name or password"}
    assert client.post("/login", data={"username": "me", "password": "s3cret"}).headers["Location"] == "/"
    assert client.get("/desk/scenarios").status_code == 200
    client.post("/logout")
    assert client.get("/desk/scenarios").status_code == 302


def test_serves_until_ordered_and_frees_the_port(desk):
    """The desk answers on its port until a run is ordered; then the port is free for the master."""
    port, found = free_port(), []
    serving = threading.Thread(target=lambda: found.append(take_order(desk, port, False)), daemon=True)
    serving.start()
    body = json.dumps({"file": "a.yaml", "text": TEXT, "workers": None}).encode()
    for _ in range(100):
        try:
            with urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}/desk/start", body)) as answer:
                assert answer.status == 202
            break
        except ConnectionRefusedError:
            pass
        except urllib.error.URLError:
            threading.Event().wait(0.1)
    serving.join(10)
    assert found[0].scenario.name == "asked"
    again = Desk(list(desk.files.values()), None, 4, [])
    again.ordered.set()
    again.order = found[0]
    assert take_order(again, port, False) is found[0]


def test_a_taken_port_is_said(desk):
    """A port that is in use is an error in words."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(RunFailed, match="taken"):
        take_order(desk, taken.getsockname()[1], False)


def test_the_curve_is_bounded():
    """A schedule of a hundred million arrivals is drawn as far as the bound allows, and says how far; no stretch is half counted."""
    resolved = loads(
        TEXT.replace("rate: {steps: [{rate: 10/s, for: 10s}, {rate: 50/s, for: 10s}]}", "rate: 10000/s")
        .replace("20s", "10000s")
        .replace("users: ./my_users.py\n", "")
    ).resolved()
    curve = planned_curve(resolved, 0.0, most_arrivals=2_000_000)
    assert curve["until_s"] < 10_000
    assert curve["expected"] == 1e8
    assert len(curve["rate"]) <= 200
    assert set(curve["rate"]) == {10_000.0}
    ticks = iter(range(100))
    late = planned_curve(resolved, 0.0, clock=lambda: next(ticks) * 10.0)
    assert late["until_s"] < curve["until_s"]
