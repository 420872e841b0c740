"""Rates: the integral against quadrature, the inverse by round trip, flat stretches, bursts where they belong, clear errors."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate

from shapes.rates import build_rate

DAY = 86400.0


def burst(law: str = "exponential", **fields: Any) -> dict[str, Any]:
    """A resolved hour burst with the fields that a test changes."""
    base = {"kind": "hour_burst", "base_rps": 2.0, "clients": 50, "period_s": 60.0, "align": "start", "offset_s": 0.0}
    return base | {"jitter": {"kind": law, "width_s": fields.pop("width_s", 3.0)}} | fields


SPECS: dict[str, dict[str, Any]] = {
    "constant": {"kind": "constant", "rate_rps": 60.0},
    "ramp up": {"kind": "ramp", "from_rps": 0.0, "to_rps": 100.0, "over_s": 30.0},
    "ramp down": {"kind": "ramp", "from_rps": 100.0, "to_rps": 1.0, "over_s": 70.0},
    "ramp flat": {"kind": "ramp", "from_rps": 7.0, "to_rps": 7.0, "over_s": 70.0},
    "steps": {"kind": "steps", "steps": [{"rate_rps": r, "for_s": f} for r, f in ((10, 10), (0, 5), (30.5, 2), (4, 1))]},
    "piecewise": {"kind": "piecewise", "times_s": [3.0, 8.0, 20.0, 21.0], "rates_rps": [5.0, 0.0, 400.0, 2.0]},
    "diurnal": {"kind": "diurnal", "mean_rps": 50.0, "amplitude": 0.5, "period_s": 100.0, "peak_at_s": 14.0},
    "diurnal to zero": {"kind": "diurnal", "mean_rps": 50.0, "amplitude": 1.0, "period_s": 33.0, "peak_at_s": 30.0},
    "burst uniform": burst("uniform"),
    "burst exponential": burst("exponential", offset_s=59.0),
    "burst normal": burst("normal", offset_s=1.0),
    "burst normal wide": burst("normal", width_s=55.0, base_rps=0.0),
    "burst exponential wide": burst("exponential", width_s=60.0, base_rps=0.0),
    "burst without base": burst("uniform", base_rps=0.0, offset_s=58.0),
}
FLAT = {"steps", "piecewise", "burst without base"}


@pytest.mark.parametrize("name", SPECS)
def test_cumulative_is_the_integral(name: str) -> None:
    """Lambda between any two instants equals the integral of lambda by adaptive quadrature (a second derivation), piece by piece."""
    rate = build_rate(SPECS[name])
    edges = np.unique(np.concatenate([np.linspace(0, 150, 26), [58 + 60 * m for m in (0, 1)], [3, 63, 123, 61, 121]]))
    levels = rate.cumulative(edges)
    assert levels[0] == 0.0
    for i in range(edges.size - 1):
        area, error = integrate.quad(lambda t: float(rate.rate(np.array([t]))[0]), edges[i], edges[i + 1], epsabs=1e-9, limit=200)
        assert levels[i + 1] - levels[i] == pytest.approx(area, abs=1e-7 + 10 * error)


@pytest.mark.parametrize("name", SPECS)
@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0, 5000), min_size=1, max_size=40))
def test_inverse_round_trip(name: str, times: list[float]) -> None:
    """Lambda(Lambda^-1(s)) = s for any s that Lambda reaches, and the inverse is never later than t itself."""
    rate = build_rate(SPECS[name])
    t = np.array(times)
    s = rate.cumulative(t)
    back = rate.inverse(s)
    fast = rate.rate(back) + 1.0
    if name not in FLAT | {"diurnal to zero"}:  # there the last bit of s decides on which side of a lull t lies
        assert (back <= t + 1e-6).all()
    assert np.abs(rate.cumulative(back) - s).max() <= 1e-9 * fast.max() + 1e-13 * s.max()


@pytest.mark.parametrize("name", [name for name in SPECS if name not in FLAT | {"diurnal to zero", "ramp up"}])
def test_inverse_to_the_nanosecond(name: str) -> None:
    """Lambda^-1(Lambda(t)) = t to 1 ns over an hour, where the rate is not near 0."""
    rate = build_rate(SPECS[name])
    t = np.random.default_rng(3).uniform(0, 3600, 5000)
    slow = rate.rate(t) < 0.5
    assert np.abs(rate.inverse(rate.cumulative(t)) - t)[~slow].max() < 1e-9


@pytest.mark.parametrize("name", SPECS)
def test_inverse_does_not_depend_on_the_company(name: str) -> None:
    """Each element comes out with the same bits alone and in an array: slots and blocks cannot move arrivals."""
    rate = build_rate(SPECS[name])
    s = np.random.default_rng(4).uniform(0, float(rate.cumulative(np.array([200.0]))[0]), 100)
    together = rate.inverse(s)
    assert np.array_equal(together, np.concatenate([rate.inverse(s[i : i + 1]) for i in range(s.size)]))
    assert (np.diff(rate.inverse(np.sort(s))) >= -1e-9).all()


def test_flat_stretches() -> None:
    """Where the rate is 0 nothing is due; a level that is reached at the start of such a stretch is reached there, not at its end."""
    rate = build_rate({"kind": "steps", "steps": [{"rate_rps": r, "for_s": 10} for r in (0, 1, 0, 1)]})
    assert rate.inverse([0.0, 1e-12, 5.0, 10.0, 10.5]).tolist() == pytest.approx([0.0, 10.0, 15.0, 20.0, 30.5])
    ends = build_rate({"kind": "piecewise", "times_s": [0, 10, 20], "rates_rps": [1, 2]})
    assert ends.inverse([10, 20, 30, 30.1]).tolist() == [10, 15, 20, np.inf]
    assert ends.rate([9.99, 10, 19.99, 20, 1e9]).tolist() == [1, 2, 2, 0, 0]
    down = build_rate({"kind": "ramp", "from_rps": 2, "to_rps": 0, "over_s": 10})
    assert down.inverse([0, 10, 10.1]).tolist() == pytest.approx([0, 10, np.inf])
    lull = build_rate(burst("uniform", base_rps=0.0, offset_s=10.0))
    assert lull.inverse([50.0]) == pytest.approx(13.0, abs=1e-9)


def test_steps_are_piecewise() -> None:
    """Steps and the rate curve of a trace are the same mathematics."""
    steps = build_rate(SPECS["steps"])
    curve = build_rate({"kind": "piecewise", "times_s": [0, 10, 15, 17], "rates_rps": [10, 0, 30.5, 4]})
    s = np.linspace(0, 300, 999)
    assert np.array_equal(steps.inverse(s), curve.inverse(s))


def test_diurnal_shape() -> None:
    """Peak where it is asked for, trough half a period on, mean over a day exact, and no digits lost after a year."""
    rate = build_rate({"kind": "diurnal", "mean_rps": 50, "amplitude": 0.5, "period_s": DAY, "peak_at_s": 14 * 3600})
    assert rate.rate([14 * 3600, 2 * 3600, 14 * 3600 + 365 * DAY]).tolist() == pytest.approx([75, 25, 75])
    assert rate.cumulative([DAY, 365 * DAY]).tolist() == pytest.approx([50 * DAY, 50 * 365 * DAY], rel=1e-14)
    year = 365 * DAY
    assert float(rate.inverse(rate.cumulative([year + 1234.5]))[0]) == pytest.approx(year + 1234.5, abs=1e-7)


@pytest.mark.parametrize("law", ["uniform", "exponential", "normal"])
@pytest.mark.parametrize("width_s", [0.01, 3.0, 59.0])
@pytest.mark.parametrize("offset_s", [0.0, 17.0])
def test_burst_clients_per_period(law: str, width_s: float, offset_s: float) -> None:
    """Every stretch of one period holds base * period + clients arrivals in the mean, whatever the jitter, wherever it starts."""
    rate = build_rate(burst(law, width_s=width_s, offset_s=offset_s))
    starts = np.linspace(0, 600, 1001)
    assert rate.cumulative(starts + 60) - rate.cumulative(starts) == pytest.approx(2 * 60 + 50, abs=1e-9)


@pytest.mark.parametrize(("law", "share"), [("uniform", 1.0), ("exponential", 1 - np.exp(-1)), ("normal", 0.3413447460685429)])
def test_burst_width(law: str, share: float) -> None:
    """Within one width after the instant falls the share of clients that the law says (closed forms)."""
    rate = build_rate(burst(law, base_rps=0.0, width_s=2.0, offset_s=20.0))
    low, high = rate.cumulative([20.0, 22.0])
    assert high - low == pytest.approx(50 * share, abs=1e-9)


@pytest.mark.parametrize("epoch_wall_s", [0.0, 1_700_000_000.0, 1_700_003_599.5, 1_700_001_234.75])
def test_burst_on_the_wall_clock(epoch_wall_s: float) -> None:
    """Aligned to the wall clock, the steepest rise is at the full hour plus offset, in Unix time, whenever the run starts."""
    spec = burst("exponential", period_s=3600.0, width_s=2.0, align="wall-clock", offset_s=5.0)
    rate = build_rate(spec, epoch_wall_s)
    until_hour = (5.0 - epoch_wall_s) % 3600.0
    for instant in (until_hour, until_hour + 3600):
        before, after = rate.rate([instant - 1e-3, instant + 1e-3])
        assert before == pytest.approx(2.0, abs=1e-6)
        assert after == pytest.approx(2 + 50 / 2, rel=1e-3)
    started = build_rate(spec | {"align": "start"}, epoch_wall_s)
    assert float(started.rate([5.001])[0]) == pytest.approx(27, rel=1e-3)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"kind": "constant", "rate_rps": 0}, "rate_rps: found 0"),
        ({"kind": "constant", "rate_rps": float("nan")}, "rate_rps: found nan"),
        ({"kind": "constant"}, "rate_rps is missing"),
        ({"kind": "sawtooth"}, "found 'sawtooth'; allowed: constant"),
        ({"kind": "ramp", "from_rps": 0, "to_rps": 0, "over_s": 1}, "at least one"),
        ({"kind": "ramp", "from_rps": -1, "to_rps": 0, "over_s": 1}, "from_rps: found -1"),
        ({"kind": "steps", "steps": []}, "found none"),
        ({"kind": "steps", "steps": [{"rate_rps": 1, "for_s": 0}]}, r"steps\[0\].for_s"),
        ({"kind": "piecewise", "times_s": [0, 0], "rates_rps": [1, 1]}, "rising"),
        ({"kind": "piecewise", "times_s": [0], "rates_rps": [1, 1]}, "1 times_s and 2 rates_rps"),
        ({"kind": "piecewise", "times_s": [0, 1], "rates_rps": [1, float("inf")]}, "rates_rps"),
        ({"kind": "diurnal", "mean_rps": 1, "amplitude": 1.1, "period_s": 5}, "amplitude: found 1.1"),
        (burst("lognormal"), "jitter.kind: found 'lognormal'"),
        (burst("uniform", width_s=61.0), "jitter.width_s: found 61"),
        (burst("uniform", align="moon"), "align: found 'moon'"),
        (burst("uniform", base_rps=0, clients=0), "at least one"),
    ],
)
def test_clear_errors(spec: dict[str, Any], words: str) -> None:
    """A wrong rate is answered with its field, what was found and what is allowed."""
    with pytest.raises(ValueError, match=words):
        build_rate(spec)
