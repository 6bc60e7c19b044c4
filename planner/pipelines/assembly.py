"""Plans of unlike pipelines from columns: nodes for each, and samples such that all of them end together."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations_with_replacement

from planner.pipelines.budgets import Work
from planner.pipelines.columns import Column, of_samples
from planner.placement.simulation import fits
from planner.request import Request
from sim import __version__
from sim.engine.abandonment import Abandoned
from sim.engine.engine import simulate_up_to
from sim.engine.timeline import Timeline
from sim.errors import HolmesError, PlanError
from sim.plan.groups import groups_of
from sim.plan.parallel_config import ParallelConfig
from sim.plan.pipelines import COMMON, PipelinesPlan, of_plans
from sim.plan.plan import MadeBy, Plan
from sim.plan.program import COMPUTE
from sim.results.report import predict
from sim.units import Seconds

STRATEGY = "unlike-pipelines"
"""Name of the strategy in the files of such plans."""
MOVES = 6
"""How often microbatches are moved from the pipelines that end last to those that end first (a guess)."""
BISECTIONS = 20
"""Bisections of the time by which microbatches are done, before single ones are divided (a guess)."""
MISJUDGED = 0.1
"""Share by which the first division may be slower than a plan must be, for microbatches to be moved (a guess): columns are
divided such that all end together, and a simulation that is slower by more is abandoned."""


def divided(batch: int, columns: Sequence[Column]) -> tuple[int, ...] | None:
    """Microbatches of each column for a batch: the next one goes to the column that has it done first, or the next one of each
    of the replicas that divide experts.

    Greedy, as in `planner.islands.batches`. None where the sizes of microbatches do not add up to the batch, or a replica would
    have none."""
    sizes = [column.plan.config.microbatch_size for column in columns]
    units = [column.plan.config.expert_replicas for column in columns]
    numbers = _begun(batch, columns)
    left = batch - sum(number * size for number, size in zip(numbers, sizes, strict=True))
    while left > 0:
        able = [index for index, size in enumerate(sizes) if size * units[index] <= left]
        if not able:
            return None
        soonest = min(able, key=lambda index: (columns[index].step(numbers[index] + 1), index))
        numbers[soonest] += units[soonest]
        left -= sizes[soonest] * units[soonest]
    return tuple(numbers) if left == 0 else None


def estimated(batch: int, columns: Sequence[Column]) -> Seconds:
    """Estimated step of columns; infinite where the batch cannot be divided."""
    numbers = divided(batch, columns)
    if numbers is None:
        return math.inf
    replicas = sum(one.plan.config.dp for one in columns)
    computed_s = max(one.step(number) for one, number in zip(columns, numbers, strict=True))
    return computed_s + max(one.gradients(replicas) for one in columns)


def together(
    known: Sequence[Column], number: int, nodes: Sequence[int], batch: int, below: Seconds
) -> Iterator[tuple[Column, ...]]:
    """Each `number` of known columns that have nodes of their own and compute a batch in less than `below` seconds, if
    gradients take none; a column may be several of them. nodes: of each cluster."""
    most = [column.samples(below) for column in known]
    for chosen in combinations_with_replacement(range(len(known)), number):
        if sum(most[index] for index in chosen) >= batch:
            several = tuple(known[index] for index in chosen)
            used = map(sum, zip(*(column.part for column in several), strict=True))
            if all(taken <= have for taken, have in zip(used, nodes, strict=True)):
                yield several


def _begun(batch: int, columns: Sequence[Column]) -> list[int]:
    """A division of most of a batch with which the greedy one begins: all microbatches that are done by some time, which is
    found by bisection, and at least one of each replica."""
    sizes = [column.plan.config.microbatch_size for column in columns]
    early, late = 0.0, max(column.step(batch) for column in columns)
    found = [column.plan.config.dp for column in columns]
    for _ in range(BISECTIONS):
        middle = (early + late) / 2
        numbers = [
            max(int((middle - column.fixed_s) / column.each_s), 1) * column.plan.config.dp for column in columns
        ]  # fmt: skip
        if sum(number * size for number, size in zip(numbers, sizes, strict=True)) <= batch - 2 * max(sizes):
            early, found = middle, numbers
        else:
            late = middle
    return found


def assembled(
    request: Request, columns: Sequence[Column], microbatches: Sequence[int], schedule: str = "1f1b"
) -> PipelinesPlan | None:
    """The plan of columns with so many microbatches each, on nodes of their own; None where it does not fit, or is not
    modelled."""
    taken, entries = Counter[str](), list[Plan]()
    common = {key: getattr(columns[0].plan.config, key) for key in COMMON} | {
        "sequence_parallel": True, "schedule": schedule
    }  # fmt: skip
    for column, number in zip(columns, microbatches, strict=True):
        plan = column.plan
        placement = tuple(replace(device, node=device.node + taken[device.cluster]) for device in plan.placement)
        config = replace(plan.config, **common)
        moved = replace(plan, config=config, placement=placement, groups=groups_of(plan.fleet, config, placement))
        entries.append(of_samples(moved, shares(config, number), config.microbatch_size))
        names = (cluster.name for cluster in request.clusters())
        taken.update(dict(zip(names, column.part, strict=True)))
    try:
        found = of_plans(entries, MadeBy(STRATEGY, __version__))
    except HolmesError:
        return None
    return found if all(map(fits, found.pipelines)) else None


def shares(config: ParallelConfig, microbatches: int) -> tuple[int, ...]:
    """Microbatches of each replica of an entry with so many; replicas that divide experts have equally many. Raises PlanError
    where they cannot."""
    together = config.expert_replicas
    whole, rest = divmod(microbatches, together)
    if rest:
        raise PlanError(f"{microbatches} microbatches on {config.dp} replicas, of which {together} have equally many")
    each, more = divmod(whole, config.dp // together)
    return tuple(each + (replica // together < more) for replica in range(config.dp))


def simulated(
    plan: PipelinesPlan, below: Seconds = math.inf, work: Work | None = None
) -> tuple[PipelinesPlan, Timeline] | None:
    """A plan with its prediction, and the timeline of its step; None where it is proved that the step is not `below` so many
    seconds. work: counts the events of the simulation."""
    timeline = simulate_up_to(plan, below)
    if work is not None:
        work.events += timeline.events
    return None if isinstance(timeline, Abandoned) else (plan.annotated(predict(plan, timeline)), timeline)


def balanced(
    request: Request, columns: Sequence[Column], microbatches: Sequence[int], schedule: str = "1f1b", below: Seconds = math.inf,
    work: Work | None = None,
) -> PipelinesPlan | None:  # fmt: skip
    """The fastest simulated plan of some divisions of a batch: microbatches move from the pipelines that end last, before they
    reduce gradients, to those that end first. None where the first division has no plan, or is far from `below` so many seconds
    (`MISJUDGED`). work: as in `simulated`."""
    best: PipelinesPlan | None = None
    tried: set[tuple[int, ...]] = set()
    numbers: tuple[int, ...] | None = tuple(microbatches)
    while numbers is not None and numbers not in tried and len(tried) < MOVES:
        tried.add(numbers)
        try:
            plan = assembled(request, columns, numbers, schedule)
        except HolmesError:  # a schedule may need more microbatches, or no recomputation
            plan = None
        found = simulated(plan, below * (1 + MISJUDGED) if best is None else step_of(best), work) if plan is not None else None
        if found is None or (best is not None and step_of(found[0]) >= step_of(best)):
            break
        best, ends = found[0], computed(*found)
        if step_of(best) - max(ends) + min(ends) >= below:  # in every other division some pipeline ends later than the first
            break
        if step_of(best) > below * (1 + MISJUDGED):  # as if it were abandoned
            break
        numbers = _moved(columns, numbers, ends)
    return best


def step_of(plan: PipelinesPlan) -> Seconds:
    """The simulated step of a plan."""
    assert plan.prediction is not None
    return plan.prediction.step_s


def computed(plan: PipelinesPlan, timeline: Timeline) -> list[Seconds]:
    """When each pipeline has computed its last microbatch."""
    past, last = [*plan.first_ranks[1:], len(plan.placement)], dict[int, Seconds]()
    for span in timeline.spans:
        if span.kind in COMPUTE:
            last[span.rank] = max(last.get(span.rank, 0.0), span.end)
    ends = [0.0] * len(plan.pipelines)
    for group in timeline.alike:
        for index in {bisect_right(past, rank) for rank in group}:
            ends[index] = max(ends[index], last.get(group[0], 0.0))
    return ends


def microbatches(plan: PipelinesPlan) -> tuple[int, ...]:
    """Microbatches of all replicas of each pipeline."""
    return tuple(sum(one.config.num_microbatches) for one in plan.pipelines)


def forwards(columns: Sequence[Column], numbers: Sequence[int]) -> int:
    """Forwards of microbatches on the stages of a replica of each column, which has so many microbatches: replicas that are
    alike are simulated once."""
    return sum(one.plan.config.pp * -(-number // one.plan.config.dp) for one, number in zip(columns, numbers, strict=True))


def _moved(columns: Sequence[Column], numbers: Sequence[int], ends: Sequence[Seconds]) -> tuple[int, ...] | None:
    """Move microbatches from the pipeline that ends last to the one that ends first, such that both end together; None where
    no whole number of them does."""
    late, early = (chosen(range(len(ends)), key=ends.__getitem__) for chosen in (max, min))
    configs = [columns[index].plan.config for index in (late, early)]
    sizes = [config.microbatch_size for config in configs]
    rates = [columns[index].each_s / columns[index].plan.config.dp for index in (late, early)]
    least_moved = [config.microbatch_size * config.expert_replicas for config in configs]
    unit = max(least_moved)
    if any(unit % samples for samples in least_moved):
        return None
    both = sum(rate * (unit // size) for rate, size in zip(rates, sizes, strict=True))
    moved = int((ends[late] - ends[early]) / both + 0.5) if both else 0
    found = list(numbers)
    found[late] -= moved * unit // sizes[0]
    found[early] += moved * unit // sizes[1]
    least = columns[late].plan.config.dp
    return tuple(found) if moved and found[late] >= least else None
