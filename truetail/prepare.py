"""The run folder before the run: made, and holding the manifest of what is planned. Imports no Locust: the command needs none."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from truetail import manifest


def prepare(out: Path, resolved: Mapping[str, Any], scenario_file: str, target_url: str) -> Path:
    """Make a run folder with the manifest of a run that is planned; returns the folder."""
    now_s = time.time()
    folder = manifest.new_run_folder(out, str(resolved["name"]), now_s)
    document = {
        "format": manifest.FORMAT,
        "run_id": folder.name,
        "scenario": resolved,
        "scenario_sha256": manifest.sha256(manifest.canonical(resolved)),
        "scenario_file": scenario_file,
        "schedule": None,
        "state": "planned",
        "stop_reason": None,
        "stopped_at_ns": None,
        "epoch_wall_ns": None,
        "started_wall_ns": int(now_s * 1e9),
        "ended_wall_ns": None,
        **manifest.environment(),
        "target": {"url": target_url, "version": None, "embedded": bool(resolved["target"].get("embedded"))},
        "workers": [],
        "ledger": None,
    }
    manifest.write(folder, document)
    return folder
