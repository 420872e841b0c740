"""A worker of a fleet: joins the master, sends its share of the schedule, and ends with the run."""

from __future__ import annotations

import argparse
import os
import re
import socket
from pathlib import Path

from truetail import roles
from truetail.errors import UsageError
from truetail.scenario import load


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "scenario", type=Path, help="the scenario file, for its locustfile; the plan itself comes from the master"
    )
    parser.add_argument("--master", default="127.0.0.1", metavar="HOST", help="where the master is (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=5557, metavar="PORT", help="its message port (default: 5557)")
    parser.add_argument(
        "--name", default="", metavar="NAME", help="this worker's name in the run folder (default: host and process id)"
    )


def run(args: argparse.Namespace) -> int:
    """Become the Locust worker process."""
    scenario = load(args.scenario)
    name = args.name or re.sub(r"[^A-Za-z0-9_.-]", "-", f"{socket.gethostname()}-{os.getpid()}")
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name):
        raise UsageError(f"--name: found {name!r:.80}; allowed are up to 64 letters, digits, dots, dashes and underscores")
    command = roles.worker(roles.locustfile_of(scenario.users, args.scenario), name, (args.master, args.port))
    os.execv(command[0], command)  # noqa: S606  our own command line
