"""The time line: the same percentiles as the histogram's, windows that are exact differences, a bounded size."""

from itertools import pairwise

import numpy as np

from truetail.histogram import Histogram, bounds_us
from truetail.timeline import MOST, PERCENTILES, PPMS, RECENT, Merged, Timeline, cell_after

RNG = np.random.default_rng(7)


def histogram_of(values_ns):
    """A histogram of durations."""
    made = Histogram()
    made.record_many_ns(np.asarray(values_ns, dtype=np.int64))
    return made


def durations(n, median_ms=10.0):
    return (RNG.lognormal(np.log(median_ms), 1.0, n) * 1e6).astype(np.int64)


def test_merged_percentiles_are_the_histograms_own():
    """Merging as arrays and merging as Histograms give the same n, sum, maximum and percentiles, with and without failures."""
    for n in (1, 2, 99, 100, 101, 1000, 5003):
        parts = [histogram_of(durations(n)) for _ in range(3)]
        reference = Histogram()
        for part in parts:
            reference.merge(part)
        merged = Merged.of(parts)
        assert (merged.n, merged.sum_ns, merged.max_ns) == (reference.n, reference.sum_ns, reference.max_ns)
        for infinite in (0, 1, n // 20):
            expected = [reference.percentile_ns(percentile, infinite) for percentile in PERCENTILES]
            assert merged.percentiles_ns(PPMS, infinite) == expected


def test_nothing_and_only_failures():
    """No data has no percentile; a rank among those that never answered has none either; values beyond an hour count as the maximum."""
    assert Merged.of([]).percentiles_ns() == [None] * 4
    assert Merged.of([]).percentiles_ns(infinite=5) == [None] * 4
    over = histogram_of([1_000_000, 2 * 3_600 * 10**9])
    assert Merged.of([over]).percentiles_ns((1_000_000,)) == [over.percentile_ns("100")] == [2 * 3_600 * 10**9]


def test_a_window_holds_exactly_what_ended_within_it():
    """Percentiles of each second equal those of a histogram of that second's values alone (below the run's maximum so far)."""
    line, so_far = Timeline(), []
    for second in range(1, 31):
        new = durations(int(RNG.integers(1, 300)), median_ms=float(second))
        so_far.extend(new.tolist())
        line.look(float(second), {"sent": len(so_far)}, {"in_flight": 1.0}, {"response": Merged.of([histogram_of(so_far)])})
        window = line.recent[-1]
        assert window.counts == {"sent": len(new)}
        assert window.deltas["response"].n == len(new)
        alone = histogram_of(new)
        for ns, percentile in zip(window.deltas["response"].ns, PERCENTILES, strict=True):
            assert abs(ns - alone.percentile_ns(percentile)) <= 0.001 * ns + 1000


def test_joined_windows_equal_one_window_over_both():
    """Coarser windows come from cell counts, never from averaged percentiles: the whole run's windows add up to the run."""
    line, so_far = Timeline(), []
    for second in range(1, 500):
        so_far.extend(durations(20, median_ms=1 + second % 50).tolist())
        line.look(
            float(second), {"sent": len(so_far)}, {"in_flight": float(second)}, {"response": Merged.of([histogram_of(so_far)])}
        )
    assert len(line.whole) <= MOST
    assert line.width_s == 8.0
    assert sum(window.counts["sent"] for window in line.whole) == len(so_far)
    together = line.whole[0]
    for window in line.whole[1:]:
        together = together.plus(window)
    assert together.deltas["response"].ns == Merged.of([histogram_of(so_far)]).percentiles_ns()
    assert together.levels["in_flight"] == 499.0
    edges = [(window.from_s, window.to_s) for window in line.whole]
    assert all(a[1] == b[0] for a, b in pairwise(edges))


def test_two_hours_stay_bounded():
    """7200 looks leave at most MOST windows of the run, each 64 s but the last, and two minutes by the second."""
    line = Timeline()
    for second in range(1, 7201):
        line.look(second + 0.003 * (second % 3 - 1), {"sent": second}, {"in_flight": 0.0}, {})
    assert (len(line.recent), line.width_s) == (RECENT, 64.0)
    assert 100 < len(line.whole) <= MOST
    assert {round(window.to_s - window.from_s) for window in line.whole[:-1]} == {64}
    assert sum(window.counts["sent"] for window in line.whole) == 7200


def test_last_joins_the_newest_seconds():
    """The window of the last ten seconds counts ten seconds; an instant that does not advance is no window."""
    line = Timeline()
    assert line.last(10) is None
    for second in range(1, 31):
        line.look(float(second), {"sent": 5 * second}, {}, {})
        line.look(float(second), {"sent": 5 * second + 99}, {}, {})
    assert len(line.recent) == 30
    assert line.last(10).counts["sent"] == 50


def test_at_most_counts_whole_cells():
    """Values at or below a limit: exact by counting, short by no more than the cell that the limit cuts."""
    values = durations(4000)
    merged = Merged.of([histogram_of(values)])
    for limit_ns in (0, 999, 1_000_000, 10_000_000, 12_345_678, 10**10):
        true = int((values <= limit_ns).sum())
        found = merged.at_most(limit_ns)
        cut = cell_after(limit_ns)
        low, high = bounds_us(cut)
        in_cut = int(((values // 1000 >= low) & (values // 1000 <= high)).sum())
        assert true - in_cut <= found <= true
