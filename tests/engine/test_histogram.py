"""The histogram against the HdrHistogram library, a second derivation and exact ranks."""

import json
from fractions import Fraction
from math import ceil

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
from hypothesis import given
from hypothesis import strategies as st

from truetail.histogram import HIGHEST_US, LAST_INDEX, Histogram, bounds_us, index_of
from truetail.ranks import nearest_rank, to_ppm

VALUES_US = st.integers(0, HIGHEST_US)


@given(VALUES_US)
def test_cell_holds_its_value_within_three_digits(value):
    """Every value lies in its own cell, and the cell is at most 2^-10 of the value wide."""
    low, high = bounds_us(index_of(value))
    assert low <= value <= high
    assert high - low <= value / 1024


def test_cells_are_those_of_hdrhistogram():
    """Counts land in the cells that the HdrHistogram library uses."""
    reference = HdrHistogram(1, HIGHEST_US, 3)
    rng = np.random.default_rng(1)
    for value in [0, 1, 2047, 2048, 4095, 4096, HIGHEST_US, *np.exp(rng.uniform(0, 22, 3000)).astype(int).tolist()]:
        reference.reset()
        reference.record_value(value)
        (cell,) = np.flatnonzero(np.frombuffer(reference.counts, np.int64))
        assert index_of(value) == cell
    assert reference.counts_len > LAST_INDEX


@given(st.lists(st.integers(-5, 8_000_000_000_000), max_size=300))
def test_many_at_once_equals_one_by_one(values):
    """The vectorised count and the scalar count agree in every field, over-range and negative values included."""
    one, many = Histogram(), Histogram()
    for value in values:
        one.record_ns(value)
    many.record_many_ns(np.array(values, np.int64))
    assert one.to_json() == many.to_json()


@given(st.lists(st.integers(0, 4 * 10**12), min_size=1, max_size=200), st.sampled_from(["50", "90", "99", "99.9", "100"]))
def test_percentile_is_the_nearest_rank_within_a_cell(values, percentile):
    """The percentile is at or above the exact nearest-rank value, by at most 0.1 % (1 us for tiny values)."""
    histogram = Histogram()
    for value in values:
        histogram.record_ns(value)
    exact = sorted(values)[ceil(Fraction(percentile) * len(values) / 100) - 1]
    found = histogram.percentile_ns(percentile)
    assert found is not None
    assert exact <= found <= max(exact * 1.001, exact + 1000) or found == max(values)


def test_failures_rank_above_everything():
    """With one answer in a hundred missing p99 still exists, p99.9 does not: it is infinite, not the maximum."""
    histogram = Histogram()
    histogram.record_many_ns(np.full(99, 1_000_000))
    assert histogram.percentile_ns("99", infinite=1) == 1_000_000
    assert histogram.percentile_ns("99.9", infinite=1) is None
    assert Histogram().percentile_ns("50") is None


@given(st.lists(st.lists(st.integers(0, 10**12), max_size=50), min_size=2, max_size=4))
def test_merge_is_counting_everything_in_one(parts):
    """Merging in any order equals one histogram of all values; an empty part changes nothing."""
    whole = Histogram()
    whole.record_many_ns(np.array([value for part in parts for value in part], np.int64))
    for order in (parts, parts[::-1]):
        merged = Histogram()
        for part in order:
            histogram = Histogram()
            histogram.record_many_ns(np.array(part, np.int64))
            merged.merge(histogram)
        assert merged.to_json() == whole.to_json()


def test_round_trips():
    """What goes over the wire or to disk comes back the same, few values or many in a cell."""
    histogram = Histogram()
    histogram.record_many_ns(np.array([1, 5_000, 7_000_000_000_000, -3]))
    for _ in range(2):
        on_disk = json.loads(json.dumps(histogram.to_json()))
        assert Histogram.from_json(on_disk).to_json() == Histogram.from_json(histogram.to_wire()).to_json() == histogram.to_json()
        histogram.cells[5] += 1 << 40  # needs eight bytes
        histogram.n += 1 << 40
    assert Histogram.from_json(Histogram().to_json()).to_json() == Histogram().to_json()


def test_size_does_not_grow_with_the_cells_in_use():
    """An array over all values up to the highest: a second million of values takes no more room than the first."""
    histogram, rng = Histogram(), np.random.default_rng(3)
    histogram.record_many_ns(rng.integers(0, 100_000_000, 1000))
    before = histogram.cells.nbytes
    histogram.record_many_ns(rng.integers(0, 100_000_000, 1_000_000))
    assert histogram.cells.nbytes == before <= 65_536
    histogram.record_ns(HIGHEST_US * 1000)
    assert LAST_INDEX * 8 <= histogram.cells.nbytes < (LAST_INDEX + 1024) * 8


def words(*numbers, kind="<u2"):
    """Numbers as a histogram's bytes."""
    return np.array(numbers, kind).tobytes()


@pytest.mark.parametrize(
    "change",
    [
        {"n": 3}, {"n": "2"}, {"n": True}, {"n": None}, {"sum_ns": 1.5}, {"sum_ns": float("nan")}, {"min_ns": 1 << 99},
        {"counts": []}, {"counts": None}, {"counts": {"1": 2}}, {"counts": words(2)}, {"counts": b""}, {"counts": "###"},
        {"where": None}, {"where": b"\x01"}, {"where": "A"}, {"where": words(LAST_INDEX + 1)},
        {"where": words(1, 1), "counts": words(1, 1, kind="<u4")}, {"where": words(2, 1), "counts": words(1, 1, kind="<u4")},
        {"where": words(1, 2), "counts": words(2, 0, kind="<u4")}, {"counts": words(1 << 63, kind="<u8"), "n": 1 << 63},
        {"counts": "A" * 1_000_000}, {"counts": bytes(1_000_000)},
    ],
)  # fmt: skip
def test_hostile_histograms_are_refused(change):
    """A field of the wrong type, size, range, order or sum is a ValueError, never a wrong number."""
    histogram = Histogram()
    histogram.record_many_ns(np.array([1_000_000, 1_000_000]))
    with pytest.raises(ValueError, match="histogram"):
        Histogram.from_json(histogram.to_json() | change)


def test_rank_is_exact_integer_arithmetic():
    """ceil(q n) agrees with exact fractions where floats fail (99.9 % of 1000 is rank 999, not 1000)."""
    assert nearest_rank(1000, to_ppm("99.9")) == 999
    for percentile in ("50", "90", "95", "99", "99.9", "99.99", "0.0001"):
        for n in (*range(1, 400), 41_000, 1_000_003):
            assert nearest_rank(n, to_ppm(percentile)) == max(1, ceil(Fraction(percentile) * n / 100))


@pytest.mark.parametrize("wrong", ["0", "100.1", "-1", "x", "nan", "inf", "99.99999", ""])
def test_wrong_percentiles_are_refused(wrong):
    """Only decimals in (0, 100] with at most four digits."""
    with pytest.raises(ValueError, match="percentile"):
        to_ppm(wrong)
