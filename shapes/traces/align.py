"""Where a trace stands against the wall clock: a request of 14:00:00 is sent at the hour, or at 14:00:00 of the day."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from shapes.traces.drops import TraceError
from shapes.traces.times import SECOND_NS

HOUR_NS = 3600 * SECOND_NS
DAY_NS = 24 * HOUR_NS


def wall_clock_shift_ns(
    origin_ns: int, clock: str, length_ns: int, epoch_wall_s: float, zone: str, place: str
) -> tuple[int, int]:
    """(shift, period): added to times from the recording's start, the shift puts them where the wall clock reads as it did.

    The period is a day for a recording of a day or more, else an hour: minute and second agree, the hour only in long
    recordings. A recording longer than its period is joined in the middle (a negative shift); a shorter one waits. Raises
    TraceError for a recording that does not know its wall clock.
    """
    if clock == "start":
        raise TraceError(f"{place}: this trace counts from its own start, so it has no wall clock to keep to; use align: start")
    epoch_ns = round(epoch_wall_s * SECOND_NS)
    if clock == "midnight":
        offset = datetime.fromtimestamp(epoch_wall_s, UTC).astimezone(ZoneInfo(zone)).utcoffset()
        epoch_ns += 0 if offset is None else round(offset.total_seconds()) * SECOND_NS
    period_ns = DAY_NS if length_ns >= DAY_NS else HOUR_NS
    shift_ns = (origin_ns - epoch_ns) % period_ns
    return (shift_ns - period_ns if length_ns > period_ns and shift_ns else shift_ns), period_ns
