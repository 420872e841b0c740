"""SLO lines: what they mean, and the position of what is wrong in one."""

from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truetail.slo import METRICS, SloError, parse


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("p99 < 50ms", ("percentile", 990_000, "99", "response", None, "<", 0.05, None)),
        ("p99.9(ttft) < 200ms", ("percentile", 999_000, "99.9", "ttft", None, "<", 0.2, None)),
        ("error_rate < 0.1%", ("error_rate", None, None, "response", None, "<", 0.001, None)),
        ("error_rate[predict] < 1%", ("error_rate", None, None, "response", "predict", "<", 0.01, None)),
        ("error_rate <= 0", ("error_rate", None, None, "response", None, "<=", 0.0, None)),
        ("goodput(100ms) > 99%", ("goodput", None, None, "response", None, ">", 0.99, 0.1)),
        ("goodput[a b](1s)>=0.5", ("goodput", None, None, "response", "a b", ">=", 0.5, 1.0)),
        ("p99[predict](ttft) < 200ms", ("percentile", 990_000, "99", "ttft", "predict", "<", 0.2, None)),
        ("  p50 [GET /x] ( queue )<=1h30m ", ("percentile", 500_000, "50", "queue", "GET /x", "<=", 5400.0, None)),
        ("mean < 40ms", ("mean", None, None, "response", None, "<", 0.04, None)),
        ("max<2s", ("max", None, None, "response", None, "<", 2.0, None)),
        ("rate > 95/s", ("rate", None, None, "response", None, ">", 95.0, None)),
        ("rate < 6k/min", ("rate", None, None, "response", None, "<", 100.0, None)),
        ("p1(tokens_per_s) >= 20", ("percentile", 10_000, "1", "tokens_per_s", None, ">=", 20.0, None)),
    ],
)  # fmt: skip
def test_lines_mean_what_they_say(line, expected):
    """Every form of the grammar, field by field."""
    slo = parse(line)
    assert (slo.kind, slo.ppm, slo.percentile, slo.metric, slo.name, slo.op, slo.limit, slo.goodput_s) == expected
    assert slo.text == line.strip()


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("", "position 1 (the end): a measure is"),
        ("99 < 5ms", "position 1 ('99 < 5ms'): a measure is"),
        ("P99 < 5ms", "position 1 ('P99 < 5ms'): a measure is"),
        ("p < 5ms", "position 1 ('p < 5ms'): a measure is"),
        ("median < 5ms", "position 1 ('median < 5ms'): a measure is"),
        ("mean9 < 5ms", "position 1 ('mean9 < 5ms'): a measure is"),
        ("p0 < 5ms", "position 2 ('0 < 5ms'): percentile '0' must lie in (0, 100]"),
        ("p101 < 5ms", "position 2 ('101 < 5ms'): percentile '101' must lie in (0, 100]"),
        ("p99.99999 < 5ms", "position 2 ('99.99999 < 5ms'): percentile '99.99999'"),
        ("p9.9.9 < 5ms", "position 2 ('9.9.9 < 5ms'): percentile '9.9.9' is not a number"),
        ("p99[ < 5ms", "position 4 ('[ < 5ms'): a request's name stands in brackets"),
        ("p99[] < 5ms", "position 4 ('[] < 5ms'): a request's name"),
        ("p99(tff) < 5ms", "position 4 ('(tff) < 5ms'): a metric is one of response, "),
        ("p99(ttft < 5ms", "position 4 ('(ttft < 5ms'): a metric is one of"),
        ("rate(ttft) > 5/s", "position 5 ('(ttft) > 5/s'): rate takes no metric"),
        ("goodput > 99%", "position 9 ('> 99%'): goodput needs the duration"),
        ("goodput(100) > 99%", "position 8 ('(100) > 99%'): goodput needs the duration"),
        ("goodput(soon) > 99%", "position 9 ('soon) > 99%'): goodput needs the duration"),
        ("p99 5ms", "position 5 ('5ms'): a comparison is <, <=, > or >="),
        ("p99 = 5ms", "position 5 ('= 5ms'): a comparison is"),
        ("p99 =< 5ms", "position 5 ('=< 5ms'): a comparison is"),
        ("p99 > 5ms", "position 5 ('> 5ms'): for percentile less is better"),
        ("error_rate > 1%", "position 12 ('> 1%'): for error_rate less is better"),
        ("goodput(1s) < 99%", "position 13 ('< 99%'): for goodput more is better"),
        ("p50(tokens_per_s) < 9/s", "position 19 ('< 9/s'): for percentile(tokens_per_s) more is better"),
        ("p99 <", "position 6 (the end): a limit is missing"),
        ("p99 < 50", "position 7 ('50'): the limit: found '50' without a unit; write 50ms or 50s"),
        ("p99 < -5ms", "position 7 ('-5ms'): the limit: found '-5ms'"),
        ("p99 < nan", "position 7 ('nan'): the limit: found 'nan'"),
        ("p99 < 5ms or so", "position 7 ('5ms or so'): the limit: found '5ms or so'"),
        ("error_rate < 5", "position 14 ('5'): the limit: found '5'; allowed is a share"),
        ("rate > 95/parsec", "position 8 ('95/parsec'): the limit: found '95/parsec'; allowed is a rate"),
    ],
)
def test_wrong_lines_name_the_position(line, fault):
    """The fault says where in the line it is, and shows lines that are right."""
    with pytest.raises(SloError) as error:
        parse(line)
    assert fault in str(error.value)
    assert "examples: p99 < 50ms" in str(error.value)


