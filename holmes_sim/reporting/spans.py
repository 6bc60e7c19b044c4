"""The spans of a step as the page's canvas draws them: a row for each class of alike ranks, times in whole nanoseconds.

A wait that is a collective's own is left out where the collective is drawn over it, and the parts of one forward or backward
that touch are one bar, as in the picture of `holmes_sim.charts`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from holmes_sim.charts import gantt
from holmes_sim.charts.pipeline import row_label, rows_of
from holmes_sim.results import Simulated
from sim.engine.timeline import Span
from sim.plan.program import COMPUTE

MOST_ROWS = 24
MOST_SPANS = 120_000
"""Rows and spans of a page: more rows are not told apart on a screen, more spans are more than three megabytes."""
FEWEST_ROWS = 2
NAMED = 10
"""Alike ranks from which on their number is told."""
NANO = 1e-9
ACTIONS = {
    "F": "forward",
    "B": "backward",
    "W": "weight gradient",
    "optimizer": "optimizer step",
    "bubble": "bubble: no work yet",
}


def shown(run: Simulated) -> list[tuple[int, ...]]:
    """The classes of ranks that have a row: all, or some of every place where they are too many."""
    by_rank = run.timeline.by_rank()
    most = MOST_ROWS
    while True:
        rows = rows_of(run.timeline, lambda rank: run.plan.config.place(rank)[2], most)
        if most == FEWEST_ROWS or sum(len(by_rank[group[0]]) for group in rows) <= MOST_SPANS:
            return rows
        most = max(most // 2, FEWEST_ROWS)


def data(run: Simulated, rows: Sequence[tuple[int, ...]]) -> str:
    """A JSON document for the canvas, fit to stand in a `script` element.

    Each row has its label and its spans as flat numbers: nanoseconds since the begin of the span before, its length, and the
    indices of its word, stage and microbatch. Words name an action, the kind it is drawn as, and its group.
    """
    spans, words = run.timeline.by_rank(), dict[tuple[str, str], int]()
    lines = [
        {"label": row_label(run.plan, group), "ranks": _ranks(group), "spans": _row(spans[group[0]], words)} for group in rows
    ]
    heights = {kind: gantt.HEIGHTS.get(kind, (gantt.BAR,)) for kind in gantt.KINDS}
    document = {
        "step": run.timeline.step_s, "pp": run.plan.config.pp, "order": gantt.DRAWN, "heights": heights,
        "words": list(words), "rows": lines,
    }  # fmt: skip
    return json.dumps(document, separators=(",", ":")).replace("<", "\\u003c")


def kinds(run: Simulated, rows: Sequence[tuple[int, ...]]) -> tuple[str, ...]:
    """Kinds of spans that are drawn, in the order of the legend."""
    first = {group[0] for group in rows}
    drawn = {gantt.kind_of(span) for span in run.timeline.spans if span.rank in first}
    return tuple(kind for kind in gantt.KINDS if kind in drawn)


def _ranks(group: tuple[int, ...]) -> str:
    """The rank that is drawn, and those that do the same."""
    first, last, others = group[0], group[-1], len(group) - 1
    if not others:
        return f"rank {first}"
    if last - first == others:
        return f"rank {first}, as all of ranks {first} to {last}"
    return (
        f"rank {first}, as {', '.join(map(str, group[1:]))}" if others < NAMED else f"rank {first} and {others:,} others alike"
    )


def _row(spans: Iterable[Span], words: dict[tuple[str, str], int]) -> list[int]:
    """The spans of one rank as flat numbers; a word that is new is added to `words`."""
    found: list[Any] = []
    before = 0
    for span in _drawn(spans):
        start, end = _nanoseconds(span)
        word = words.setdefault((_action(span), gantt.kind_of(span)), len(words))
        found += [start - before, end - start, word, span.stage, span.microbatch]
        before = start
    return found


def _nanoseconds(span: Span) -> tuple[int, int]:
    return round(span.start / NANO), round(span.end / NANO)


def _drawn(spans: Iterable[Span]) -> list[Span]:
    everything = list(spans)
    over = {_nanoseconds(span) for span in everything if span.lane in ("tp", "ep")}
    waits = [s for s in everything if s.lane == "wait" and not (s.kind == "exposed" and _nanoseconds(s) in over)]
    parts = [s for s in everything if s.kind in COMPUTE]
    rest = [s for s in everything if s.lane != "wait" and s.kind not in COMPUTE]
    computed = [s for kind in COMPUTE for s in gantt.joined(s for s in parts if s.kind == kind)]
    return sorted([*waits, *computed, *rest], key=lambda span: (span.start, span.end))


def _action(span: Span) -> str:
    """What a span is, in words."""
    if span.kind in ACTIONS:
        return ACTIONS[span.kind]
    if span.kind == "exposed":
        return f"waits for the network ({span.group})" if span.group else "waits for the network"
    if span.kind == "send":
        return "gradients sent to the stage before" if span.lane == "return" else "activations sent to the next stage"
    return span.name.removeprefix("start ").partition(".")[0]
