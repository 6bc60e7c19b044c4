"""Chart of predicted against measured step times, one colour per source."""

from __future__ import annotations

from collections.abc import Iterable

from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter

from holmes_sim.charts.style import BLACK, BLUE, DPI, GREEN, GREY, ORANGE, PURPLE, RED, SKY, Picture
from holmes_sim.validation import Row
from sim.errors import HolmesError

COLOURS = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY, BLACK)
"""Colours of the sources."""
MARKERS = "osD"
"""Markers of the sources, used in turn when all colours are used."""


def validation(rows: Iterable[Row]) -> Figure:
    """Points on the diagonal are exact predictions; the band is 20 % to either side. Cases that cannot be simulated are left
    out.

    Raises HolmesError if no case is left.
    """
    drawn = [row for row in rows if row.seconds is not None]
    if not drawn:
        raise HolmesError(
            "no case has a measured step and can be simulated, so there is nothing to draw; holmes-sim validate says why"
        )
    figure = Picture(figsize=(9.0, 7.0), dpi=DPI, layout="constrained")
    axes = figure.subplots()
    sources = list(dict.fromkeys(row.case.source for row in drawn))
    for index, source in enumerate(sources):
        mine = [row.seconds for row in drawn if row.case.source == source and row.seconds is not None]
        axes.plot(
            [measured for _, measured in mine], [predicted for predicted, _ in mine], linestyle="none", markersize=5,
            marker=MARKERS[index // len(COLOURS) % len(MARKERS)], color=COLOURS[index % len(COLOURS)], alpha=0.7,
            label=f"{source} ({len(mine)})",
        )  # fmt: skip
    seconds = [value for row in drawn for value in row.seconds or ()]
    ends = [min(seconds) / 1.3, max(seconds) * 1.3]
    axes.plot(ends, ends, color=GREY, linewidth=1)
    axes.fill_between(ends, [0.8 * end for end in ends], [1.2 * end for end in ends], color=GREY, alpha=0.2, linewidth=0)
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends, xlabel="measured step (s)", ylabel="predicted step (s)")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(LogFormatter())
        axis.set_minor_formatter(LogFormatter(minor_thresholds=(2.0, 0.5)))
    seen = sum(row.seen for row in drawn)
    axes.set_title(f"{len(drawn)} measured runs, {seen} of them used to fit the stack; the band is 20 % to either side")
    axes.legend(loc="upper left", frameon=False, fontsize=9)
    return figure
