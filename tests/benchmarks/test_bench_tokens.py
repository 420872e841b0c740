"""The benchmark of token times: every token of every stream is matched with its emission, and none arrives before it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]


def run(*arguments):
    command = [sys.executable, "benchmarks/bench_tokens.py", "--rates", "4", "--tokens", "6", "--seconds", "3", *arguments]
    return subprocess.run(command, cwd=REPO, capture_output=True, text=True, timeout=120)


@pytest.mark.swarm
def test_every_token_has_an_error():
    """As many instants as streams times tokens, one gap less a stream; the limit decides the exit code."""
    done = run("--limit-ms", "1000")
    assert done.returncode == 0, done.stdout + done.stderr
    counts = {
        kind: (int(streams), int(n.replace(",", "")))
        for streams, kind, n in re.findall(r"in +(\d+) streams +error of (\w+) +n +([\d,]+)", done.stdout)
    }
    streams = counts["first"][0]
    assert streams > 3
    assert counts == {"instants": (streams, streams * 6), "gaps": (streams, streams * 5), "first": (streams, streams)}
    assert run("--limit-ms", "0.0001").returncode == 1
