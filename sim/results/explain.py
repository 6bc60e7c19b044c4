"""Explanation of a simulated step: seconds by kind on every rank, and the critical path that determines the step.

Each of the two adds up to the step. **By rank**: every second is compute (forward, backward, recomputation, optimizer), exposed
communication by kind of group, or bubble (waiting for others). **Critical path**: from the action that ends last, back to the
start along `Span.after`, the event that each span waited for: the previous action of the rank, the message received, or, before
a collective, the arrival of its last rank. A second saved off the path saves nothing. If several paths end together, one is
reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import Any

from sim import markup
from sim.analytic import stage_costs
from sim.engine.timeline import Span, Timeline
from sim.kernels import compute
from sim.kernels.compute import KernelTime
from sim.plan.plan import Plan
from sim.plan.program import COMPUTE
from sim.units import Seconds, time_text

WORDS = {"F": "forward", "B": "backward", "W": "backward"}
KINDS = ("forward", "backward", "recompute", "optimizer", "tp", "cp", "ep", "pp", "dp", "edp", "embedding", "bubble")
"""Kinds of seconds in display order; groups of other kinds follow."""
INSIDE = ("tp", "cp", "ep")
"""Groups whose collectives are part of a layer: the chain does not name them separately."""

LONGEST_CYCLE = 64
"""Longest repeated unit, in entries, that the search for repetitions in the chain tries. A guess that bounds the work: a larger
one finds longer units. What does not repeat is listed in any case."""


@dataclass(frozen=True, slots=True)
class Account:
    """Seconds by kind: of `rank`, which represents `ranks` equal ranks, or of a pipeline rank on the critical path."""

    pp_rank: int
    rank: int
    ranks: int
    seconds: tuple[tuple[str, Seconds], ...]

    def of(self, kind: str) -> Seconds:
        """Seconds of a kind; 0 if there are none."""
        return dict(self.seconds).get(kind, 0.0)

    @property
    def total(self) -> Seconds:
        """Sum of all seconds."""
        return sum(seconds for _, seconds in self.seconds)


@dataclass(frozen=True, slots=True)
class Passage:
    """A section of the critical path: start, duration and description."""

    start: Seconds
    seconds: Seconds
    text: str


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer and microbatch on a type of device, kernel by kernel; the engine uses its forward and backward seconds.

    They exceed the sum of the kernels if the host launches kernels more slowly than the device runs them, and are unrelated to
    it if they come from a profile (`measured`). Neither includes recomputation or communication.
    """

    device: str
    forward: Seconds
    backward: Seconds
    kernels: tuple[KernelTime, ...]
    measured: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class Explanation:
    """Explanation of a step: each of `ranks` adds up to the step; so do all of `path` together and all of `chain` together."""

    step_s: Seconds
    ranks: tuple[Account, ...]
    path: tuple[Account, ...]
    chain: tuple[Passage, ...]
    layers: tuple[Layer, ...]

    def __repr__(self) -> str:
        shares = ", ".join(f"{kind} {seconds / self.step_s:.1%}" for kind, seconds in self.mean)
        return f"a step of {time_text(self.step_s)}, of a mean rank: {shares}"

    def _repr_html_(self) -> str:
        kinds = [kind for kind, _ in self.mean]
        return markup.table(
            repr(self),
            [
                {"place": account.pp_rank, "ranks": account.ranks}
                | {f"{kind} (s)": f"{account.of(kind):.4g}" for kind in kinds}
                for account in self.ranks
            ],
        )

    @property
    def mean(self) -> tuple[tuple[str, Seconds], ...]:
        """Seconds by kind, mean over ranks."""
        world = sum(account.ranks for account in self.ranks)
        return _ordered((kind, s * account.ranks / world) for account in self.ranks for kind, s in account.seconds)

    def facts(self) -> dict[str, Any]:
        """Plain data, as `holmes-sim simulate --explain --json` prints them."""
        return {
            "step_s": self.step_s,
            "ranks": [{"stage": a.pp_rank, "rank": a.rank, "ranks": a.ranks, "seconds": dict(a.seconds)} for a in self.ranks],
            "mean": dict(self.mean),
            "critical_path": [{"stage": a.pp_rank, "seconds": dict(a.seconds)} for a in self.path],
            "chain": [{"start_s": p.start, "seconds": p.seconds, "what": p.text} for p in self.chain],
            "layers": [asdict(layer) for layer in self.layers],
        }


