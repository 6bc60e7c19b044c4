"""Chart of measured steps below the simulated step: one time axis, the same ranks in the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from holmes_sim.charts.gantt import bars, legend, numbers, row_height
from holmes_sim.charts.pipeline import layout_words, row_label, rows_of
from holmes_sim.charts.style import DARK, DPI, WIDTH, Picture
from holmes_sim.measurement import MeasuredStep
from sim.engine.rank_plans import RankPlans
from sim.engine.timeline import Timeline
from sim.errors import HolmesError
from sim.units import time_text

MOST_ROWS = 12
"""Rows per panel; with more classes of ranks, some of every pipeline rank are drawn."""


def measurement(compared: Sequence[MeasuredStep]) -> Figure:
    """The simulated step at the top, then one panel per measured step. Raises HolmesError if their scales differ."""
    plan, first = compared[0].plan, compared[0]
    plans = RankPlans(plan)
    most = max(one.config.pp for one in plans.plans)
    rows = rows_of(first.simulated, plans.stage_number, MOST_ROWS)
    panels = _panels(compared)
    height = row_height(len(rows) * len(panels)) * len(rows)
    space = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.08)
    figure = Picture(figsize=(WIDTH, 1.7 + len(panels) * (height + 0.45)), dpi=DPI, layout=space)
    until = max(timeline.step_s for _, timeline in panels)
    stack = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    stack[-1].set(xlim=(0.0, until), xlabel="time in the step (s)")
    drawn: set[str] = set()
    shown = [[_alike(timeline, group[0]) for group in rows] for _, timeline in panels]
    for axes, (words, timeline), groups in zip(stack, panels, shown, strict=True):
        labels = [row_label(plans, group) for group in groups]
        drawn |= bars(axes, most, timeline.spans, [group[0] for group in groups], labels)
        axes.axvline(timeline.step_s, color=DARK, linewidth=1.2, linestyle=(0, (4, 2)), zorder=4, clip_on=False)
        axes.set_title(words, fontsize=10, loc="left")
    for axes in stack[:-1]:
        axes.spines["bottom"].set_visible(False)
        axes.tick_params(axis="x", length=0)
    left_out = f" · {len(rows)} of {len(first.simulated.alike)} classes of ranks shown"
    figure.suptitle(
        f"{plan.topology.name} · {plan.workload.model.name} · {layout_words(plan)}"
        f"{left_out if len(rows) < len(first.simulated.alike) else ''}",
        fontsize=11,
    )
    figure.legend(handles=legend(drawn), loc="outside lower center", ncol=5, frameon=False, fontsize=9)
    figure.draw_without_rendering()  # fixes the layout, so that the available width is known
    for axes, (_, timeline), groups in zip(stack, panels, shown, strict=True):
        numbers(axes, timeline.spans, [group[0] for group in groups])
    return figure


def _panels(compared: Sequence[MeasuredStep]) -> list[tuple[str, Timeline]]:
    """(title, timeline) from top to bottom: the simulated step, then the measured ones. Raises HolmesError."""
    scales = list(dict.fromkeys(one.measured.scale for one in compared))
    if len(scales) > 1:
        words = " and ".join(f"{scale:g}" for scale in scales)
        raise HolmesError(f"timelines at scales {words} have no common time axis; draw timelines of one scale")
    slower = f", {scales[0]:g} times as long as planned" if scales[0] != 1 else ""
    found = [(f"simulated: {time_text(compared[0].simulated.step_s)}{slower}", compared[0].simulated)]
    for one in compared:
        timeline = one.measured
        how = f", {timeline.compute} compute" if timeline.compute else ""
        error = f"; simulated {one.step.error:+.1%}" if one.step.error is not None else ""
        found.append((f"{timeline.origin}{how}: {time_text(timeline.step_s)} ({Path(one.name).name}{error})", timeline))
    return found


def _alike(timeline: Timeline, rank: int) -> tuple[int, ...]:
    """The class of equivalent ranks that contains a rank."""
    return next(group for group in timeline.alike if rank in group)
