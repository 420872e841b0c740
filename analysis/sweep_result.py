"""``sweep.json``: what was asked, every point, the answer, theory and knee. Checked when read back, replaced in one step when written.

In JSON null stands for infinity: a percentile among failures, an interval without an upper end, an unknown error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from analysis.manifest_model import MOST_BYTES, RunFolderError, parse_json
from analysis.sweep_search import Answer, Kind, Length, Outcome, Search, Tried
from analysis.text import plain
from truetail.errors import UsageError
from truetail.slo import Slo, parse

FILE = "sweep.json"
SHOWN = ("50", "95", "99")

Positive = Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)]
Finite = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
Text = Annotated[str, Field(max_length=2000)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Quantile(_Part):
    """A percentile with its interval, in s; None is infinite. ``log_error``: standard error of its logarithm."""

    percentile: Annotated[str, Field(pattern=r"^[0-9.]{1,12}$")]
    value_s: Finite | None
    low_s: Finite | None
    high_s: Finite | None
    log_error: Finite | None = None


class Point(_Part):
    """One run of the sweep; ``run`` is its folder under ``points/``. ``mean_s`` is of successes."""

    number: Annotated[int, Field(ge=1, le=1_000_000)]
    rate_rps: Positive
    length: Length
    seconds: Positive
    seed: Annotated[int, Field(ge=0)]
    run: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,200}$")]
    verdict: Text
    outcome: Outcome
    reason: Text
    n: Annotated[int, Field(ge=0)]
    failed: Annotated[int, Field(ge=0)]
    completed_rps: Finite
    slo: Quantile | None
    percentiles: list[Quantile] = []

    @property
    def tried(self) -> Tried:
        """What the search needs to know of it."""
        value = math.nan if self.slo is None else math.inf if self.slo.value_s is None else self.slo.value_s
        error = self.slo.log_error if self.slo else None
        return Tried(self.rate_rps, self.length, self.outcome, value, math.inf if error is None else error, self.seconds)


class Settings(_Part):
    """What was asked for."""

    slo: Text
    low_rps: Positive
    high_rps: Positive
    grid: list[Positive] = []
    tolerance: Positive = 0.03
    most: Annotated[int, Field(ge=2, le=1000)] = 30
    seconds: Positive | None = None

    def objective(self) -> Slo:
        """The SLO line, parsed."""
        return parse(self.slo)

    def search(self) -> Search:
        """The question to the search."""
        return Search(self.objective().limit, self.low_rps, self.high_rps, self.tolerance, self.most, tuple(self.grid))


class Found(_Part):
    """The answer."""

    kind: Kind
    lower_rps: Positive | None
    upper_rps: Positive | None
    estimate_rps: Positive | None
    text: Text


class Theory(_Part):
    """The theory curve; an entry of ``quantiles_s`` is as long as ``rates_rps``."""

    label: Text
    wall_rps: Positive
    rates_rps: list[Positive]
    quantiles_s: dict[str, list[Finite | None]]
    capacity_rps: Finite | None


class Sweep(_Part):
    """The whole."""

    format: Literal[1] = 1
    name: Text
    scenario_file: Text
    scenario_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    settings: Settings
    state: Literal["running", "paused", "ended"] = "running"
    points: list[Point] = []
    answer: Found | None = None
    theory: Theory | None = None
    theory_note: Text = ""
    knee_rps: Positive | None = None

    @property
    def tried(self) -> list[Tried]:
        """All points, for the search."""
        return [point.tried for point in self.points]

    def to_json(self) -> str:
        """Strict JSON."""
        return self.model_dump_json(indent=1) + "\n"


def found(answer: Answer) -> Found:
    """The answer as it is kept."""
    return Found(
        kind=answer.kind,
        lower_rps=answer.lower_rps,
        upper_rps=answer.upper_rps,
        estimate_rps=answer.estimate_rps,
        text=answer.text,
    )


def read(folder: Path) -> Sweep:
    """The sweep in ``folder``. Raises UsageError: not there, or not a sweep of ours (the field, what was found)."""
    path = folder / FILE
    try:
        text = path.read_bytes() if path.stat().st_size <= MOST_BYTES else b""
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}); a sweep's folder holds a {FILE}") from None
    try:
        return Sweep.model_validate(parse_json(text, str(path)))
    except ValidationError as error:
        where = [
            ".".join(map(str, fault["loc"])) + f": {fault['msg']}; found {plain(repr(fault['input']), 60)}"
            for fault in error.errors()
        ]
        raise UsageError(*(f"{path}: {plain(line)}" for line in where[:10])) from None
    except RunFolderError as error:
        raise UsageError(*error.faults) from None


def write(folder: Path, sweep: Sweep) -> None:
    """Replace sweep.json in one step."""
    scratch = folder / (FILE + ".part")
    scratch.write_text(sweep.to_json(), encoding="utf-8")
    scratch.replace(folder / FILE)


def best_points(points: Sequence[Point]) -> list[Point]:
    """One point a rate, ascending: the last valid full run, else the last run."""
    chosen: dict[float, Point] = {}
    for point in points:
        old = chosen.get(point.rate_rps)
        rank = (point.outcome is not Outcome.INVALID, point.length is Length.FULL)
        if old is None or rank >= (old.outcome is not Outcome.INVALID, old.length is Length.FULL):
            chosen[point.rate_rps] = point
    return [chosen[rate] for rate in sorted(chosen)]


def knee(rates_rps: Sequence[float], percentile_s: Sequence[float | None]) -> float | None:
    """The rate where rate / percentile is largest (Kleinrock's power, 1979): beyond it latency grows faster than load.

    None for fewer than three rates with a percentile, or when it lies at an end: then the knee is not between them.
    """
    known = [(r, r / v) for r, v in zip(rates_rps, percentile_s, strict=True) if v]
    if len(known) < 3:
        return None
    at = max(range(len(known)), key=lambda i: known[i][1])
    return known[at][0] if 0 < at < len(known) - 1 else None


def knee_of(points: Sequence[Point]) -> float | None:
    """The knee of the measured curve of the SLO's percentile, over valid runs of full length."""
    good = [p for p in best_points(points) if p.slo is not None and p.outcome not in (Outcome.INVALID, Outcome.GROWING)]
    return knee([p.rate_rps for p in good], [p.slo.value_s if p.slo else None for p in good])


def theory_of(curve: Any) -> Theory:
    """The curve (analysis.sweep_theory.Curve) as it is kept."""
    quantiles: Mapping[str, Sequence[float]] = curve.quantiles_s
    return Theory(
        label=curve.label, wall_rps=curve.wall_rps, rates_rps=list(curve.rates_rps), capacity_rps=curve.capacity_rps,
        quantiles_s={p: [v if math.isfinite(v) else None for v in values] for p, values in quantiles.items()},
    )  # fmt: skip
