"""What happened when: spans on lanes of ranks. timeline.json is a Chrome trace, so Perfetto opens it.

A timeline may be simulated or measured; both have this type and this file form. Ranks that behave alike are stored once:
`alike[i]` are the ranks for which the spans of rank `alike[i][0]` stand.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import NamedTuple

from sim.units import MICRO, Flops, Seconds

FORMAT = "holmes-sim/timeline/1"
LANES = ("compute", "tp", "cp", "ep", "dp", "edp", "send", "return", "wait")
"""Lanes of a rank, in drawing order: computing; tensor-, context- and expert-parallel collectives; data-parallel ones of dense
weights and of experts; activations sent ahead and gradients sent back; waiting. Spans of one lane do not overlap."""


class Span(NamedTuple):
    """Something a rank did. `kind`: F, B, W, optimizer, collective, send, bubble (no work), exposed (waits for the network).

    `group` is the kind of group that communicates (pp for messages) or is waited for. `after` is the index, in the timeline,
    of the span whose end let this one begin: on its own rank or another, ending exactly where this begins; -1 at the begin of
    the step, and for waiting."""

    rank: int
    lane: str
    name: str
    kind: str
    start: Seconds
    end: Seconds
    stage: int = -1
    microbatch: int = -1
    group: str = ""
    after: int = -1

    @property
    def seconds(self) -> Seconds:
        """Duration."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Timeline:
    """All spans of one step, and what a report needs to know beside them; `events` is how many the engine processed."""

    name: str
    origin: str
    plan_digest: str
    step_s: Seconds
    tokens: int
    flops: Flops
    alike: tuple[tuple[int, ...], ...]
    spans: tuple[Span, ...]
    events: int = 0

    def by_rank(self) -> dict[int, tuple[Span, ...]]:
        """Spans of every rank that stands for others, in order of their start."""
        found: dict[int, list[Span]] = {group[0]: [] for group in self.alike}
        for span in self.spans:
            found[span.rank].append(span)
        return {rank: tuple(sorted(spans, key=lambda s: (s.start, s.end))) for rank, spans in found.items()}

    def of(self, rank: int) -> tuple[Span, ...]:
        """Spans of the rank that stands for this one, in order of their start."""
        shown = next(group[0] for group in self.alike if rank in group)
        return tuple(sorted((s for s in self.spans if s.rank == shown), key=lambda s: (s.start, s.end)))


def to_json(timeline: Timeline) -> str:
    """A Chrome trace (object form): one process per class of ranks, one thread per lane, times in microseconds."""
    events: list[dict[str, object]] = []
    for order, group in enumerate(timeline.alike):
        shown = group[0]
        label = f"rank {shown}" + (f" and {len(group) - 1} alike" if len(group) > 1 else "")
        events.append({"ph": "M", "name": "process_name", "pid": shown, "tid": 0, "args": {"name": label}})
        events.append({"ph": "M", "name": "process_sort_index", "pid": shown, "tid": 0, "args": {"sort_index": order}})
        for tid, lane in enumerate(LANES):
            events.append({"ph": "M", "name": "thread_name", "pid": shown, "tid": tid, "args": {"name": lane}})
    for span in timeline.spans:
        arguments = {"stage": span.stage, "microbatch": span.microbatch} if span.microbatch >= 0 else {}
        events.append(
            {"ph": "X", "name": span.name, "cat": span.kind, "pid": span.rank, "tid": LANES.index(span.lane),
             "ts": span.start / MICRO, "dur": span.seconds / MICRO, "args": arguments}
        )  # fmt: skip
    header = {
        "format": FORMAT, "name": timeline.name, "origin": timeline.origin, "plan_digest": timeline.plan_digest,
        "step_s": timeline.step_s, "tokens": timeline.tokens, "flops": timeline.flops,
        "alike": [list(group) for group in timeline.alike],
    }  # fmt: skip
    return json.dumps({"displayTimeUnit": "ms", "metadata": header, "traceEvents": events}, separators=(",", ":")) + "\n"
