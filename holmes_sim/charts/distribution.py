"""Chart of steps with faults over many seeds: histogram and cumulative distribution of the step time."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from holmes_sim.charts.style import BLACK, BLUE, DASH, DPI, ORANGE, RED, SKY, WIDTH, Picture
from holmes_sim.distribution import Troubled
from sim.units import time_text

BINS = 30
"""Bins of the histogram."""
LINES = {"fault_free": BLACK, "mean": BLUE, "p95": ORANGE, "p99": RED}
"""Statistics drawn as vertical lines -> colour."""


def distribution(found: Troubled) -> Figure:
    """Histogram of the step times, and the share of seeds up to each step time."""
    figure = Picture(figsize=(WIDTH, 5.0), dpi=DPI, layout="constrained")
    counts, shares = figure.subplots(1, 2)
    counts.hist(found.steps_s, bins=BINS, color=SKY)
    counts.set(xlabel="step (s)", ylabel="seeds")
    steps = sorted(found.steps_s)
    shares.step([steps[0], *steps], [0.0, *((i + 1) / len(steps) for i in range(len(steps)))], where="post", color=SKY, lw=2)
    shares.set(xlabel="step (s)", ylabel="share of seeds with at most this step time", ylim=(0, 1.02))
    for axes in (counts, shares):
        _lines(axes, found)
    handles, labels = shares.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncol=len(LINES), frameon=False, fontsize=9, handlelength=3)
    figure.suptitle(
        f"{found.plan.topology.name} · {found.plan.workload.model.name} · {len(found.seeds):,} seeds · {found.trouble}",
        fontsize=11,
    )
    return figure


def _lines(axes: Axes, found: Troubled) -> None:
    """Vertical lines at the statistics, with interleaved dashes where they coincide."""
    seconds = found.summary()
    for index, (name, colour) in enumerate(LINES.items()):
        dashes = (DASH * index, (DASH, DASH))
        label = name.replace("_", "-")
        axes.axvline(seconds[name], color=colour, lw=1.5, ls=dashes, label=f"{label} {time_text(seconds[name])}")
    axes.spines[["top", "right"]].set_visible(False)
