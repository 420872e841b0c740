"""A text file as blocks of whole lines, in bounded memory: plain or gzip, with or without a byte order mark, any line end."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

from shapes.traces.drops import Drops, TraceError

BLOCK_BYTES = 2 * 2**20
LONGEST_LINE_BYTES = 2**20

# Deflate can expand 1,000 times; logs expand 10 to 50 times. Beyond this a file is made to exhaust whoever reads it.
MOST_EXPANSION = 250
EXPANSION_FREE_BYTES = 8 * 2**20

_GZIP = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"
_OTHER_ENCODINGS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}


class LineBlock(NamedTuple):
    """Whole lines; ``first_line`` counts from 1. Every line but a file's last ends with a newline."""

    first_line: int
    data: bytes


def line_blocks(path: Path, drops: Drops, block_bytes: int = BLOCK_BYTES) -> Iterator[LineBlock]:
    """The lines of ``path`` in blocks of about ``block_bytes``.

    A line longer than LONGEST_LINE_BYTES is dropped and counted. Raises TraceError for what is no text in UTF-8 (or its
    subsets), for a damaged gzip file, and for one that expands beyond proportion.
    """
    line, rest, skipping = 1, b"", False
    for number, chunk in enumerate(_chunks(path, block_bytes)):
        data = _checked_start(path, chunk) if number == 0 else chunk
        if b"\x00" in data:
            raise TraceError(
                f"{path.name}: holds NUL bytes, so it is not a text file; allowed are UTF-8 text (also gzipped) and Parquet"
            )
        if skipping:
            end = data.find(b"\n") + 1
            if not end:
                continue
            data, skipping, line = data[end:], False, line + 1
        data = rest + data
        cut = data.rfind(b"\n") + 1
        if cut:
            yield LineBlock(line, data[:cut])
            line += data.count(b"\n", 0, cut)
        rest = data[cut:]
        if len(rest) > LONGEST_LINE_BYTES + block_bytes:
            drops.drop(f"a line longer than {LONGEST_LINE_BYTES // 2**20} MiB", line)
            rest, skipping = b"", True
    if rest:
        yield LineBlock(line, rest)


def lines_of(block: LineBlock, drops: Drops) -> Iterator[tuple[int, str]]:
    """(line number, text without its end) of a block. Blank lines are noted and skipped; bytes that are not UTF-8 are
    replaced, noted.
    """
    if block.data.isspace():
        drops.note("blank line", block.data.count(b"\n") or 1)
        return
    for line, raw in enumerate(block.data.removesuffix(b"\n").split(b"\n"), block.first_line):
        stripped = raw.rstrip(b"\r")
        if not stripped.strip():
            drops.note("blank line")
            continue
        if len(stripped) > LONGEST_LINE_BYTES:
            drops.drop(f"a line longer than {LONGEST_LINE_BYTES // 2**20} MiB", line)
            continue
        try:
            yield line, stripped.decode("utf-8")
        except UnicodeDecodeError:
            drops.note("bytes that are not UTF-8, replaced")
            yield line, stripped.decode("utf-8", "replace")


def head(path: Path, most_bytes: int = 65536) -> bytes:
    """The first bytes of a file, unpacked, for detection. Raises TraceError when it cannot be read or is empty."""
    data = next(_chunks(path, most_bytes), b"")
    if not data.strip(b"\r\n \t" + _BOM):
        raise TraceError(f"{path.name}: is empty")
    return data


def opened(path: Path) -> IO[bytes]:
    """The file, or TraceError with the reason."""
    try:
        return path.open("rb")
    except OSError as fault:
        raise TraceError(f"{path}: cannot be read: {fault.strerror or fault}") from None


def _chunks(path: Path, size: int) -> Iterator[bytes]:
    with opened(path) as file:
        if file.read(2) != _GZIP:
            file.seek(0)
            while chunk := file.read(size):
                yield chunk
            return
        file.seek(0)
        try:
            yield from _unpacked(path, file, size)
        except (OSError, EOFError, zlib.error) as fault:
            raise TraceError(f"{path.name}: damaged or cut gzip file: {fault}") from None


def _unpacked(path: Path, file: IO[bytes], size: int) -> Iterator[bytes]:
    total = 0
    with gzip.GzipFile(fileobj=file) as packed:
        while chunk := packed.read(size):
            total += len(chunk)
            if total > EXPANSION_FREE_BYTES + MOST_EXPANSION * file.tell():
                raise TraceError(
                    f"{path.name}: expands more than {MOST_EXPANSION} times when unpacked; unpack it yourself if you trust it"
                )
            yield chunk


def _checked_start(path: Path, data: bytes) -> bytes:
    encoding = _OTHER_ENCODINGS.get(data[:2])
    if encoding:
        raise TraceError(f"{path.name}: is {encoding}; convert it to UTF-8 first")
    data = data.removeprefix(_BOM)
    if b"\r" in data.replace(b"\r\n", b"") and b"\n" not in data:
        raise TraceError(f"{path.name}: ends lines with CR alone; convert it to LF or CRLF first")
    return data
