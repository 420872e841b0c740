"""The command line: ``python -m collector``. All faults are told in one line each, with what is allowed."""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from collector.presets import EVERYTHING, PRESETS

UNITS_MS = {"ms": 1.0, "s": 1e3, "m": 60e3, "min": 60e3, "h": 3600e3, "": 1e3}
EPILOG = """\
Files: RUN_DIR/gpu/<host>.jsonl, RUN_DIR/gpu/simulated-<name>.jsonl, RUN_DIR/server/<name>.jsonl, RUN_DIR/host/<host>.jsonl,
and collector_events.jsonl in each of these folders. Presets: {presets}.
A bearer token for endpoint NAME is taken from the environment variable TRUETAIL_PROMETHEUS_TOKEN_NAME.
Ends on SIGTERM, SIGINT, after --duration, or with its parent (--exit-with-parent)."""


class Endpoint(NamedTuple):
    """A server to scrape: its name in files, address and family patterns."""

    name: str
    url: str
    patterns: tuple[str, ...]

    @property
    def token(self) -> str:
        """The bearer token from the environment, or ""."""
        return os.environ.get("TRUETAIL_PROMETHEUS_TOKEN_" + re.sub(r"[^A-Z0-9]", "_", self.name.upper()), "")


def duration_ns(text: str) -> int:
    """``100ms``, ``1.5s``, ``10m``, ``24h``, or plain seconds -> ns, more than zero."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip())
    if not match or match[2] not in UNITS_MS or float(match[1]) <= 0:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a duration such as 100ms, 1s, 10m or 24h")
    return round(float(match[1]) * UNITS_MS[match[2]] * 1e6)


def period_ns(text: str) -> int:
    """A sampling period: a duration of 10 ms to 1 h."""
    value = duration_ns(text)
    if not 10_000_000 <= value <= 3_600_000_000_000:
        raise argparse.ArgumentTypeError(f"found {text!r}, a period is from 10ms to 1h")
    return value


def named_url(text: str) -> tuple[str, str]:
    """``name=http://host:port/path`` -> (name, url). Secrets in the URL are refused: they would be in every process list."""
    name, equals, url = text.partition("=")
    parts = urlsplit(url)
    if not equals or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
        raise argparse.ArgumentTypeError(f"found {text!r}, expected NAME=URL with a name of letters, digits, '.', '_', '-'")
    try:
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable or re.search(r"[\s\x00-\x1f]", url):
        raise argparse.ArgumentTypeError(f"{name}: found {url!r}, expected an http:// or https:// address")
    if parts.username or parts.password:
        raise argparse.ArgumentTypeError(
            f"{name}: no user or password in the address; set TRUETAIL_PROMETHEUS_TOKEN_{name.upper()}"
        )
    return name, url


def endpoint(text: str) -> Endpoint:
    """``name=url[,preset or family pattern...]``; without a preset everything but exporters' noise is kept."""
    address, *chosen = text.split(",")
    name, url = named_url(address)
    patterns: list[str] = []
    for word in (word.strip() for word in chosen if word.strip()):
        if word in PRESETS:
            patterns.extend(PRESETS[word])
        elif re.search(r"[*:_]", word):
            patterns.append(word)
        else:
            allowed = ", ".join(sorted(PRESETS))
            raise argparse.ArgumentTypeError(
                f"{name}: found preset {word!r}, expected one of {allowed}, or a family pattern with *"
            )
    return Endpoint(name, url, tuple(patterns) or EVERYTHING)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line; a fault ends the process with code 2 and one line."""
    parser = argparse.ArgumentParser(
        prog="collector",
        description="Logs what GPUs, servers and this host do, on the same clock as the latency.",
        epilog=EPILOG.format(presets=", ".join(sorted(PRESETS))),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--out", type=Path, required=True, metavar="RUN_DIR", help="the run folder; made if missing")
    add("--period", type=period_ns, default="100ms", help="between GPU samples (default 100ms)")
    add("--server-period", type=period_ns, default="1s", help="between scrapes of a server (default 1s)")
    add("--host-period", type=period_ns, default="1s", help="between samples of this host (default 1s)")
    add("--gpu", choices=("auto", "yes", "no"), default="auto", help="auto: when there is one; yes: without one, end with code 2")
    add("--no-host", action="store_true", help="no samples of this host")
    add("--host-name", default="", metavar="NAME", help="name of this host in files (default: the machine's)")
    add(
        "--prometheus",
        type=endpoint,
        action="append",
        default=[],
        metavar="NAME=URL[,PRESET]",
        help="scrape a server; repeatable",
    )
    add(
        "--simulated",
        type=named_url,
        action="append",
        default=[],
        metavar="NAME=URL",
        help="a reference service's /device; repeatable",
    )
    add("--metrics-port", type=int, default=0, help="own /metrics on 127.0.0.1: 0 any free port (default), -1 none")
    add("--epoch-file", type=Path, metavar="FILE", help="where epoch_wall_ns will appear (default RUN_DIR/run.json)")
    add("--duration", type=duration_ns, metavar="TIME", help="end after this long (default: never)")
    add(
        "--exit-with-parent",
        type=int,
        nargs="?",
        const=0,
        metavar="PID",
        help="end when the parent process ends, or closes the pipe on stdin; with a PID also if that ended before this one looked",
    )
    args = parser.parse_args(arguments)
    if not -1 <= args.metrics_port <= 65535:
        parser.error(f"argument --metrics-port: found {args.metrics_port}, expected -1 to 65535")
    names = [item.name for item in args.prometheus]
    names_simulated = [name for name, _ in args.simulated]
    for repeated in sorted(
        {n for n in names if names.count(n) > 1} | {n for n in names_simulated if names_simulated.count(n) > 1}
    ):
        parser.error(f"the name {repeated!r} is given twice; each source needs a name of its own")
    return args
