"""``run.json``, the manifest of a run folder, and the small append-only logs beside it."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from truetail.errors import UsageError

FORMAT = 1


def canonical(document: Any) -> str:
    """JSON text that is equal for equal documents; what the scenario's sha256 is taken over."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def sha256(text: str) -> str:
    """Hex digest of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def new_run_folder(out: Path, name: str, now_s: float) -> Path:
    """Create ``<UTC time>-<name>`` under ``out``; a suffix keeps two runs of one second apart. UsageError where it cannot be written."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now_s))
    for suffix in ("", *(f"-{i}" for i in range(2, 100))):
        folder = out / f"{stamp}-{name}{suffix}"
        try:
            folder.mkdir(parents=True)
            return folder
        except FileExistsError:
            if not folder.is_dir():
                break
        except OSError as error:
            raise UsageError(f"{out}: a run folder cannot be made there ({error.strerror}); choose another with --out") from None
    raise UsageError(f"{out}: no run folder could be made there; choose another with --out")


def environment() -> dict[str, Any]:
    """Versions and host of this process, for the manifest."""
    packages = ("locust", "gevent", "geventhttpclient", "numpy", "truetail")
    return {
        "versions": {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in packages}},
        "git_commit": _git_commit(),
        "host": {"name": socket.gethostname(), "system": platform.platform(), "cpus": os.cpu_count()},
    }


def _git_commit() -> str:
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def write(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Replace run.json in one step, so that a reader never sees half of it."""
    text = json.dumps(manifest, indent=1, allow_nan=False) + "\n"
    scratch = folder / "run.json.part"
    scratch.write_text(text, encoding="utf-8")
    scratch.replace(folder / "run.json")


def read(folder: Path) -> dict[str, Any]:
    """The manifest as it is on disk."""
    document: dict[str, Any] = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    return document


class Log:
    """An append-only JSON-lines file. Every line is written at once, so a crash leaves whole lines behind."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", encoding="utf-8", buffering=1)

    def add(self, **fields: Any) -> None:
        """Append one line."""
        self._file.write(json.dumps(fields, allow_nan=False) + "\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def events(folder: Path) -> Log:
    """The run's ``events.jsonl``."""
    return Log(folder / "events.jsonl")
