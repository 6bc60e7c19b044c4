"""Spans of a step for the page's canvas: one row per class of equivalent ranks, times in whole nanoseconds.

A wait that a collective causes is left out where the collective is drawn over it. Adjacent parts of one forward or backward are
joined to one bar, as in the charts of `holmes_sim.charts`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from holmes_sim.charts import gantt
from holmes_sim.charts.pipeline import row_label, rows_of
from holmes_sim.results import Simulated
from holmes_sim.unlike_pipelines import SimulatedPipelines
from sim.engine.rank_plans import RankPlans
from sim.engine.timeline import Span
from sim.plan.program import COMPUTE

MOST_ROWS = 24
MOST_SPANS = 120_000
"""Largest numbers of rows and spans on a page: more rows are too thin on a screen, more spans exceed three megabytes."""
FEWEST_ROWS = 2
"""Number of rows that are drawn even with more than `MOST_SPANS` spans."""
NAMED = 10
"""Number of equivalent ranks from which on they are counted, not listed."""
NANO = 1e-9
"""Seconds in a nanosecond."""
ACTIONS = {
    "F": "forward",
    "B": "backward",
    "W": "weight gradient",
    "optimizer": "optimizer step",
    "bubble": "bubble: waiting for other ranks",
}
"""Kind of span -> words in the tooltip."""


def rows_to_draw(run: Simulated | SimulatedPipelines) -> list[tuple[int, ...]]:
    """Classes of ranks that get a row: all, or some of every pipeline rank if there are too many."""
    by_rank = run.timeline.by_rank()
    most = MOST_ROWS
    while True:
        rows = rows_of(run.timeline, RankPlans(run.plan).stage_number, most)
        if most == FEWEST_ROWS or sum(len(by_rank[group[0]]) for group in rows) <= MOST_SPANS:
            return rows
        most = max(most // 2, FEWEST_ROWS)


def spans_json(run: Simulated | SimulatedPipelines, rows: Sequence[tuple[int, ...]]) -> str:
    """JSON for the canvas, safe inside a `script` element.

    Each row has its label and its spans as flat numbers: nanoseconds since the start of the previous span, duration in
    nanoseconds, index into `words`, stage and microbatch. `words` are pairs of an action's name (with its group) and the kind
    it is drawn as.
    """
    spans, words, plans = run.timeline.by_rank(), dict[tuple[str, str], int](), RankPlans(run.plan)
    lines = [
        {"label": row_label(plans, group), "ranks": _ranks(group), "spans": _row(spans[group[0]], words)} for group in rows
    ]
    heights = {kind: gantt.HEIGHTS.get(kind, (gantt.BAR,)) for kind in gantt.KINDS}
    most = max(plan.config.pp for plan in plans.plans)
    document = {
        "step": run.timeline.step_s, "pp": most, "order": gantt.DRAWN, "heights": heights,
        "words": list(words), "rows": lines,
    }  # fmt: skip
    return json.dumps(document, separators=(",", ":")).replace("<", "\\u003c")


def drawn_kinds(run: Simulated | SimulatedPipelines, rows: Sequence[tuple[int, ...]]) -> tuple[str, ...]:
    """Kinds of spans that are drawn, in the order of the legend."""
    first = {group[0] for group in rows}
    drawn = {gantt.kind_of(span) for span in run.timeline.spans if span.rank in first}
    return tuple(kind for kind in gantt.KINDS if kind in drawn)


def _ranks(group: tuple[int, ...]) -> str:
    """The simulated rank, and the ranks equivalent to it, in words."""
    first, last, others = group[0], group[-1], len(group) - 1
    if not others:
        return f"rank {first}"
    if last - first == others:
        return f"rank {first} (same for ranks {first} to {last})"
    return (
        f"rank {first} (same for {', '.join(map(str, group[1:]))})"
        if others < NAMED
        else f"rank {first} (same for {others:,} other ranks)"
    )


def _row(spans: Iterable[Span], words: dict[tuple[str, str], int]) -> list[int]:
    """The spans of one rank as flat numbers; new words are added to `words`."""
    found: list[Any] = []
    before = 0
    for span in _bars(spans):
        start, end = _nanoseconds(span)
        word = words.setdefault((_action(span), gantt.kind_of(span)), len(words))
        found += [start - before, end - start, word, span.stage, span.microbatch]
        before = start
    return found


def _nanoseconds(span: Span) -> tuple[int, int]:
    """(start, end) of a span in whole nanoseconds."""
    return round(span.start / NANO), round(span.end / NANO)


def _bars(spans: Iterable[Span]) -> list[Span]:
    """The spans that are drawn, sorted by start."""
    everything = list(spans)
    over = {_nanoseconds(span) for span in everything if span.lane in ("tp", "ep")}
    waits = [s for s in everything if s.lane == "wait" and not (s.kind == "exposed" and _nanoseconds(s) in over)]
    parts = [s for s in everything if s.kind in COMPUTE]
    rest = [s for s in everything if s.lane != "wait" and s.kind not in COMPUTE]
    computed = [s for kind in COMPUTE for s in gantt.joined(s for s in parts if s.kind == kind)]
    return sorted([*waits, *computed, *rest], key=lambda span: (span.start, span.end))


def _action(span: Span) -> str:
    """The name of a span for the tooltip."""
    if span.kind in ACTIONS:
        return ACTIONS[span.kind]
    if span.kind == "exposed":
        return f"waits for the network ({span.group})" if span.group else "waits for the network"
    if span.kind == "send":
        return "gradients sent to the previous stage" if span.lane == "return" else "activations sent to the next stage"
    return span.name.removeprefix("start ").partition(".")[0]
