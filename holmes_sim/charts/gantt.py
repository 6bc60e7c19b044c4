"""Spans as bars on a time axis: one row of compute and waiting per rank, with strips below for concurrent communication."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex, to_rgb
from matplotlib.patches import Patch

from holmes_sim.charts.bands import shares, visible
from holmes_sim.charts.palette import ACTIONS
from holmes_sim.charts.style import DPI, GREY, WIDTH
from sim.engine.timeline import Span
from sim.plan.program import COMPUTE

WORDS = {
    "F": "forward", "B": "backward", "W": "weight gradient", "optimizer": "optimizer",
    "tp": "tensor-parallel collective (and strip 1)", "ep": "expert-parallel collective (and strip 1)",
    "cp": "context-parallel ring (strip 1)", "exposed": "waits for the network", "bubble": "bubble",
    "dp": "data-parallel collective (strip 2)", "embedding": "sum of the tied embedding's gradient (strip 2)",
    "send": "message sent (strip 3)",
}  # fmt: skip
KINDS = {kind: (words, ACTIONS[kind]) for kind, words in WORDS.items()}
"""Kind of bar -> its text in the legend and its colour, in the order of the legend."""
DRAWN = ("exposed", "bubble", "tp", "F", "B", "W", "optimizer", "cp", "ep", "dp", "embedding", "send")
"""Kinds in the order they are painted: a collective covers the wait that it causes."""
BAR = (0.0, 0.66)
"""Vertical extent of a bar, and of the strips below it, within a row of height 1."""
THIN = 2
"""Average width of the compute bars of a row, in pixels, below which bands are drawn for it (a guess)."""
WINDOWS = 120
"""Windows of time of the bands of a row (a guess)."""
STACK = ("F", "B", "W", "optimizer", "tp", "ep", "exposed", "bubble")
"""Kinds of a band, from the bottom to the top."""
STRIPS = (0.7, 0.77), (0.79, 0.86), (0.88, 0.95)
HEIGHTS = {
    "tp": (BAR, STRIPS[0]), "ep": (BAR, STRIPS[0]), "cp": (STRIPS[0],),
    "dp": (STRIPS[1],), "embedding": (STRIPS[1],), "send": (STRIPS[2],),
}  # fmt: skip
"""Kind -> vertical extents at which it is drawn, if not only as a bar."""


def row_height(rows: int) -> float:
    """Inches of a row, for a number of rows."""
    return min(max(5.5 / rows, 0.3), 0.85)


def bars(axes: Axes, pp: int, spans: Iterable[Span], ranks: Sequence[int], labels: Sequence[str]) -> set[str]:
    """Draw a row with the spans of each rank; virtual stages (numbers from `pp` on) are paler. Returns the kinds drawn."""
    row_of = {rank: row for row, rank in enumerate(ranks)}
    axes.set_ylim(len(ranks), -0.12)
    axes.set_yticks([row + BAR[1] / 2 for row in range(len(ranks))], labels)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    shown = [span for span in spans if span.rank in row_of]
    thin = _thin(shown, axes.get_xlim()[1])
    in_bands = [span for span in shown if span.rank in thin and BAR in HEIGHTS.get(kind_of(span), (BAR,))]
    for rank in thin:
        _bands(axes, [span for span in in_bands if span.rank == rank], row_of[rank])
    if thin:
        axes.set_xlabel(f"{axes.get_xlabel()}; heights of bands are shares of time, where bars would be too thin to see")
    return _bars(axes, pp, shown, row_of, thin) | {kind_of(span) for span in in_bands}


def _thin(spans: Iterable[Span], end: float) -> set[int]:
    """Ranks whose compute bars would be thinner than `THIN` pixels on average on an axis of `end` seconds."""
    found: dict[int, list[float]] = {}
    for span in joined(span for span in spans if span.kind in COMPUTE):
        found.setdefault(span.rank, []).append(span.seconds)
    pixels = DPI * WIDTH / end
    return {rank for rank, bars in found.items() if len(bars) > WINDOWS and fmean(bars) * pixels < THIN}


def _bands(axes: Axes, spans: Sequence[Span], row: int) -> None:
    """Draw the shares of time of a row's kinds in each window, stacked."""
    end = axes.get_xlim()[1]
    parts = shares(visible(((span.start, span.end, kind_of(span)) for span in spans), DRAWN), end, WINDOWS)
    times = [end * window / WINDOWS for window in range(WINDOWS + 1)]
    below = [row + BAR[1]] * WINDOWS
    for kind in STACK:
        if kind in parts:
            above = [low - share * (BAR[1] - BAR[0]) for low, share in zip(below, parts[kind], strict=True)]
            band = axes.stairs(above, times, baseline=below, fill=True, color=KINDS[kind][1], linewidth=0, zorder=2, gid=kind)
            if kind == "bubble":
                band.set(hatch="////", edgecolor=GREY)
            below = above