def explain(plan: Plan, timeline: Timeline) -> Explanation:
    """Explain every second of a simulated step, by rank and along the critical path."""
    ranks = []
    spans = timeline.by_rank()
    for group in timeline.alike:
        pp_rank = plan.config.place(group[0])[2]
        share = recomputed_share(plan, group[0])
        ranks.append(Account(pp_rank, group[0], len(group), _rank_seconds(spans[group[0]], share)))
    path = critical_path(timeline)
    on_path: dict[int, list[tuple[str, Seconds]]] = {}
    for span in path:
        pp_rank = plan.config.place(span.rank)[2]
        on_path.setdefault(pp_rank, []).extend(_split(span, recomputed_share(plan, span.rank)))
    accounts = (Account(pp_rank, -1, 0, _ordered(on_path[pp_rank])) for pp_rank in sorted(on_path))
    in_order = sorted(ranks, key=lambda account: (account.pp_rank, account.rank))
    chain = _chain(plan, timeline, path)
    return Explanation(timeline.step_s, tuple(in_order), tuple(accounts), chain, _layers(plan))


def _layers(plan: Plan) -> tuple[Layer, ...]:
    """One layer on every type of device that the plan uses."""
    once = replace(plan.config, recompute="none")
    found = []
    for device in dict.fromkeys(plan.fleet.spec(device) for device in plan.placement):
        kernels = compute.kernel_times(device, plan.workload, once)
        measured = compute.measured(device, plan.workload, once) is not None
        found.append(Layer(device.name, *compute.layer_seconds(device, plan.workload, once), kernels, measured))
    return tuple(found)


def critical_path(timeline: Timeline) -> tuple[Span, ...]:
    """Contiguous spans from the start of a simulated step to its end, each of which waited for the previous one.

    Of several spans that end with the step, one that waited for its own rank is preferred.
    """
    spans = timeline.spans
    work = [span for span in spans if span.lane != "wait"]
    found = [max(work, key=lambda span: (span.end, span.after >= 0 and spans[span.after].rank == span.rank))]
    while found[-1].after >= 0:
        found.append(spans[found[-1].after])
    return tuple(reversed(found))


def recomputed_share(plan: Plan, rank: int) -> float:
    """Fraction of a rank's backward seconds spent on recomputation."""
    config = plan.config
    if config.recompute == "none":
        return 0.0
    device, stages = plan.fleet.spec(plan.placement[rank]), plan.stages_of(config.place(rank)[2])
    layers = sum(plan.stages[stage].layers for stage in stages)
    ends = 0 in stages, config.num_stages - 1 in stages
    _, without = stage_costs.compute_seconds(device, plan.workload, replace(config, recompute="none"), layers, *ends)
    _, all_of_it = stage_costs.compute_seconds(device, plan.workload, config, layers, *ends)
    return 1.0 - without / all_of_it


def _rank_seconds(spans: Iterable[Span], share: float) -> tuple[tuple[str, Seconds], ...]:
    """Seconds by kind of a rank: its compute and wait spans fill the step."""
    return _ordered(part for span in spans if span.lane in ("compute", "wait") for part in _split(span, share))


def _split(span: Span, share: float) -> tuple[tuple[str, Seconds], ...]:
    """Seconds by kind of a span."""
    if span.kind == "bubble":
        return (("bubble", span.seconds),)
    word = WORDS.get(span.kind, span.group or span.kind)
    if word != "backward" or not share:
        return ((word, span.seconds),)
    return ("backward", (1.0 - share) * span.seconds), ("recompute", share * span.seconds)


def _ordered(parts: Iterable[tuple[str, Seconds]]) -> tuple[tuple[str, Seconds], ...]:
    """Sum of parts by kind, in display order."""
    found: dict[str, Seconds] = {}
    for kind, seconds in parts:
        found[kind] = found.get(kind, 0.0) + seconds
    known = [kind for kind in KINDS if kind in found]
    return tuple((kind, found[kind]) for kind in [*known, *(kind for kind in found if kind not in KINDS)])


# description of the critical path


