"""Plots as inline SVG: drawn by matplotlib without a display, coloured by the page (light, dark, print), told apart without colour.

Text stays text (it can be searched and copied, and the page's font is used). Names are plain text: no mathematics is parsed in them,
and matplotlib escapes them. The same input gives the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator
from numpy.typing import NDArray

from analysis.sections import Plot
from analysis.text import plain

mpl.use("svg")

# Stand-ins that the page's style replaces: no other part of a drawing has these colours.
INK, GRID = "#010102", "#010103"
COLOURS = tuple(f"#0101{16 + i:02x}" for i in range(8))
DASHES = ("-", "--", ":", "-.", (0, (6, 1, 1, 1, 1, 1)), (0, (1, 3)), (0, (9, 3)), (0, (4, 1, 4, 4)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
HATCHES = ("", "////", "....", "\\\\\\\\", "xxxx", "----", "++++", "oooo")
WIDTH_IN, HEIGHT_IN, LEGEND_ROW_IN = 7.2, 3.5, 0.19
_STYLE: Any = {
    "svg.fonttype": "none", "text.parse_math": False, "font.size": 10, "axes.titlesize": 11, "axes.titlelocation": "left",
    "axes.edgecolor": INK, "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK, "text.color": INK,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": GRID, "grid.linewidth": 0.7,
    "legend.frameon": False, "legend.fontsize": 9, "lines.linewidth": 1.6, "axes.axisbelow": True, "hatch.linewidth": 0.6, "path.simplify_threshold": 0.4,
    "axes.unicode_minus": False,
}  # fmt: skip


@contextmanager
def axes(height_in: float = HEIGHT_IN) -> Iterator[tuple[Figure, Any]]:
    """A figure with one pair of axes, in the report's style."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(WIDTH_IN, height_in))
        FigureCanvasSVG(figure)
        # Fixed margins: working the best ones out would draw everything twice.
        left, right, bottom, top = 0.78, 0.12, 0.55, 0.38
        place = (left / WIDTH_IN, bottom / height_in, 1 - (left + right) / WIDTH_IN, 1 - (bottom + top) / height_in)
        yield figure, figure.add_axes(place)


def svg(figure: Figure, name: str, label: str) -> str:
    """The figure as an ``<svg>`` element for a page: colours by CSS variables, ids its own, no prolog, no date."""
    out = StringIO()
    with mpl.rc_context({**_STYLE, "svg.hashsalt": f"truetail-{name}"}):
        figure.savefig(
            out, format="svg", transparent=True, metadata={"Date": None, "Creator": None, "Format": None, "Type": None}
        )
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r"<style type=\"text/css\">.*?</style>", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)
    text = _own_ids(text, name)
    text = re.sub(r"font: ((?:\S+ )?)([0-9.]+px) [^;\"]*", r"font: \1\2 var(--sans)", text)
    text = text.replace(INK, "currentColor").replace(GRID, "var(--grid)")
    for number, colour in enumerate(COLOURS):
        text = text.replace(colour, f"var(--c{number})")
    escaped = label.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    return re.sub(
        r"<svg ([^>]*?)width=\"[^\"]*\" height=\"[^\"]*\"|<svg ([^>]*)",
        rf'<svg role="img" aria-label="{_literal(escaped)}" \1\2',
        text,
        count=1,
    )


def _literal(text: str) -> str:
    return text.replace("\\", "\\\\")


def _own_ids(text: str, name: str) -> str:
    """Ids that something refers to get the plot's name in front; the others go."""
    used = set(re.findall(r"url\(#([^)]+)\)|href=\"#([^\"]+)\"", text))
    wanted = {one or other for one, other in used}

    def own(match: re.Match[str]) -> str:
        return f' id="{name}-{match[1]}"' if match[1] in wanted else ""

    text = re.sub(r" id=\"([^\"]*)\"", own, text)
    return re.sub(r"(url\(#|href=\"#)", rf"\g<1>{name}-", text)


def plot(name: str, title: str, caption: str, draw: Callable[[Figure, Any], None], height_in: float = HEIGHT_IN) -> Plot:
    """Draw on fresh axes. ``caption`` tells the window and the sample size."""
    with axes(height_in) as (figure, on):
        draw(figure, on)
        return Plot(title, svg(figure, name, f"{title}. {caption}"), caption)


def line(on: Any, x: NDArray[Any], y: NDArray[Any], number: int, label: str) -> None:
    """A curve that is told from the others by colour, dashes and a few markers."""
    some = max(1, len(x) // 8)
    on.plot(
        x, y, color=COLOURS[number % 8], linestyle=DASHES[number % 8], label=plain(label, 40), marker=MARKERS[number % 8],
        markersize=4, markevery=(number * some // 4 % some if some > 1 else 0, some),
    )  # fmt: skip


def nothing(on: Any, text: str) -> None:
    """Say that there is nothing to draw."""
    on.text(0.5, 0.5, text, ha="center", va="center", transform=on.transAxes)
    on.set_xticks([])
    on.set_yticks([])
    on.grid(visible=False)


def legend(figure: Figure, on: Any, columns: int = 4) -> None:
    """The legend, above the axes where it hides nothing; the axes make room for its rows."""
    handles, labels = on.get_legend_handles_labels()
    if not handles:
        return
    rows = -(-len(handles) // columns)
    box = on.get_position()
    on.set_position((box.x0, box.y0, box.width, box.height - (rows - 1) * LEGEND_ROW_IN / figure.get_figheight()))
    figure.legend(handles, labels, loc="upper left", ncols=columns, bbox_to_anchor=(0.02, 1.0), borderaxespad=0.1)


_LADDER = np.array([m * 10.0**e for e in range(-4, 8) for m in (1, 2, 5)])


def log_ms(axis: Any, low: float, high: float) -> None:
    """A logarithmic axis in ms whose ticks are plain numbers; 3 to 8 of them whatever the range."""
    inside = [tick for tick in _LADDER if low * 0.999 <= tick <= high * 1.001]
    if len(inside) > 8:
        inside = [tick for tick in inside if f"{tick:e}".startswith("1")]
    axis.set_major_locator(FixedLocator(inside))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def log_limits(values: Sequence[NDArray[np.float64]]) -> tuple[float, float]:
    """Limits of a log axis around all positive finite values, at least one tick of the ladder apart; (1, 10) when there is none."""
    joined = np.concatenate([*values, np.empty(0)])
    good = joined[np.isfinite(joined) & (joined > 0)]
    if not len(good):
        return 1.0, 10.0
    low, high = float(good.min()), float(good.max())
    below, above = _LADDER[low >= _LADDER], _LADDER[high * 1.05 <= _LADDER]
    return float(below[-1]) if len(below) else low, float(above[0]) if len(above) else high * 1.2
