"""NVML through the real ctypes path: pynvml calls a C library that does what the test says."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from collector.gpu_fields import EVENT_REASONS, FAST_FIELDS, GPM_METRICS, SLOW_FIELDS, decode_reasons
from collector.sampler import SourceFailed

SECOND = 10**9


def attach(index: int = 0) -> tuple[Any, list[tuple[str, str]]]:
    """A GPU taken hold of, and the notes it makes."""
    from collector import attached, nvml

    nvml.Driver()
    notes: list[tuple[str, str]] = []
    return attached.AttachedGpu(index, lambda kind, text: notes.append((kind, text))), notes


def test_numbers_are_nvmls_own() -> None:
    """Our table of numbers agrees with the constants of NVIDIA's own binding, name by name."""
    import pynvml as nv

    ours = FAST_FIELDS | SLOW_FIELDS
    theirs = {
        "energy_mj_total": nv.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION,
        "power_average_w": nv.NVML_FI_DEV_POWER_AVERAGE,
        "power_instant_w": nv.NVML_FI_DEV_POWER_INSTANT,
        "temperature_memory_celsius": nv.NVML_FI_DEV_MEMORY_TEMP,
        "pcie_tx_bytes_total": nv.NVML_FI_DEV_PCIE_COUNT_TX_BYTES,
        "pcie_rx_bytes_total": nv.NVML_FI_DEV_PCIE_COUNT_RX_BYTES,
        "nvlink_tx_kib_total": nv.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX,
        "nvlink_rx_kib_total": nv.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX,
        "throttle_power_ns_total": nv.NVML_FI_DEV_PERF_POLICY_POWER,
        "throttle_thermal_ns_total": nv.NVML_FI_DEV_PERF_POLICY_THERMAL,
        "throttle_sync_boost_ns_total": nv.NVML_FI_DEV_PERF_POLICY_SYNC_BOOST,
        "throttle_board_limit_ns_total": nv.NVML_FI_DEV_PERF_POLICY_BOARD_LIMIT,
        "throttle_reliability_ns_total": nv.NVML_FI_DEV_PERF_POLICY_RELIABILITY,
        "throttle_sw_thermal_ns_total": nv.NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN,
        "throttle_hw_thermal_ns_total": nv.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN,
        "throttle_hw_power_brake_ns_total": nv.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN,
        "pcie_replay_total": nv.NVML_FI_DEV_PCIE_REPLAY_COUNTER,
        "retired_pages_single_bit_total": nv.NVML_FI_DEV_RETIRED_SBE,
        "retired_pages_double_bit_total": nv.NVML_FI_DEV_RETIRED_DBE,
        "remapped_rows_corrected_total": nv.NVML_FI_DEV_REMAPPED_COR,
        "remapped_rows_uncorrected_total": nv.NVML_FI_DEV_REMAPPED_UNC,
        "remapped_rows_pending": nv.NVML_FI_DEV_REMAPPED_PENDING,
        "remapped_rows_failure": nv.NVML_FI_DEV_REMAPPED_FAILURE,
    }
    assert {name: number for name, (number, _, _) in ours.items()} == theirs
    gpm = {
        "graphics_active_percent": nv.NVML_GPM_METRIC_GRAPHICS_UTIL,
        "sm_active_percent": nv.NVML_GPM_METRIC_SM_UTIL,
        "sm_occupancy_percent": nv.NVML_GPM_METRIC_SM_OCCUPANCY,
        "tensor_active_percent": nv.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
        "dram_bandwidth_percent": nv.NVML_GPM_METRIC_DRAM_BW_UTIL,
        "pcie_tx_bytes_per_s": nv.NVML_GPM_METRIC_PCIE_TX_PER_SEC,
        "pcie_rx_bytes_per_s": nv.NVML_GPM_METRIC_PCIE_RX_PER_SEC,
        "nvlink_rx_bytes_per_s": nv.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC,
        "nvlink_tx_bytes_per_s": nv.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC,
    }
    assert {name: number for name, (number, _) in GPM_METRICS.items()} == gpm


def test_every_reason_of_the_binding_is_decoded() -> None:
    """Each reason bit that NVIDIA's binding names has a name here, and an unknown bit shows its number instead of vanishing."""
    import pynvml as nv

    prefix = "nvmlClocksThrottleReason"
    bits = {value for name, value in vars(nv).items() if name.startswith(prefix) and isinstance(value, int)}
    bits = {bit for bit in bits if bit and not bit & (bit - 1)}
    assert bits
    assert bits <= EVENT_REASONS.keys()
    assert decode_reasons(0) == []
    assert decode_reasons(0x4 | 0x40 | 1 << 50) == ["sw_power_cap", "hw_thermal_slowdown", "unknown_0x4000000000000"]