@dataclass(frozen=True, slots=True)
class _Visit:
    """Consecutive spans of the path on one rank: description and total seconds."""

    pp_rank: int
    rank: int
    text: str
    seconds: Seconds


def _chain(plan: Plan, timeline: Timeline, path: tuple[Span, ...]) -> tuple[Passage, ...]:
    """Describe the critical path as visits of ranks; merges neighbouring stages with equal descriptions, and repetitions."""
    visits = []
    for rank, group in groupby(path, key=lambda span: span.rank):
        spans = tuple(group)
        words = [word for (word, *_), _ in groupby(_events(spans))]
        text = ", ".join(_compressed(words))
        visits.append(_Visit(plan.config.place(rank)[2], rank, text, sum(span.seconds for span in spans)))
    several = len(timeline.alike) > plan.config.pp  # then a stage does not identify the rank
    runs = [(_described(run, several), sum(visit.seconds for visit in run)) for run in _runs(visits)]
    passages: list[Passage] = []
    start, at = 0.0, 0
    for unit, many in _cycles([text for text, _ in runs]):
        seconds = sum(taken for _, taken in runs[at : at + many * len(unit)])
        text = unit[0] if many == 1 else f"{many} x ({'; '.join(unit)})"
        passages.append(Passage(start, seconds, text))
        start, at = start + seconds, at + many * len(unit)
    return tuple(passages)


def _runs(visits: Sequence[_Visit]) -> list[list[_Visit]]:
    """Group consecutive visits with equal descriptions whose stages ascend, or descend, by one."""
    found: list[list[_Visit]] = []
    for visit in visits:
        run = found[-1] if found else []
        step = visit.pp_rank - run[-1].pp_rank if run else 0
        if run and abs(step) == 1 and visit.text == run[0].text and step * len(run) == visit.pp_rank - run[0].pp_rank:
            run.append(visit)
        else:
            found.append([visit])
    return found


def _described(run: list[_Visit], several: bool) -> str:
    """Text such as `stage 0: forward, send` or `stages 0 to 6, each: forward, send`; with ranks if `several`."""
    first, last = run[0], run[-1]
    if len(run) == 1:
        return f"stage {first.pp_rank}{f' (rank {first.rank})' if several else ''}: {first.text}"
    ranks = f" (ranks {first.rank} to {last.rank})" if several else ""
    return f"stages {first.pp_rank} to {last.pp_rank}{ranks}, each: {first.text}"


def _events(spans: Sequence[Span]) -> list[tuple[str, int, int]]:
    """(word, stage, microbatch) of every span, except collectives inside layers."""
    events = []
    for span in spans:
        if span.group in INSIDE:
            continue
        if span.kind in COMPUTE:
            events.append(({"W": "weight gradient"}.get(span.kind, WORDS[span.kind]), span.stage, span.microbatch))
        elif span.kind == "send":
            events.append(("send back" if span.lane == "return" else "send", span.stage, span.microbatch))
        else:
            events.append((span.name.removeprefix("start ").partition(".")[0], -1, -1))
    return events


def _compressed(words: Sequence[str]) -> Sequence[str]:
    """Compress repetitions, and repetitions of the compressed units, until nothing changes."""
    fewer = [_repetition(unit, many) for unit, many in _cycles(words)]
    return words if len(fewer) == len(words) else _compressed(fewer)


def _cycles(words: Sequence[str]) -> list[tuple[tuple[str, ...], int]]:
    """(unit, count) in order. Greedy: at each position the unit whose repetitions cover most words, the shortest if equal."""
    found: list[tuple[tuple[str, ...], int]] = []
    at = 0
    while at < len(words):
        best, covered = 1, 1
        for period in range(1, min(LONGEST_CYCLE, (len(words) - at) // 2) + 1):
            unit, many = words[at : at + period], 1
            while words[at + many * period : at + (many + 1) * period] == unit:
                many += 1
            if many > 1 and many * period > covered:
                best, covered = period, many * period
        found.append((tuple(words[at : at + best]), covered // best))
        at += covered
    return found


def _repetition(unit: tuple[str, ...], many: int) -> str:
    """Text such as `forward`, `4 x forward` or `4 x (forward, backward)`."""
    inside = ", ".join(unit)
    return inside if many == 1 else f"{many} x {inside}" if len(unit) == 1 else f"{many} x ({inside})"
