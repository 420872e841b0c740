"""Look at recorded traffic and turn it into what a scenario can use.

inspect: rate over time, dispersion, gaps, bursts on the hour, sizes. convert: to CSV, JSONL or Parquet of one form.
fit: a scenario's `arrivals:` with the trace's rate and spacing. record: an access log to a trace, in the order of arrival.
Formats: auto (by content), csv, jsonl, parquet, azure-llm, burstgpt, mooncake, access-log (nginx, Apache), envoy-json,
truetail-run (a run's folder), counts-per-minute, servegen. Text files may be gzipped.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from shapes.traces.detect import READERS, resolve_format
from shapes.traces.drops import TraceError
from shapes.traces.fit import Fit, arrivals_snippet, fit
from shapes.traces.inspect import Inspection, inspected
from shapes.traces.recording import Recording
from shapes.traces.reorder import ORDERS, WINDOW_S
from shapes.traces.spec import TraceSpec, parse_spec
from shapes.traces.times import UNITS
from shapes.traces.write import WRITERS, write_rows
from truetail.errors import ExitCode, UsageError
from truetail.units import format_duration_s, parse_duration_s

FIT_WINDOW_S = 10.0
WIDEN = 4.0
SPARK = "▁▂▃▄▅▆▇█"
SPARK_COLUMNS = 72


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A sub-command each, with the options on reading that all share."""
    commands = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    described = {
        "inspect": "figures and a picture of a trace",
        "convert": "write a trace as CSV, JSONL or Parquet of our own form",
        "fit": "print the arrivals of a scenario that behave like the trace",
        "record": "make a trace from an access log of the target or a proxy: times when requests arrived, in order",
    }
    made = {name: commands.add_parser(name, help=text, description=text.capitalize() + ".") for name, text in described.items()}
    for name, command in made.items():
        _add_reading(command, sort=name == "record")
    made["inspect"].add_argument("--png", type=Path, metavar="FILE", help="write a picture: rate over time, dispersion")
    made["fit"].add_argument(
        "--window", type=_duration, metavar="DURATION", help="width of the windows in which the rate is counted (default: 10s)"
    )
    for name in ("convert", "record"):
        made[name].add_argument(
            "--out",
            "-o",
            type=Path,
            required=True,
            metavar="FILE",
            help=f"where to; the ending names the form: {', '.join(WRITERS)}",
        )


def _add_reading(parser: argparse.ArgumentParser, sort: bool) -> None:
    parser.add_argument("file", type=Path, help="the trace: a file, or a run's folder")
    parser.add_argument("--format", default="auto", metavar="NAME", help=f"auto (default), {', '.join(READERS)}")
    parser.add_argument(
        "--column",
        action="append",
        default=[],
        type=_mapping,
        metavar="OURS=THEIRS",
        help="name a column; repeatable (time=ts, session=3)",
    )
    parser.add_argument("--time-unit", choices=UNITS, default="auto", help="how times are written (default: found out)")
    parser.add_argument(
        "--timezone", default="UTC", metavar="ZONE", help="of times without an offset, like Europe/Berlin (default: UTC)"
    )
    parser.add_argument(
        "--time-is",
        choices=("auto", "start", "end"),
        default="auto",
        help="the logged time is a request's start or end (start = end - duration)",
    )
    parser.add_argument(
        "--order",
        choices=ORDERS,
        default="sort" if sort else "window",
        help="rows that are out of order: within a window, or sort all",
    )
    parser.add_argument(
        "--reorder-window", type=_duration, default=WINDOW_S, metavar="DURATION", help="how late a row may come (default: 60s)"
    )
    parser.add_argument(
        "--from", dest="from_s", type=_duration, default=0.0, metavar="DURATION", help="leave out what is before this"
    )
    parser.add_argument(
        "--to", dest="to_s", type=_duration, metavar="DURATION", help="leave out what is after this; both from the first arrival"
    )
    parser.add_argument("--strict", action="store_true", help="stop at the first bad row in place of counting it")
    parser.add_argument("--json", action="store_true", help="the figures as JSON on standard output")


