"""Reading an HdrHistogram log without HdrHistogram: the interval-log format 1.3 and the compressed V2 encoding, from their description.

A payload is base64 of: cookie 0x1c849314, length, and so many bytes of zlib. Within: cookie 0x1c849313, payload length, normalising
offset, significant digits, lowest and highest trackable value, ratio (all big-endian, 40 bytes), then the counts as ZigZag LEB128
numbers: a negative one skips so many empty cells. Cell i stands for values from its lowest one on.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterator

ENCODED, COMPRESSED = 0x1C849303, 0x1C849304
"""Cookies, without the bits (0x10) that say how wide a count is: a V2 count is always a variable-length number."""


def numbers(data: bytes) -> Iterator[int]:
    """ZigZag LEB128: seven bits a byte, the lowest first; a ninth byte is taken whole."""
    at = 0
    while at < len(data):
        value, shift = 0, 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte if shift == 56 else byte & 0x7F) << shift
            if shift == 56 or byte < 0x80:
                break
            shift += 7
        yield (value >> 1) ^ -(value & 1)


def lowest_value(cell: int, digits: int) -> tuple[int, int]:
    """(the smallest value of a cell, how many values it holds); cells of one unit, then of two, four, ..."""
    sub = 1 << (2 * 10**digits - 1).bit_length()  # the power of two at or above 2 * 10^digits
    half = sub // 2
    bucket, within = cell // half - 1, cell % half + half
    if bucket < 0:
        bucket, within = 0, within - half
    return within << bucket, 1 << bucket


def histogram(payload: str) -> dict[tuple[int, int], int]:
    """Counts by cell: (smallest value, how many values) -> count."""
    outer = base64.b64decode(payload, validate=True)
    cookie, length = struct.unpack(">ii", outer[:8])
    assert cookie & ~0xF0 == COMPRESSED, hex(cookie)
    assert length == len(outer) - 8
    inner = zlib.decompress(outer[8:])
    cookie, length, offset, digits, lowest, _highest, ratio = struct.unpack(">iiiiqqd", inner[:40])
    assert cookie & ~0xF0 == ENCODED, hex(cookie)
    assert (offset, lowest, ratio) == (0, 1, 1.0)
    assert length == len(inner) - 40
    counts, cell = {}, 0
    for number in numbers(inner[40:]):
        if number < 0:
            cell -= number
            continue
        if number:
            counts[lowest_value(cell, digits)] = number
        cell += 1
    return counts


def lines(text: str) -> Iterator[tuple[str, float, float, float, dict[tuple[int, int], int]]]:
    """(tag or "", start in s from the base time, length in s, maximum in ms, counts) of each interval."""
    for line in text.splitlines():
        if line.startswith(("#", '"')):
            continue
        tag, rest = "", line
        if line.startswith("Tag="):
            tag, rest = line[4:].split(",", 1)
        start, length, largest, payload = rest.split(",")
        yield tag, float(start), float(length), float(largest), histogram(payload)
