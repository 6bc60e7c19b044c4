"""Roofline chart: FLOP/s that kernels and stages reach on each device type of a plan, and the limits of peak and memory."""

from __future__ import annotations

import math
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from holmes_sim.charts.style import BLACK, BLUE, DARK, DPI, GREEN, GREY, ORANGE, RED, WIDTH, Picture
from sim.plan.plan import Plan
from sim.results.roofline import Point, Roofline, rooflines
from sim.units import TERA, bytes_per_second_text, flops_text

COLUMNS = 3
"""Panels side by side."""
LINE = 0.052
"""Height of a label, as a share of the height of a panel."""
LEADER = {"arrowstyle": "-", "linewidth": 0.7, "alpha": 0.7, "shrinkA": 0, "shrinkB": 3, "relpos": (0, 0.5)}
"""Style of the line from the left edge of a label to its point."""
KINDS = {"products": ("o", BLUE, 7), "attention": ("s", ORANGE, 7), "stages": ("D", RED, 8)}
"""Kind of points -> marker, colour and size."""
WORDS = {
    "products": "matrix products (formula)",
    "attention": "attention core (formula)",
    "stages": "stages (all kernels)",
}
"""Kind of points -> text in the legend."""


def roofline(plan: Plan) -> Figure:
    """A panel for each device type: FLOP per byte against FLOP/s, both logarithmic, with the same axes in all panels.

    Labels give the share of the peak. Points are forward and backward of a microbatch on one rank, without recomputation and
    communication. Stages use a measured profile if there is one; kernels always use the formulas.
    """
    found = rooflines(plan)
    columns = min(len(found), COLUMNS)
    rows = math.ceil(len(found) / columns)
    figure = Picture(figsize=(WIDTH * (columns + 1) / (COLUMNS + 1), 1.7 + 4.2 * rows), dpi=DPI, layout="constrained")
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flatten()
    left, right, bottom, top = _frame(found)
    for axes, one in zip(panels, found, strict=False):
        axes.set(xscale="log", yscale="log", xlim=(left, right), ylim=(bottom, top))
        _ticks(axes)
        _roof(axes, one)
        _points(axes, one)
    for axes in panels[len(found) :]:
        axes.remove()
    for index, axes in enumerate(panels[: len(found)]):
        if index % columns == 0:
            axes.set_ylabel("attained (TFLOP/s)")
        if index + columns >= len(found):
            axes.set_xlabel("arithmetic intensity (FLOP / byte)")
            axes.tick_params(axis="x", labelbottom=True)
    config, workload = plan.config, plan.workload
    figure.suptitle(
        f"{plan.topology.name} · {workload.model.name}, {workload.precision}, microbatch of {config.microbatch_text} × "
        f"{workload.seq_len:,} tokens, tp {config.tp_text}\nforward and backward, without communication"
        + (f" and {config.recompute} recomputation" if config.recompute != "none" else ""),
        fontsize=11,
    )
    figure.legend(handles=_legend(), loc="outside lower center", ncol=min(columns + 1, 3), frameon=False, fontsize=9)
    return figure


def _frame(found: tuple[Roofline, ...]) -> tuple[float, float, float, float]:
    """Left, right, bottom and top of the axes: they contain all points and the bend of each roof."""
    bends = [one.peak / one.bandwidth for one in found]
    points = [point for one in found for point in (*one.products, *one.attention, *one.stages)]
    across = [*bends, *(point.intensity for point in points)]
    up = [*(one.peak for one in found), *(point.rate for point in points)]
    return min(across) / 4, max(across) * 1.6, min(up) / 2.5 / TERA, max(up) * 1.6 / TERA


def _ticks(axes: Axes) -> None:
    """Logarithmic ticks and grid."""
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
        axis.set_major_formatter(StrMethodFormatter("{x:,g}"))
        axis.set_minor_formatter(NullFormatter())
    axes.grid(color=GREY, alpha=0.35, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def _roof(axes: Axes, one: Roofline) -> None:
    """The roof of a device, and the line of elementwise passes."""
    left, right = axes.get_xlim()
    bend = one.peak / one.bandwidth
    ends = [left, bend, right]
    axes.plot(ends, [one.roof(at) / TERA for at in ends], color=BLACK, linewidth=1.8, gid="roof")
    until = one.peak / one.passes
    axes.plot(
        [left, until], [left * one.passes / TERA, one.peak / TERA], color=GREEN, linewidth=1.2, linestyle="--", gid="passes"
    )
    axes.set_title(_title(one), fontsize=10, loc="left")


def _title(one: Roofline) -> str:
    """Device, peak and bandwidth."""
    basis = "stages as profiled" if one.measured else "by formula"
    return (
        f"{one.device} ({basis})\n{flops_text(one.peak)} {one.precision}, {bytes_per_second_text(one.bandwidth)}, "
        f"passes reach {one.passes / one.bandwidth:.0%} of it"
    )


def _points(axes: Axes, one: Roofline) -> None:
    """The points, with labels to the right of the frame in the order of their heights."""
    shown: list[tuple[str, Point]] = []
    for kind, (marker, colour, size) in KINDS.items():
        points: tuple[Point, ...] = getattr(one, kind)
        x, y = [point.intensity for point in points], [point.rate / TERA for point in points]
        axes.plot(x, y, marker, color=colour, markersize=size, markeredgecolor="white", gid=kind, zorder=3)
        shown += [(kind, point) for point in points]
    shown.sort(key=lambda item: (-item[1].rate, item[1].intensity))
    bottom, top = (math.log(end) for end in axes.get_ylim())
    heights = _apart([(math.log(point.rate / TERA) - bottom) / (top - bottom) for _, point in shown])
    for (kind, point), height in zip(shown, heights, strict=True):
        axes.annotate(
            f"{point.name} {point.rate / one.peak:.0%}",
            (point.intensity, point.rate / TERA),
            xytext=(1.03, height),
            textcoords="axes fraction",
            va="center",
            fontsize=8.5,
            color=DARK,
            arrowprops=LEADER | {"color": KINDS[kind][1]},
        )


def _apart(heights: list[float]) -> list[float]:
    """Label heights from top to bottom, moved as little as needed so that labels do not overlap.

    Labels that overlap form a run, which is centred on the mean of their heights; runs that overlap are merged.
    """
    runs = [[height] for height in heights]
    while True:
        for index, (above, below) in enumerate(pairwise(runs)):
            if _spread(above)[-1] - _spread(below)[0] < LINE * (1 - 1e-9):
                runs[index : index + 2] = [above + below]
                break
        else:
            return [height for run in runs for height in _spread(run)]


def _spread(run: list[float]) -> list[float]:
    """Heights one line apart, centred on the mean of a run."""
    middle, count = sum(run) / len(run), len(run)
    return [middle + LINE * ((count - 1) / 2 - index) for index in range(count)]


def _legend() -> list[Line2D]:
    """Legend of points and lines."""
    points = [
        Line2D(
            [], [], marker=marker, color=colour, markersize=size, linestyle="none", markeredgecolor="white", label=WORDS[kind]
        )
        for kind, (marker, colour, size) in KINDS.items()
    ]
    return [
        *points,
        Line2D([], [], color=BLACK, linewidth=1.8, label="roof: peak and memory bandwidth"),
        Line2D([], [], color=GREEN, linewidth=1.2, linestyle="--", label="elementwise passes, FLOPs not counted"),
    ]