def legend(drawn: set[str]) -> list[Patch]:
    """Legend of the colours."""
    handles = [Patch(facecolor=colour, label=words) for kind, (words, colour) in KINDS.items() if kind in drawn]
    for handle in handles:
        if handle.get_label() == "bubble":
            handle.set(hatch="////", edgecolor=GREY, linewidth=0)
    return handles


def kind_of(span: Span) -> str:
    """The key of `KINDS` for a span. The ends of a tied embedding sum its gradient in the lane of data-parallel collectives."""
    if span.lane == "dp" and span.group == "embedding":
        return "embedding"
    lane = "dp" if span.lane == "edp" else span.lane
    return lane if lane in ("tp", "cp", "ep", "dp") else span.kind


def _bars(axes: Axes, pp: int, spans: Sequence[Span], row_of: Mapping[int, int], thin: set[int]) -> set[str]:
    """Draw the spans as bars, one collection for each kind with the kind as its gid; returns the kinds drawn. Of `thin` ranks,
    only the strips."""
    by_kind: dict[str, list[Span]] = {}
    for span in spans:
        by_kind.setdefault(kind_of(span), []).append(span)
    framed = axes.get_xlim()[1] / 200  # bars of at least this many seconds get a white frame
    for order, kind in enumerate(sorted(by_kind, key=DRAWN.index)):
        bars = joined(by_kind[kind])
        heights = HEIGHTS.get(kind, (BAR,))
        drawn_bars = [(height, span) for height in heights for span in bars if height != BAR or span.rank not in thin]
        corners = []
        for (low, high), span in drawn_bars:
            top, bottom = row_of[span.rank] + low, row_of[span.rank] + high
            corners.append([(span.start, top), (span.end, top), (span.end, bottom), (span.start, bottom)])
        drawn = PolyCollection(corners, facecolors=KINDS[kind][1], edgecolors="face", zorder=2 + order / 10, gid=kind)
        # strips have an edge so that short transfers are visible; bars have their exact width
        drawn.set_linewidth([0.0 if height == BAR else 0.3 for height, _ in drawn_bars])
        drawn.set_snap(False)  # many thin bars should look like a tint
        drawn.set_rasterized(len(bars) > 4 * DPI * WIDTH)
        if kind in COMPUTE:
            drawn.set_facecolor([shade(KINDS[kind][1], max(span.stage, 0) // pp) for _, span in drawn_bars])
            drawn.set(edgecolor="white", linewidth=[0.5 if span.seconds > framed else 0.0 for _, span in drawn_bars])
        elif kind == "bubble":
            drawn.set(hatch="////", edgecolor=GREY)
        axes.add_collection(drawn, autolim=False)
    return set(by_kind)


def joined(spans: Iterable[Span]) -> list[Span]:
    """Spans of one kind, adjacent spans of one microbatch joined, because separate parts would look like stripes."""
    found: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.rank, span.start)):
        last = found[-1] if found else None
        same = last and (last.rank, last.stage, last.microbatch) == (span.rank, span.stage, span.microbatch)
        if last and same and math.isclose(last.end, span.start, rel_tol=1e-9):
            found[-1] = last._replace(end=span.end)
        else:
            found.append(span)
    return found


def numbers(axes: Axes, spans: Iterable[Span], ranks: Sequence[int]) -> None:
    """Write the number of the microbatch on its compute bars where it fits. A lowered program splits compute into parts.

    The layout must be final (`Figure.draw_without_rendering`), so that the available width is known.
    """
    row_of = {rank: row for row, rank in enumerate(ranks)}
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


def shade(colour: str, step: int) -> str:
    """A colour, paler for each later virtual stage of a rank."""
    keep = 0.45 + 0.55 / (1 + step)
    red, green, blue = (1 - (1 - part) * keep for part in to_rgb(colour))
    return to_hex((red, green, blue))
