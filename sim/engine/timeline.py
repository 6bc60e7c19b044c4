"""Timeline of a step: spans on lanes of ranks, and its file form timeline.json, a Chrome trace that Perfetto opens.

Simulated and measured timelines have the same type and file form. Ranks that behave alike are stored once: the spans of rank
`alike[i][0]` are those of every rank of `alike[i]`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from sim.errors import HolmesError, TimelineError
from sim.formats.documents import Document, check, parse_json
from sim.formats.fields import StrictModel, Whole
from sim.units import MICRO, Bytes, Flops, Seconds, time_text

FORMAT = "holmes-sim/timeline/1"
LANES = ("compute", "tp", "cp", "ep", "dp", "edp", "send", "return", "wait")
"""Lanes of a rank, in drawing order: compute; tensor-, context- and expert-parallel collectives (ep, etp); data-parallel
collectives of dense weights and of experts; activations sent forward and gradients sent back; waiting. Spans of one lane do not
overlap, but for slices of a message that go to several ranks of a stage with another tp at the same time."""


class Span(NamedTuple):
    """An interval of a rank. `kind`: F, B, W, optimizer, collective, send, bubble (no work), exposed (waits for the network).

    `group` is the kind of group that communicates (pp for messages) or is waited for. `after` is the index, in the timeline,
    of the span whose end let this one begin: on any rank, ending exactly where this one begins; -1 at the begin of the step,
    and for waiting."""

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


class PeakBytes(NamedTuple):
    """Most memory of a device that a rank took: what torch allocated, what it reserved from the device for that, and what the
    device had in use beside it (CUDA's context, kernels, buffers of NCCL, other programs)."""

    allocated: Bytes
    reserved: Bytes
    outside: Bytes


@dataclass(frozen=True, slots=True)
class Timeline:
    """All spans of one step, with the facts that reports need; `events` is the number of events that the engine processed.

    The spans of a simulated step that repeats itself are made when they are read (`sim.engine.copies.ExtrapolatedSpans`);
    `sim.results.sums` has sums of their seconds without that.

    Measured timelines have the spans of the median step, the seconds of all timed steps in `steps_s`, and `scale`: the seconds
    here for one second of the plan (a lab runs slower than the machines it imitates). `compute` is real or paced (by the device
    model), empty where simulated. `computed_on` are the devices that really computed, each kind once. `peak_bytes` and
    `cpu_s`: memory and CPU seconds of each rank, empty where they were not measured."""

    name: str
    origin: str
    plan_digest: str
    step_s: Seconds
    tokens: int
    flops: Flops
    alike: tuple[tuple[int, ...], ...]
    spans: Sequence[Span]
    events: int = 0
    steps_s: tuple[Seconds, ...] = ()
    scale: float = 1.0
    compute: str = ""
    computed_on: tuple[str, ...] = ()
    peak_bytes: tuple[PeakBytes, ...] = ()
    cpu_s: tuple[Seconds, ...] = ()

    def __repr__(self) -> str:
        ranks = sum(map(len, self.alike))
        step = f"{self.origin} step of {time_text(self.step_s)}"
        return f"{self.name}: {step}, {ranks:,} ranks in {len(self.alike):,} classes, {len(self.spans):,} spans"

    def by_rank(self) -> dict[int, tuple[Span, ...]]:
        """Spans of every representative rank, in order of their start."""
        found: dict[int, list[Span]] = {group[0]: [] for group in self.alike}
        for span in self.spans:
            found[span.rank].append(span)
        return {rank: tuple(sorted(spans, key=lambda s: (s.start, s.end))) for rank, spans in found.items()}

    def of(self, rank: int) -> tuple[Span, ...]:
        """Spans of the representative of a rank, in order of their start."""
        shown = next(group[0] for group in self.alike if rank in group)
        return tuple(sorted((s for s in self.spans if s.rank == shown), key=lambda s: (s.start, s.end)))


def stretched(timeline: Timeline, factor: float) -> Timeline:
    """The timeline with all times multiplied by `factor`."""
    spans = tuple(span._replace(start=factor * span.start, end=factor * span.end) for span in timeline.spans)
    steps = tuple(factor * seconds for seconds in timeline.steps_s)
    return replace(timeline, step_s=factor * timeline.step_s, spans=spans, steps_s=steps, scale=factor * timeline.scale)


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
        belongs = {"stage": span.stage, "microbatch": span.microbatch, "group": span.group}
        arguments = {key: value for key, value in belongs.items() if value not in (-1, "")}
        events.append(
            {"ph": "X", "name": span.name, "cat": span.kind, "pid": span.rank, "tid": LANES.index(span.lane),
             "ts": span.start / MICRO, "dur": span.seconds / MICRO, "args": arguments}
        )  # fmt: skip
    measured = {
        "steps_s": list(timeline.steps_s),
        "scale": timeline.scale,
        "compute": timeline.compute,
        "computed_on": list(timeline.computed_on),
        "peak_bytes": [list(peak) for peak in timeline.peak_bytes],
        "cpu_s": list(timeline.cpu_s),
    }
    usual = {"steps_s": [], "scale": 1.0, "compute": "", "computed_on": [], "peak_bytes": [], "cpu_s": []}
    header = {
        "format": FORMAT, "name": timeline.name, "origin": timeline.origin, "plan_digest": timeline.plan_digest,
        "step_s": timeline.step_s, "tokens": timeline.tokens, "flops": timeline.flops,
        "alike": [list(group) for group in timeline.alike],
    } | {key: value for key, value in measured.items() if value != usual[key]}  # fmt: skip
    return json.dumps({"displayTimeUnit": "ms", "metadata": header, "traceEvents": events}, separators=(",", ":")) + "\n"


NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class HeaderFacts(StrictModel):
    """Metadata of a trace."""

    format: Literal["holmes-sim/timeline/1"]
    name: str
    origin: Literal["simulated", "measured"]
    plan_digest: str
    step_s: Positive
    tokens: Whole
    flops: NotNegative
    alike: list[Annotated[list[Whole], Field(min_length=1)]]
    steps_s: tuple[Positive, ...] = ()
    scale: Positive = 1.0
    compute: Literal["", "real", "paced"] = ""
    computed_on: tuple[str, ...] = ()
    peak_bytes: tuple[tuple[NotNegative, NotNegative, NotNegative], ...] = ()
    cpu_s: tuple[NotNegative, ...] = ()


class ArgumentFacts(StrictModel):
    """Stage, microbatch and kind of group of a span."""

    stage: int = -1
    microbatch: int = -1
    group: str = ""


class SpanFacts(StrictModel):
    """A complete event: a span of rank `pid` on lane number `tid`, in microseconds."""

    ph: Literal["X"]
    name: str
    cat: str
    pid: int
    tid: Annotated[int, Field(ge=0, lt=len(LANES))]
    ts: NotNegative
    dur: NotNegative
    args: ArgumentFacts = ArgumentFacts()


class LabelFacts(StrictModel):
    """A metadata event: the name that a viewer shows for a process or a thread."""

    ph: Literal["M"]
    name: str
    pid: int
    tid: int
    args: dict[str, Any]


class TraceFacts(StrictModel):
    """A timeline file."""

    displayTimeUnit: str = "ms"  # noqa: N815 (the trace format's own word)
    metadata: HeaderFacts
    traceEvents: list[Annotated[SpanFacts | LabelFacts, Field(discriminator="ph")]]  # noqa: N815


def from_json(text: str, name: str) -> Timeline:
    """Read the text of a timeline.json; times are rounded, and `after` of spans and `events` are not stored.

    `name` is the file's name in error messages. Raises TimelineError with the first fault."""
    try:
        document = parse_json(name, text)
        if isinstance(document.value, dict) and "traceEvents" not in document.value:
            found = document.value.get("format", "neither")
            raise TimelineError(f"{name}: not a timeline: the keys metadata and traceEvents are missing (this file is {found})")
        return _timeline(document, check(document, TraceFacts))
    except HolmesError as error:
        raise TimelineError(str(error).splitlines()[0]) from None


def _timeline(document: Document, data: TraceFacts) -> Timeline:
    header = data.metadata
    ranks = [rank for group in header.alike for rank in group]
    if sorted(ranks) != list(range(len(ranks))) or not ranks:
        wanted = "each rank from 0 on must be in one list"
        raise TimelineError(document.fault(("metadata", "alike"), f"its ranks are {ranks}; {wanted}"))
    shown = {group[0] for group in header.alike}
    spans = []
    for index, event in enumerate(data.traceEvents):
        if isinstance(event, LabelFacts):
            continue
        if event.pid not in shown:
            known = "a rank that is the first of a list of metadata.alike is expected"
            raise TimelineError(document.fault(("traceEvents", index, "pid"), f"{event.pid}: {known}"))
        start, own = event.ts * MICRO, event.args
        times = start, start + event.dur * MICRO
        spans.append(Span(event.pid, LANES[event.tid], event.name, event.cat, *times, own.stage, own.microbatch, own.group))
    for key, given in (("peak_bytes", header.peak_bytes), ("cpu_s", header.cpu_s)):
        if given and len(given) != len(ranks):
            wanted = f"one for each of the {len(ranks)} ranks is expected"
            raise TimelineError(document.fault(("metadata", key), f"{len(given)} given; {wanted}"))
    return Timeline(
        name=header.name,
        origin=header.origin,
        plan_digest=header.plan_digest,
        step_s=header.step_s,
        tokens=header.tokens,
        flops=header.flops,
        alike=tuple(tuple(group) for group in header.alike),
        spans=tuple(spans),
        steps_s=header.steps_s,
        scale=header.scale,
        compute=header.compute,
        computed_on=header.computed_on,
        peak_bytes=tuple(PeakBytes(*peak) for peak in header.peak_bytes),
        cpu_s=header.cpu_s,
    )
