"""NVIDIA GPUs through NVML: the only module that touches pynvml.

A field that a GPU does not offer is absent from its samples, never zero. Errors sort into three: not offered (asked again
only after the GPU was attached anew), lost (the GPU or the driver is gone: SourceFailed, attached again once it answers),
and anything else (this reading is left out this time and noted).
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import pynvml as nv

from collector.clocks import NANOSECONDS
from collector.gpu_fields import FAST_FIELDS, GPM_METRICS, SLOW_FIELDS, decode_reasons
from collector.sampler import SourceFailed

SLOW_NS = NANOSECONDS
ABOUT_NS = 60 * NANOSECONDS
GPM_NS = NANOSECONDS // 10
PROCESSES = 64
NOT_OFFERED = {
    nv.NVML_ERROR_NOT_SUPPORTED, nv.NVML_ERROR_FUNCTION_NOT_FOUND, nv.NVML_ERROR_NO_PERMISSION,
    nv.NVML_ERROR_INVALID_ARGUMENT, nv.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
}  # fmt: skip
DRIVER_GONE = {nv.NVML_ERROR_UNINITIALIZED, nv.NVML_ERROR_DRIVER_NOT_LOADED, nv.NVML_ERROR_LIB_RM_VERSION_MISMATCH}
GPU_GONE = {nv.NVML_ERROR_GPU_IS_LOST, nv.NVML_ERROR_RESET_REQUIRED, nv.NVML_ERROR_GPU_NOT_FOUND}
VALUE_MEMBERS = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}  # nvmlValueType_t
Reading = Callable[[Any], Mapping[str, Any]]


def text(error: nv.NVMLError) -> str:
    """One line, with NVML's number."""
    return f"{error} (NVML {error.value})"


