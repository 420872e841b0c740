"""The sidecar's command line: what it is asked to read, and that it ends with whoever started it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from collector.options import parse
from truetail import roles

COLLECTORS = {"gpu": False, "host": True, "prometheus": [], "period_s": 0.1}


def asked(embedded: dict[str, Any] | None, *servers: dict[str, str]) -> Any:
    """What the collector understands of the command line made for this target."""
    resolved = {"target": {"url": None, "embedded": embedded}, "collectors": COLLECTORS | {"prometheus": list(servers)}}
    return parse(roles.collector(resolved, Path("run"), "http://127.0.0.1:8000")[3:])


def test_collector_ends_with_its_starter() -> None:
    """The starter's process id is told, so that one that died before the collector looked is noticed too."""
    assert asked({}).exit_with_parent == os.getpid()


@pytest.mark.parametrize("embedded", [{}, {"model": "simulated"}])
def test_simulated_device_of_an_embedded_target(embedded: dict[str, Any]) -> None:
    """The simulated device is read as what it is."""
    args = asked(embedded)
    assert args.simulated == [("target", "http://127.0.0.1:8000/device")]
    assert args.prometheus == []


@pytest.mark.parametrize("model", ["torch-cpu", "torch-cuda"])
def test_real_model_is_a_server_not_a_simulated_device(model: str) -> None:
    """Behind a torch model nothing is simulated: its own figures are a server's, under a name that no other source has."""
    args = asked({"model": model}, {"name": "target", "url": "http://127.0.0.1:9/metrics", "preset": "triton"})
    assert args.simulated == []
    assert [(server.name, server.url) for server in args.prometheus] == [
        ("target", "http://127.0.0.1:9/metrics"),
        ("target-2", "http://127.0.0.1:8000/metrics"),
    ]
    assert args.prometheus[1].patterns != args.prometheus[0].patterns


def test_nothing_is_taken_for_simulated_behind_a_url() -> None:
    """A service that was not started here is not asked for a simulated device."""
    assert asked(None).simulated == []