def test_values_arrive_as_set(nvml_here: Any) -> None:
    """Every kind of reading brings the number the library was told, in the unit its name says."""
    gpu, notes = attach()
    first, second = gpu.read(0), gpu.read(2 * SECOND)
    assert first["name"] == "Fake GPU 0"
    assert first["uuid"].startswith("GPU-")
    expected = {
        "utilization_gpu_percent": 97, "utilization_memory_percent": 40, "memory_used_bytes": 30 << 30,
        "memory_reserved_bytes": 1 << 30, "memory_total_bytes": 80 << 30, "power_w": 350.5, "power_instant_w": 351.0,
        "power_limit_w": 700.0, "temperature_gpu_celsius": 71, "temperature_memory_celsius": 66, "clock_sm_mhz": 1410,
        "clock_memory_mhz": 2619, "clock_sm_max_mhz": 1980, "event_reasons": ["sw_power_cap"], "energy_mj_total": 5_000_000,
        "pcie_tx_bytes_total": 1 << 40, "pcie_rx_bytes_total": 1 << 41, "throttle_power_ns_total": 7_000,
        "ecc_corrected_total": 3, "ecc_uncorrected_total": 0, "mig_enabled": 0, "performance_state": 0, "process_count": 1,
        "processes": [{"pid": 4242, "memory_bytes": 1 << 30}], "graphics_active_percent": 97.5, "sm_active_percent": 42.25,
        "sm_occupancy_percent": 20.0, "tensor_active_percent": 10.0, "dram_bandwidth_percent": 33.0,
        "pcie_tx_bytes_per_s": 2.0 * (1 << 20),
    }  # fmt: skip
    assert second == expected
    assert "sm_active_percent" not in first, "GPM needs two samples"
    assert [kind for kind, _ in notes] == ["fields-absent"]


def test_unsupported_is_absent_not_zero(nvml_here: Any) -> None:
    """What a GPU does not offer is in no sample (not even as zero or garbage), is said once, and the second GPU keeps its own."""
    gone = (
        "0.power_mw",
        "0.gpu",
        "0.field.83",
        "0.field.186",
        "0.ecc.0",
        "0.gpm",
        "0.gpm.2",
        "0.temp",
        "0.clock.2",
        "0.field.197",
    )
    nvml_here.set(without=gone)
    gpu, notes = attach(0)
    values = gpu.read(0) | gpu.read(2 * SECOND)
    for name in ("power_w", "power_instant_w", "utilization_gpu_percent", "energy_mj_total", "ecc_corrected_total",
                 "sm_active_percent", "temperature_gpu_celsius", "clock_memory_mhz"):  # fmt: skip
        assert name not in values
    assert values["clock_sm_mhz"] == 1410
    assert (values["pcie_tx_kb_per_s"], values["pcie_rx_kb_per_s"]) == (100, 200), "the ~20 ms call only instead of counters"
    assert len(notes) == 1
    assert "power" in notes[0][1]
    other, _ = attach(1)
    assert other.read(0)["power_w"] == 350.5


def test_field_errors_and_types(nvml_here: Any) -> None:
    """A field whose own return code failed is absent for this reading and comes back; doubles are read as doubles."""
    nvml_here.set({"0.fieldret.83": 999, "0.field.74": "2.5"})
    gpu, _ = attach()
    values = gpu.read(0)
    assert "energy_mj_total" not in values
    assert values["throttle_power_ns_total"] == 2.5
    nvml_here.set({"0.field.83": 777}, without=("0.fieldret.83",))
    assert gpu.read(10)["energy_mj_total"] == 777


def test_energy_falls_back(nvml_here: Any) -> None:
    """Where the energy field is not offered the older call is asked."""
    nvml_here.set({"0.energy_mj": 12_345}, without=("0.field.83",))
    gpu, _ = attach()
    assert gpu.read(0)["energy_mj_total"] == 12_345


def test_driver_error_is_noted_once(nvml_here: Any) -> None:
    """An unknown error of one call costs that reading only, is noted once, and again after it worked in between."""
    gpu, notes = attach()
    gpu.read(0)
    notes.clear()
    for round_ in range(2):
        nvml_here.set({"0.err.nvmlDeviceGetPowerUsage": 999})
        assert "power_w" not in gpu.read(1)
        assert "power_w" not in gpu.read(2)
        assert gpu.read(3)["clock_sm_mhz"] == 1410
        assert len(notes) == round_ + 1
        assert notes[-1][0] == "reading-failed"
        assert "999" in notes[-1][1]
        nvml_here.set(without=("0.err.nvmlDeviceGetPowerUsage",))
        assert gpu.read(4)["power_w"] == 350.5


