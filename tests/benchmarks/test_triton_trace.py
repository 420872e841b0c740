"""Triton's trace as an access log: what its events say, in order of arrival, and a request without an answer refused."""

from __future__ import annotations

import json

import pytest

from benchmarks import fidelity_figures
from benchmarks.triton_server import write_access_log


def events(number, **instants_ns):
    return [{"id": number, "timestamps": [{"name": name, "ns": ns}]} for name, ns in instants_ns.items()]


def test_instants_and_durations(tmp_path):
    """Two requests that ended in the other order: 7 ms apart, lasting 30 and 12.5 ms; events without stamps are passed over."""
    trace = tmp_path / "trace.json"
    late = events(1, HTTP_RECV_START=5_000_000, REQUEST_START=5_100_000, HTTP_SEND_START=35_000_000)
    early = events(2, HTTP_RECV_START=12_000_000, HTTP_SEND_START=24_500_000)
    trace.write_text(json.dumps([*early, {"id": 1, "model_name": "plain"}, *late]))
    assert write_access_log(trace, tmp_path / "access.jsonl", fidelity_figures.PREDICT) == 2
    served = fidelity_figures.read_log(tmp_path / "access.jsonl")
    assert served.arrived_s == pytest.approx([0.0, 0.007], abs=1e-9)
    assert served.duration_s == pytest.approx([0.030, 0.0125])


def test_a_request_without_an_answer_is_refused(tmp_path):
    """A run in which Triton never answered proves nothing, so it is named."""
    trace = tmp_path / "trace.json"
    trace.write_text(json.dumps(events(7, HTTP_RECV_START=1)))
    with pytest.raises(ValueError, match="request 7"):
        write_access_log(trace, tmp_path / "access.jsonl", fidelity_figures.PREDICT)
