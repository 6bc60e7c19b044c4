"""Chart of a sweep: tokens/s as a curve over one varied key, as curves per value of a second key, or as a heat map of two.

Where islands are allowed, effective tokens/s with the range of the worth of a token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from holmes_sim.charts.style import BLACK, BLUE, DARK, DPI, GREEN, ORANGE, PALE, PURPLE, RED, SKY, WIDTH, Picture
from holmes_sim.sweeping import speeds, table
from holmes_sim.sweeping.study import Study
from holmes_sim.sweeping.sweep import Swept
from holmes_sim.sweeping.worker import PLANNED, Row
from planner.islands.allowed_sync import EXACT
from sim.errors import HolmesError

LABEL = "tokens/s (simulated)"
"""What is on the y axis or in the cells."""
EFFECTIVE = "effective tokens/s (simulated tokens/s x worth of a token)"
"""The same where islands are allowed."""
LINES = ((BLUE, "o-"), (RED, "s--"), (GREEN, "^:"), (ORANGE, "D-."), (PURPLE, "v-"), (SKY, "P--"), (BLACK, "X:"))
"""Colours and line styles of curves. The styles differ too, so that curves are distinct without colours and where they
overlap.
"""
LOG_RATIO = 8.0
"""Ratio of the largest to the smallest value of a key from which on its axis is logarithmic."""
MOST_LABELLED = 8
"""Largest number of columns and rows of a heat map whose cells show their layout."""
Key = tuple[str, ...]


def axes_of(study: Study) -> dict[str, str]:
    """The one or two columns that are axes of a study's chart, with their labels. Raises HolmesError for any other number.

    A key with one value is not an axis. Keys that vary together are one axis, named by the first of them.
    """
    found: dict[tuple[int, ...], list[str]] = {}
    for name, cells in table.varied(study).items():
        first: dict[Any, int] = {}
        pattern = tuple(first.setdefault(cell, len(first)) for cell in cells)
        if len(first) > 1:
            found.setdefault(pattern, []).append(name)
    if not 1 <= len(found) <= 2:
        names = f": {', '.join(together[0] for together in found.values())}" if found else ""
        raise HolmesError(f"a chart shows one or two varied keys; {study.name} has {len(found)}{names}")
    return {together[0]: "\n".join(together) for together in found.values()}


def sweep(found: Swept) -> Figure:
    """The chart of a study's results. Raises HolmesError unless one or two keys vary."""
    labels = axes_of(found.study)
    keys = tuple(labels)
    figure = Picture(figsize=(WIDTH, 6.5), dpi=DPI, layout="constrained")
    axes = figure.add_subplot()
    words = [key for key in keys if not _numeric(found.study, key)]
    if len(keys) == 2 and not words:
        _heat(figure, axes, found, keys)
        axes.set(xlabel=labels[keys[0]], ylabel=labels[keys[1]])
    else:
        by = words[-1] if len(keys) == 2 else None
        key = next(key for key in keys if key != by)
        _curves(axes, found, key, by)
        axes.set(xlabel=labels[key], ylabel=_label(found.study))
    workload, topology = found.study.topology.workload, found.study.topology
    model = f" · {workload.model.name}" if workload else ""
    names = " · ".join(dict.fromkeys((found.study.name, topology.name)))
    figure.suptitle(f"{names}{model} · {topology.fleet.devices:,} devices", fontsize=11)
    return figure


def _label(study: Study) -> str:
    return EFFECTIVE if speeds.allows_islands(study) else LABEL


def _numeric(study: Study, key: str) -> bool:
    """Whether all values of a key are numbers."""
    return all(isinstance(cell, int | float) and not isinstance(cell, bool) for cell in table.varied(study)[key])


def _values(study: Study, key: str) -> list[Any]:
    """The values of a key: numbers sorted, other values in the order of the study."""
    found = list(dict.fromkeys(table.varied(study)[key]))
    return sorted(found) if _numeric(study, key) else found