def test_lost_gpu_raises(nvml_here: Any) -> None:
    """A lost GPU is told as such, with NVML's number; so is a driver that went away."""
    gpu, _ = attach()
    gpu.read(0)
    nvml_here.set({"0.err.all": 15})
    with pytest.raises(SourceFailed, match="lost") as lost:
        gpu.read(1)
    assert lost.value.kind == "gpu-lost"
    assert lost.value.more == {"nvml_code": 15}
    nvml_here.set({"loaded": 0}, without=("0.err.all",))
    with pytest.raises(SourceFailed) as away:
        gpu.read(2)
    assert away.value.kind == "driver-lost"


def test_driver_reload_is_survived(nvml_here: Any) -> None:
    """After a reload NVML is started once for all GPUs, handles are taken anew, and a changed GPU is noted."""
    from collector import attached, nvml
    from collector.gpus import Gpu

    driver, events = nvml.Driver(), []
    gpus = [Gpu(i, driver, attached.AttachedGpu, lambda *a, **k: events.append(a[2])) for i in range(2)]  # type: ignore[arg-type]
    assert all(gpu.read(0) for gpu in gpus)
    nvml_here.set({"loaded": 0})
    for gpu in gpus:
        with pytest.raises(SourceFailed):
            gpu.read(1)
    nvml_here.set({"loaded": 1, "1.uuid": "GPU-another"})
    for gpu in gpus:
        for _ in range(2):  # the first attempt finds NVML uninitialised and starts it
            try:
                values = gpu.read(2)
                break
            except SourceFailed:
                continue
        assert values["clock_sm_mhz"] == 1410
    assert driver.generation == 1
    assert events.count("gpu-changed") == 1


def test_mig_instances(nvml_here: Any) -> None:
    """With MIG on, each instance's memory is read, the whole GPU's utilisation is absent, and holes in the list are skipped."""
    changes = {
        "0.mig": 1,
        "0.mig_max": 7,
        "100.mem_total": 20 << 30,
        "100.mem_used": 5,
        "102.mem_total": 10 << 30,
        "102.mem_used": 6,
    }
    nvml_here.set({**changes, "102.uuid": "MIG-two"}, without=("0.gpu",))
    gpu, _ = attach()
    values = gpu.read(0)
    assert "utilization_gpu_percent" not in values
    assert values["mig_enabled"] == 1
    assert [(m["index"], m["memory_used_bytes"]) for m in values["mig_instances"]] == [(0, 5), (2, 6)]
    assert values["mig_instances"][1]["uuid"] == "MIG-two"


def test_xid_events(nvml_here: Any) -> None:
    """An Xid is reported with the GPU it happened on; where no GPU offers the events, that is said."""
    from collector import nvml

    driver, stop, seen = nvml.Driver(), threading.Event(), []

    def report(gpu: int | None, xid: int) -> None:
        seen.append((gpu, xid))
        stop.set()

    nvml_here.set({"1.xid": 79, "xid_seq": 1})
    driver.wait_xids([0, 1], report, stop)
    assert seen == [(1, 79)]
    nvml_here.set({"err.nvmlDeviceRegisterEvents": 3})
    with pytest.raises(SourceFailed, match="not offered"):
        driver.wait_xids([0, 1], report, threading.Event())


def test_nothing_offered_is_a_failure(nvml_here: Any) -> None:
    """A GPU that offers no reading at all is reported, not logged as empty samples for ever."""
    keep = {"loaded", "count", "xid_seq"}
    nvml_here.set(without=tuple(key for key in nvml_here.state if key not in keep))
    nvml_here.set({"0.err.nvmlDeviceGetComputeRunningProcesses": 3})
    gpu, _ = attach()
    with pytest.raises(SourceFailed, match="no reading"):
        gpu.read(0)


def test_old_driver(tmp_path: Path, fake_nvml: Any, collect: Any, read_samples: Any) -> None:
    """A driver without the newer calls still gives memory (under the name that says reserved is in it), reasons, temperature."""
    from importlib import util

    spec = util.spec_from_file_location("collector_conftest", Path(__file__).parent / "conftest.py")
    assert spec
    assert spec.loader
    shared = util.module_from_spec(spec)
    spec.loader.exec_module(shared)
    fake_nvml.library = shared.build(tmp_path / "old", "-DOLD_DRIVER")
    process = collect("--out", str(tmp_path / "run"), "--gpu", "yes", "--no-host", "--host-name", "h", "--duration", "1s",
                      env=fake_nvml.environment())  # fmt: skip
    process.communicate(timeout=30)
    assert process.returncode == 0
    found = [line["values"] for line in read_samples(tmp_path / "run/gpu/h.jsonl") if line["gpu"] == 0]
    values = {name: value for each in found for name, value in each.items()}
    assert values["memory_used_with_reserved_bytes"] == 31 << 30
    assert "memory_used_bytes" not in values
    assert values["event_reasons"] == ["sw_power_cap"]
    assert values["temperature_gpu_celsius"] == 71
