"""Description of the critical path of a step in words: visits of ranks, with neighbouring stages and repetitions merged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from sim.engine.rank_plans import RankPlans
from sim.engine.timeline import Span, Timeline
from sim.plan.pipelines import PipelinesPlan
from sim.plan.plan import Plan
from sim.plan.program import COMPUTE
from sim.units import Seconds

WORDS = {"F": "forward", "B": "backward", "W": "backward"}
"""Kind of compute action -> kind of seconds."""
INSIDE = ("tp", "cp", "etp", "ep")
"""Groups whose collectives are part of a layer: the chain does not name them separately."""

LONGEST_CYCLE = 64
"""Longest repeated unit, in entries, that the search for repetitions in the chain tries. A guess that bounds the work: a larger
one finds longer units. What does not repeat is listed in any case."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A section of the critical path: start, duration and description."""

    start: Seconds
    seconds: Seconds
    text: str


@dataclass(frozen=True, slots=True)
class _Visit:
    """Consecutive spans of the path on one rank: description and total seconds. `pipeline`: as `RankPlans.stage_of` has it."""

    pipeline: int
    pp_rank: int
    rank: int
    text: str
    seconds: Seconds


def chain(plan: Plan | PipelinesPlan, timeline: Timeline, path: tuple[Span, ...]) -> tuple[Passage, ...]:
    """Describe the critical path as visits of ranks; merges neighbouring stages with equal descriptions, and repetitions."""
    visits, plans = [], RankPlans(plan)
    for rank, group in groupby(path, key=lambda span: span.rank):
        spans = tuple(group)
        words = [word for (word, *_), _ in groupby(_events(spans))]
        text = ", ".join(_compressed(words))
        visits.append(_Visit(*plans.stage_of(rank), rank, text, sum(span.seconds for span in spans)))
    several = len(timeline.alike) > sum(one.config.pp for one in plans.plans)  # then a stage does not identify the rank
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
        step = visit.pp_rank - run[-1].pp_rank if run and visit.pipeline == run[-1].pipeline else 0
        if run and abs(step) == 1 and visit.text == run[0].text and step * len(run) == visit.pp_rank - run[0].pp_rank:
            run.append(visit)
        else:
            found.append([visit])
    return found


def _described(run: list[_Visit], several: bool) -> str:
    """Text such as `stage 0: forward, send` or `stages 0 to 6, each: forward, send`; with ranks if `several`."""
    first, last = run[0], run[-1]
    where = f"pipeline {first.pipeline}, " if first.pipeline >= 0 else ""
    if len(run) == 1:
        return f"{where}stage {first.pp_rank}{f' (rank {first.rank})' if several else ''}: {first.text}"
    ranks = f" (ranks {first.rank} to {last.rank})" if several else ""
    return f"{where}stages {first.pp_rank} to {last.pp_rank}{ranks}, each: {first.text}"


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
