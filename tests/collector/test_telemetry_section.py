"""From the C fake through the collector's process into the report's chapter: what was set is what is shown."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from analysis import sections
from analysis.run_folder import open_run
from analysis.telemetry import read
from analysis.telemetry_section import NONE, section
from truetail.records import OK, RECORD

S = 10**9


def run_folder(path: Path, epoch_wall_ns: int, duration_s: float, rate: int = 50, tokens: int = 3) -> None:
    """A run folder as a master leaves it: a manifest and one worker's records, response times 10 to 30 ms."""
    n = int(duration_s * rate)
    rows = np.zeros(n, RECORD)
    rows["k"] = np.arange(n)
    rows["intended_ns"] = np.arange(n) * (S // rate)
    rows["sent_ns"] = rows["intended_ns"] + 100_000
    rows["done_ns"] = rows["sent_ns"] + 10_000_000 + (rows["k"] % 20) * 1_000_000
    for name in ("first_byte_ns", "first_token_ns"):
        rows[name] = -1
    rows["tokens_out"] = tokens
    rows["outcome"] = OK
    (path / "records").mkdir(parents=True)
    rows.tofile(path / "records/worker-0.rec")
    ledger = {
        "scheduled": n,
        "sent": n,
        "dropped": 0,
        "lost": 0,
        "unsent": 0,
        "ok": n,
        "failed": 0,
        "timed_out": 0,
        "abandoned": 0,
    }
    manifest = {
        "format": 1, "run_id": "r", "state": "ended", "stop_reason": "completed", "epoch_wall_ns": epoch_wall_ns, "ledger": ledger,
        "scenario": {"name": "s", "arrivals": {}, "duration_s": duration_s, "warmup_s": 0.0, "seed": {"schedule": 1}},
        "schedule": {"digest": "0" * 64, "count": n}, "host": {"name": "h"},
        "workers": [{"name": "worker-0", "slot": 0, "n_slots": 1, "host": "h", "state": "drained"}],
    }  # fmt: skip
    (path / "run.json").write_text(json.dumps(manifest))


def cells(chapter: sections.Section, title: str) -> list[list[Any]]:
    """A table's rows by its title."""
    return [list(row) for table in chapter.tables if table.title.startswith(title) for row in table.rows]


def test_no_collector_is_one_sentence(tmp_path: Path) -> None:
    """A run without a collector has one sentence, and no plot, in this chapter."""
    run_folder(tmp_path, S, 2)
    chapter = section(open_run(tmp_path))
    assert list(chapter.findings) == [NONE]
    assert not chapter.plots


def test_fake_gpus_end_to_end(
    tmp_path: Path, fake_nvml: Any, served: Any, collect: Any, wait_until: Any, read_lines: Any
) -> None:
    """Power, throttling, a lost GPU and a simulated device pass from the C library to the chapter, at the right instants."""
    device = {"source": "simulated", "devices": [{"index": 0, "busy_share": 0.5, "power_w": 80.0, "throttling": False}]}
    served.answer = (200, json.dumps(device).encode())
    process = collect("--out", str(tmp_path), "--gpu", "yes", "--host-name", "h", "--no-host",
                      "--simulated", f"target={served.url}", env=fake_nvml.environment())  # fmt: skip
    path = tmp_path / "gpu/h.jsonl"
    wait_until(lambda: path.exists() and '"gpu":1' in path.read_text())
    epoch_wall_ns = time.time_ns()
    fake_nvml.set({"0.reasons": 0x40, "0.clock.1": 600})
    throttled_from_ns = time.time_ns() - epoch_wall_ns
    time.sleep(1.0)
    fake_nvml.set({"0.reasons": 1, "0.clock.1": 1410})
    throttled_to_ns = time.time_ns() - epoch_wall_ns
    fake_nvml.set({"1.err.all": 15})
    time.sleep(1.6)
    process.terminate()
    process.communicate(timeout=20)
    duration_s = (time.time_ns() - epoch_wall_ns) / S - 0.7
    run_folder(tmp_path, epoch_wall_ns, duration_s)
    run = open_run(tmp_path)
    telemetry = read(tmp_path, epoch_wall_ns)
    first = next(s for s in telemetry.of("gpu") if s.device == "0" and not s.simulated)
    slow = first.series["clock_sm_mhz"]
    inside = (slow.at_ns > throttled_from_ns + 150_000_000) & (slow.at_ns < throttled_to_ns - 150_000_000)
    assert inside.sum() >= 3
    assert (slow.values[inside] == 600).all(), "the change lies where it was made, within a sample or so"
    assert first.clock
    assert first.clock.error_ns < 10_000_000

    chapter = section(run)
    assert any(row[:2] == ["GPU 0 on h", "hw_thermal_slowdown"] for row in cells(chapter, "Throttling"))
    assert any("gpu-lost" in row for row in cells(chapter, "What happened"))
    energy = {row[0]: row for row in cells(chapter, "Energy")}
    assert "simulated device 0 (simulated-target)" in energy
    assert float(energy["simulated device 0 (simulated-target)"][2]) == pytest.approx(80, rel=1e-3)
    told = {e["title"]: e for e in chapter.data["energy"]}
    mine = told["simulated device 0 (simulated-target)"]
    assert mine["simulated"]
    assert mine["joules_per_request"] == pytest.approx(80 / 50, rel=0.1), "80 W at 50 requests/s"
    assert mine["joules_per_token"] == pytest.approx(80 / 150, rel=0.1)
    titles = [plot.title for plot in chapter.plots]
    assert "GPU 0 on h" in titles
    simulated = [plot for plot in chapter.plots if "simulated" in plot.title]
    assert simulated
    assert all("Simulated by the reference service, not measured on a GPU" in plot.caption for plot in simulated)
    assert not [plot for plot in chapter.plots if "GPU 0 on h" in plot.title and "imulated" in plot.caption]
    assert any("throttled" in plot.caption for plot in chapter.plots)
    for plot in chapter.plots:
        ElementTree.fromstring(plot.svg)
    ids = [found for plot in chapter.plots for found in re.findall(r' id="([^"]+)"', plot.svg)]
    assert len(ids) == len(set(ids)), "one page holds them all"


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    """Markup and mathematics in a GPU's or server's names neither break a plot nor become markup."""
    epoch = 1_800_000_000 * S
    run_folder(tmp_path, epoch, 3)
    evil = "<script>alert(1)</script>$\\frac{a}$"
    head = {"format": "truetail-collector/1", "content": "samples", "host": evil, "boot_id": "b", "period_ns": S, "name": evil}
    anchor = {"anchor": {"wall_ns": epoch, "mono_ns": 0, "uncertainty_ns": 1}}
    rows = [{"mono_ns": t * S // 4, "gpu": 0, "values": {"power_w": t, "name": evil, "event_reasons": [evil]}} for t in range(12)]
    server = [{"mono_ns": t * S, "values": {f'queue_size{{a="{evil}"}}': t % 2}} for t in range(4)]
    event = {"wall_ns": epoch + S, "host": evil, "source": "nvml", "kind": evil, "text": evil, "gpu": 0}
    for name, lines in {"gpu/h": [{**head, "source": "nvml"}, anchor, *rows], "server/s": [{**head, "source": "prometheus"}, anchor, *server],
                        "gpu/collector_events": [{"format": "truetail-collector/1", "content": "events"}, event]}.items():  # fmt: skip
        (tmp_path / f"{name}.jsonl").parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    chapter = section(open_run(tmp_path))
    assert len(chapter.plots) >= 2
    for plot in chapter.plots:
        assert "<script" not in plot.svg
        ElementTree.fromstring(plot.svg)
