"""Rows of a delimited text file with a header: whole blocks by Arrow where they are regular, record by record where they are
not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from shapes.traces.drops import Drops, TraceError
from shapes.traces.header import Layout, find_layout, split
from shapes.traces.line_blocks import LineBlock, line_blocks, lines_of
from shapes.traces.rows import NUMBERS, WHOLE_NUMBERS, Builder, Rows, Source, arrow_column, to_start
from shapes.traces.times import TimeKind, column_ns, detect_kind

SAMPLED_ROWS = 200
MOST_LINES_A_RECORD = 1000


def read(source: Source, drops: Drops) -> Iterator[Rows]:
    """The rows of a CSV file (``,`` ``;`` or tab), header found by name or by ``source.columns``. Raises TraceError."""
    yield from read_layout(source, drops, {}, clock="")


def read_layout(source: Source, drops: Drops, known: Mapping[str, str], *, unit: str = "", clock: str = "") -> Iterator[Rows]:
    """As :func:`read`, for a format whose header (``known``: our names to theirs), time unit or clock is fixed."""
    layout: Layout | None = None
    reader: _Blocks | None = None
    for block in line_blocks(source.path, drops):
        if layout is None or reader is None:
            layout = find_layout(block, source, {**known, **source.columns}, drops)
            kind = _kind(block, layout, source, unit, clock, drops)
            reader = _Blocks(layout, kind, drops, source)
            block = LineBlock(block.first_line + layout.header_lines, _without_lines(block.data, layout.header_lines))
        yield from reader.rows(block)
    if reader is None:
        raise TraceError(f"{source.path.name}: is empty")
    yield from reader.rest()


def _kind(block: LineBlock, layout: Layout, source: Source, unit: str, clock: str, drops: Drops) -> TimeKind:
    at = layout.index["time"]
    samples = []
    for line, text in lines_of(block, Drops(drops.file)):
        if line - block.first_line >= layout.header_lines:
            fields = split(text, layout.delimiter)
            samples.append(fields[at] if fields and at < len(fields) else "")
        if len(samples) == SAMPLED_ROWS:
            break
    if not samples:
        raise TraceError(f"{drops.file}: has a header but no rows")
    stated = source.time_unit if source.time_unit != "auto" else (unit or layout.unit)
    kind = detect_kind(samples, stated, source.timezone, f"{drops.file}: {layout.names[at]}")
    if source.time_unit == "auto" and not unit and layout.unit == "auto" and kind == TimeKind("s", source.timezone, "start"):
        drops.note("times taken as seconds from the start (time_unit says otherwise)")
    return kind._replace(clock=clock or kind.clock)


class _Blocks:
    """Reads blocks of one file; keeps the lines of a record that is still open at a block's end."""

    def __init__(self, layout: Layout, kind: TimeKind, drops: Drops, source: Source) -> None:
        self.layout, self.kind, self.drops, self.ends = layout, kind, drops, source.time_is == "end"
        self.wanted = source.wanted(layout.index)
        if self.ends and "duration_s" not in self.wanted:
            raise TraceError(f"{drops.file}: time_is: end needs a duration column; name it with columns: {{duration_s: NAME}}")
        self.builder = Builder(kind, self.wanted, drops, layout.duration_unit_s)
        self._open: list[tuple[int, str]] = []
        self._held_open = False  # whether the open lines end within quotes

    def rows(self, block: LineBlock) -> Iterator[Rows]:
        rows = None if self._open else self._at_once(block)
        if rows is None:
            for line, text in lines_of(block, self.drops):
                self._take(line, text)
            rows = self.builder.build()
        if len(rows.times_ns):
            yield to_start(rows) if self.ends else rows

    def rest(self) -> Iterator[Rows]:
        self._settle(at_end=True)
        if len(self.builder):
            yield to_start(self.builder.build()) if self.ends else self.builder.build()

    def _at_once(self, block: LineBlock) -> Rows | None:
        """The block by Arrow's CSV reader; None when anything in it needs a closer look."""
        import pyarrow as pa
        import pyarrow.csv as arrow_csv

        lines = block.data.count(b"\n") + (not block.data.endswith(b"\n"))
        whole = any(name in WHOLE_NUMBERS for name in self.wanted)
        if block.data.isspace() or (whole and (b"0x" in block.data or b"0X" in block.data)):  # Arrow would read 0x10 as 16
            return None
        names = [str(i) for i in range(len(self.layout.names))]
        index = {name: str(at) for name, at in self.layout.index.items()}
        types = {index["time"]: pa.string()} | {
            index[name]: pa.int64() if name in WHOLE_NUMBERS else pa.float64() if name in NUMBERS else pa.string()
            for name in self.wanted
        }
        try:
            table = arrow_csv.read_csv(
                pa.BufferReader(block.data),
                arrow_csv.ReadOptions(column_names=names, use_threads=False, block_size=len(block.data) + 1),
                arrow_csv.ParseOptions(delimiter=self.layout.delimiter, newlines_in_values=True),
                arrow_csv.ConvertOptions(
                    include_columns=list(dict.fromkeys(index.values())),
                    column_types=types,
                    null_values=[""],
                    strings_can_be_null=False,
                ),
            )
        except pa.ArrowInvalid:
            return None
        times = column_ns(table.column(index["time"]), self.kind) if table.num_rows == lines else None
        columns = {name: arrow_column(name, table.column(index[name]), self.layout.duration_unit_s) for name in self.wanted}
        if times is None or any(column is None for column in columns.values()):
            return None
        told = {name: column for name, column in columns.items() if column is not None}
        return Rows(times, told, np.arange(block.first_line, block.first_line + lines, dtype=np.int64), self.kind.clock)

    def _take(self, line: int, text: str) -> None:
        """One line: a record, or a part of one that quotes hold open over several lines."""
        odd = text.count('"') % 2
        if not self._open and not odd and self._record(line, text):
            return
        self._open.append((line, text))
        self._held_open ^= bool(odd)
        if not self._held_open or len(self._open) >= MOST_LINES_A_RECORD:
            self._settle(at_end=False)
            self._held_open = bool(self._open)

    def _settle(self, at_end: bool) -> None:
        """Take the records that the open lines make. A line that starts none is dropped alone: one bad line loses one row."""
        while self._open:
            closed = _first_closed(self._open)
            if not closed and not at_end and len(self._open) < MOST_LINES_A_RECORD:
                return
            if closed and self._record(self._open[0][0], _text(self._open[:closed])):
                self._open = self._open[closed:]
            else:
                self._drop(*self._open.pop(0))

    def _drop(self, line: int, text: str) -> None:
        fields = split(text, self.layout.delimiter)
        if fields is None:
            self.drops.drop("a quote that is not closed, or text after it", line, "", text)
        else:
            self.drops.drop("a wrong number of fields", line, "", f"{len(fields)}, not {len(self.layout.names)}: {text}")

    def _record(self, line: int, record: str) -> bool:
        fields = split(record, self.layout.delimiter)
        if fields is None or len(fields) != len(self.layout.names):
            return False
        self.builder.add(line, {name: fields[at] for name, at in self.layout.index.items()})
        return True


def _first_closed(lines: Sequence[tuple[int, str]]) -> int:
    """After how many lines every quote is closed again; 0 when they never are."""
    quotes = 0
    for number, (_, text) in enumerate(lines, 1):
        quotes += text.count('"')
        if quotes % 2 == 0:
            return number
    return 0


def _text(lines: Sequence[tuple[int, str]]) -> str:
    return "\n".join(text for _, text in lines)


def _without_lines(data: bytes, count: int) -> bytes:
    at = 0
    for _ in range(count):
        at = data.find(b"\n", at) + 1 or len(data)
    return data[at:]
