"""Chart of goodput against the checkpoint interval: closed form, optima, and simulated runs."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from holmes_sim.charts.style import BLUE, DASH, DPI, GREEN, ORANGE, RED, SKY, WIDTH, Picture
from holmes_sim.month import Month
from sim.units import duration_text

REACH = 30.0
"""The curve covers Daly's interval divided and multiplied by this factor."""


def goodput(found: Month) -> Figure:
    """The curve with Young's and Daly's intervals, and a bar chart of where the time goes."""
    figure = Picture(figsize=(WIDTH, 5.0), dpi=DPI, layout="constrained")
    curve, shares = figure.subplots(1, 2, width_ratios=(2, 1))
    intervals = np.geomspace(max(found.daly_s / REACH, found.step_s), found.daly_s * REACH, 200)
    curve.plot(intervals / 60, [100 * found.at(interval) for interval in intervals.tolist()], color=BLUE, label="closed form")
    for index, (name, interval, colour) in enumerate((("Young", found.young_s, ORANGE), ("Daly", found.daly_s, RED))):
        dashes = (DASH * index, (DASH, DASH))
        curve.axvline(interval / 60, color=colour, ls=dashes, label=f"{name} {duration_text(interval)}")
    low, high = (100 * abs(found.goodput - end(found.goodputs)) for end in (min, max))
    curve.errorbar(
        [found.run.interval / 60], [100 * found.goodput], [[low], [high]], fmt="o", color=GREEN,
        label=f"{len(found.seeds):,} runs of {found.days:g} days: mean, minimum and maximum",
    )  # fmt: skip
    curve.set(xlabel="interval between checkpoints (min)", ylabel="goodput (% of the time)", xscale="log")
    curve.xaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    figure.legend(loc="outside lower center", ncol=4, frameon=False, fontsize=9, handlelength=3)
    names = list(found.shares)
    bars = shares.barh(names, [100 * found.shares[name] for name in names], color=SKY)
    shares.bar_label(bars, fmt="%.2f", padding=3)
    shares.set(xlabel="share of the time (%)", xlim=(0, 115))
    shares.invert_yaxis()
    for axes in (curve, shares):
        axes.spines[["top", "right"]].set_visible(False)
    failures = ", ".join(f"{number:.3g} by {kind}" for kind, number in found.failures.items())
    figure.suptitle(f"{found.plan.topology.name} · {found.days:g} days · failures: {failures}", fontsize=11)
    return figure
