"""The LoadTestShapes: discovery by Locust's own loader, options, one constant pool, errors that end the test, real runs."""

import logging
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from locust import LoadTestShape
from locust.argument_parser import get_parser
from locust.util.load_locustfile import load_locustfile

import shapes.open_loop
from shapes.open_loop import OPTIONS, OpenLoopShape
from shapes.schedule import Schedule

SHAPES = Path(shapes.open_loop.__file__).parent
FILES = {"fixed": "FixedShape", "poisson": "PoissonShape", "gamma": "GammaShape", "hour_burst": "HourBurstShape"}


def attach(shape: OpenLoopShape, *arguments: str, **environment: Any) -> SimpleNamespace:
    """Give the shape a runner as Locust does, with options parsed by Locust's own parser."""
    options = get_parser().parse_args(list(arguments))
    found = SimpleNamespace(parsed_options=options, process_exit_code=None, **environment)
    shape.runner = SimpleNamespace(environment=found, worker_count=2)  # type: ignore[assignment]
    return found


def shape_of(stem: str) -> Any:
    """The one shape that Locust finds in a file of ours, made as Locust makes it."""
    found = load_locustfile(str(SHAPES / f"{stem}.py"))[1]
    assert [type(shape).__name__ for shape in found] == [FILES[stem]]
    return found[0]


@pytest.fixture(autouse=True)
def forget_stems(monkeypatch: pytest.MonkeyPatch) -> None:
    """Locust puts the stem of a file into sys.modules; take it out again."""
    for stem in FILES:
        monkeypatch.delitem(sys.modules, stem, raising=False)


@pytest.mark.parametrize("stem", FILES)
def test_one_shape_a_file(stem: str) -> None:
    """Locust's loader finds exactly one concrete shape in each file, makes it without arguments, and its schedule has arrivals."""
    shape = shape_of(stem)
    assert isinstance(shape, LoadTestShape)
    assert isinstance(shape.schedule(), Schedule)
    assert shape.schedule().count() == pytest.approx(shape.schedule().expected_count, rel=0.2)


def test_the_base_is_not_a_shape() -> None:
    """The file of the abstract base offers Locust nothing to run."""
    assert load_locustfile(str(SHAPES / "open_loop.py"))[1] == []


def test_a_subclass_makes_its_base_abstract(tmp_path: Path) -> None:
    """``from shapes.poisson import PoissonShape`` in a locustfile does not make that the shape that Locust runs."""
    file = tmp_path / "mornings_users.py"
    file.write_text(
        "from shapes.poisson import PoissonShape\nclass Mornings(PoissonShape):\n    rate_rps = 50\n    duration_s = 7\n    seed = 0\n"
    )
    shape: Any
    (shape,) = load_locustfile(str(file))[1]
    assert type(shape).__name__ == "Mornings"
    attach(shape)
    assert shape.arrivals() == {"rate": {"kind": "constant", "rate_rps": 50}, "spacing": {"kind": "poisson"}}
    arrivals = shape.arrivals()
    assert shape.schedule().digest() == Schedule(arrivals, 7, 0).digest()


