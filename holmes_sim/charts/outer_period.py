"""Chart of outer periods: what each island does over time, and when an exchange is waited for."""

from __future__ import annotations

from collections.abc import Iterable

from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from holmes_sim.charts.style import BLUE, DARK, DPI, GREEN, GREY, ORANGE, SKY, WIDTH, Picture
from holmes_sim.islands import SimulatedIslands
from planner.islands.node_ranges import island_text
from sim.islands.outer_timeline import NETWORK, OuterSpan, OuterTimeline
from sim.plan.islands import IslandsPlan
from sim.units import Seconds, time_text

COLOURS = {"steps": SKY, "exchange": ORANGE, "wait": GREY, "network": GREEN, "end": BLUE}
"""What is drawn -> its colour; "exchange" is the time in which an island waits for one, with the outer update."""
WORDS = {
    "steps": "inner steps", "exchange": "waits for an exchange", "wait": "waits for slower islands",
    "network": "exchange on the network", "end": "end of an outer period",
}  # fmt: skip
SHOWN = 2
"""Number of outer periods that are drawn."""


def drawn_as(span: OuterSpan) -> str:
    """The key of `COLOURS` of a span."""
    return "network" if span.island == NETWORK else "steps" if span.kind == "inner steps" else span.kind


def drawn(timeline: OuterTimeline) -> tuple[Seconds, list[OuterSpan], list[tuple[int, Seconds]]]:
    """What is drawn: the first outer periods from the end of the first one (the steady state), with times from there.

    (seconds in all, spans cut at both ends, (island, end of an outer period))."""
    first = min(row[0] for row in timeline.ends if row)
    last = max(row[min(SHOWN, len(row) - 1)] for row in timeline.ends if row)
    spans = [
        span._replace(start=max(span.start, first) - first, end=min(span.end, last) - first)
        for span in timeline.spans
        if span.end > first and span.start < last
    ]
    ends = [(island, end - first) for island, row in enumerate(timeline.ends) for end in row if first <= end <= last]
    return last - first, spans, ends


def outer_periods(run: SimulatedIslands) -> Figure:
    """The first outer periods of all islands, one row each, from the end of the first one (the steady state)."""
    plan = run.plan
    whole, spans, ends = drawn(run.timeline)
    figure = Picture(figsize=(WIDTH, 2.3 + 0.55 * len(plan.islands)), dpi=DPI, layout="constrained")
    axes = figure.add_subplot()
    labels, rows = [], [*range(len(plan.islands)), NETWORK]
    for index, island in enumerate(rows):
        labels.append(_label(plan, island))
        for span in (span for span in spans if span.island == island):
            width, colour = span.end - span.start, COLOURS[drawn_as(span)]
            axes.barh(index, width, left=span.start, height=0.62, color=colour, edgecolor="white", linewidth=0.5)
            if span.steps and width > 0.04 * whole:
                text = steps_text(span.steps)
                axes.text((span.start + span.end) / 2, index, text, ha="center", va="center", fontsize=8, color=DARK)
        for end in (end for own, end in ends if own == island):
            axes.plot([end] * 2, [index - 0.42, index + 0.42], color=COLOURS["end"], linewidth=1.5)
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.set(xlabel="seconds", xlim=(0, whole))
    axes.spines[["top", "right"]].set_visible(False)
    handles: list[Artist] = [Patch(color=COLOURS[kind], label=WORDS[kind]) for kind in kinds_of(spans)]
    handles.append(Line2D([], [], color=COLOURS["end"], linewidth=1.5, label=WORDS["end"]))
    axes.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=len(handles), frameon=False)
    period = time_text(run.prediction.period_s)
    figure.suptitle(
        f"{plan.topology.name} · {plan.workload.model.name} · sync {plan.sync} · outer period {period} · "
        f"{run.prediction.tokens_per_s:,.0f} tokens/s",
        fontsize=11,
    )
    return figure


def kinds_of(spans: Iterable[OuterSpan]) -> list[str]:
    """Keys of `COLOURS` of spans, in the order of the legend."""
    found = set(map(drawn_as, spans))
    return [kind for kind in COLOURS if kind in found]


def steps_text(steps: int) -> str:
    """`1 step`, `8 steps`."""
    return f"{steps} step{'s' if steps > 1 else ''}"


def _label(plan: IslandsPlan, island: int) -> str:
    """Label of the row of an island, or of the network between islands."""
    if island == NETWORK:
        return "between\nislands"
    return f"{island_text(plan.islands[island])}\nbatch {plan.islands[island].workload.global_batch_size}"
