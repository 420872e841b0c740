"""One GPU held through NVML: what it offers is learnt by asking, and asked at the pace that each reading deserves.

A field that a GPU does not offer is absent from its samples, never zero. Errors sort into three: not offered (asked again
only after the GPU was attached anew), lost (the GPU or the driver is gone: SourceFailed, attached again once it answers),
and anything else (this reading is left out this time and noted).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from collector import nvml
from collector.clocks import NANOSECONDS
from collector.gpu_fields import FAST_FIELDS, SLOW_FIELDS
from collector.sampler import SourceFailed

SLOW_NS = NANOSECONDS
ABOUT_NS = 60 * NANOSECONDS
GPM_NS = NANOSECONDS // 10


class AttachedGpu:
    """One GPU's handle and what it offers, learnt by asking; void once a reading raises SourceFailed."""

    def __init__(self, index: int, note: Callable[[str, str], None]) -> None:
        """Take hold of GPU ``index``; ``note(kind, text)`` hears of readings that fail. Raises SourceFailed."""
        self.index, self.note = index, note
        try:
            self.handle, self.about = nvml.take_handle(index)
        except nvml.Error as error:
            raise self._gone(error) from None
        self.fast, self.slow, self.instead = dict(nvml.FAST), dict(nvml.SLOW), dict(nvml.INSTEAD)
        self.fast_fields, self.slow_fields = nvml.Fields(FAST_FIELDS), nvml.Fields(SLOW_FIELDS)
        self.absent: list[str] = []
        self._noted: set[str] = set()
        self._slow_at_ns = self._about_at_ns = self._gpm_at_ns = 0
        self._gpm = self._open_gpm()

    def read(self, now_ns: int) -> dict[str, Any]:
        """What is offered now; the slow readings once a second, name and uuid once a minute. Raises SourceFailed."""
        values: dict[str, Any] = {}
        self._fields(self.fast_fields, values)
        self._readings(self.fast, values)
        if self._gpm and now_ns >= self._gpm_at_ns:
            self._gpm_at_ns = now_ns + GPM_NS // 2  # NVML wants some 100 ms between samples; half a tick of slack
            self._one("gpm", self._gpm.read, values)
        if now_ns >= self._slow_at_ns:
            self._slow(now_ns, values)
        if not values:
            raise SourceFailed("gpu-silent", f"GPU {self.index} offers no reading")
        if now_ns >= self._about_at_ns:
            self._about_at_ns = now_ns + ABOUT_NS
            values.update(self.about)
        return values

    def _slow(self, now_ns: int, values: dict[str, Any]) -> None:
        first = not self._slow_at_ns
        self._slow_at_ns = now_ns + SLOW_NS
        self._fields(self.slow_fields, values)
        self._readings(self.slow, values)
        self._readings({name: reading for name, (better, reading) in self.instead.items() if better not in values}, values)
        if first and self.absent:
            self.note("fields-absent", "not offered: " + ", ".join(name for name in self.absent if name not in values))

    def _readings(self, readings: dict[str, nvml.Reading], values: dict[str, Any]) -> None:
        for name, reading in list(readings.items()):
            if not self._one(name, reading, values):
                del readings[name]
                self.instead.pop(name, None)

    def _one(self, name: str, reading: nvml.Reading, values: dict[str, Any]) -> bool:
        """Do one reading; False when the GPU does not offer it."""
        try:
            values.update(reading(self.handle))
            self._noted.discard(name)
        except nvml.Error as error:
            if error.value in nvml.DRIVER_GONE | nvml.GPU_GONE:
                raise self._gone(error) from None
            if error.value in nvml.NOT_OFFERED:
                self.absent.append(name)
                return False
            if name not in self._noted:
                self._noted.add(name)
                self.note("reading-failed", f"{name}: {nvml.text(error)}")
        return True

    def _fields(self, fields: nvml.Fields, values: dict[str, Any]) -> None:
        if not self._one("fields", lambda handle: fields.read(handle, self.absent), values):
            fields.table.clear()

    def _open_gpm(self) -> nvml.Gpm | None:
        try:
            return nvml.Gpm(self.handle)
        except nvml.Error as error:
            self.absent.append(f"gpm ({nvml.text(error)})")
            return None

    def _gone(self, error: nvml.Error) -> SourceFailed:
        kind = "driver-lost" if error.value in nvml.DRIVER_GONE else "gpu-lost" if error.value in nvml.GPU_GONE else "gpu-error"
        return SourceFailed(kind, f"GPU {self.index}: {nvml.text(error)}", nvml_code=error.value)