def test_options_stand_above_attributes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Command line, then environment, then the class; 0 is a seed; an option changed in the web UI counts from the next start."""
    monkeypatch.setenv("TRUETAIL_DURATION_S", "12.5")
    monkeypatch.setenv("TRUETAIL_RATE", "3")
    shape = shape_of("gamma")
    environment = attach(shape, "--rate", "7", "--seed", "0", "--cv", "3", "--pool", "11")
    assert (shape.rate_rps, shape.duration_s, shape.seed, shape.cv, shape.pool, shape.drain_s) == (7.0, 12.5, 0, 3.0, 11, 15.0)
    environment.parsed_options.rate_rps = 8.0
    environment.parsed_options.seed = -1
    shape.reset_time()
    assert (shape.rate_rps, shape.seed) == (8.0, 42)


def test_hour_burst_options() -> None:
    """Every option of the hour burst reaches the resolved rate."""
    shape = shape_of("hour_burst")
    attach(
        shape, "--rate", "5", "--clients", "0", "--period-s", "60", "--jitter", "normal", "--jitter-width-s", "1.5",
        "--burst-align", "wall-clock", "--burst-offset-s", "0",
    )  # fmt: skip
    assert shape.rate() == {
        "kind": "hour_burst", "base_rps": 5.0, "clients": 0, "period_s": 60.0, "jitter": {"kind": "normal", "width_s": 1.5},
        "align": "wall-clock", "offset_s": 0.0,
    }  # fmt: skip


def test_options_are_plain_and_added_once() -> None:
    """Defaults are numbers or text (Locust's web UI and messages need that); a second import under another name adds nothing."""
    assert all(type(default) in (int, float, str) for _, _, default, _ in OPTIONS)
    load_locustfile(str(SHAPES / "open_loop.py"))
    parser = get_parser()
    actions = [action for action in parser._actions if "--duration-s" in action.option_strings]
    assert len(actions) == 1
    assert actions[0].env_var == "TRUETAIL_DURATION_S"


def test_the_pool_is_constant_until_the_engine_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """With Truetail's engine: the same users all the time, also when a worker goes, and None once the engine has finished."""
    shape, done = shape_of("poisson"), False
    attach(shape, "--pool", "30", "--duration-s", "1", truetail=SimpleNamespace(finished=lambda: done))
    monkeypatch.setattr(type(shape), "get_run_time", lambda self: 1e9)
    ticks = [shape.tick(), shape.tick()]
    shape.runner.worker_count = 1
    ticks.append(shape.tick())
    assert ticks == [(60, 60.0)] * 3
    assert all(type(tick[0]) is int for tick in ticks)
    done = True
    assert shape.tick() is None


def test_without_an_engine_time_ends_it(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain Locust: warned once that nothing takes the arrivals, then None after duration and drain."""
    shape, now = shape_of("poisson"), 0.0
    attach(shape, "--duration-s", "10", "--drain-s", "2")
    monkeypatch.setattr(type(shape), "get_run_time", lambda self: now)
    with caplog.at_level(logging.WARNING):
        assert [shape.tick(), shape.tick()] == [(200, 200.0)] * 2
    assert [("CLOSED loop" in message, "OpenLoop" in message) for message in caplog.messages] == [(True, True)]
    now = 11.9
    assert shape.tick() == (200, 200.0)
    now = 12.1
    assert shape.tick() is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(("--cv", "-3"), "gamma cv: found -3"), (("--rate", "-1"), "rate_rps: found -1"), (("--pool", "-5"), "pool: found -5")],
)
def test_an_error_ends_the_test(arguments: tuple[str, ...], words: str, caplog: pytest.LogCaptureFixture) -> None:
    """A wrong option ends the test at the first tick with exit code 2 and one clear line; nothing is sent."""
    shape = shape_of("gamma")
    environment = attach(shape, *arguments)
    assert shape.tick() is None
    assert environment.process_exit_code == 2
    assert words in caplog.text
    assert "Traceback" not in caplog.text
    assert shape.tick() is None


def run_locust(tmp_path: Path, shape: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A real headless run of a locustfile without the mixin, whose users reach for nothing."""
    users = tmp_path / "idle_users.py"
    users.write_text(
        "from locust import User, constant, task\nclass Idle(User):\n    wait_time = constant(0.2)\n    @task\n    def nothing(self): pass\n"
    )
    command = [sys.executable, "-m", "locust", "--headless", "-f", f"{users},{SHAPES / shape}", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, cwd=tmp_path, env=os.environ | {"NO_COLOR": "1"}, check=False
    )


@pytest.mark.parametrize(
    "shape", ["poisson.py", *(pytest.param(f"{stem}.py", marks=pytest.mark.slow) for stem in FILES if stem != "poisson")]
)
def test_plain_locust_runs_it(shape: str, tmp_path: Path) -> None:
    """``locust --headless -f users.py,shapes/X.py`` starts the pool, warns that the arrivals are not taken, and ends with code 0."""
    run = run_locust(tmp_path, shape, "--rate", "5", "--duration-s", "0.5", "--drain-s", "0", "--pool", "3")
    assert run.returncode == 0, run.stderr
    assert "updating to 3 users" in run.stderr
    assert "CLOSED loop" in run.stderr


def test_plain_locust_refuses_nonsense(tmp_path: Path) -> None:
    """A wrong option in a real run: exit code 2, the reason, no traceback, no users."""
    run = run_locust(tmp_path, "gamma.py", "--cv", "-1")
    assert run.returncode == 2, run.stderr
    assert "gamma cv: found -1.0" in run.stderr
    assert "Traceback" not in run.stderr
    assert "updating to" not in run.stderr
