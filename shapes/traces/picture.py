"""A picture of a trace: its rate over time, and its gaps against those of a Poisson process."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from shapes.traces.inspect import Inspection

COLUMNS = 600


def rate_curve(inspection: Inspection, columns: int = COLUMNS) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], float]:
    """(starts in s, mean rate and width of a bin): counts of whole seconds (or minutes, for very long traces) in at most
    ``columns``.
    """
    width_s, counts = next((width, held.values) for width, held in inspection.counts.items() if held.values is not None)
    counts = counts[: inspection.counts[width_s].highest + 1]
    together = -(-len(counts) // columns)
    padded = np.concatenate([counts, np.zeros(-len(counts) % together, counts.dtype)])
    sums = padded.reshape(-1, together).sum(axis=1)
    bin_s = together * width_s
    return np.arange(len(sums)) * bin_s, sums / bin_s, float(bin_s)


def png(inspection: Inspection, title: str) -> bytes:
    """The picture as PNG: rate over time, and dispersion against the width of the window (Poisson is 1)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 6), layout="constrained")
    FigureCanvasAgg(figure)
    above, below = figure.subplots(2, 1, height_ratios=(3, 2))
    times_s, rates, bin_s = rate_curve(inspection)
    above.step(times_s, rates, where="post", linewidth=1)
    # A name from outside is text, not mathtext.
    above.set_title(title.replace("$", r"\$"))
    above.set_xlabel("time from the first arrival (s)")
    above.set_ylabel(f"arrivals/s in {bin_s:g} s")
    above.set_ylim(bottom=0)
    above.grid(alpha=0.3)
    told = {width: value for width, value in inspection.to_json()["idc"].items() if value is not None}
    bars = below.bar(list(told), list(told.values()), width=0.5)
    below.bar_label(bars, fmt="%.3g")
    below.axhline(1.0, color="black", linewidth=1, linestyle="--", label="Poisson")
    below.set_ylabel("index of dispersion of counts")
    below.set_xlabel("window")
    below.margins(y=0.15)
    below.legend()
    written = io.BytesIO()
    figure.savefig(written, format="png", dpi=120)
    return written.getvalue()
