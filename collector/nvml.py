"""NVIDIA GPUs through NVML: the only module that touches pynvml.

Here are the calls and how their errors are sorted; ``attached`` decides what to ask and when.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import pynvml as nv

from collector.gpu_fields import GPM_METRICS, decode_reasons
from collector.sampler import SourceFailed

PROCESSES = 64
NOT_OFFERED = {
    nv.NVML_ERROR_NOT_SUPPORTED, nv.NVML_ERROR_FUNCTION_NOT_FOUND, nv.NVML_ERROR_NO_PERMISSION,
    nv.NVML_ERROR_INVALID_ARGUMENT, nv.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
}  # fmt: skip
Error = nv.NVMLError  # carries NVML's number as ``value``
DRIVER_GONE = {nv.NVML_ERROR_UNINITIALIZED, nv.NVML_ERROR_DRIVER_NOT_LOADED, nv.NVML_ERROR_LIB_RM_VERSION_MISMATCH}
GPU_GONE = {nv.NVML_ERROR_GPU_IS_LOST, nv.NVML_ERROR_RESET_REQUIRED, nv.NVML_ERROR_GPU_NOT_FOUND}
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
    "clock_sm": lambda h: {"clock_sm_mhz": nv.nvmlDeviceGetClockInfo(h, nv.NVML_CLOCK_SM)},
    "event_reasons": first_of(
        lambda h: {"event_reasons": decode_reasons(nv.nvmlDeviceGetCurrentClocksEventReasons(h))},
        lambda h: {"event_reasons": decode_reasons(nv.nvmlDeviceGetCurrentClocksThrottleReasons(h))},
    ),
}
SLOW: dict[str, Reading] = {
    "temperature": first_of(
        lambda h: {"temperature_gpu_celsius": nv.nvmlDeviceGetTemperatureV(h, nv.NVML_TEMPERATURE_GPU)},
        lambda h: {"temperature_gpu_celsius": nv.nvmlDeviceGetTemperature(h, nv.NVML_TEMPERATURE_GPU)},
    ),
    "power_limit": lambda h: {"power_limit_w": nv.nvmlDeviceGetEnforcedPowerLimit(h) / 1000},
    "clock_memory": lambda h: {"clock_memory_mhz": nv.nvmlDeviceGetClockInfo(h, nv.NVML_CLOCK_MEM)},
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

    LAYOUT = struct.Struct("@IidPPP")  # nvmlGpmMetric_t: metric, return, value, three names

    def __init__(self, handle: Any) -> None:
        """Raises NVMLError where the GPU does not offer them."""
        if not nv.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
            raise nv.NVMLError(nv.NVML_ERROR_NOT_SUPPORTED)
        one, two = nv.nvmlGpmSampleAlloc(), nv.nvmlGpmSampleAlloc()
        self.turns = [(one, *self._question(two, one)), (two, *self._question(one, two))]
        self.primed = False

    def _question(self, older: Any, newer: Any) -> tuple[Any, memoryview]:
        """What is asked between two buffers, and where the answers will lie; built once, since filling it costs more than asking."""
        ask = nv.c_nvmlGpmMetricsGet_t()
        ask.version, ask.numMetrics, ask.sample1, ask.sample2 = nv.NVML_GPM_METRICS_GET_VERSION, len(GPM_METRICS), older, newer
        for slot, (metric, _) in enumerate(GPM_METRICS.values()):
            ask.metrics[slot].metricId = metric
        begin = type(ask).metrics.offset
        return ask, memoryview(ask).cast("B")[begin : begin + len(GPM_METRICS) * self.LAYOUT.size]

    def read(self, handle: Any) -> Mapping[str, Any]:
        """The metrics since the last call; nothing at the first one, and no metric that failed."""
        newer, ask, answers = self.turns[0]
        self.turns.reverse()
        nv.nvmlGpmSampleGet(handle, newer)
        if not self.primed:
            self.primed = True
            return {}
        nv.nvmlGpmMetricsGet(ask)
        told = zip(GPM_METRICS.items(), self.LAYOUT.iter_unpack(answers), strict=True)
        return {name: value * factor for (name, (_, factor)), (_, code, value, *_) in told if code == nv.NVML_SUCCESS}


class Fields:
    """Many fields in one call. The array is built once and read by struct: pynvml's attribute access costs more than the call."""

    LAYOUT = struct.Struct("=IIqqII8s")  # nvmlFieldValue_t: field, scope, timestamp, latency, value type, return, value
    VALUES: tuple[str, ...] = ("=d", "=I", "=L" if ctypes.sizeof(ctypes.c_ulong) == 4 else "=Q", "=Q", "=q", "=i", "=H")

    def __init__(self, table: Mapping[str, tuple[int, int, float]]) -> None:
        self.table = dict(table)
        self._array: Any = None

    def read(self, handle: Any, absent: list[str]) -> Mapping[str, Any]:
        """Name -> value of the fields that answered. Each has a return code of its own; a failed one's value is garbage.

        Those not offered go to ``absent`` and are not asked again. Raises NVMLError when the GPU or driver is gone.
        """
        if not self.table:
            return {}
        call = getattr(nv.nvmlLib, "nvmlDeviceGetFieldValues", None)
        if call is None:
            raise nv.NVMLError(nv.NVML_ERROR_FUNCTION_NOT_FOUND)
        if self._array is None:
            asked = b"".join(self.LAYOUT.pack(number, scope, 0, 0, 0, 0, b"") for number, scope, _ in self.table.values())
            self._array = ctypes.create_string_buffer(asked, len(asked))
        code = call(handle, ctypes.c_int32(len(self.table)), self._array)
        if code != nv.NVML_SUCCESS:
            raise nv.NVMLError(code)
        found: dict[str, Any] = {}
        refused: list[str] = []
        answers = self.LAYOUT.iter_unpack(self._array)
        for (name, (_, _, factor)), (_, _, _, _, kind, code, raw) in zip(self.table.items(), answers, strict=True):
            if code == nv.NVML_SUCCESS and kind < len(self.VALUES):
                found[name] = struct.unpack_from(self.VALUES[kind], raw)[0] * factor
            elif code == nv.NVML_SUCCESS or code in NOT_OFFERED:
                refused.append(name)
            elif code in DRIVER_GONE | GPU_GONE:
                raise nv.NVMLError(code)
        for name in refused:
            del self.table[name]
            self._array = None
        absent.extend(refused)
        return found


def take_handle(index: int) -> tuple[Any, dict[str, str]]:
    """A GPU's handle, and its name and uuid. Raises Error."""
    handle = nv.nvmlDeviceGetHandleByIndex(index)
    return handle, {"name": plain(nv.nvmlDeviceGetName(handle)), "uuid": plain(nv.nvmlDeviceGetUUID(handle))}
