"""Fit t(b) = a + c b to measured pairs (batch, inference time).

Noise is one-sided (a call is delayed, never hurried) and a few calls are far off, so plain least squares would tilt. Huber's
M-estimator by iteratively reweighted least squares, scale from the median absolute deviation; every call counts once, not
once per request in it. Standard errors are Huber's sandwich form (Huber and Ronchetti 2009, section 7.6).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.batching import BatchTime

HUBER_K = 1.345
"""95 % efficiency when the noise is normal."""
ITERATIONS = 100
FEWEST_CALLS = 10
MOST_FITTED = 50_000
"""Pairs that are fitted; of more, evenly spaced ones stand for all (the standard errors are theirs)."""


@dataclass(frozen=True, slots=True)
class BatchFit:
    """The fit with standard errors (s), the calls behind it, their smallest and largest batch, the residuals' scale (s)."""

    time: BatchTime
    a_error_s: float
    c_error_s: float
    calls: int
    smallest: int
    largest: int
    scale_s: float


def fit(batch: NDArray[np.integer], inference_s: NDArray[np.floating]) -> BatchFit | None:
    """Fit to one pair per request. None when there are too few calls, or one batch size only: then a and c cannot be told apart.

    The requests of one call tell the same time, so request i stands for 1 / batch_i of a call.
    """
    b, t = np.asarray(batch, dtype=float), np.asarray(inference_s, dtype=float)
    told = np.isfinite(t) & (t >= 0) & (b >= 1)
    b, t = b[told], t[told]
    calls = float((1 / b).sum()) if len(b) else 0.0
    if calls < FEWEST_CALLS or b.min() == b.max():
        return None
    sizes = int(b.min()), int(b.max())
    step = -(-len(b) // MOST_FITTED)
    b, t = b[::step], t[::step]
    x, w = np.column_stack([np.ones_like(b), b]), 1 / b
    coefficients, scale = _huber(x, t, w)
    errors = _sandwich(x, t - x @ coefficients, w, scale)
    a_s, c_s = np.maximum(coefficients, 0.0)
    return BatchFit(
        BatchTime(float(a_s) or (1e-12 if c_s == 0 else 0.0), float(c_s)),
        float(errors[0]), float(errors[1]), round(calls), *sizes, float(scale),
    )  # fmt: skip


def _huber(x: NDArray[np.float64], y: NDArray[np.float64], w: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    weights, scale = w, 0.0
    coefficients = np.zeros(2)
    for _ in range(ITERATIONS):
        before = coefficients
        coefficients = _weighted(x, y, weights)
        residual = np.abs(y - x @ coefficients)
        scale = max(1.4826 * _weighted_median(residual, w), 1e-12)
        weights = w * np.minimum(1.0, HUBER_K * scale / np.maximum(residual, 1e-300))
        if np.allclose(before, coefficients, rtol=1e-9, atol=1e-15):
            break
    return coefficients, scale


def _weighted(x: NDArray[np.float64], y: NDArray[np.float64], w: NDArray[np.float64]) -> NDArray[np.float64]:
    root = np.sqrt(w)
    return np.asarray(np.linalg.lstsq(x * root[:, None], y * root, rcond=None)[0], dtype=np.float64)


def _weighted_median(values: NDArray[np.float64], w: NDArray[np.float64]) -> float:
    order = np.argsort(values)
    cumulative = np.cumsum(w[order])
    return float(values[order][np.searchsorted(cumulative, cumulative[-1] / 2)])


def _sandwich(x: NDArray[np.float64], r: NDArray[np.float64], w: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
    """Standard errors; the score of a call is its b requests' scores summed, so their weights 1/b add to one call's."""
    score = np.clip(r / scale, -HUBER_K, HUBER_K)
    slope = float((w * (np.abs(r) <= HUBER_K * scale)).sum() / w.sum())
    bread = np.linalg.inv((x * w[:, None]).T @ x)
    meat = (x * (w * score**2)[:, None]).T @ x
    covariance = bread @ meat @ bread * (scale / max(slope, 1e-3)) ** 2
    return np.asarray(np.sqrt(np.diag(covariance)), dtype=np.float64)
