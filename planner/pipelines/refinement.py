"""Faster plans near some of unlike pipelines: their layers, microbatches, sizes and schedule changed, by simulation.

Columns have the layers and the microbatch size that suit their part alone. Beside other pipelines, others may: the gradients of
a layer wait for the slowest pipeline, so that a pipeline may have fewer of the layers that are summed last, and few larger
microbatches end earlier where a pipeline has a small share of the batch. A plan's neighbours have one change: a layer moved
between neighbouring stages, from those that wait least for others to those that wait most; microbatches of twice or half the
size; samples moved from one pipeline to another; another schedule, or weights gathered at another time.

Best-first search (Pearl, Heuristics, 1984): of all simulated plans, the neighbours of the fastest come next that had none yet.
So two or three changes are found that only together make a plan faster. Where no neighbour of the best plan is faster, the
search goes on for `PATIENCE` forwards more, which is nothing where simulations are long."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from planner.pipelines.assembly import shares, simulated, step_of
from planner.pipelines.budgets import Work
from planner.placement.recomputation import recomputing
from planner.placement.simulation import fits
from sim.engine.engine import simulate
from sim.engine.timeline import Timeline
from sim.errors import HolmesError
from sim.plan.pipelines import PipelinesPlan, of_plans
from sim.plan.plan import Plan, Stage
from sim.results.report import PipelineRankReport, of_pipelines

SCHEDULES = ("zb-h1", "zb-h2", "zb-latency")
"""Schedules that are tried beside 1f1b: those without virtual stages that split the backward. zb-latency without a list of
warm-ups has those of 1f1b, and needs hardly more memory."""
TRIES = 32
"""Most neighbours of a plan that are simulated (a guess)."""
FORWARDS = 60_000
"""Forwards of microbatches on the stages of a replica in simulated neighbours, after which no more are simulated (a guess).
With 24,000 `peers/metis-128` takes 7.72 instead of 7.18 s and `peers/hexiscale-a-40` 43.85 instead of 43.69 s, for 2 to 6 CPU
seconds less; with 120,000 the latter takes 43.53 s."""
CLEARLY = 0.003
"""How much faster a neighbour of a large plan is whose own neighbours are simulated at once, without the others (a guess)."""
PATIENCE = 4_000
"""Forwards since the last faster plan, after which the neighbours of slower ones are not simulated (a guess)."""
LEAST_FORWARDS = 10
"""Forwards that take as long as what each simulation takes beside them, milliseconds (a guess)."""
NEAR = 0.1
"""How much slower than the best plan those are whose neighbours are simulated, too (a guess)."""


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
DEGREES = ("tp", "dp", "cp", "ep", "etp")
"""Degrees of a pipeline, which its neighbours have as well."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What is changed of a plan: its entries, and what they have in common."""

    entries: Entries
    schedule: str
    overlap_param_gather: bool

    @classmethod
    def of(cls, plan: PipelinesPlan) -> Choice:
        """That of a plan."""
        config = plan.pipelines[0].config
        return cls(tuple(map(Entry.of, plan.pipelines)), config.schedule, config.overlap_param_gather)


def refined(starts: Sequence[PipelinesPlan], work: Work) -> PipelinesPlan:
    """The fastest plan that is reached from some, by changes that keep devices and degrees; they have predictions."""
    search = _BestFirst(starts, work)
    while search.goes_on():
        search.expand()
    return search.best


class _BestFirst:
    """The plans that are simulated, those without neighbours yet in a heap."""

    def __init__(self, starts: Sequence[PipelinesPlan], work: Work):
        self.work, self.left, self.since = work, FORWARDS, 0
        self.best = min(starts, key=step_of)
        self.heap: list[tuple[float, int, PipelinesPlan, Timeline | None]] = []
        self.numbers = itertools.count()  # of equal steps, the plan that was found first
        self.seen = set[tuple[tuple[tuple[object, ...], ...], Choice]]()
        for plan in starts:
            self.seen.add(_identity(plan, Choice.of(plan)))
            self._push(plan, None)

    def goes_on(self) -> bool:
        """Whether some plan's neighbours are to be simulated: those of the best, or of one that is nearly as fast."""
        if not self.heap or self.left <= 0 or self.work.is_over():
            return False
        step_s, _, plan, _ = self.heap[0]
        return step_s <= step_of(self.best) * (1 + NEAR) and (plan is self.best or self.since + _cost(plan) <= PATIENCE)

    def expand(self) -> None:
        """Simulate neighbours of the fastest plan that has none yet, as far as the budgets go: of a large plan those before the
        first that is clearly faster."""
        step_s, _, plan, timeline = heapq.heappop(self.heap)
        if timeline is None:
            timeline = simulate(plan)
            self.work.events += timeline.events
        tries, is_large = 0, TRIES * _cost(plan) > FORWARDS
        near = 1 + NEAR if TRIES * _cost(plan) <= PATIENCE else 1.0
        for choice in _neighbours(plan, timeline):
            if tries >= TRIES or self.left <= 0 or self.work.is_over():
                break
            if (key := _identity(plan, choice)) in self.seen:
                continue
            self.seen.add(key)
            changed = _with(plan, choice)
            if changed is None:
                continue
            tries += 1
            self.left -= _cost(changed)
            self.since += _cost(changed)
            found = simulated(changed, step_of(self.best) * near, self.work)
            if found is not None:
                self._push(*found)
                if is_large and step_of(found[0]) < step_s * (1 - CLEARLY):
                    break

    def _push(self, plan: PipelinesPlan, timeline: Timeline | None) -> None:
        if step_of(plan) < step_of(self.best):
            self.best, self.since = plan, 0
        heapq.heappush(self.heap, (step_of(plan), next(self.numbers), plan, timeline))


