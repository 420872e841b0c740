"""A session in the browser: choose a scenario, edit it, see its planned rate, start it, watch it, and start the next.

The form and the live view share one address on 127.0.0.1. Each run has its own master with Locust's web UI inside; between two runs
the form is served in its place. Ctrl-C ends the session; the exit code is the last run's.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import time
from pathlib import Path

from truetail import manifest, roles, trace_sidecar
from truetail.children import Children
from truetail.commands import run as run_command
from truetail.errors import ExitCode, UsageError
from truetail.prepare import prepare
from truetail.ui import login, options
from truetail.ui.desk import Desk, Order, take_order

EPILOG = """examples:
  truetail ui                                  # choose among scenarios/*.yaml
  truetail ui scenarios/poisson.yaml --workers 2
  TRUETAIL_UI_USER=me TRUETAIL_UI_PASSWORD=... truetail ui --web-login"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.epilog = EPILOG
    parser.add_argument("scenario", type=Path, nargs="?", help="scenario that the form begins with")
    parser.add_argument(
        "--scenarios", type=Path, default=Path("scenarios"), metavar="DIR", help="where to look for others (default: scenarios)"
    )
    parser.add_argument("--out", type=Path, default=Path("runs"), metavar="DIR", help="where run folders go (default: runs)")
    parser.add_argument(
        "--workers", type=int, metavar="N", help="worker processes that the form begins with (default: the scenario's)"
    )
    options.add_arguments(parser)
    parser.set_defaults(ui=True, quiet=False, json=False, plain=False)


def run(args: argparse.Namespace) -> int:
    """Desk, run, desk, run, until Ctrl-C; the last run's exit code, 0 when there was none."""
    options.check(args)
    if args.scenario is not None and not args.scenario.is_file():
        raise UsageError(f"{args.scenario}: no such file")
    signal.signal(signal.SIGTERM, run_command.as_interrupt)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    if args.web_login:
        login.session_secret()  # before the first child, so that all share it
    code, notice, chosen = int(ExitCode.PASS), list[str](), args.scenario
    turn = 0
    print(
        f"choose and start a run at http://{options.LOOPBACK}:{args.ui_port}/  (Ctrl-C ends the session)",
        file=sys.stderr,
        flush=True,
    )
    goes_on = True
    try:
        while goes_on:
            turn += 1
            desk = Desk(sorted(args.scenarios.glob("*.y*ml")), chosen, turn, notice)
            order = take_order(desk, args.ui_port, args.web_login)
            chosen, notice, code = order.file, [], int(ExitCode.INTERRUPTED)
            try:
                code, goes_on = one_run(args, order)
            except UsageError as error:
                notice, code = list(error.faults), int(error.exit_code)
                print("\n".join(f"truetail: error: {fault}" for fault in error.faults), file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        pass
    print("the session has ended", file=sys.stderr, flush=True)
    return code


def one_run(args: argparse.Namespace, order: Order) -> tuple[int, bool]:
    """A run as it was ordered, its report, and then the page until it asks for another: the run's exit code, and whether the session goes on.

    Raises KeyboardInterrupt when it is interrupted where there is nothing to report.
    """
    resolved = order.scenario.resolved()
    trace_sidecar.check(resolved)
    locustfile = roles.locustfile_of(order.scenario.users, order.file)
    folder = prepare(args.out, resolved, order.file.name, resolved["target"].get("url") or "")
    (folder / "scenario.yaml").write_text(order.text, encoding="utf-8")
    with Children(folder / "logs") as children:
        environment = options.master_environment(args, supervised=True)
        master = run_command.start_fleet(args, resolved, folder, locustfile, children, environment)
        interrupted = run_command.follow(
            master, folder, run_command.progress_mode(args), lambda: manifest.read(folder)["state"] == "ended"
        )
        run_command.note_end(folder, interrupted)
        trace_sidecar.finish(folder, children)
        if interrupted:
            master.terminate()
        code = run_command.report(args, folder, interrupted)
        try:
            while master.poll() is None:
                time.sleep(0.1)
        except KeyboardInterrupt:  # on the page of a run that has ended: its code stands
            return code, False
    return code, not interrupted
