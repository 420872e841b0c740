"""What happened to the collector and its sources, in ``collector_events.jsonl`` beside the samples and on stderr."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from collector.clocks import anchor
from collector.journal import Journal

log = logging.getLogger("collector")
TEXT_LENGTH = 500


class Events:
    """Writes events; each folder of sources has its own file. ``counts`` (by kind) feeds /metrics."""

    def __init__(self, out: Path, host: str) -> None:
        self.out, self.host = out, host
        self.counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._journals: dict[str, Journal] = {}

    def __call__(self, folder: str, source: str, kind: str, text: str, **more: Any) -> None:
        """Note one event: ``kind`` in a few hyphenated words, ``text`` one line (capped, control characters removed)."""
        text = "".join(c if c.isprintable() else " " for c in text)[:TEXT_LENGTH]
        now = anchor(1)
        with self._lock:
            self.counts[kind] += 1
            journal = self._journals.get(folder)
            if journal is None:
                header = {"content": "events", "host": self.host}
                journal = self._journals[folder] = Journal(self.out / folder, "collector_events", header)
        line = {"wall_ns": now.wall_ns, "mono_ns": now.mono_ns, "host": self.host, "source": source, "kind": kind}
        journal.append({**line, "text": text, **more})
        log.warning("%s/%s: %s: %s", folder, source, kind, text)
