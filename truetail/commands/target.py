"""Start the reference service alone: this process becomes ``python -m target`` with the remaining arguments."""

from __future__ import annotations

import argparse
import os
import sys


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """All arguments belong to ``python -m target``, ``--help`` included."""
    parser.add_argument("arguments", nargs=argparse.REMAINDER)


def run(args: argparse.Namespace) -> int:
    """Replaces this process, so that signals and the exit code are the other's own."""
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "target", *args.arguments])  # noqa: S606
