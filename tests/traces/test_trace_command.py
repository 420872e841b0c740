"""The command: figures, files, exit codes, and a snippet that a scenario takes. Through the real door, once in a process of
its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from truetail.cli import main
from truetail.scenario import load


class Said(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


Command = Callable[..., Said]


@pytest.fixture
def truetail(capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs `truetail trace ...` in this process: its exit code, and what it printed."""

    def run(*arguments: str | Path) -> Said:
        try:
            code = main(["trace", *(str(argument) for argument in arguments)])
        except SystemExit as stopped:  # argparse's
            code = int(str(stopped.code))
        return Said(code, *capsys.readouterr())

    return run


def test_the_command_in_a_process_of_its_own(steps: Path, tmp_path: Path) -> None:
    """`python -m truetail trace` from another folder: exit code 0 and the table; 2 and one line for a missing file."""
    command = [sys.executable, "-m", "truetail", "trace", "inspect"]
    for file, code, said in ((steps, 0, "arrivals     24000"), (tmp_path / "none.csv", 2, "no such file")):
        done = subprocess.run([*command, str(file)], capture_output=True, text=True, check=False, timeout=120, cwd=tmp_path)
        assert (done.returncode, said in done.stdout + done.stderr, "Traceback" in done.stderr) == (code, True, False)


@pytest.fixture
def steps(tmp_path: Path) -> Path:
    """Poisson arrivals at 20/s for 300 s, then at 60/s for 300 s; one bad row."""
    random = np.random.default_rng(6)
    seconds = np.sort(np.concatenate([random.uniform(0, 300, 6000), random.uniform(300, 600, 18_000)]))
    path = tmp_path / "steps.csv"
    path.write_text(
        "time_s,prompt_tokens\n" + "".join(f"{second:.6f},{k % 100}\n" for k, second in enumerate(seconds)) + "oops,1\n"
    )
    return path


def test_inspect_as_table_json_and_picture(truetail: Command, steps: Path, tmp_path: Path) -> None:
    """The table says the figures, the drop goes to standard error, JSON is strict, the picture is a PNG."""
    table = truetail("inspect", steps, "--png", tmp_path / "steps.png")
    assert table.returncode == 0
    assert "arrivals     24000" in table.stdout
    assert "dropped 1: not a number of s (first: steps.csv:24002: time: not a number of s, found 'oops')" in table.stderr
    assert (tmp_path / "steps.png").read_bytes().startswith(b"\x89PNG")
    said = truetail("inspect", steps, "--json")
    figures = json.loads(said.stdout, parse_constant=lambda text: pytest.fail(f"{text} in JSON"))
    assert figures["arrivals"] == 24_000
    assert figures["reading"]["dropped"] == {"not a number of s": 1}
    assert figures["sizes"]["prompt_tokens"]["mean"] == pytest.approx(49.5, rel=0.01)


def test_fit_prints_arrivals_that_a_scenario_takes(truetail: Command, steps: Path, tmp_path: Path) -> None:
    """The snippet under a target is a valid scenario whose rate steps from about 20 to about 60/s at 300 s."""
    said = truetail("fit", steps)
    assert said.returncode == 0
    path = tmp_path / "fitted.yaml"
    path.write_text(
        "name: fitted\ntarget: {url: 'http://127.0.0.1:9'}\nusers: rest\nrequests: [{name: r, method: GET, path: /}]\n"
        + said.stdout
    )
    resolved = load(path).resolved()
    steps_found = resolved["arrivals"]["rate"]["steps"]
    assert resolved["duration_s"] == pytest.approx(600, abs=1)
    assert resolved["arrivals"]["spacing"] == {"kind": "poisson"}
    assert [round(step["rate_rps"] / 20) for step in steps_found] == [1, 3]
    assert steps_found[0]["for_s"] == pytest.approx(300, abs=10)