def run(args: argparse.Namespace) -> int:
    """Do the action. Raises UsageError for a trace that cannot be read or written."""
    try:
        spec = _spec(args)
        recording = Recording(spec)
        return ACTIONS[args.action](args, recording)
    except TraceError as error:
        raise UsageError(str(error)) from None


def _spec(args: argparse.Namespace) -> TraceSpec:
    spec = parse_spec(
        {
            "file": args.file,
            "format": args.format,
            "columns": dict(args.column),
            "time_unit": args.time_unit,
            "timezone": args.timezone,
            "time_is": args.time_is,
            "order": args.order,
            "reorder_window_s": args.reorder_window,
            "window_from_s": args.from_s,
            "window_to_s": args.to_s,
            "strict": args.strict,
        },
        seed=0,
    )
    if not args.file.exists():
        raise TraceError(f"{args.file}: there is no such file")
    return spec


def _inspect(args: argparse.Namespace, recording: Recording) -> int:
    inspection = inspected(recording.rows(), recording.origin_ns)
    figures = {"file": args.file.name, "format": resolve_format(args.file, args.format)} | inspection.to_json()
    if args.png is not None:
        from shapes.traces.picture import png

        _write(args.png, png(inspection, f"{args.file.name}: {inspection.n} arrivals"))
    if args.json:
        _print_json(figures | {"remarks": inspection.remarks(), "reading": recording.drops.to_json()})
    else:
        print("\n".join(_table(figures, inspection)))
        _say_drops(recording)
    return ExitCode.PASS


def _table(figures: Mapping[str, Any], inspection: Inspection) -> Iterator[str]:
    """The figures for people, a line each."""
    yield f"{ascii(figures['file'])[1:-1]} ({figures['format']})"
    clock = {"utc": "UTC", "midnight": "s since local midnight", "start": "s from the trace's start"}[inspection.clock]
    yield f"  arrivals     {inspection.n}, from {figures['first']} to {figures['last']} ({clock})"
    yield f"  span         {figures['span_s']:.6g} s"
    peak = "" if figures["peak_1s"] is None else f", at most {figures['peak_1s']} in a second"
    yield f"  rate         {_figure(figures['rate_rps'])}/s{peak}"
    idc = ", ".join(f"{_figure(value)} in {width}" for width, value in figures["idc"].items())
    yield f"  dispersion   {idc} (variance over mean of counts; Poisson 1)"
    yield f"  gaps         CV {_figure(figures['gap_cv'])} (Poisson 1); {figures['equal_times_share']:.1%} are 0"
    yield f"  resolution   {figures['resolution_s']:g} s; {figures['identical_rows']} rows repeat the one before whole"
    longest = ", ".join(f"{gap['length_s']:.4g} s at {gap['at_s']:.6g} s" for gap in figures["longest_gaps"][:3])
    yield f"  longest gaps {longest or 'none'}; {_figure(figures['empty_minutes'])} minutes without an arrival"
    hour = figures["on_the_hour"]
    if hour is not None:
        ratio = _figure(hour["minute_0_over_others"])
        yield f"  on the hour  minute 0 has {ratio} times the others; busiest is minute {hour['busiest_minute']} of the hour ({hour['busiest_share']:.1%})"
    if figures["sessions"]:
        yield f"  sessions     {figures['sessions']}, in {figures['in_session_share']:.1%} of the rows"
    for name, sizes in figures["sizes"].items():
        values = ", ".join(f"{key} {sizes[key]:.5g}" for key in ("mean", "min", "p50", "p90", "p99", "max"))
        yield f"  {name:<12} {values} (of {sizes['told']}; percentiles within 1%)"
    yield from _spark(inspection)
    yield from (f"  remark: {remark}" for remark in inspection.remarks())


