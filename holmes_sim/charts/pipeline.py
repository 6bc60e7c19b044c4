"""The pipeline of a step: a row for each class of ranks, its bar of compute and waiting, strips for what goes on beside it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch

from holmes_sim.charts.style import BLACK, BLUE, DARK, DPI, GREEN, GREY, ORANGE, PALE, PURPLE, RED, SKY, WIDTH, YELLOW, listed
from sim import report
from sim.errors import HolmesError
from sim.plan import ParallelConfig, Plan
from sim.program import COMPUTE
from sim.timeline import Span, Timeline
from sim.units import time_text

MOST_ROWS = 32
KINDS = {
    "F": ("forward", SKY), "B": ("backward", GREEN), "W": ("weight gradient", YELLOW), "optimizer": ("optimizer", PURPLE),
    "tp": ("tensor-parallel collective (and strip 1)", ORANGE), "ep": ("expert-parallel collective (and strip 1)", DARK),
    "cp": ("context-parallel ring (strip 1)", GREY),
    "exposed": ("waits for the network", RED), "bubble": ("bubble", PALE),
    "dp": ("data-parallel collective (strip 2)", BLUE), "send": ("message sent (strip 3)", BLACK),
}  # fmt: skip
"""What a bar of the pipeline picture can be -> its words in the legend and its colour, in drawing order."""
DRAWN = ("exposed", "bubble", "tp", "F", "B", "W", "optimizer", "cp", "ep", "dp", "send")
"""The order in which they are painted: a collective over the wait that it causes."""
BAR = (0.0, 0.66)
STRIPS = (0.7, 0.77), (0.79, 0.86), (0.88, 0.95)
HEIGHTS = {
    "tp": (BAR, STRIPS[0]), "ep": (BAR, STRIPS[0]), "cp": (STRIPS[0],),
    "dp": (STRIPS[1],), "send": (STRIPS[2],),
}  # fmt: skip
"""Heights within a row: the bar, and thin strips below it for what goes on beside it."""


def pipeline(plan: Plan, timeline: Timeline) -> Figure:
    """One step as a Gantt chart: a row for every class of alike ranks, in pipeline order. Raises HolmesError on strangers."""
    ranks, world = sum(map(len, timeline.alike)), plan.config.world_size
    if ranks != world:
        raise HolmesError(f"the timeline has {ranks} ranks, the plan {world}; give the timeline of this plan")
    rows = _rows(plan.config, timeline)
    row_of = {group[0]: row for row, group in enumerate(rows)}
    height = min(max(5.5 / len(rows), 0.3), 0.85)
    space = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.08)
    figure = Figure(figsize=(WIDTH, 1.9 + height * len(rows)), dpi=DPI, layout=space)
    axes = figure.add_subplot(xlim=(0.0, timeline.step_s), ylim=(len(rows), -0.12), xlabel="time in the step (s)")
    axes.set_yticks([row + BAR[1] / 2 for row in range(len(rows))], [_row_label(plan, group) for group in rows])
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    drawn = _bars(axes, plan.config, [span for span in timeline.spans if span.rank in row_of], row_of)
    figure.suptitle(_pipeline_title(plan, timeline, len(rows)), fontsize=11)
    handles = [Patch(facecolor=colour, label=words) for kind, (words, colour) in KINDS.items() if kind in drawn]
    for handle in handles:
        if handle.get_label() == "bubble":
            handle.set(hatch="////", edgecolor=GREY, linewidth=0)
    figure.legend(handles=handles, loc="outside lower center", ncol=5, frameon=False, fontsize=9)
    figure.draw_without_rendering()  # settles the layout, so that what fits is known
    _numbers(axes, timeline.spans, row_of)
    return figure


def _rows(config: ParallelConfig, timeline: Timeline) -> list[tuple[int, ...]]:
    """The classes of ranks to show, by pipeline place; of too many, some of every place, or of places that lie evenly."""
    by_place: dict[int, list[tuple[int, ...]]] = {}
    for group in sorted(timeline.alike, key=lambda group: (config.place(group[0])[2], group[0])):
        by_place.setdefault(config.place(group[0])[2], []).append(group)
    places = sorted(by_place)
    if len(places) > MOST_ROWS:
        places = [places[i * (len(places) - 1) // (MOST_ROWS - 1)] for i in range(MOST_ROWS)]
    each = max(1, MOST_ROWS // len(places))
    if sum(len(by_place[place]) for place in places) <= MOST_ROWS:
        each = MOST_ROWS
    return [group for place in places for group in by_place[place][:each]]


def _row_label(plan: Plan, group: tuple[int, ...]) -> str:
    stages = plan.stages_of(plan.config.place(group[0])[2])
    clusters = "+".join(dict.fromkeys(plan.placement[rank].cluster for rank in group))
    return f"stage{'s' if len(stages) > 1 else ''} {listed(stages)} · {clusters} ({_ranks(group)})"


def _ranks(group: tuple[int, ...]) -> str:
    if len(group) == 1:
        return f"rank {group[0]}"
    if group[-1] - group[0] == len(group) - 1:
        return f"ranks {group[0]}-{group[-1]}"
    return f"{len(group)} ranks from {group[0]}"


def _pipeline_title(plan: Plan, timeline: Timeline, rows: int) -> str:
    config, numbers = plan.config, report.predict(plan, timeline)
    counts = sorted(set(config.num_microbatches))
    microbatches = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    virtual = f" with vpp {config.vpp}, later stages of a place paler" if config.vpp > 1 else ""
    more = "".join(f" · {key} {getattr(config, key)}" for key in ("cp", "ep") if getattr(config, key) > 1)
    left_out = f" · {rows} of {len(timeline.alike)} classes of ranks shown" if rows < len(timeline.alike) else ""
    return (
        f"{plan.topology.name} · {plan.workload.model.name}: {timeline.origin} step {time_text(timeline.step_s)}, "
        f"bubble {numbers.bubble_fraction:.1%}, exposed communication {numbers.exposed_communication_s / timeline.step_s:.1%}\n"
        f"tp {config.tp} · pp {config.pp} · dp {config.dp}{more} · {config.schedule}{virtual} · "
        f"{microbatches} microbatches of {config.microbatch_size} a replica{left_out}"
    )


def _kind(span: Span) -> str:
    """The key of `KINDS` of a span."""
    lane = "dp" if span.lane == "edp" else span.lane
    return lane if lane in ("tp", "cp", "ep", "dp") else span.kind


def _bars(axes: Axes, config: ParallelConfig, spans: Sequence[Span], row_of: Mapping[int, int]) -> set[str]:
    """Draw the spans as bars, one collection for each kind, named by its gid; returns the kinds drawn."""
    by_kind: dict[str, list[Span]] = {}
    for span in spans:
        by_kind.setdefault(_kind(span), []).append(span)
    framed = axes.get_xlim()[1] / 200  # a bar of this many seconds has room for a white frame
    for order, kind in enumerate(sorted(by_kind, key=DRAWN.index)):
        bars = _joined(by_kind[kind])
        heights = HEIGHTS.get(kind, (BAR,))
        corners = []
        for low, high in heights:
            for span in bars:
                top, bottom = row_of[span.rank] + low, row_of[span.rank] + high
                corners.append([(span.start, top), (span.end, top), (span.end, bottom), (span.start, bottom)])
        drawn = PolyCollection(corners, facecolors=KINDS[kind][1], edgecolors="face", zorder=2 + order / 10, gid=kind)
        # what is short on the network is still seen in its strip; a bar is as wide as it lasts
        drawn.set_linewidth([0.0 if height == BAR else 0.3 for height in heights for _ in bars])
        drawn.set_snap(False)  # many thin bars look like a tint, not like a few thick ones
        drawn.set_rasterized(len(bars) > 4 * DPI * WIDTH)
        if kind in COMPUTE:
            drawn.set_facecolor([_shade(KINDS[kind][1], max(span.stage, 0) // config.pp) for span in bars])
            drawn.set(edgecolor="white", linewidth=[0.5 if span.seconds > framed else 0.0 for span in bars])
        elif kind == "bubble":
            drawn.set(hatch="////", edgecolor=GREY)
        axes.add_collection(drawn, autolim=False)
    return set(by_kind)


def _joined(spans: Iterable[Span]) -> list[Span]:
    """Spans of one kind, those that touch and are of one microbatch joined: parts would show as stripes."""
    found: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.rank, span.start)):
        last = found[-1] if found else None
        alike = last and (last.rank, last.stage, last.microbatch) == (span.rank, span.stage, span.microbatch)
        if last and alike and math.isclose(last.end, span.start, rel_tol=1e-9):
            found[-1] = last._replace(end=span.end)
        else:
            found.append(span)
    return found


def _numbers(axes: Axes, spans: Iterable[Span], row_of: Mapping[int, int]) -> None:
    """The number of the microbatch on its compute, which a lowered program cuts into parts, where there is room for it."""
    found: dict[tuple[int, str, int, int], list[Span]] = {}
    for span in spans:
        if span.kind in COMPUTE and span.rank in row_of:
            found.setdefault((span.rank, span.kind, span.stage, span.microbatch), []).append(span)
    pixels = axes.get_window_extent().width / axes.get_xlim()[1]
    size = 8 if len(row_of) <= 12 else 7
    for (rank, _, _, microbatch), parts in found.items():
        text = str(microbatch)
        if sum(part.seconds for part in parts) * pixels > (len(text) * 0.64 + 0.15) * size * DPI / 72:
            middle = (parts[0].start + parts[-1].end) / 2, row_of[rank] + sum(BAR) / 2
            axes.text(*middle, text, ha="center", va="center_baseline", fontsize=size, zorder=4).set_in_layout(False)


def _shade(colour: str, step: int) -> str:
    """A colour, paler for each later virtual stage of a rank."""
    keep = 0.45 + 0.55 / (1 + step)
    red, green, blue = (1 - (1 - part) * keep for part in to_rgb(colour))
    return to_hex((red, green, blue))
