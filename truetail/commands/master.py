"""The master of a fleet on several machines: prepares the run folder, waits for the workers, writes the report."""

from __future__ import annotations

import argparse
import signal
import sys

from truetail import roles, trace_sidecar
from truetail.children import Children
from truetail.commands import run as run_command
from truetail.prepare import prepare
from truetail.scenario import load
from truetail.ui import options

EPILOG = """The message port has no authentication: whoever reaches it can join the fleet. It listens on 127.0.0.1 unless --bind says
otherwise; between machines use a private network or a tunnel.

examples:
  truetail master scenarios/poisson.yaml --workers 4 --bind 10.0.0.5     # on the first machine
  truetail worker scenarios/poisson.yaml --master 10.0.0.5               # on each of the others"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    run_command.add_arguments(parser)
    parser.epilog = EPILOG
    parser.add_argument("--bind", default="127.0.0.1", metavar="ADDRESS", help="address of the message port (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=5557, metavar="PORT", help="message port (default: 5557)")


def run(args: argparse.Namespace) -> int:
    """Prepare the folder, run the master as a child until the run has ended, then report."""
    options.check(args)
    scenario = load(args.scenario, run_command.overrides(args))
    locustfile = roles.locustfile_of(scenario.users, args.scenario)
    signal.signal(signal.SIGTERM, run_command.as_interrupt)
    resolved = scenario.resolved()
    trace_sidecar.check(resolved)
    folder = prepare(args.out, resolved, args.scenario.name, resolved["target"].get("url") or "")
    with Children(folder / "logs") as children:
        url = run_command.start_target(resolved, folder, children)
        run_command.start_collector(resolved, folder, url, children)
        trace_sidecar.start(resolved, folder, children)
        command = roles.master(locustfile, folder, (args.bind, args.port), options.master_arguments(args))
        master = children.start("master", command, options.master_environment(args))
        options.announce(args)
        print(f"waiting for {resolved['fleet']['workers']} workers on {args.bind}:{args.port}", file=sys.stderr, flush=True)
        interrupted = run_command.follow(master, folder, run_command.progress_mode(args))
        trace_sidecar.finish(folder, children)
    run_command.note_end(folder, interrupted)
    return run_command.report(args, folder, interrupted)
