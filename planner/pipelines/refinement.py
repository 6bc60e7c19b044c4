"""Faster plans near one of unlike pipelines: its layers, microbatches and their sizes changed, by simulation.

Columns have the layers and the microbatch size that suit their part alone. Beside other pipelines, others may: the gradients of
a layer wait for the slowest pipeline, so that a pipeline may have fewer of the layers that are summed last, and few larger
microbatches end earlier where a pipeline has a small share of the batch. Here the neighbours of the plan are simulated, and the
fastest takes its place: a layer moved between neighbouring stages, from those that wait least for others to those that wait
most; microbatches of twice or half the size; samples moved from one pipeline to another."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from planner.pipelines.assembly import simulated, step_of
from planner.placement.recomputation import recomputing
from planner.placement.simulation import fits
from planner.time_limit import TimeLimit
from sim.engine.engine import simulate
from sim.engine.timeline import Timeline
from sim.errors import HolmesError
from sim.plan.pipelines import PipelinesPlan, of_plans
from sim.plan.plan import Plan, Stage
from sim.results.report import PipelineRankReport, of_pipelines

TRIES = 32
"""Most neighbours of a plan that are simulated (a guess)."""
FORWARDS = 24_000
"""Forwards of microbatches on the stages of a replica in simulated neighbours, after which no more are simulated: some seconds
(a guess)."""
CLEARLY = 0.003
"""How much faster a neighbour of a large plan is whose own neighbours are simulated at once, without the others (a guess)."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What is changed of a pipeline: the layers of its stages, its microbatches on all replicas, and their size."""

    layers: tuple[int, ...]
    microbatches: int
    size: int

    @classmethod
    def of(cls, plan: Plan) -> Entry:
        """That of a plan."""
        return cls(plan.layers, sum(plan.config.num_microbatches), plan.config.microbatch_size)


Entries = tuple[Entry, ...]


def refined(plan: PipelinesPlan, limit: TimeLimit) -> PipelinesPlan:
    """The plan after changes, each of which makes the simulated step shorter than any other of its neighbours does; `plan` has
    a prediction."""
    if limit.is_up():
        return plan
    best, seen, left = (plan, simulate(plan)), {_entries(plan)}, FORWARDS
    while not limit.is_up():
        found, left = _fastest(*best, seen, left, limit)
        if found is None:
            break
        best = found
    return best[0]


def _fastest(
    plan: PipelinesPlan, timeline: Timeline, seen: set[Entries], left: int, limit: TimeLimit
) -> tuple[tuple[PipelinesPlan, Timeline] | None, int]:
    """The fastest of the neighbours that were not seen, or the first that is clearly faster, as far as the budgets go, and the
    forwards that are left then; None where none is faster than the plan."""
    tries, best, is_large = 0, None, TRIES * _forwards(plan) > FORWARDS
    for entries in _neighbours(plan, timeline):
        if tries >= TRIES or left <= 0 or limit.is_up():
            break
        if entries in seen:
            continue
        seen.add(entries)
        changed = _with(plan, entries)
        if changed is None:
            continue
        tries += 1
        left -= _forwards(changed)
        below = step_of(best[0] if best is not None else plan)
        found = simulated(changed, below)
        if found is not None and step_of(found[0]) < below:
            best = found
            if is_large and step_of(found[0]) < step_of(plan) * (1 - CLEARLY):
                break
    return best, left


def _forwards(plan: PipelinesPlan) -> int:
    return sum(one.config.pp * max(one.config.num_microbatches) for one in plan.pipelines)


def _entries(plan: PipelinesPlan) -> Entries:
    return tuple(map(Entry.of, plan.pipelines))


def _neighbours(plan: PipelinesPlan, timeline: Timeline) -> Iterator[Entries]:
    """The entries after one change, kind by kind of changes in turn."""
    now = _entries(plan)
    kinds = (_layers_moved(of_pipelines(plan, timeline), now), _sizes_changed(now), _samples_moved(plan, now))
    for several in itertools.zip_longest(*kinds):
        yield from (one for one in several if one is not None)


def _layers_moved(rows: tuple[tuple[PipelineRankReport, ...], ...], now: Entries) -> Iterator[Entries]:
    """A layer moved between neighbouring stages, the difference of whose waits is largest first."""
    moves = [
        (own[a].bubble - own[b].bubble, index, a, b)
        for index, own in enumerate(rows)
        for a, b in itertools.permutations(range(len(own)), 2)
        if abs(a - b) == 1
    ]
    for _, index, a, b in sorted(moves):
        layers = list(now[index].layers)
        if layers[a] > 1:
            layers[a] -= 1
            layers[b] += 1
            yield _put(now, index, replace(now[index], layers=tuple(layers)))


def _sizes_changed(now: Entries) -> Iterator[Entries]:
    """Microbatches of twice or half the size, in one pipeline."""
    for index, one in enumerate(now):
        if one.microbatches % 2 == 0:
            yield _put(now, index, replace(one, microbatches=one.microbatches // 2, size=one.size * 2))
        if one.size % 2 == 0:
            yield _put(now, index, replace(one, microbatches=one.microbatches * 2, size=one.size // 2))


def _samples_moved(plan: PipelinesPlan, now: Entries) -> Iterator[Entries]:
    """A microbatch of each replica of one pipeline, or as few as make whole microbatches of another, moved to the other."""
    for a, b in itertools.permutations(range(len(now)), 2):
        samples = math.lcm(now[a].size, now[b].size)
        fewer, more = now[a].microbatches - samples // now[a].size, now[b].microbatches + samples // now[b].size
        if fewer >= plan.pipelines[a].config.dp:
            changed = _put(now, a, replace(now[a], microbatches=fewer))
            yield _put(changed, b, replace(now[b], microbatches=more))


def _put(now: Entries, index: int, entry: Entry) -> Entries:
    return (*now[:index], entry, *now[index + 1 :])


def _with(plan: PipelinesPlan, entries: Sequence[Entry]) -> PipelinesPlan | None:
    """The plan with other entries; None where a replica has no microbatch, it does not fit, or is not defined."""
    try:
        pipelines = [_changed(*pair) for pair in zip(plan.pipelines, entries, strict=True)]
        found = of_plans(pipelines, plan.made_by)
    except HolmesError:  # a schedule may need more microbatches
        return None
    return found if all(map(fits, found.pipelines)) else None


def _changed(plan: Plan, entry: Entry) -> Plan:
    """The pipeline of an entry, whose stages recompute as few layers as fit, or all as before."""
    if entry == Entry.of(plan):
        return plan
    dp, ends = plan.config.dp, list(itertools.accumulate(entry.layers, initial=0))
    shares = tuple(entry.microbatches // dp + (one < entry.microbatches % dp) for one in range(dp))
    config = replace(plan.config, num_microbatches=shares, microbatch_size=entry.size)
    workload = replace(plan.workload, global_batch_size=entry.microbatches * entry.size)
    stages = tuple(itertools.starmap(Stage, itertools.pairwise(ends)))
    topology = replace(plan.topology, workload=workload)
    moved = replace(plan, topology=topology, workload=workload, config=config, stages=stages)
    return next(recomputing(moved), moved)