def plain(value: Any) -> str:
    """pynvml gives str or bytes, by version."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def first_of(*readings: Reading) -> Reading:
    """The newest call that this driver knows: each is tried in turn while the one before is not offered."""

    def read(handle: Any) -> Mapping[str, Any]:
        for reading in readings[:-1]:
            try:
                return reading(handle)
            except nv.NVMLError as error:
                if error.value not in NOT_OFFERED:
                    raise
        return readings[-1](handle)

    return read


def _utilization(handle: Any) -> Mapping[str, Any]:
    rates = nv.nvmlDeviceGetUtilizationRates(handle)
    return {"utilization_gpu_percent": rates.gpu, "utilization_memory_percent": rates.memory}


def _memory(handle: Any) -> Mapping[str, Any]:
    info = nv.nvmlDeviceGetMemoryInfo(handle, version=nv.nvmlMemory_v2)
    return {"memory_used_bytes": info.used, "memory_reserved_bytes": info.reserved, "memory_total_bytes": info.total}


def _memory_old(handle: Any) -> Mapping[str, Any]:
    """Version 1 counts what the driver reserves as used, so it goes by another name."""
    info = nv.nvmlDeviceGetMemoryInfo(handle)
    return {"memory_used_with_reserved_bytes": info.used, "memory_total_bytes": info.total}


def _ecc(handle: Any) -> Mapping[str, Any]:
    kinds = {"corrected": nv.NVML_MEMORY_ERROR_TYPE_CORRECTED, "uncorrected": nv.NVML_MEMORY_ERROR_TYPE_UNCORRECTED}
    return {
        f"ecc_{name}_total": nv.nvmlDeviceGetTotalEccErrors(handle, kind, nv.NVML_VOLATILE_ECC) for name, kind in kinds.items()
    }


def _processes(handle: Any) -> Mapping[str, Any]:
    found = nv.nvmlDeviceGetComputeRunningProcesses(handle)
    listed = [{"pid": p.pid} | ({} if p.usedGpuMemory is None else {"memory_bytes": p.usedGpuMemory}) for p in found[:PROCESSES]]
    return {"processes": listed, "process_count": len(found)}


def _mig(handle: Any) -> Mapping[str, Any]:
    """MIG mode, and the memory of each instance when it is on (the whole GPU then offers no utilisation)."""
    if not nv.nvmlDeviceGetMigMode(handle)[0]:
        return {"mig_enabled": 0}
    instances = []
    for index in range(nv.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            instance = nv.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
            instances.append({"index": index, "uuid": plain(nv.nvmlDeviceGetUUID(instance)), **_memory(instance)})
        except nv.NVMLError as error:
            if error.value not in NOT_OFFERED | {nv.NVML_ERROR_NOT_FOUND}:
                raise
    return {"mig_enabled": 1, "mig_instances": instances}


def _pcie_throughput(handle: Any) -> Mapping[str, Any]:
    """Measured by the driver over some 20 ms for each direction: only where the byte counters are not offered."""
    return {
        "pcie_tx_kb_per_s": nv.nvmlDeviceGetPcieThroughput(handle, nv.NVML_PCIE_UTIL_TX_BYTES),
        "pcie_rx_kb_per_s": nv.nvmlDeviceGetPcieThroughput(handle, nv.NVML_PCIE_UTIL_RX_BYTES),
    }


FAST: dict[str, Reading] = {
    "utilization": _utilization,
    "memory": first_of(_memory, _memory_old),
    "power": lambda h: {"power_w": nv.nvmlDeviceGetPowerUsage(h) / 1000},
    "temperature": first_of(
        lambda h: {"temperature_gpu_celsius": nv.nvmlDeviceGetTemperatureV(h, nv.NVML_TEMPERATURE_GPU)},
        lambda h: {"temperature_gpu_celsius": nv.nvmlDeviceGetTemperature(h, nv.NVML_TEMPERATURE_GPU)},
    ),
    "clock_sm": lambda h: {"clock_sm_mhz": nv.nvmlDeviceGetClockInfo(h, nv.NVML_CLOCK_SM)},
    "clock_memory": lambda h: {"clock_memory_mhz": nv.nvmlDeviceGetClockInfo(h, nv.NVML_CLOCK_MEM)},
    "event_reasons": first_of(
        lambda h: {"event_reasons": decode_reasons(nv.nvmlDeviceGetCurrentClocksEventReasons(h))},
        lambda h: {"event_reasons": decode_reasons(nv.nvmlDeviceGetCurrentClocksThrottleReasons(h))},
    ),
}
SLOW: dict[str, Reading] = {
    "power_limit": lambda h: {"power_limit_w": nv.nvmlDeviceGetEnforcedPowerLimit(h) / 1000},
    "clock_sm_max": lambda h: {"clock_sm_max_mhz": nv.nvmlDeviceGetMaxClockInfo(h, nv.NVML_CLOCK_SM)},
    "performance_state": lambda h: {"performance_state": nv.nvmlDeviceGetPerformanceState(h)},
    "ecc": _ecc,
    "mig": _mig,
    "processes": _processes,
}
# Read only while the field API does not give the better one named here.
INSTEAD: dict[str, tuple[str, Reading]] = {
    "energy": ("energy_mj_total", lambda h: {"energy_mj_total": nv.nvmlDeviceGetTotalEnergyConsumption(h)}),
    "pcie": ("pcie_tx_bytes_total", _pcie_throughput),
}


class Driver:
    """NVML, initialised. ``generation`` grows with every new initialisation: handles of an older one are void."""

    def __init__(self) -> None:
        """Raises SourceFailed ``no-gpu`` (no driver here) or ``driver-error``."""
        self.generation = 0
        self._lock = threading.Lock()
        self._start()

    def _start(self) -> None:
        try:
            nv.nvmlInit()
        except nv.NVMLError as error:
            missing = error.value in (nv.NVML_ERROR_LIBRARY_NOT_FOUND, nv.NVML_ERROR_DRIVER_NOT_LOADED)
            raise SourceFailed("no-gpu" if missing else "driver-error", f"NVML does not start: {text(error)}") from None

    def restart(self, generation: int) -> None:
        """Initialise again after a driver reload, unless another thread has done so since ``generation``."""
        with self._lock:
            if self.generation != generation:
                return
            with suppress(nv.NVMLError):  # not initialised: that is why we are here
                nv.nvmlShutdown()
            self._start()
            self.generation += 1

    def count(self) -> int:
        """How many GPUs there are. Raises SourceFailed."""
        try:
            return int(nv.nvmlDeviceGetCount())
        except nv.NVMLError as error:
            raise SourceFailed("driver-error", f"the driver does not list its GPUs: {text(error)}") from None

    def version(self) -> str:
        """The driver's version, or "" when it does not tell."""
        with suppress(nv.NVMLError):
            return plain(nv.nvmlSystemGetDriverVersion())
        return ""

    def wait_xids(self, indices: list[int], report: Callable[[int | None, int], None], stop: threading.Event) -> None:
        """Report (gpu, xid) of critical errors until ``stop``. Raises SourceFailed where none of the GPUs offers them."""
        by_address, refused = {}, "no GPU"
        try:
            events = nv.nvmlEventSetCreate()
        except nv.NVMLError as error:
            raise SourceFailed("xid-not-offered", f"Xid events are not offered: {text(error)}") from None
        for index in indices:
            try:
                handle = nv.nvmlDeviceGetHandleByIndex(index)
                nv.nvmlDeviceRegisterEvents(handle, nv.nvmlEventTypeXidCriticalError, events)
                by_address[_address(handle)] = index
            except nv.NVMLError as error:
                refused = text(error)
        if not by_address:
            raise SourceFailed("xid-not-offered", f"Xid events are not offered: {refused}")
        while not stop.is_set():
            try:
                event = nv.nvmlEventSetWait_v2(events, 500)
                report(by_address.get(_address(event.device)), int(event.eventData))
            except nv.NVMLError as error:
                if error.value != nv.NVML_ERROR_TIMEOUT:
                    raise SourceFailed("xid-lost", f"Xid events end: {text(error)}") from None


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value


