"""Chart of strategies: samples/s as bars, fastest first, each on a pale bar that ends at its compute-only speed."""

from __future__ import annotations

import textwrap

from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from holmes_sim.charts.style import BLACK, BLUE, DARK, DPI, PALE, SKY, WIDTH, Picture
from holmes_sim.intervals import step_range
from holmes_sim.results import Compared, reason
from sim.plan.plan import Plan
from sim.plan.prediction import Prediction
from sim.units import time_text

HEIGHT = 0.62
"""Height of a bar; rows have distance 1."""
LINE = 95
"""Characters per line of a reason."""


def comparison(answer: Compared) -> Figure:
    """A bar for each strategy with a plan, and the reason for each one without. At least one must have a plan.

    The compute-only speed is that of the strategy's own layout (`sim.analytic.plan_costs.upper_bound_seconds`), so it differs
    between rows.
    """
    ranked, without = answer.ranked, answer.without
    rows, best = len(ranked) + len(without), ranked[0][2].step_s
    space = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.08)
    figure = Picture(figsize=(WIDTH, 1.9 + 0.62 * rows), dpi=DPI, layout=space)
    axes = figure.add_subplot(ylim=(rows - 0.5, -0.5), xlabel="samples/s (simulated)")
    for row, (_, plan, prediction) in enumerate(ranked):
        rate, bound = prediction.samples_per_s, prediction.samples_per_s / prediction.upper_bound_fraction
        axes.barh(row, bound, HEIGHT, color=PALE, gid="bound")
        axes.barh(row, rate, HEIGHT, color=BLUE if prediction.step_s == best else SKY, gid="rate")
        expected, batch = step_range(prediction.step_s, plan), plan.workload.global_batch_size
        least, most = batch / expected.high_s, batch / expected.low_s
        axes.errorbar(rate, row, xerr=[[rate - least], [most - rate]], color=DARK, capsize=4, linewidth=1, gid="range")
        axes.vlines(bound, row - HEIGHT / 2, row + HEIGHT / 2, color=BLACK, linewidth=2)
    for row, lost in enumerate(without, len(ranked)):
        words = textwrap.fill(f"no plan: {reason(lost)}", LINE, max_lines=2, placeholder=" …")
        axes.text(0.01, row, words, transform=axes.get_yaxis_transform(), va="center", color=DARK, fontsize=9)
    names = [f"{name}\n{_layout(plan)}" for name, plan, _ in ranked] + [row.name for row in without]
    axes.set_yticks(range(rows), names)
    numbers = axes.secondary_yaxis("right")
    numbers.set_yticks(range(len(ranked)), [_numbers(prediction, best, name in answer.close) for name, _, prediction in ranked])
    for each in (axes, numbers):
        each.tick_params(axis="y", length=0)
        each.spines[["top", "right", "left"]].set_visible(False)
    for label in (axes.get_yticklabels()[0], numbers.get_yticklabels()[0]):
        label.set_fontweight("bold")
    figure.suptitle(_title(answer), fontsize=11)
    figure.legend(handles=_legend(answer), loc="outside lower center", ncol=4, frameon=False, fontsize=9)
    return figure


def _numbers(prediction: Prediction, best: float, is_close: bool) -> str:
    """Two lines of text beside a bar."""
    slower = "fastest" if prediction.step_s == best else f"{prediction.step_s / best - 1:.1%} slower"
    slower += " (cannot be told apart)" if is_close else ""
    share = f"{prediction.upper_bound_fraction:.1%} of compute-only speed"
    return f"{prediction.samples_per_s:.4g} samples/s, {slower}\n{time_text(prediction.step_s)} per step, {share}"


def _layout(plan: Plan) -> str:
    """Parallel degrees, microbatch size, schedule and recomputation as text."""
    config = plan.config
    further = config.further_degrees | ({"vpp": config.vpp} if config.vpp > 1 else {})
    more = "".join(f" · {key} {degree}" for key, degree in further.items())
    degrees = f"tp {config.tp_text} · pp {config.pp} · dp {config.dp_text}{more}"
    words = f"{degrees} · microbatch {config.microbatch_text} · {config.schedule}"
    return words if config.recompute == "none" else f"{words}\n{config.recomputation} recompute"


def _title(answer: Compared) -> str:
    """Topology, workload and pins."""
    topology, workload = answer.request.topology, answer.request.workload
    pinned = f"\npinned: {answer.request.wishes}" if str(answer.request.wishes) else ""
    return (
        f"{topology.name} · {workload.model.name}, batch {workload.global_batch_size:,} × {workload.seq_len:,} tokens · "
        f"{topology.fleet.devices:,} devices{pinned}"
    )


def _legend(answer: Compared) -> list[Patch | Line2D]:
    """Legend of the bars."""
    bound = Line2D([], [], color=BLACK, linewidth=2, label="compute-only speed of the layout: all devices compute all the time")
    expected = Line2D([], [], color=DARK, linewidth=1, marker="|", markersize=8, label="range of 80 % of runs")
    others = [Patch(color=SKY, label="slower")] if answer.ranked[0][2].step_s < answer.ranked[-1][2].step_s else []
    return [Patch(color=BLUE, label="fastest"), *others, expected, bound]
