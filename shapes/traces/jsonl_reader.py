"""Rows of a file with one JSON object a line: whole blocks by Arrow where they are regular, line by line where they are not."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from shapes.traces.drops import Drops, TraceError
from shapes.traces.header import Layout, layout_of
from shapes.traces.line_blocks import LineBlock, line_blocks, lines_of
from shapes.traces.rows import NUMBERS, WHOLE_NUMBERS, Builder, Column, Rows, Source, arrow_column, to_start
from shapes.traces.times import PER_UNIT_NS, TimeKind, decimal_ns, detect_kind, in_range
from shapes.traces.times import column_ns as text_column_ns

SAMPLED_ROWS = 200


class Written(float):
    """A JSON number that remembers how it was written, since an epoch second with nine digits does not fit a float."""

    def __new__(cls, text: str) -> Written:
        """The float of ``text``."""
        number = super().__new__(cls, text)
        number.text = text
        return number

    text: str

    def __str__(self) -> str:
        return self.text


def read(source: Source, drops: Drops) -> Iterator[Rows]:
    """The rows of a JSONL file; fields are found by their usual names or by ``source.columns``. Raises TraceError."""
    yield from read_layout(source, drops)


def read_layout(
    source: Source, drops: Drops, *, unit: str = "", clock: str = "", duration_unit_s: float | None = None
) -> Iterator[Rows]:
    """As :func:`read`, for a format whose time unit, clock or unit of ``duration`` is fixed."""
    reader: _Blocks | None = None
    for block in line_blocks(source.path, drops):
        if reader is None:
            samples = _samples(block, drops)
            names = list(dict.fromkeys(name for sample in samples for name in sample))
            layout = layout_of(names, source.columns, drops.file)
            layout = Layout(names, layout.index, layout.unit, duration_unit_s or layout.duration_unit_s)
            reader = _Blocks(layout, _kind(samples, layout, source, unit, clock, drops), samples, drops, source)
        rows = reader.rows(block)
        if len(rows.times_ns):
            yield to_start(rows) if reader.ends else rows
    if reader is None:
        raise TraceError(f"{source.path.name}: is empty")


def _samples(block: LineBlock, drops: Drops) -> Sequence[Mapping[str, Any]]:
    found, fault = [], "no JSON object"
    for _, text in lines_of(block, Drops(drops.file)):
        try:
            found.append(parse_object(text))
        except ValueError as error:
            fault = str(error)
        if len(found) == SAMPLED_ROWS:
            break
    if not found:
        raise TraceError(f"{drops.place(block.first_line)}: no line among the first is a JSON object: {fault}")
    return found


def _kind(samples: Sequence[Mapping[str, Any]], layout: Layout, source: Source, unit: str, clock: str, drops: Drops) -> TimeKind:
    name = layout.names[layout.index["time"]]
    stated = source.time_unit if source.time_unit != "auto" else (unit or layout.unit)
    kind = detect_kind([sample.get(name) for sample in samples], stated, source.timezone, f"{drops.file}: {name}")
    if source.time_unit == "auto" and not unit and layout.unit == "auto" and kind == TimeKind("s", source.timezone, "start"):
        drops.note("times taken as seconds from the start (time_unit says otherwise)")
    return kind._replace(clock=clock or kind.clock)


def parse_object(text: str) -> Mapping[str, Any]:
    """One line's JSON object, numbers as they were written. Raises ValueError with a short reason."""
    try:
        value = json.loads(text, parse_float=Written, parse_constant=_no_constant, object_pairs_hook=_once)
    except RecursionError:
        raise ValueError("JSON nested too deeply") from None
    except json.JSONDecodeError:
        raise ValueError("not JSON") from None
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


def _no_constant(text: str) -> float:
    raise ValueError("NaN or Infinity, which JSON does not have")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("a JSON key that is there twice")
    return values


class _Blocks:
    """Reads the blocks of one file."""

    def __init__(
        self, layout: Layout, kind: TimeKind, samples: Sequence[Mapping[str, Any]], drops: Drops, source: Source
    ) -> None:
        self.wanted = source.wanted(layout.index)
        self.keys = {ours: layout.names[layout.index[ours]] for ours in ["time", *self.wanted]}
        self.kind, self.drops, self.ends, self.unit_s = kind, drops, source.time_is == "end", layout.duration_unit_s
        if self.ends and "duration_s" not in self.keys:
            raise TraceError(f"{drops.file}: time_is: end needs a duration field; name it with columns: {{duration_s: NAME}}")
        self.builder = Builder(kind, self.wanted, drops, layout.duration_unit_s)
        key = self.keys.get("hash_ids")
        self._listed = {"hash_ids"} if key and any(isinstance(sample.get(key), list) for sample in samples) else set()

    def rows(self, block: LineBlock) -> Rows:
        rows = self._at_once(block)
        if rows is None:
            for line, text in lines_of(block, self.drops):
                try:
                    fields = parse_object(text)
                except ValueError as fault:
                    self.drops.drop(str(fault), line, "", text)
                    continue
                self.builder.add(line, {ours: fields.get(theirs) for ours, theirs in self.keys.items()})
            rows = self.builder.build()
        return rows

    def _at_once(self, block: LineBlock) -> Rows | None:
        """The block by Arrow's JSON reader; None when anything in it needs a closer look."""
        import pyarrow as pa
        import pyarrow.json as arrow_json

        lines = block.data.count(b"\n") + (not block.data.endswith(b"\n"))
        schema = pa.schema([(self.keys["time"], self._time_type())] + [(self.keys[n], self._type(n)) for n in self.wanted])
        try:
            table = arrow_json.read_json(
                pa.BufferReader(block.data),
                arrow_json.ReadOptions(use_threads=False, block_size=len(block.data) + 1),
                arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
            )
            if table.num_rows != lines:
                return None
            column = table.column(self.keys["time"])
            times = text_column_ns(column, self.kind) if self.kind.unit in ("iso", "clf") else decimal_ns(column)
            columns = {name: self._column(name, table.column(self.keys[name])) for name in self.wanted}
        except pa.ArrowInvalid:
            return None
        if times is None or not in_range(times, self.kind.clock) or any(column is None for column in columns.values()):
            return None
        told = {name: column for name, column in columns.items() if column is not None}
        return Rows(times, told, np.arange(block.first_line, block.first_line + lines, dtype=np.int64), self.kind.clock)

    def _time_type(self) -> Any:
        import pyarrow as pa

        per_unit = PER_UNIT_NS.get(self.kind.unit)
        return pa.string() if per_unit is None else pa.decimal128(38, len(str(per_unit)) - 1)

    def _type(self, name: str) -> Any:
        import pyarrow as pa

        if name in self._listed:
            return pa.list_(pa.int64())
        return pa.int64() if name in WHOLE_NUMBERS else pa.float64() if name in NUMBERS else pa.string()

    def _column(self, name: str, column: Any) -> Column | None:
        if name not in self._listed:
            return arrow_column(name, column, self.unit_s)
        texts = ["" if ids is None else json.dumps(ids, separators=(",", ":")) for ids in column.to_pylist()]
        listed: Column = np.array(texts, object)
        return listed
