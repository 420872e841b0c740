"""Progress: a table in a terminal, plain lines at a fixed period in a log, JSON lines for programs, silence."""

import io
import json

import pytest
from rich.console import Console

from truetail.progress import Progress, chosen_mode, plain_line, table


class Terminal(io.StringIO):
    """A file that says it is a terminal."""

    def isatty(self):
        return True


def line(at_s, sent, **changes):
    """A line of progress.jsonl."""
    times = {"p50": 10.0, "p95": 20.0, "p99": 30.0, "p99.9": 40.0, "max": 12_000.0}
    counts = dict.fromkeys(("dropped", "lost", "failed", "timed_out", "workers_lost", "backlog"), 0)
    told = {"at_s": at_s, "duration_s": 60.0, "planned_last_s": 100, "sent": sent, "ok": sent, "in_flight": 2, "workers": 2}
    return told | counts | {"response_ms": times, "lateness_ms": times, "cpu_share_max": 0.25} | changes


def shown(tmp_path, mode, steps, out=None):
    """What is printed for (seconds on the clock, lines that come then)."""
    out = out or io.StringIO()
    now = [0.0]
    with Progress(tmp_path, mode, out, lambda: now[0]) as progress:
        for at, lines in steps:
            now[0] = at
            with (tmp_path / "progress.jsonl").open("a") as file:
                file.writelines(json.dumps(each) + "\n" for each in lines)
            progress.update()
    return out.getvalue()


SECONDS = [(float(second), [line(float(second), 100 * second)]) for second in range(1, 13)]


def test_plain_lines_have_a_fixed_period_and_no_control_characters(tmp_path):
    """Of twelve seconds the 1st, 6th and 11th are shown, and the last in any case; each rate is over the time since the line before."""
    text = shown(tmp_path, "plain", SECONDS)
    lines = text.splitlines()
    assert [each.split("/")[0].strip() for each in lines] == ["1", "6", "11", "12"]
    assert all("sent 100/s" in each for each in lines)
    assert all(char.isprintable() or char == "\n" for char in text)


def test_losses_are_said():
    """Errors, drops and lost workers stand in the line; a worker that is not lost is not mentioned."""
    text = plain_line(line(5.0, 50, failed=2, timed_out=1, dropped=4, workers_lost=1), 9.6)
    assert "errors 3  dropped 4  workers lost 1" in text
    assert "sent 10/s" in text
    assert "workers lost" not in plain_line(line(5.0, 50), 10)


def test_quiet_and_json(tmp_path):
    """Quiet says nothing; JSON passes every line on, also those that came together."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert shown(tmp_path / "a", "quiet", SECONDS) == ""
    together = [(1.0, [line(1.0, 1), line(2.0, 2)]), (9.0, [line(3.0, 3)])]
    assert [json.loads(each)["sent"] for each in shown(tmp_path / "b", "json", together).splitlines()] == [1, 2, 3]


def test_a_terminal_gets_the_table(tmp_path):
    """In a terminal the figures stand in a table that is drawn over and taken away at the end."""
    text = shown(tmp_path, "live", SECONDS, Terminal())
    assert "12 of 60 s, 48 s left" in text
    assert "response p50, p99, p99.9, max" in text
    assert "12.0 s" in text
    assert "\x1b[" in text


@pytest.mark.parametrize(
    ("mode", "out", "environment", "expected"),
    [
        ("auto", Terminal(), {"TERM": "xterm"}, "live"),
        ("auto", Terminal(), {"TERM": "xterm", "CI": "true"}, "plain"),
        ("auto", Terminal(), {"TERM": "dumb"}, "plain"),
        ("auto", io.StringIO(), {"TERM": "xterm"}, "plain"),
        ("quiet", Terminal(), {}, "quiet"),
        ("json", Terminal(), {"CI": "true"}, "json"),
    ],
)
def test_mode(mode, out, environment, expected):
    """The table only where a person looks; CI logs get lines even if they pretend to be terminals."""
    assert chosen_mode(mode, out, environment) == expected


def test_an_unknown_mode_is_an_error():
    """A mode that does not exist is named."""
    with pytest.raises(ValueError, match="fancy"):
        chosen_mode("fancy", io.StringIO(), {})


def test_events_stand_among_the_lines(tmp_path):
    """The epoch and a lost worker are told as they happen, as printable text; what is of no use to a watcher is not."""
    events = [("epoch", "600 arrivals planned"), ("message-refused", "x"), ("worker-lost", "w1 \x1b[31m\nred")]
    (tmp_path / "events.jsonl").write_text("".join(json.dumps({"kind": kind, "text": text}) + "\n" for kind, text in events))
    lines = shown(tmp_path, "plain", SECONDS[:1]).splitlines()
    assert lines[:2] == ["epoch: 600 arrivals planned", "worker-lost: w1  [31m red"]
    assert len(lines) == 3
    for mode, found in (("quiet", ""), ("json", None), ("live", "worker-lost: w1  [31m red")):
        (tmp_path / "progress.jsonl").write_text("")
        text = shown(tmp_path, mode, SECONDS[:1], Terminal())
        assert ("epoch" not in text) if not found else found in text


def test_the_table_fits_80_columns():
    """Also with large figures no line is wider, so that nothing wraps."""
    large = dict.fromkeys(("p50", "p95", "p99", "p99.9", "max"), 9_999.9)
    big = line(86_399.0, 12_345_678, duration_s=86_400.0, planned_last_s=100_000, backlog=99_999, in_flight=99_999, ok=12_345_678, failed=1_234_567,
               timed_out=1_234_567, dropped=1_234_567, lost=1_234_567, workers=100, response_ms=large, lateness_ms=large)  # fmt: skip
    console = Console(file=io.StringIO(), width=80)
    console.print(table(big, 100_000.0))
    lines = console.file.getvalue().splitlines()
    assert len(lines) == 10  # title, bar and eight rows: nothing has wrapped
    assert "9,999.9 ms, 9,999.9 ms, 9,999.9 ms, 9,999.9 ms" in lines[4]


def test_torn_file(tmp_path):
    """A file that does not exist, or whose last line is half written, shows what is whole."""
    out = io.StringIO()
    with Progress(tmp_path, "plain", out, lambda: 0.0) as progress:
        progress.update()
        (tmp_path / "progress.jsonl").write_text(json.dumps(line(3.0, 30)) + '\n{"at_s": 4')
        progress.update()
    assert out.getvalue().splitlines()[0].startswith("     3/60 s")
    assert len(out.getvalue().splitlines()) == 1