def _word(value: Any) -> str:
    """A value as text."""
    return "unchanged" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _curves(axes: Axes, found: Swept, key: str, by: str | None) -> None:
    """Curves of tokens/s over a key, one for each value of the key `by`."""
    values, numeric = _values(found.study, key), _numeric(found.study, key)
    x_of = dict(zip(values, values if numeric else range(len(values)), strict=True))
    lost: list[float] = []
    for number, line in enumerate(_values(found.study, by) if by else [None]):
        rows = {row[key]: row for row in found.rows if by is None or row[by] == line}
        points = [(x_of[value], rows[value]) for value in values if value in rows]
        lost += [x for x, row in points if row["status"] != PLANNED]
        curve = [(x, row) for x, row in points if row["status"] == PLANNED]
        color, style = LINES[number % len(LINES)]
        label = f"{by.removeprefix('plan.')} {_word(line)}" if by else None
        x, y = [x for x, _ in curve], [speeds.speed(row) for _, row in curve]
        axes.plot(x, y, style, color=color, markersize=9 - number % 3 * 2, linewidth=2, label=label, gid="curve")
        _worths(axes, curve, color)
        if by is None or speeds.allows_islands(found.study):
            _layouts(axes, curve, above=number % 2 == 1, last=max(x_of.values()))
    if lost:
        axes.plot(lost, [0.0] * len(lost), "x", color=DARK, markersize=9, label="no plan", clip_on=False, gid="lost")
    if numeric and values[0] > 0 and values[-1] / values[0] >= LOG_RATIO:
        axes.set_xscale("log")
        axes.minorticks_off()
    axes.set_xticks(list(x_of.values()), [_word(value) for value in values])
    room = 1.2 if speeds.allows_islands(found.study) else 1.08
    axes.set_ylim(0, room * max((speeds.speed(row) for row in found.rows if row["status"] == PLANNED), default=1.0))
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.grid(axis="y", color=PALE)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(frameon=False, fontsize=9)


def _worths(axes: Axes, curve: Sequence[tuple[float, Row]], color: str) -> None:
    """The range of what the tokens of islands are worth, and rings around points whose worth is unknown."""
    lossy = [
        (x, row) for x, row in curve if row["token_worth"] is not None and row["token_worth_low"] < row["token_worth_high"]
    ]
    if lossy:
        low, high = ([row["tokens_per_s"] * row[f"token_worth_{end}"] for _, row in lossy] for end in ("low", "high"))
        label = "range of the worth of a token"
        axes.vlines([x for x, _ in lossy], low, high, color=color, linewidth=6, alpha=0.3, label=label, gid="worth")
    unknown = [(x, row["tokens_per_s"]) for x, row in curve if row["sync"] not in (None, EXACT) and row["token_worth"] is None]
    if unknown:
        label = "tokens/s of unknown worth"
        axes.plot(
            *zip(*unknown, strict=True), "o", color=DARK, markerfacecolor="none", markersize=14, label=label, gid="unknown"
        )


def _layouts(axes: Axes, curve: Sequence[tuple[float, Row]], above: bool, last: float) -> None:
    """Label the first point of each layout with the layout, above or below it; at the last value, to the left of it."""
    before = ""
    for x, row in curve:
        if _layout(row) != before:
            before = _layout(row)
            axes.annotate(
                before, (x, speeds.speed(row)), (0, 12 if above else -12), textcoords="offset points", fontsize=9, color=DARK,
                ha="right" if x == last and x > curve[0][0] else "left", va="bottom" if above else "top",
            )  # fmt: skip


def _layout(row: Row) -> str:
    """Parallel degrees and clusters of a row; of islands, the sync strategy and what it gives up."""
    if row["sync"] not in (None, EXACT):
        given_up = [] if row["price"] == EXACT else ["not exact"]
        return "\n".join([row["sync"], *given_up, row["clusters"]])
    return f"tp {row['tp']} · pp {row['pp']} · dp {row['dp']}\n{row['clusters']}"


def _heat(figure: Figure, axes: Axes, found: Swept, keys: Key) -> None:
    """A heat map of two numeric keys."""
    columns, lines = (_values(found.study, key) for key in keys)
    rows = {(row[keys[0]], row[keys[1]]): row for row in found.rows}
    planned = {place: speeds.speed(row) for place, row in rows.items() if row["status"] == PLANNED}
    least, most = min(planned.values(), default=1.0), max(planned.values(), default=1.0)
    cells = [[planned.get((column, line)) for column in columns] for line in lines]
    heat = axes.imshow(
        [[float("nan") if cell is None else cell for cell in line] for line in cells],
        cmap="cividis", vmin=least, vmax=most, aspect="auto", origin="lower", gid="heat",
    )  # fmt: skip
    axes.set_facecolor(PALE)
    for (column, line), row in rows.items():
        text, color = "no plan", DARK
        if row["status"] == PLANNED:
            text = f"{speeds.speed(row):,.0f}" + (f"\n{_layout(row)}" if max(len(columns), len(lines)) <= MOST_LABELLED else "")
            color = "white" if speeds.speed(row) - least < 0.5 * (most - least) else BLACK
        axes.text(columns.index(column), lines.index(line), text, ha="center", va="center", fontsize=9, color=color)
    axes.set_xticks(range(len(columns)), [_word(value) for value in columns])
    axes.set_yticks(range(len(lines)), [_word(value) for value in lines])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    figure.colorbar(heat, ax=axes, label=_label(found.study), format="{x:,.0f}", pad=0.02)