def _spark(inspection: Inspection) -> Iterator[str]:
    from shapes.traces.picture import rate_curve

    _, rates, bin_s = rate_curve(inspection, SPARK_COLUMNS)
    top = rates.max()
    line = "".join(SPARK[min(len(SPARK) - 1, int(rate / top * len(SPARK)))] for rate in rates.tolist())
    yield f"  {line}"
    yield f"  a column is {format_duration_s(bin_s)}, the highest {top:.4g}/s"


def _fit(args: argparse.Namespace, recording: Recording) -> int:
    fitted, arrivals = _fitted(recording, args.window)
    if args.json:
        _print_json({"fit": fitted.to_json(), "arrivals": arrivals, "reading": recording.drops.to_json()})
        return ExitCode.PASS
    figures = fitted.to_json()
    print(
        f"# fitted to {ascii(args.file.name)[1:-1]}: {fitted.n} arrivals in {fitted.length_s:.6g} s, mean {fitted.mean_rps:.6g}/s,"
    )
    print(f"# gap CV {_figure(figures['gap_cv'])}, dispersion within {fitted.window_s:g} s windows "
          f"{_figure(figures['dispersion_within_windows'])}, gamma CV {fitted.cv:.4g}")  # fmt: skip
    print(_yaml({"arrivals": arrivals, "duration": f"{fitted.length_s:.9g}s"}), end="")
    _say_drops(recording)
    return ExitCode.PASS


def _fitted(recording: Recording, window_s: float | None) -> tuple[Fit, Mapping[str, Any]]:
    """The fit and its scenario text; without a stated window it is widened until the text is short enough."""
    tried_s = window_s or FIT_WINDOW_S
    while True:
        try:
            fitted = fit(recording.rows(times_only=True), tried_s, recording.length_ns)
            return fitted, arrivals_snippet(fitted)
        except TraceError:
            raise
        except ValueError as fault:
            if window_s is not None:
                raise TraceError(f"{recording.spec.source.path.name}: {fault}") from None
            tried_s *= WIDEN


def _yaml(value: Any) -> str:
    from io import StringIO

    from ruamel.yaml import YAML

    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = None
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    text = StringIO()
    yaml.dump(value, text)
    return text.getvalue()


def _convert(args: argparse.Namespace, recording: Recording) -> int:
    spec = recording.spec
    if args.out.exists() and args.file.exists() and args.out.samefile(args.file):
        raise TraceError(f"--out {args.out}: is the trace that is read; choose another file")
    origin_ns = recording.origin_ns
    # Written on the trace's own clock, not from the window's start.
    blocks = (rows._replace(times_ns=rows.times_ns + origin_ns) for rows in recording.rows())
    count = write_rows(blocks, args.out)
    if args.json:
        _print_json({"file": str(args.out), "rows": count, "order": spec.order, "reading": recording.drops.to_json()})
    else:
        print(f"{args.out}: {count} rows")
        _say_drops(recording)
    return ExitCode.PASS


ACTIONS: Mapping[str, Callable[[argparse.Namespace, Recording], int]] = {
    "inspect": _inspect,
    "convert": _convert,
    "fit": _fit,
    "record": _convert,
}


def _say_drops(recording: Recording) -> None:
    for line in recording.drops.lines():
        print(line, file=sys.stderr)


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror or error}") from None


def _print_json(value: Mapping[str, Any]) -> None:
    print(json.dumps(value, indent=2, allow_nan=False))


def _figure(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.4g}"


def _duration(text: str) -> float:
    try:
        return parse_duration_s(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _mapping(text: str) -> tuple[str, str]:
    ours, equals, theirs = text.partition("=")
    if not (ours and equals and theirs):
        raise argparse.ArgumentTypeError(f"found {text!r}; allowed is OURS=THEIRS, like time=ts")
    return ours, theirs
