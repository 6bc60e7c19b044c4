"""Chart of plans that trade speed, money and what sync strategies give up, numbered like the printed rows."""

from __future__ import annotations

import math
from collections.abc import Callable

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from holmes_sim.charts.front import MARGIN
from holmes_sim.charts.style import BLUE, DPI, GREY, ORANGE, WIDTH, Picture
from holmes_sim.islands_front import IslandsFront
from planner.islands.row_limits import usd_per_token
from planner.islands.sync_rows import SyncRow
from sim.plan.islands import IslandsPlan
from sim.units import MEGA

STEPS = "inner steps between exchanges (1: exact plans, or every step)"
COST = "USD per million effective tokens"


def islands_front(found: IslandsFront) -> Figure:
    """A panel of effective tokens/s against the inner steps, and one against the cost, where it is known."""
    panels: list[tuple[str, Callable[[SyncRow], float]]] = [(STEPS, _steps)]
    panels += [(COST, lambda row: (usd_per_token(row) or 0.0) * MEGA)] if found.has_costs else []
    figure = Picture(figsize=(WIDTH, 5.5), dpi=DPI, layout="constrained")
    for index, (label, value) in enumerate(panels, 1):
        axes = figure.add_subplot(1, len(panels), index)
        _panel(axes, found, value)
        axes.set(xlabel=label, ylabel="effective tokens/s (simulated)")
        if label == STEPS:
            axes.set_xscale("log")
            axes.set_xticks(ticks := sorted({_steps(row) for row in (*found.rows, *found.others)}), [f"{x:g}" for x in ticks])
            axes.minorticks_off()
    workload = found.request.workload
    figure.suptitle(f"{found.request.topology.name} · {workload.model.name} · sync {found.sync}", fontsize=11)
    names = figure.axes[0].get_legend_handles_labels()
    figure.legend(*names, markerscale=0.6, loc="outside lower center", ncol=3, frameon=False, fontsize=9)
    return figure


def _panel(axes: Axes, found: IslandsFront, value: Callable[[SyncRow], float]) -> None:
    """Other plans as pale points, those of the front as numbered ones: exact or not."""
    most = MARGIN * max(value(row) for row in found.rows) if value is not _steps else math.inf
    others = [(value(row), row.speed) for row in found.others if value(row) <= most]
    if others:
        axes.plot(*zip(*others, strict=True), "o", color=GREY, markersize=7, label="other plans", gid="others")
    for color, is_exact in ((BLUE, True), (ORANGE, False)):
        points = [(value(row), row.speed) for row in found.rows if (row.price == "exact") is is_exact]
        if points:
            label = "exact" if is_exact else "not exact"
            axes.plot(*zip(*points, strict=True), "o", color=color, markersize=17, label=label, gid=label)
    for number, row in enumerate(found.rows, 1):
        where = (value(row), row.speed)
        axes.annotate(str(number), where, color="white", fontsize=10, fontweight="bold", ha="center", va="center")
    axes.set_ylim(0, 1.1 * max(row.speed for row in (*found.rows, *found.others)))
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.margins(x=0.1)
    axes.spines[["top", "right"]].set_visible(False)


def _steps(row: SyncRow) -> float:
    return row.plan.sync.inner_steps if isinstance(row.plan, IslandsPlan) else 1
