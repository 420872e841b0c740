"""Malformed traces: each gives a clear error or a counted, named drop; none a traceback, a hang or a silently wrong time."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from shapes.traces.drops import TraceError

A, B = "2024-05-10 00:00:00.009930+00:00", "2024-05-10 00:00:01+00:00"
A_NS, B_NS = 1715299200_009930000, 1715299201_000000000
HEAD = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
LOG = '10.0.0.1 - - [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 5 "-" "x"\n'
LOG_NS = 1431857103 * 10**9


class Case(NamedTuple):
    """A file, and what must come of it: an error that contains ``error``, or ``times`` and exactly these ``drops``."""

    name: str
    content: str | bytes
    error: str = ""
    drops: dict[str, int] | None = None
    times: list[int] | None = None
    notes: dict[str, int] | None = None
    file: str = "t.csv"
    said: dict[str, Any] = {}  # noqa: RUF012


def bad_time(name: str, found: str, reason: str) -> Case:
    return Case(name, f"{HEAD}{A},1,2\n{found},3,4\n{B},5,6\n", drops={reason: 1}, times=[A_NS, B_NS])


ISO = "not an ISO 8601 time (like 2024-05-10 00:00:00.009930+00:00)"
CASES = [
    # files that are no traces
    Case("empty file", "", error="is empty"),
    Case("only a byte order mark", b"\xef\xbb\xbf", error="is empty"),
    Case("only blank lines", "\n\n \r\n", error="is empty"),
    Case("header and nothing else", HEAD, error="has a header but no rows"),
    Case("UTF-16", HEAD.encode("utf-16"), error="UTF-16"),
    Case("NUL bytes", f"{HEAD}{A},1,2\n".encode() + b"\x00" * 8, error="NUL bytes"),
    Case("old Mac line ends", f"{HEAD}{A},1,2\n".replace("\n", "\r"), error="CR alone"),
    Case("binary called gzip", b"\x1f\x8b" + b"junkjunkjunk", error="damaged or cut gzip"),
    Case("cut gzip", gzip.compress((HEAD + f"{A},1,2\n" * 9000).encode())[:-20], error="damaged or cut gzip"),
    Case("gzip bomb", gzip.compress(f"{HEAD}{A},1,2\n".encode() + b"\n" * (40 * 2**20), 9), error="expands more than", file="bomb.csv.gz"),
    Case("Parquet's name on text", "PAR1 but no more\n", error="Parquet file"),
    Case("an image", b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", error="NUL bytes"),
    Case("prose", "Dear all,\nplease find attached\n", error="no time column found"),
    # headers
    Case("no header", f"{A},1,2\n{B},3,4\n", error="no header"),
    Case("no time column", "a,b\n1,2\n", error="no time column found among 'a', 'b'"),
    Case("time column twice", "time,time,x\n1,2,3\n", error="has 'time' twice"),
    Case("a column that is not there", "time,x\n1,2\n", error="there is no column 'zz'", said={"columns": {"time": "zz"}}),
    Case("no column name of ours", "time,x\n1,2\n", error="is no column name of ours", said={"columns": {"Ti me": "time"}}),
    Case("header with an open quote", '"time,x\n1,2\n', error="quote that is not closed"),
    Case("unknown format", "time\n1\n", error="format 'xls' is not one of", said={"format": "xls"}),
    Case("run folder asked of a file", "time\n1\n", error="needs a folder", said={"format": "truetail-run"}),
    Case("azure asked of another file", "time,x\n1,2\n", error="no column 'TIMESTAMP'", said={"format": "azure-llm"}),
    # times
    bad_time("no time", "", "no time"),
    bad_time("a word", "yesterday", ISO),
    bad_time("month 13", "2024-13-10 00:00:00+00:00", "a date that does not exist"),
    bad_time("29 February of a common year", "2023-02-29 00:00:00+00:00", "a date that does not exist"),
    bad_time("hour 24", "2024-05-10 24:00:00+00:00", "a time of day that does not exist"),
    bad_time("second 61", "2024-05-10 00:00:61+00:00", "a time of day that does not exist"),
    bad_time("10 fraction digits", "2024-05-10 00:00:00.0123456789+00:00", "more than 9 fraction digits"),
    bad_time("offset of 30 hours", "2024-05-10 00:00:00+30:00", "an offset that does not exist"),
    bad_time("a date alone", "2024-05-10", ISO),
    bad_time("year 9999", "9999-12-31 00:00:00+00:00", "a time outside 1990 to 2100"),
    bad_time("year 0000", "0000-05-10 00:00:00+00:00", "a date that does not exist"),
    bad_time("1970, an unset clock", "1970-01-01 00:00:00+00:00", "a time outside 1990 to 2100"),
    bad_time("an epoch number among ISO times", "1715299200.5", ISO),
    bad_time("digits of another script", "\uff12\uff10\uff12\uff14-05-10 00:00:00+00:00", ISO),
    bad_time("NaN", "NaN", ISO),
    Case("epoch: ms among s", "time\n1700000000\n1700000000500\n1700000001\n", drops={"a time outside 1990 to 2100": 1},
         times=[1700000000 * 10**9, 1700000001 * 10**9]),
    Case("epoch: infinity, underscore, hex", "time\n1700000000\ninf\n17_00\n0x10\n", drops={"not a number of s": 3},
         times=[1700000000 * 10**9]),
    Case("epoch: exponent bomb", "time\n1700000000\n1e99\n1e999999999\n1700000000\n1700000000\n", drops={"a time outside 1990 to 2100": 1, "not a number of s": 1},
         times=[1700000000 * 10**9] * 3),
    Case("numbers of an unknown unit", "time\n500000000\n500000001\n", error="cannot tell the unit"),
    Case("a negative time", "offset_s\n0\n-1\n2\n", drops={"a negative time": 1}, times=[0, 2 * 10**9]),
    Case("a clock that jumps ahead once", "time_s\n0\n1\n90000000\n2\n3\n", times=[0, 10**9, 2 * 10**9, 3 * 10**9],
         drops={"a lone time ahead of both its neighbours by more than the reorder window (a clock jump)": 1}),
    Case("a clock that jumps back", "time_s\n0\n1000\n2000\n1\n2001\n", times=[0, 1000 * 10**9, 2000 * 10**9, 2001 * 10**9],
         drops={"out of order by more than the reorder window (order: sort takes any order; a timezone may be missing)": 1}),
    Case("a local time that the clocks skipped", "time\n2024-03-31 01:59:59\n2024-03-31 02:30:00\n2024-03-31 03:00:00\n",
         said={"timezone": "Europe/Berlin"}, drops={"a local time that does not exist in Europe/Berlin (clocks went forward)": 1},
         times=[1711846799 * 10**9, 1711846800 * 10**9]),
    Case("a zone that does not exist", f"time\n{A}\n", error="no time zone is called 'Mars/Base'", said={"timezone": "Mars/Base"}),
    Case("a zone that is a path", f"time\n{A}\n", error="no time zone is called", said={"timezone": "../../etc/passwd"}),
    # rows
    Case("too few fields", f"{HEAD}{A},1,2\n{B}\n", drops={"a wrong number of fields": 1}, times=[A_NS]),
    Case("too many fields", f"{HEAD}{A},1,2\n{B},1,2,3\n", drops={"a wrong number of fields": 1}, times=[A_NS]),
    Case("the last line cut", f"{HEAD}{A},1,2\n{B},3", drops={"a wrong number of fields": 1}, times=[A_NS]),
    Case("a quote that never closes", f'{HEAD}{A},1,2\n"{A},1,2\n{B},3,4\n', times=[A_NS, B_NS],
         drops={"a quote that is not closed, or text after it": 1}),
    Case("two lone quotes that would swallow rows", f'{HEAD}{A},"1,2\n{A},1,2\n{B},"3,4\n', times=[A_NS],
         drops={"a quote that is not closed, or text after it": 2}),
    Case("tokens that are no number", f"{HEAD}{A},many,2\n{B},1,2\n", drops={"not a number": 1}, times=[B_NS]),
    Case("tokens and a half", f"{HEAD}{A},1.5,2\n{B},1,2\n", drops={"not a whole number": 1}, times=[B_NS]),
    Case("fewer than no tokens", f"{HEAD}{A},-4,2\n{B},1,2\n", drops={"a negative number": 1}, times=[B_NS]),
    Case("tokens beyond measure", f"{HEAD}{A},99999999999999999999,2\n{B},1,2\n", drops={"too large a number": 1}, times=[B_NS]),
    Case("hexadecimal tokens", f"{HEAD}{A},0x10,2\n{B},1,2\n", drops={"not a number": 1}, times=[B_NS]),
    Case("a duration of years", "time,duration_s\n0,99999999999\n1,1\n", drops={"a duration of more than a year": 1}, times=[10**9]),
    Case("a line of megabytes", f"{HEAD}{A},1,2\n{'x' * (4 * 2**20)}\n{B},3,4\n", drops={"a line longer than 1 MiB": 1}, times=[A_NS, B_NS]),
    Case("bytes that are not UTF-8", f"time,path\n{A},/caf".encode() + b"\xe9\n" + f"{B},/b\n".encode(), times=[A_NS, B_NS],
         drops={}, notes={"bytes that are not UTF-8, replaced": 1}),
    # JSON lines
    Case("JSON: a cut line", '{"timestamp": 0}\n{"timestamp": 10\n{"timestamp": 20}\n', drops={"not JSON": 1}, times=[0, 20 * 10**9],
         file="t.jsonl"),
    Case("JSON: NaN", '{"timestamp": 0}\n{"timestamp": NaN}\n', drops={"NaN or Infinity, which JSON does not have": 1}, times=[0]),
    Case("JSON: an array", '{"timestamp": 0}\n[1, 2]\n', drops={"not a JSON object": 1}, times=[0]),
    Case("JSON: a key twice", '{"timestamp": 0}\n{"timestamp": 1, "timestamp": 2}\n', drops={"a JSON key that is there twice": 1}, times=[0]),
    Case("JSON: nested without end", '{"timestamp": 0}\n{"timestamp": ' + "[" * 100_000 + "\n", times=[0],
         drops={"JSON nested too deeply": 1}),
    Case("JSON: time is missing or null or true", '{"timestamp": 0}\n{"x": 1}\n{"timestamp": null}\n{"timestamp": true}\n',
         drops={"no time": 2, "not a number of s": 1}, times=[0]),
    Case("JSON: an array for the whole file", '[{"timestamp": 0},\n{"timestamp": 1}]\n', error="one JSON array"),
    Case("JSON: no time in any", '{"a": 1}\n', error="no time column found among 'a'"),
    # logs
    Case("log: a line of something else", LOG + "Traceback (most recent call last):\n" + LOG, times=[LOG_NS, LOG_NS],
         drops={"not a line of the common or combined log format": 1}),
    Case("log: an unterminated quote keeps its time", LOG + LOG.replace('"x"', '"x'), times=[LOG_NS, LOG_NS], drops={},
         notes={"a line whose end cannot be read: only its time is used": 1}),
    Case("log: a month that does not exist", LOG + LOG.replace("May", "Mai"), times=[LOG_NS],
         drops={"not a log time (like 17/May/2015:10:05:03 +0000)": 1}),
    Case("log: TLS bytes for a request", LOG + LOG.replace("GET /a HTTP/1.1", "\\x16\\x03\\x01"), times=[LOG_NS, LOG_NS], drops={},
         notes={"a request line without method and path": 1}),
    # other forms
    Case("counts: a count that is none", "HashFunction,1,2\nf,1,x\ng,0,2\n", drops={"not a count": 1}),
    Case("counts: none at all", "HashFunction,1,2\nf,0,0\n", error="no arrivals in any minute"),
    Case("servegen: an unknown law", "0,5,1,Pareto,1,1\n600,5,1,Gamma,1,1\n", error="", said={"format": "servegen"},
         drops={"neither Gamma nor Weibull with a shape of 0.01 to 1000": 1}),
    Case("servegen: windows in disorder", "600,5,1,Gamma,1,1\n0,5,1,Gamma,1,1\n", error="do not rise", said={"format": "servegen"}),
    # what was said of them
    Case("a window behind the end", "time_s\n0\n1\n", error="no arrivals in the window from 5 s", said={"window_from_s": 5.0}),
    Case("a window the wrong way round", "time_s\n0\n", error="window_to_s", said={"window_from_s": 5.0, "window_to_s": 5.0}),
    Case("a unit that does not exist", "time\n0\n", error="time_unit", said={"time_unit": "fortnights"}),
    Case("ends without durations", "time_s\n0\n", error="needs a duration column", said={"time_is": "end"}),
    Case("every row bad", f"{HEAD}x,1,2\ny,1,2\n", error="no arrivals; dropped 2: not an ISO 8601 time"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.timeout(60)
def test_malformed_is_an_error_or_a_counted_drop(case: Case, tmp_path: Path, read_whole: Callable[..., Any]) -> None:
    """What is expected of the case happens, exactly: the message, or the drops by name and the times that are left."""
    path = tmp_path / case.file
    path.write_bytes(case.content.encode() if isinstance(case.content, str) else case.content)
    if case.error:
        with pytest.raises(TraceError, match=None) as raised:
            read_whole(path, **case.said)
        assert case.error in str(raised.value)
        return
    rows, recording = read_whole(path, **case.said)
    assert case.drops is None or dict(recording.drops.dropped) == case.drops
    assert case.times is None or rows.times_ns.tolist() == case.times
    assert case.notes is None or case.notes.items() <= recording.drops.noted.items()
    assert recording.drops.kept == len(rows.times_ns)


@pytest.mark.parametrize("case", [case for case in CASES if case.drops], ids=lambda case: case.name)
def test_strict_stops_at_the_first_and_names_the_place(case: Case, tmp_path: Path, read_whole: Callable[..., Any]) -> None:
    """Every drop is an error under strict, which starts with file and line and repeats the reason."""
    path = tmp_path / case.file
    path.write_bytes(case.content.encode() if isinstance(case.content, str) else case.content)
    with pytest.raises(TraceError) as raised:
        read_whole(path, **case.said, strict=True)
    assert case.drops is not None
    assert any(reason in str(raised.value) for reason in case.drops)
    assert str(raised.value).startswith(f"{case.file}:")


def test_there_are_at_least_forty() -> None:
    """The table is as long as was agreed, and names every case once."""
    assert len(CASES) >= 40
    assert len({case.name for case in CASES}) == len(CASES)


def test_a_drop_names_file_line_field_and_what_was_found(tmp_path: Path, read_whole: Callable[..., Any]) -> None:
    """A bad row deep in a file that is read block by block is named by its own line."""
    lines = [f"2024-05-10 00:00:{i % 60:02d}.{i:06d}+00:00,{i},2" for i in range(60)]
    lines[40] = lines[40].replace(",40,", ",forty\x1b[31m,")
    path = tmp_path / "named.csv"
    path.write_text(HEAD + "\n".join(lines) + "\n")
    _, recording = read_whole(path)
    assert recording.drops.examples["not a number"] == ["named.csv:42: prompt_tokens: not a number, found 'forty\\x1b[31m'"]


@pytest.mark.parametrize("said", [{"speed": 0}, {"speed": float("nan")}, {"thin": 2.0}, {"copies": 0}, {"copies": True}, {"mode": "x"},
                                  {"order": "x"}, {"align": "x"}, {"loop": 1}, {"what": 1}, {"columns": ["time"]}, {"offset_s": -1.0},
                                  {"fit_window_s": 0.0}, {"align": "wall-clock", "speed": 2.0}, {"time_is": "middle"}])  # fmt: skip
def test_a_wrong_spec_names_its_field(said: dict[str, Any], tmp_path: Path, read_whole: Callable[..., Any]) -> None:
    """Each field of the spec is checked, and the error names it."""
    with pytest.raises(TraceError, match=f"trace: .*{list(said)[-1]}"):
        read_whole(tmp_path / "none.csv", **said)