@pytest.mark.parametrize("wrong", [None, 99, ["p99 < 5ms"], "p99 <" + " " * 400 + "5ms"])
def test_what_is_no_line_is_refused(wrong):
    """Other types, and lines without end."""
    with pytest.raises(SloError):
        parse(wrong)


def test_units_of_limits():
    """A latency's limit is in seconds, a share's a fraction, a rate's per second."""
    lines = ("p99 < 1s", "error_rate < 1%", "goodput(1s) > 1%", "rate > 1/s", "mean(tokens_per_s) > 1/s")
    assert [parse(line).unit for line in lines] == ["s", "share", "share", "1/s", "1/s"]


@pytest.mark.parametrize(
    ("line", "at", "met"),
    [("p99 < 1s", 1.0, False), ("p99 <= 1s", 1.0, True), ("rate > 5/s", 5.0, False), ("rate >= 5/s", 5.0, True)],
)
def test_comparisons_at_the_limit(line, at, met):
    """Strict and lax comparisons differ at the limit, and there only."""
    assert parse(line).met_by(at) is met


@pytest.mark.parametrize("line", ["p99 < 1s", "p99 <= 1s", "rate > 5/s", "goodput(1s) >= 0"])
def test_no_data_never_meets_an_objective(line):
    """A NaN is neither below nor above anything."""
    assert parse(line).met_by(math.nan) is False


def test_infinitely_slow_fails():
    """A percentile that falls on a failed request is infinite, and misses every limit."""
    assert not parse("p99 < 366d").met_by(math.inf)


@given(st.sampled_from(sorted(METRICS)), st.integers(1, 999_999), st.floats(1e-9, 1e6))
def test_percentile_lines_round_trip(metric, ppm, limit):
    """A line built from its parts parses to these parts."""
    op = ">" if metric == "tokens_per_s" else "<"
    unit = "/s" if metric == "tokens_per_s" else "s"
    slo = parse(f"p{ppm / 10_000:.4f}({metric}) {op} {limit!r}{unit}")
    assert (slo.ppm, slo.metric, slo.limit) == (ppm, metric, limit)


@given(st.text(max_size=40))
def test_any_text_is_parsed_or_refused(text):
    """No text brings anything but an Slo or an SloError."""
    with contextlib.suppress(SloError):
        parse("p99" + text)