class Gpm:
    """Profiling metrics between two successive samples (``nvmlGpmMetricsGet``); two sample buffers take turns."""

    def __init__(self, handle: Any) -> None:
        """Raises NVMLError where the GPU does not offer them."""
        if not nv.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
            raise nv.NVMLError(nv.NVML_ERROR_NOT_SUPPORTED)
        self.handle = handle
        self.older, self.newer = nv.nvmlGpmSampleAlloc(), nv.nvmlGpmSampleAlloc()
        self.ask = nv.c_nvmlGpmMetricsGet_t()
        self.primed = False

    def read(self) -> Mapping[str, Any]:
        """The metrics since the last call; nothing at the first one, and no metric that failed."""
        self.older, self.newer = self.newer, self.older
        nv.nvmlGpmSampleGet(self.handle, self.newer)
        if not self.primed:
            self.primed = True
            return {}
        ask = self.ask
        ask.version, ask.numMetrics = nv.NVML_GPM_METRICS_GET_VERSION, len(GPM_METRICS)
        ask.sample1, ask.sample2 = self.older, self.newer
        for slot, (metric, _) in enumerate(GPM_METRICS.values()):
            ask.metrics[slot].metricId = metric
        nv.nvmlGpmMetricsGet(ask)
        return {
            name: ask.metrics[slot].value * factor
            for slot, (name, (_, factor)) in enumerate(GPM_METRICS.items())
            if ask.metrics[slot].nvmlReturn == nv.NVML_SUCCESS
        }

    def free(self) -> None:
        """Give the sample buffers back."""
        for sample in (self.older, self.newer):
            nv.nvmlGpmSampleFree(sample)


def field_value(value: Any) -> int | float | None:
    """A field's number by the type it is tagged with (another member of the union is garbage); None for an unknown type."""
    member = VALUE_MEMBERS.get(value.valueType)
    return getattr(value.value, member) if member else None


class AttachedGpu:
    """One GPU's handle and what it offers, learnt by asking; void once a reading raises SourceFailed."""

    def __init__(self, index: int, note: Callable[[str, str], None]) -> None:
        """Take hold of GPU ``index``; ``note(kind, text)`` hears of readings that fail. Raises SourceFailed."""
        self.index, self.note = index, note
        try:
            self.handle = nv.nvmlDeviceGetHandleByIndex(index)
            self.about = {"name": plain(nv.nvmlDeviceGetName(self.handle)), "uuid": plain(nv.nvmlDeviceGetUUID(self.handle))}
        except nv.NVMLError as error:
            raise self._gone(error) from None
        self.fast, self.slow, self.instead = dict(FAST), dict(SLOW), dict(INSTEAD)
        self.fast_fields, self.slow_fields = dict(FAST_FIELDS), dict(SLOW_FIELDS)
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
            self._one("gpm", lambda _: self._gpm.read() if self._gpm else {}, values)
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

    def _readings(self, readings: dict[str, Reading], values: dict[str, Any]) -> None:
        for name, reading in list(readings.items()):
            if not self._one(name, reading, values):
                del readings[name]
                self.instead.pop(name, None)

    def _one(self, name: str, reading: Reading, values: dict[str, Any]) -> bool:
        """Do one reading; False when the GPU does not offer it."""
        try:
            values.update(reading(self.handle))
            self._noted.discard(name)
        except nv.NVMLError as error:
            if error.value in DRIVER_GONE | GPU_GONE:
                raise self._gone(error) from None
            if error.value in NOT_OFFERED:
                self.absent.append(name)
                return False
            if name not in self._noted:
                self._noted.add(name)
                self.note("reading-failed", f"{name}: {text(error)}")
        return True

    def _fields(self, table: dict[str, tuple[int, int, float]], values: dict[str, Any]) -> None:
        """Many fields in one call; each has a return code of its own, and a failed one holds garbage."""
        if not table:
            return

        def read(handle: Any) -> Mapping[str, Any]:
            got = nv.nvmlDeviceGetFieldValues(handle, [(number, scope) for number, scope, _ in table.values()])
            found: dict[str, Any] = {}
            for (name, (_, _, factor)), value in zip(list(table.items()), got, strict=True):
                number = field_value(value) if value.nvmlReturn == nv.NVML_SUCCESS else None
                if number is not None:
                    found[name] = number * factor
                elif value.nvmlReturn in NOT_OFFERED or value.nvmlReturn == nv.NVML_SUCCESS:
                    self.absent.append(name)
                    del table[name]
                elif value.nvmlReturn in DRIVER_GONE | GPU_GONE:
                    raise nv.NVMLError(value.nvmlReturn)
            return found

        if not self._one("fields", read, values):
            table.clear()

    def _open_gpm(self) -> Gpm | None:
        try:
            return Gpm(self.handle)
        except nv.NVMLError as error:
            self.absent.append(f"gpm ({text(error)})")
            return None

    def _gone(self, error: nv.NVMLError) -> SourceFailed:
        kind = "driver-lost" if error.value in DRIVER_GONE else "gpu-lost" if error.value in GPU_GONE else "gpu-error"
        return SourceFailed(kind, f"GPU {self.index}: {text(error)}", nvml_code=error.value)
