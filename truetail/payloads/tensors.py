"""Tensors from shape and data type, for the Open Inference Protocol (KServe v2)."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from shapes.mix import uniforms
from truetail.errors import UsageError

DTYPES: dict[str, str] = {
    "BOOL": "?", "UINT8": "u1", "UINT16": "<u2", "UINT32": "<u4", "UINT64": "<u8",
    "INT8": "i1", "INT16": "<i2", "INT32": "<i4", "INT64": "<i8", "FP16": "<f2", "FP32": "<f4", "FP64": "<f8",
}  # fmt: skip
MAX_ELEMENTS = 100_000_000


@dataclass(frozen=True, slots=True)
class Tensor:
    """``{name, shape, datatype, low, high}``: numbers uniform in [low, high), or in BYTES decimal texts of them."""

    name: str
    shape: tuple[int, ...]
    datatype: str
    low: float = 0.0
    high: float = 1.0

    def values(self, seed: int, variant: int) -> np.ndarray[Any, Any]:
        """The numbers of one variant, in the tensor's shape."""
        count = math.prod(self.shape)
        first = variant * count
        drawn = uniforms(np.arange(first, first + count), seed, f"tensor {self.name}")
        dtype = DTYPES.get(self.datatype, "<f8")
        if self.datatype == "BOOL":
            return (drawn < 0.5).reshape(self.shape)
        return (self.low + drawn * (self.high - self.low)).astype(dtype).reshape(self.shape)

    def as_json(self, values: np.ndarray[Any, Any]) -> dict[str, Any]:
        """The tensor as an input of a JSON request."""
        data = [f"{value:.6g}" for value in values.ravel()] if self.datatype == "BYTES" else values.ravel().tolist()
        return self.head() | {"data": data}

    def as_bytes(self, values: np.ndarray[Any, Any]) -> bytes:
        """The tensor's bytes in the binary extension: little-endian; BYTES elements with their length before them."""
        if self.datatype == "BYTES":
            return b"".join(struct.pack("<I", len(text)) + text for text in (f"{v:.6g}".encode() for v in values.ravel()))
        return values.tobytes()

    def head(self) -> dict[str, Any]:
        """Name, shape and data type."""
        return {"name": self.name, "shape": list(self.shape), "datatype": self.datatype}


def parse(specs: Any, place: str) -> list[Tensor]:
    """The tensors that a scenario's ``payload.tensors`` describes. Raises UsageError with every fault."""
    if not isinstance(specs, list) or not specs:
        raise UsageError(f"{place}: found {specs!r}; allowed is a list of {{name: x, shape: [1, 4], datatype: FP32}}")
    faults = [fault for i, spec in enumerate(specs) if (fault := _fault(spec, f"{place}[{i}]"))]
    if faults:
        raise UsageError(*faults)
    return [
        Tensor(s["name"], tuple(s["shape"]), s["datatype"], float(s.get("low", 0)), float(s.get("high", _high(s["datatype"]))))
        for s in specs
    ]


def _high(datatype: str) -> float:
    return 1.0 if datatype.startswith(("FP", "BYTES")) else 100.0


def _fault(spec: Any, place: str) -> str:
    if not isinstance(spec, Mapping) or not spec.keys() <= {"name", "shape", "datatype", "low", "high"}:
        return f"{place}: found {spec!r}; allowed are name, shape, datatype, low and high"
    shape, datatype = spec.get("shape"), spec.get("datatype")
    if not isinstance(spec.get("name"), str):
        return f"{place}.name: found {spec.get('name')!r}; a name is due"
    if not isinstance(shape, list) or not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in shape):
        return f"{place}.shape: found {shape!r}; allowed is a list of whole numbers from 0 on"
    if math.prod(shape) > MAX_ELEMENTS:
        return f"{place}.shape: found {shape!r}; allowed are at most {MAX_ELEMENTS} elements"
    if datatype not in DTYPES and datatype != "BYTES":
        return f"{place}.datatype: found {datatype!r}; allowed are {', '.join([*DTYPES, 'BYTES'])}"
    low, high = spec.get("low", 0), spec.get("high", _high(datatype))
    if not all(isinstance(n, int | float) and math.isfinite(n) for n in (low, high)) or low > high:
        return f"{place}: found low {low!r} and high {high!r}; allowed are numbers with low <= high"
    if datatype in DTYPES and np.dtype(DTYPES[datatype]).kind in "ui" and not _fits(datatype, low, high):
        return f"{place}: low {low!r} and high {high!r} do not fit into {datatype}"
    return ""


def _fits(datatype: str, low: float, high: float) -> bool:
    limits = np.iinfo(DTYPES[datatype])
    return bool(limits.min <= low and high <= float(limits.max) + 1)
