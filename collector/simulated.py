"""The reference service's simulated device as a source named ``simulated``. It is never put in place of NVML's."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from collector.fetch import get, shown
from collector.sampler import SourceFailed

FOLDER = "gpu"
MAX_BYTES = 64 << 10
MAX_FIELDS = 200
MAX_DEPTH = 3
REAL_MODEL = (
    'found "source": "service", a real model runs there and nothing is simulated; take the service\'s own figures from its '
    "/metrics (--prometheus NAME=http://.../metrics,truetail-target) and a GPU's from NVML"
)


def flatten(value: Any, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, float | int | list[str]]]:
    """Numbers of nested objects under dotted names; true and false as 1 and 0; lists of words kept; all else left out."""
    if isinstance(value, bool):
        yield prefix, int(value)
    elif isinstance(value, int | float):
        if -1e18 < value < 1e18:  # not NaN, not infinite, not an integer that no float holds
            yield prefix, value
    elif isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        yield prefix, [item[:64] for item in value[:16]]
    elif isinstance(value, dict | list) and depth <= MAX_DEPTH:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            word = re.sub(r"[^A-Za-z0-9_]", "_", str(key))[:64]
            yield from flatten(item, f"{prefix}.{word}" if prefix else word, depth + 1)


class SimulatedDevice:
    """``GET /device`` of a reference service: JSON that says ``"source": "simulated"``."""

    folder = FOLDER

    def __init__(self, name: str, url: str) -> None:
        self.name, self.url = f"simulated-{name}", url
        self.key: Mapping[str, Any] = {"simulated": True}

    def read(self, now_ns: int) -> Mapping[str, Any]:
        """The device's numbers, whatever they are named. Raises SourceFailed, also when it does not say it is simulated."""
        body = get(self.url, max_bytes=MAX_BYTES)
        try:
            told = json.loads(body)
        except (ValueError, RecursionError):
            raise SourceFailed("simulated-malformed", f"{shown(self.url)}: not JSON") from None
        source = told.get("source") if isinstance(told, dict) else None
        if source == "service":
            raise SourceFailed("not-simulated", f"{shown(self.url)}: {REAL_MODEL}")
        if source != "simulated":
            raise SourceFailed("simulated-malformed", f'{shown(self.url)}: expected an object with "source": "simulated"')
        values: dict[str, Any] = {}
        for key, value in flatten(told):
            if len(values) < MAX_FIELDS:
                values[key] = value
        return values