def test_fit_without_a_stated_window_widens_it_until_the_snippet_is_short(truetail: Command, tmp_path: Path) -> None:
    """A day with a rate that really changes every 10 s has too many pieces; it is told wider, and a stated window is an error."""
    random = np.random.default_rng(1)
    rates = np.where(random.random(3000) < 0.5, 5, 60)
    seconds = np.concatenate([10.0 * at + np.sort(random.uniform(0, 10, rate)) for at, rate in enumerate(rates.tolist())])
    path = tmp_path / "rough.csv"
    path.write_text("time_s\n" + "".join(f"{second:.6f}\n" for second in seconds))
    wide = json.loads(truetail("fit", path, "--json").stdout)
    assert wide["fit"]["window_s"] > 10
    stated = truetail("fit", path, "--window", "10s")
    assert stated.returncode == 2
    assert "wider fit window" in stated.stderr


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_convert_keeps_every_arrival(truetail: Command, ending: str, steps: Path, tmp_path: Path) -> None:
    """What comes out has the same figures as what went in, to the last digit."""
    out = tmp_path / f"out.{ending}"
    said = truetail("convert", steps, "--out", out, "--json")
    assert (said.returncode, json.loads(said.stdout)["rows"]) == (0, 24_000)
    before, after = (json.loads(truetail("inspect", path, "--json").stdout) for path in (steps, out))
    for key in ("arrivals", "first", "last", "idc", "gap_cv", "sizes", "longest_gaps"):
        assert after[key] == before[key]


def test_record_puts_ends_in_the_order_of_arrival(truetail: Command, samples: Path, tmp_path: Path) -> None:
    """nginx logged ends; the trace has starts, in order, as absolute times."""
    said = truetail("record", samples / "nginx.log", "--out", tmp_path / "r.csv")
    assert said.returncode == 0
    lines = (tmp_path / "r.csv").read_text().splitlines()
    assert [line.split(",")[:3] for line in lines] == [
        ["time", "method", "path"],
        ["2024-05-10T00:00:00.500000000Z", "POST", "/slow"],
        ["2024-05-10T00:00:04.750000000Z", "GET", "/a?b=1"],
        ["2024-05-10T00:00:04.996000000Z", "GET", "/b"],
    ]


def test_record_reads_the_reference_service_s_access_log(truetail: Command, tmp_path: Path) -> None:
    """Lines of `python -m target`: wall-clock ns at arrival, duration in us, written at the end of each request."""
    lines = [{"arrived_wall_ns": 1715299200_000000500 + 10**9 * k, "duration_us": 1500, "method": "POST", "path": "/predict", "status": 200,
              "arrival": str(k)} for k in (1, 0, 2)]  # fmt: skip
    (tmp_path / "access.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    said = truetail("record", tmp_path / "access.jsonl", "--out", tmp_path / "r.jsonl")
    assert said.returncode == 0, said.stderr
    found = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines()]
    assert [line["time"] for line in found] == [f"2024-05-10T00:00:0{k}.000000500Z" for k in range(3)]
    assert found[0] == {"time": found[0]["time"], "method": "POST", "path": "/predict", "status": 200, "duration_s": 0.0015}


@pytest.mark.parametrize(("arguments", "message"), [
    (["inspect", "none.csv"], "no such file"),
    (["convert", "FILE", "--out", "x.xls"], "allowed are .csv, .jsonl, .parquet"),
    (["convert", "FILE", "--out", "FILE"], "is the trace that is read"),
    (["convert", "FILE", "--out", "/proc/none/x.csv"], "cannot be written"),
    (["inspect", "FILE", "--strict"], "steps.csv:24002"),
    (["inspect", "FILE", "--from", "1h"], "no arrivals in the window"),
    (["inspect", "FILE", "--png", "/proc/none/x.png"], "cannot be written"),
    (["inspect", "FILE", "--column", "time"], "allowed is OURS=THEIRS"),
    (["inspect", "FILE", "--from", "soon"], "allowed is a duration"),
    (["fit", "FILE", "--format", "xls"], "is not one of"),
])  # fmt: skip
def test_wrong_use_is_exit_2_and_one_clear_line(truetail: Command, arguments: list[str], message: str, steps: Path) -> None:
    """No traceback; what was found and what is allowed."""
    said = truetail(*(str(steps) if argument == "FILE" else argument for argument in arguments))
    assert said.returncode == 2
    assert message in said.stderr
    assert "Traceback" not in said.stderr


def test_an_interrupted_write_leaves_no_file(truetail: Command, steps: Path, tmp_path: Path) -> None:
    """A strict stop in mid-conversion leaves neither the file nor a partial one."""
    said = truetail("convert", steps, "--out", tmp_path / "o.csv", "--strict")
    assert said.returncode == 2
    assert [path.name for path in tmp_path.iterdir()] == ["steps.csv"]
