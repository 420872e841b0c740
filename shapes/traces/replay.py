"""A trace as the arrivals of a schedule: every timestamp, or a process fitted to them, with what each row carried."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from shapes.schedule import Block, Planned
from shapes.traces import fit as fits
from shapes.traces.align import wall_clock_shift_ns
from shapes.traces.carry import Bootstrap, Carrier, InOrder
from shapes.traces.drops import TraceError
from shapes.traces.recording import Recording
from shapes.traces.rows import Rows
from shapes.traces.scale import EFFECTS, displacements_ns, marked, scaled, superposed, thinned
from shapes.traces.spec import TraceSpec, parse_spec
from shapes.traces.times import SECOND_NS

DISPLACEMENT_S = 60.0
MOST_PIECES = 2_000_000
MOST_LOOPS = 100_000


def open_trace(spec: Mapping[str, Any], duration_s: float, seed: int, epoch_wall_s: float = 0.0) -> Replay:
    """The replay that a resolved scenario's ``trace`` asks for (:mod:`shapes.traces.spec`); a pure function of its arguments
    and the file.

    Raises TraceError (a ValueError) when the spec is wrong or the trace cannot be read.
    """
    return Replay(parse_spec(spec, seed), duration_s, seed, epoch_wall_s)


class Replay:
    """Arrivals of a trace within ``duration_s``. ``recording.drops`` says what the latest reading lost."""

    def __init__(self, spec: TraceSpec, duration_s: float, seed: int, epoch_wall_s: float = 0.0) -> None:
        self.spec, self.seed, self.duration_s = spec, seed, duration_s
        self.recording = Recording(spec)
        self._duration_ns = round(duration_s * SECOND_NS)
        self._shift_ns = spec.offset_ns
        self._period_unit_ns = 1
        # A first look, so that a trace that cannot be read fails before anything is sent.
        origin_ns = self.recording.origin_ns
        if spec.align == "wall-clock":
            length_ns = self.recording.extent[1]
            place = f"{spec.source.path.name}: align: wall-clock"
            shift_ns, self._period_unit_ns = wall_clock_shift_ns(
                origin_ns, self.recording.clock, length_ns, epoch_wall_s, spec.source.timezone, place
            )
            self._shift_ns += shift_ns
            if self._shift_ns >= self._duration_ns:
                raise TraceError(
                    f"{place}: the first arrival is due after {self._shift_ns / SECOND_NS:g} s, beyond the duration of {duration_s:g} s"
                )

    @cached_property
    def count_hint(self) -> float | None:
        """The mean number of arrivals over all seeds where that follows from a fit; None where it has to be counted."""
        return None if self.spec.mode == "exact" else self._planned.count_hint

    def blocks(self) -> Iterator[Block]:
        """All arrivals in order, 0 <= offset < duration; each call reads the trace anew. Raises TraceError for a damaged file."""
        k = 0
        for rows in self._exact() if self.spec.mode == "exact" else self._fitted():
            if len(rows.times_ns):
                yield Block(k, rows.times_ns, rows.columns)
                k += len(rows.times_ns)

    def describe(self) -> dict[str, Any]:
        """What is replayed and how, as plain JSON, with what reading it lost so far."""
        spec = self.spec
        told: dict[str, Any] = {
            "file": spec.source.path.name,
            "mode": spec.mode,
            "clock": self.recording.clock,
            "align": spec.align,
        }
        values = {"speed": spec.speed, "thin": spec.thin, "copies": spec.copies}
        told["effects"] = [EFFECTS[name].format(value) for name, value in values.items() if value != 1]
        if spec.mode != "exact":
            told["fit"] = self.fit.to_json()
        told["drops"] = self.recording.drops.to_json()
        return told

    # -- every timestamp ---------------------------------------------------------------------------------------------------------

    def _exact(self) -> Iterator[Rows]:
        spec = self.spec
        most_ns = 0
        if spec.copies > 1:
            most_ns = min(round((spec.fit_window_s or DISPLACEMENT_S) * SECOND_NS), self.recording.extent[1])
        shifts = displacements_ns(spec.copies, most_ns, self.seed)
        return superposed([self._copy(number, shift) for number, shift in enumerate(shifts)])

    def _copy(self, copy: int, displaced_ns: int) -> Iterator[Rows]:
        """One copy of the recording, begun ``displaced_ns`` into it; what came before that follows at the end, so none is
        lost.
        """
        spec = self.spec
        number = 0
        for cycle in itertools.count():
            begun_ns = cycle * self._period_ns - displaced_ns if cycle or displaced_ns else 0
            end_ns = self._period_ns if displaced_ns and not spec.loop else 2**62
            mark = (f"#{copy}" if copy else "") + (f"~{cycle}" if cycle else "")
            for rows in self.recording.rows():
                first, number = number, number + len(rows.times_ns)
                rows = thinned(rows._replace(times_ns=rows.times_ns + begun_ns), first, spec.thin, self.seed, copy)
                rows = rows.take(slice(*np.searchsorted(rows.times_ns, [0, end_ns], "left").tolist()))
                offsets = scaled(rows.times_ns, spec.speed) + self._shift_ns
                low, high = np.searchsorted(offsets, [0, self._duration_ns], "left").tolist()
                if low < high:
                    yield marked(rows._replace(times_ns=offsets).take(slice(low, high)), mark)
                if high < len(offsets):
                    return
            if not spec.loop and not (displaced_ns and cycle == 0):
                return

    @cached_property
    def _period_ns(self) -> int:
        """After how long the recording starts again: its length, up to a whole hour or day where it keeps to the wall clock."""
        period_ns = -(-self.recording.extent[1] // self._period_unit_ns) * self._period_unit_ns
        if self._duration_ns * self.spec.speed > MOST_LOOPS * period_ns:
            raise TraceError(
                f"{self.spec.source.path.name}: {period_ns / SECOND_NS:g} s of it would be looped more than {MOST_LOOPS} times"
            )
        return period_ns

    # -- a process fitted to them ------------------------------------------------------------------------------------------------

    @cached_property
    def fit(self) -> fits.Fit:
        """The rate, spacing and dispersion of the recording, unscaled. Reads it once."""
        try:
            return fits.fit(self.recording.rows(times_only=True), self.spec.fit_window_s, self.recording.length_ns)
        except TraceError:
            raise
        except ValueError as fault:
            raise TraceError(f"{self.spec.source.path.name}: {fault}") from None

    @cached_property
    def _planned(self) -> Planned:
        times, rates = self._curve()
        rates = rates * (self.spec.speed * self.spec.thin * self.spec.copies)
        spacing: Mapping[str, Any] = {"kind": "poisson" if self.spec.mode == "poisson" else "fixed"}
        if self.spec.mode == "model":
            spacing = {"kind": "gamma", "cv": self.fit.cv}
        rate = {"kind": "piecewise", "times_s": times, "rates_rps": rates}
        return Planned({"rate": rate, "spacing": spacing}, self.duration_s, self.seed, 0.0)

    def _curve(self) -> tuple[fits.Floats, fits.Floats]:
        """(times in s of the run, one more than rates; rates of the trace in its own time): looped and shifted as asked."""
        fitted, speed = self.fit, self.spec.speed
        edges, rates = fitted.edges_s, fitted.rates_rps
        if self.spec.mode == "fixed":
            edges, rates = np.array([0.0, fitted.length_s]), np.array([fitted.mean_rps])
        start_s = self._shift_ns / SECOND_NS
        if self.spec.loop:
            period_s = max(self._period_ns / SECOND_NS, fitted.length_s)
            if period_s > fitted.length_s:
                edges, rates = np.append(edges, period_s), np.append(rates, 0.0)
            cycles = max(1, int(np.ceil((self.duration_s - start_s) * speed / period_s)))
            if cycles * len(rates) > MOST_PIECES:
                raise TraceError(
                    f"{self.spec.source.path.name}: {cycles} loops of {len(rates)} rates are too many; state a wider fit_window_s"
                )
            starts = np.arange(cycles)[:, None] * period_s
            edges, rates = np.append((starts + edges[:-1]).ravel(), cycles * period_s), np.tile(rates, cycles)
        times = edges / speed + start_s
        if times[0] < 0:
            kept = max(0, int(np.searchsorted(times, 0.0, "right")) - 1)
            times, rates = np.maximum(times[kept:], 0.0), rates[kept:]
        return times, rates[: len(times) - 1]

    def _fitted(self) -> Iterator[Rows]:
        carrier: Carrier | None = None
        for block in self._planned.blocks():
            if carrier is None:
                carrier = InOrder(self.recording) if self.spec.rows == "in-order" else Bootstrap(self.recording, self.seed)
            n = len(block.offsets_ns)
            lines = np.arange(block.first_k, block.first_k + n)
            yield Rows(block.offsets_ns, carrier.columns(block.first_k, n), lines, self.recording.clock)
