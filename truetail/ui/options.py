"""Options of the live view on the command line, and how they reach the master: everything that is secret by the environment alone."""

from __future__ import annotations

import argparse
import sys

from truetail.errors import UsageError
from truetail.ui import login

LOOPBACK = "127.0.0.1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that every command with a master takes."""
    parser.add_argument(
        "--ui", action="store_true", help="serve the live view and Locust's web UI on 127.0.0.1 while the test runs"
    )
    parser.add_argument("--ui-port", type=int, default=8089, metavar="PORT", help="its port (default: 8089)")
    parser.add_argument(
        "--web-login",
        action="store_true",
        help="ask for a login there; name and password are taken from TRUETAIL_UI_USER and TRUETAIL_UI_PASSWORD",
    )
    parser.add_argument(
        "--metrics-port", type=int, metavar="PORT", help="serve /metrics for Prometheus on 127.0.0.1:PORT, also without --ui"
    )


def check(args: argparse.Namespace) -> None:
    """Raises UsageError for options that do not go together, or a login without credentials."""
    if args.web_login:
        if not args.ui:
            raise UsageError("--web-login needs --ui: without it there is no page to log in to")
        login.credentials()
    for option, port in (("--ui-port", args.ui_port), ("--metrics-port", args.metrics_port)):
        if port is not None and not 0 < port < 65_536:
            raise UsageError(f"{option}: found {port}; allowed is 1 to 65535")


def master_arguments(args: argparse.Namespace) -> list[str]:
    """Locust's options for the view."""
    if not args.ui:
        return ["--headless"]
    return ["--web-host", LOOPBACK, "--web-port", str(args.ui_port), "--autostart", *(["--web-login"] if args.web_login else [])]


def master_environment(args: argparse.Namespace, supervised: bool = False) -> dict[str, str]:
    """What the master's process is told. ``supervised``: it stays after the run, until the page asks for a new one."""
    told = {"TRUETAIL_UI_SUPERVISED": "1"} if supervised else {"TRUETAIL_UI_LEAVE": "1"}
    if args.metrics_port is not None:
        told["TRUETAIL_METRICS_PORT"] = str(args.metrics_port)
    return told


def announce(args: argparse.Namespace) -> None:
    """Say where the page is."""
    if args.ui and not args.quiet:
        print(f"live view: http://{LOOPBACK}:{args.ui_port}/fleet/", file=sys.stderr, flush=True)
