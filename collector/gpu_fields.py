"""What is read from a GPU: names, units and NVML numbers. Names end in their unit; ``_total`` marks a counter.

Counters are preferred to gauges: between two readings they miss nothing, however short a spike was.
Numbers are NVML's public constants (nvml.h); the units are those of its documentation.
"""

from __future__ import annotations

ALL_LINKS = 0xFFFFFFFF

# name: (NVML field id, scope, factor to the name's unit)
FAST_FIELDS: dict[str, tuple[int, int, float]] = {
    "energy_mj_total": (83, 0, 1),
    "power_average_w": (185, 0, 1e-3),
    "power_instant_w": (186, 0, 1e-3),
    "pcie_tx_bytes_total": (197, 0, 1),
    "pcie_rx_bytes_total": (198, 0, 1),
    "nvlink_tx_kib_total": (138, ALL_LINKS, 1),
    "nvlink_rx_kib_total": (139, ALL_LINKS, 1),
    "throttle_power_ns_total": (74, 0, 1),
    "throttle_thermal_ns_total": (75, 0, 1),
    "throttle_sync_boost_ns_total": (76, 0, 1),
    "throttle_board_limit_ns_total": (77, 0, 1),
    "throttle_reliability_ns_total": (79, 0, 1),
    "throttle_sw_thermal_ns_total": (269, 0, 1),
    "throttle_hw_thermal_ns_total": (270, 0, 1),
    "throttle_hw_power_brake_ns_total": (271, 0, 1),
}
SLOW_FIELDS: dict[str, tuple[int, int, float]] = {
    "temperature_memory_celsius": (82, 0, 1),
    "pcie_replay_total": (94, 0, 1),
    "retired_pages_single_bit_total": (29, 0, 1),
    "retired_pages_double_bit_total": (30, 0, 1),
    "remapped_rows_corrected_total": (142, 0, 1),
    "remapped_rows_uncorrected_total": (143, 0, 1),
    "remapped_rows_pending": (144, 0, 1),
    "remapped_rows_failure": (145, 0, 1),
}
# GPM (Hopper and later): name: (metric id, factor). Percentages are of the time between two samples.
GPM_METRICS: dict[str, tuple[int, float]] = {
    "graphics_active_percent": (1, 1),
    "sm_active_percent": (2, 1),
    "sm_occupancy_percent": (3, 1),
    "tensor_active_percent": (5, 1),
    "dram_bandwidth_percent": (10, 1),
    "pcie_tx_bytes_per_s": (20, 1 << 20),
    "pcie_rx_bytes_per_s": (21, 1 << 20),
    "nvlink_rx_bytes_per_s": (60, 1 << 20),
    "nvlink_tx_bytes_per_s": (61, 1 << 20),
}
EVENT_REASONS: dict[int, str] = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
    0x200: "board_limit",
    0x400: "reliability",
}
UNITS: dict[str, str] = {
    "percent": "%", "bytes": "B", "w": "W", "mj": "mJ", "celsius": "degC", "mhz": "MHz", "kib": "KiB", "ns": "ns",
    "kb_per_s": "KB/s as NVML reports it", "bytes_per_s": "B/s",
}  # fmt: skip


def decode_reasons(mask: int) -> list[str]:
    """The names of a mask's bits, lowest first; a bit that this table does not know is named by its number."""
    return [EVENT_REASONS.get(1 << bit, f"unknown_{1 << bit:#x}") for bit in range(mask.bit_length()) if mask >> bit & 1]
