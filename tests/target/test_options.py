"""Options: what people write, what is refused and how, from flags and from a scenario's mapping."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from target.__main__ import gather, main, parser
from target.config import ConfigError, load
from target.units import NEVER_NS, parse_duration, parse_factor, parse_rate, parse_share, to_ns


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10ms", 0.01), ("0.5 ms", 0.0005), ("2s", 2), ("1.5m", 90), ("250us", 0.00025), (3, 3), ("0", 0), ("1e-3s", 0.001)],
)  # fmt: skip
def test_durations(text: object, seconds: float) -> None:
    """Every unit, plain numbers as seconds."""
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "ten", "10 parsecs", "-1s", "nan", float("nan"), float("inf"), -1, True, None, [1], "1ms2"])
def test_no_durations(text: object) -> None:
    """Everything else is refused."""
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


def test_other_quantities() -> None:
    """Factors, rates, shares."""
    assert (parse_factor("3x"), parse_factor(2)) == (3, 2)
    assert (parse_rate("200/s"), parse_rate("600/min")) == (200, 10)
    assert (parse_share("5%"), parse_share(0.5)) == (0.05, 0.5)
    assert to_ns(1e30) == NEVER_NS


def options(*flags: str) -> object:
    """The checked options of a command line."""
    return gather(parser().parse_args(flags))


def test_flags_win_over_the_mapping() -> None:
    """--config-json gives the base, flags replace single options of it; every field of the mapping can be given."""
    embedded = {
        "mode": "fifo", "a": "1ms", "c": 0, "max_batch": 4, "max_delay": "2ms", "max_queue": 7, "replicas": 3,
        "service": "lognormal", "service_mean": "20ms", "service_cv": 2, "slow_replicas": {"1": "3x"},
        "faults": [{"kind": "pause"}], "seed": 5, "workers": 1,
    }  # fmt: skip
    config = options("--config-json", json.dumps(embedded), "--seed", "6", "--service-mean", "30ms")
    assert (config.seed, config.service_mean, config.replicas, config.slow_replicas) == (6, 0.03, 3, {1: 3.0})  # type: ignore[attr-defined]
    assert [fault.kind for fault in config.all_faults()] == ["slow_replica", "pause"]  # type: ignore[attr-defined]


def test_check_serves_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """--check ends at once: 0 for right options, 2 and a line for each wrong one."""
    assert main(["--check", "--mode", "fifo"]) == 0
    assert main(["--check", "--config-json", '{"mode": "x", "c": "-1s"}']) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_faults_from_both_flags() -> None:
    """--faults and --fault add up; --slow-replica is a fault of its own."""
    flags = ["--replicas", "2", "--faults", '[{"kind": "throttle"}]', "--fault", "pause,start=1s", "--slow-replica", "1:4x"]
    assert [fault.kind for fault in options(*flags).all_faults()] == ["slow_replica", "throttle", "pause"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("mapping", "said"),
    [
        ({"max_bacth": 3}, "'max_bacth' is not an option; there are mode, a, c"),
        ({"mode": "turbo"}, "mode: Input should be 'batch', 'fifo' or 'shared' (found 'turbo')"),
        ({"a": "fast"}, "a: 'fast' is not a duration"),
        ({"max_batch": 0}, "max_batch"),
        ({"replicas": 2, "slow_replicas": "2:3x"}, "replica 2 does not exist"),
        ({"slow_replicas": "3x"}, "INDEX:FACTOR"),
        ({"slow_replicas": {"0": 0.5}}, "at least 1"),
        ({"faults": [{"kind": "slow_replica", "replica": 4}]}, "replica 4 does not exist"),
        ({"faults": "pause"}, "a list of mappings"),
        ({"workers": 4}, "workers can only be 1"),
        ({"model": "torch-cpu", "mode": "shared"}, "simulated only"),
        ([], "must be a mapping"),
    ],
)
def test_wrong_options(mapping: object, said: str) -> None:
    """Each is refused by name, with what was found and what is allowed."""
    with pytest.raises(ConfigError) as error:
        load(mapping)
    assert said in str(error.value)


def test_all_wrong_options_are_told_at_once() -> None:
    """Three faults, three lines."""
    with pytest.raises(ConfigError) as error:
        load({"mode": "x", "a": "y", "faults": [{"kind": "z"}]})
    assert len(error.value.faults) == 3


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--config-json", '{"modus": 1}'], "'modus' is not an option"),
        (["--config-json", "{"], "--config-json: not JSON"),
        (["--config-json", "[]"], "must be a mapping"),
        (["--faults", "{}"], "--faults: must be a list"),
        (["--fault", "throttle,fast"], "not key=value"),
        (["--port", "70000"], "cannot listen"),
        (["--host", "no.such.host.invalid"], "cannot listen"),
        (["--access-log", "/no/such/folder/log"], "--access-log"),
    ],
)  # fmt: skip
def test_usage_errors_exit_2(flags: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, one clear line each, nothing on stdout."""
    assert main(flags) == 2
    told = capsys.readouterr()
    assert said in told.err and told.err.startswith("target: ") and not told.out


def test_usage_errors_of_the_real_command() -> None:
    """As a process: exit code 2 and no traceback, also for a file that turns out unwritable once it runs."""
    for flags, said in ((["--config-json", '{"modus": 1}'], "'modus'"), (["--port-file", "/no/such/folder/port"], "--port-file")):
        ended = subprocess.run([sys.executable, "-m", "target", *flags], capture_output=True, text=True, timeout=60)
        assert ended.returncode == 2 and said in ended.stderr and "Traceback" not in ended.stderr
        assert "ready" not in ended.stdout


def test_torch_missing_is_said_with_a_remedy() -> None:
    """Without PyTorch the torch models end the service with exit code 2 and say how to get it."""
    script = "import sys; sys.modules['torch'] = None; from target.__main__ import main; sys.exit(main(['--model', 'torch-cpu']))"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2 and "pip install torch" in ended.stderr and "Traceback" not in ended.stderr


def test_only_the_torch_module_imports_torch_and_nothing_imports_other_rooms() -> None:
    """Importing the whole service loads neither torch nor any other room of the house."""
    script = (
        "import sys, target.__main__; print([m for m in sys.modules if m.split('.')[0] in "
        + repr(["torch", "shapes", "truetail", "locustfiles", "collector", "analysis", "locust", "gevent"])
        + "])"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.strip() == "[]"
