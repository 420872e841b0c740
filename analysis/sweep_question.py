"""What a sweep is asked: one SLO line, a range or grid of rates, and whether an earlier sweep asked the same."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import ValidationError

from analysis.sweep_result import Settings, Sweep
from truetail.errors import UsageError
from truetail.slo import Slo, SloError, parse
from truetail.units import parse_rate_rps

MOST_POINTS = 200


def objective(lines: Sequence[Slo], chosen: str | None) -> Slo:
    """The one line that the sweep is about: ``chosen``, else the scenario's only one on a percentile of a time. Raises UsageError."""
    if chosen is not None:
        try:
            slo = parse(chosen)
        except SloError as error:
            raise UsageError(f"--slo: {error}") from None
        if not on_percentile(slo):
            raise UsageError(f"--slo: a sweep needs a percentile of a time, like 'p99 < 50ms', found {chosen!r}")
        return slo
    found = [slo for slo in lines if on_percentile(slo)]
    if len(found) != 1:
        has = f"has {len(found)}: " + ", ".join(slo.text for slo in found) if found else "has none"
        raise UsageError(f"a sweep is about one SLO line on a percentile of a time; the scenario {has}; choose with --slo")
    return found[0]


def on_percentile(slo: Slo) -> bool:
    """Whether a sweep can be about this line."""
    return slo.kind == "percentile" and slo.unit == "s" and slo.ppm is not None and slo.ppm < 1_000_000


def kept_lines(lines: Sequence[Slo], slo: Slo) -> list[str]:
    """The SLO lines of every point: the chosen one, and those of the scenario that are on no percentile of a time."""
    return [slo.text, *(line.text for line in lines if not on_percentile(line))]


def rates(text: str) -> tuple[float, float]:
    """(A, B) of ``A..B`` in 1/s. Raises UsageError."""
    low, dots, high = text.partition("..")
    if not dots:
        raise UsageError(f"--rates: found {text!r}; a range is A..B, like 100/s..900/s")
    try:
        found = parse_rate_rps(low), parse_rate_rps(high)
    except ValueError as error:
        raise UsageError(f"--rates: {error}") from None
    if not 0 < found[0] < found[1]:
        raise UsageError(f"--rates: found {text!r}; a range A..B needs 0 < A < B")
    return found


def grid(low: float, high: float, points: int) -> list[float]:
    """``points`` rates at equal distances, ends included. Raises UsageError."""
    if not 2 <= points <= MOST_POINTS:
        raise UsageError(f"--points: found {points}; allowed is 2 to {MOST_POINTS}")
    return [round(low + (high - low) * i / (points - 1), 6) for i in range(points)]


def settings(**values: object) -> Settings:
    """Checked settings. Raises UsageError with the field, what was found and what is allowed."""
    try:
        made = Settings.model_validate(values)
        made.search()
    except ValidationError as error:
        raise UsageError(*(f"{'.'.join(map(str, e['loc']))}: {e['msg']}, found {e['input']!r}" for e in error.errors())) from None
    except ValueError as error:
        raise UsageError(str(error)) from None
    return made


def go_on(earlier: Sweep, asked: Settings, scenario_sha256: str, where: str) -> Sweep:
    """``earlier`` with the run lengths and limits of ``asked``. Raises UsageError if it is of another scenario or question."""
    before = earlier.settings
    if earlier.scenario_sha256 != scenario_sha256:
        raise UsageError(f"{where}: that sweep is of another scenario ({earlier.name}), target or overrides; start a new one")
    if any(getattr(before, key) != getattr(asked, key) for key in ("slo", "low_rps", "high_rps", "grid")):
        points = f" at {len(before.grid)} rates" if before.grid else ""
        raise UsageError(
            f"{where}: that sweep asks for {before.slo} from {before.low_rps:g} to {before.high_rps:g}/s{points}; "
            "start a new one for another question"
        )
    settled = asked if asked.seconds else asked.model_copy(update={"seconds": before.seconds})
    return earlier.model_copy(update={"settings": settled, "state": "running", "answer": None})