def _cost(plan: PipelinesPlan) -> int:
    """What a simulation takes, in forwards."""
    return LEAST_FORWARDS + sum(one.config.pp * max(one.config.num_microbatches) for one in plan.pipelines)


def _identity(plan: PipelinesPlan, choice: Choice) -> tuple[tuple[tuple[object, ...], ...], Choice]:
    """What tells plans apart: the devices and degrees of one, and the choice that is made beside them."""
    own = ((one.placement, one.config.stage_tp, *(getattr(one.config, key) for key in DEGREES)) for one in plan.pipelines)
    return tuple(own), choice


def _neighbours(plan: PipelinesPlan, timeline: Timeline) -> Iterator[Choice]:
    """The choices after one change, kind by kind of changes in turn."""
    now = Choice.of(plan)
    rows = of_pipelines(plan, timeline)
    kinds = (_layers_moved(rows, now.entries), _sizes_changed(now.entries), _samples_moved(plan, now.entries))
    entries = (replace(now, entries=one) for several in itertools.zip_longest(*kinds) for one in several if one is not None)
    for several in itertools.zip_longest(_in_common(plan, now), entries):
        yield from (one for one in several if one is not None)


def _in_common(plan: PipelinesPlan, now: Choice) -> Iterator[Choice]:
    """Weights gathered at another time, beside the forwards or as soon as the optimizer is done; and other schedules, where
    some pipeline has several stages."""
    yield replace(now, overlap_param_gather=not now.overlap_param_gather)
    if any(one.config.pp > 1 for one in plan.pipelines):
        yield from (replace(now, schedule=one) for one in ("1f1b", *SCHEDULES) if one != now.schedule)


def _layers_moved(rows: tuple[tuple[PipelineRankReport, ...], ...], now: Entries) -> Iterator[Entries]:
    """A layer moved between neighbouring stages, the difference of whose waits is largest first; then the same moves in all
    pipelines that have equal layers, whose gradients are summed together as long as their stages are alike."""
    moves = [
        (own[a].bubble - own[b].bubble, index, a, b)
        for index, own in enumerate(rows)
        for a, b in itertools.permutations(range(len(own)), 2)
        if abs(a - b) == 1
    ]
    moves.sort()
    alike = [[other for other, one in enumerate(now) if one.layers == entry.layers] for entry in now]
    together = [(alike[index], a, b) for _, index, a, b in moves if len(alike[index]) > 1 and index == alike[index][0]]
    for indices, a, b in [*(([index], a, b) for _, index, a, b in moves), *together]:
        layers = list(now[indices[0]].layers)
        if layers[a] > 1:
            layers[a] -= 1
            layers[b] += 1
            changed = now
            for index in indices:
                changed = _put(changed, index, replace(now[index], layers=tuple(layers)))
            yield changed


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
        samples = math.lcm(*(now[one].size * plan.pipelines[one].config.expert_replicas for one in (a, b)))
        fewer, more = now[a].microbatches - samples // now[a].size, now[b].microbatches + samples // now[b].size
        if fewer >= plan.pipelines[a].config.dp:
            changed = _put(now, a, replace(now[a], microbatches=fewer))
            yield _put(changed, b, replace(now[b], microbatches=more))


def _put(now: Entries, index: int, entry: Entry) -> Entries:
    return (*now[:index], entry, *now[index + 1 :])


def _with(plan: PipelinesPlan, choice: Choice) -> PipelinesPlan | None:
    """The plan with another choice; None where a replica has no microbatch, it does not fit, or is not defined."""
    now = Choice.of(plan)
    common = {"schedule": choice.schedule, "overlap_param_gather": choice.overlap_param_gather}
    if (choice.schedule, choice.overlap_param_gather) == (now.schedule, now.overlap_param_gather):
        common = {}
    try:
        pipelines = [_changed(one, entry, common) for one, entry in zip(plan.pipelines, choice.entries, strict=True)]
        found = of_plans(pipelines, plan.made_by)
    except HolmesError:  # a schedule may need more microbatches, or no recomputation
        return None
    return found if all(map(fits, found.pipelines)) else None


def _changed(plan: Plan, entry: Entry, common: dict[str, Any]) -> Plan:
    """The pipeline of an entry, whose stages recompute as few layers as fit, or all as before. common: what changes of all
    pipelines."""
    if entry == Entry.of(plan) and not common:
        return plan
    ends = list(itertools.accumulate(entry.layers, initial=0))
    numbers = shares(plan.config, entry.microbatches)
    config = replace(plan.config, num_microbatches=numbers, microbatch_size=entry.size, **common)
    workload = replace(plan.workload, global_batch_size=entry.microbatches * entry.size)
    stages = tuple(itertools.starmap(Stage, itertools.pairwise(ends)))
    topology = replace(plan.topology, workload=workload)
    moved = replace(plan, topology=topology, workload=workload, config=config, stages=stages)
    return next(recomputing(moved), moved)
