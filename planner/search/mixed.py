"""Plans with mixed stages: the replicas of a stage are on several clusters, and run microbatches in proportion to their speed.

There are two families of placements. By slot order: the slots of all clusters form one sequence, in some order of the clusters,
and each stage takes the next slots, so that no slot is idle at a border of clusters (as in HETHUB and Metis). By replica: every
replica of the pipeline is on one cluster, each cluster has as many replicas as fit, and only gradients cross clusters.
The candidates with the least estimates (`planner.search.mixed_candidates`) are built, and evaluated by
`sim.analytic.evaluator`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from contextlib import suppress

from planner.bounds.mixed_deadline import Placed, PlacementTest
from planner.bounds.total_work import Work
from planner.costs.context import PlanningContext
from planner.costs.mixed_stages import MixedStageCosts, mixed_costs
from planner.placement.ranks import assemble
from planner.placement.simulation import fits
from planner.request import Request
from planner.search.mixed_candidates import MixedCandidate, candidate, with_moved_layers
from planner.search.shortlist import best_of_each, shortlist
from planner.space import lengths
from planner.space.device_slots import Run, StageSlots, cut, devices
from planner.space.mixed_schedules import variants_of_mixed
from planner.space.pipeline_devices import takes_pipelines
from planner.space.shape import Shape, split_backward
from planner.space.shapes import searched, slots
from planner.space.tied_shards import with_tied_shards
from planner.time_limit import TimeLimit
from sim.analytic.evaluator import evaluate
from sim.errors import Infeasible, NoRoute, NotDefined, NotModelled
from sim.field_changes import changed
from sim.hardware.cluster import Cluster
from sim.plan import schedules
from sim.plan.plan import Plan

ORDERS = 6
"""Number of orders of the clusters that are searched by slot order: all orders of three clusters (a guess). More widen the
searched space, and take longer."""
SHORT = 8
"""Number of stages up to which every pp is searched by replica (a guess); a larger pp only where it divides the layers. A
larger value widens the searched space, and takes longer."""
ESTIMATED = 24
"""Number of placements, the best by compute first, whose messages and gradients are estimated under every schedule (a
guess)."""
OF_ONE_KIND = 4
"""Number of these with equal tp, slots of a stage and number of stages (a guess). A larger one leaves less room for others,
whose messages may share links less."""
OF_ONE_PLACEMENT = 2
"""Number of plans of one placement that are returned (a guess): their microbatches differ in how long they wait for links."""
MOVED = 6
"""Number of placements with certain microbatches, those with the least estimates, of which layers are moved (a guess): each
takes a tenth of a second. The best plans of holmes-uneven-8 and peers/dtfm-3-regional come from the second one."""
GAIN = 0.1
"""Fraction by which moves of layers may make an estimate shorter (a guess): 10 % on peers/dtfm-2-universities."""
SIMULATED_WORK = 1_000
"""Stages times microbatches above which a plan is left out (a guess): the engine is slow where a step has no steady state."""
RANKS = 6_000
"""Number of ranks of all plans built (a guess); at least two plans are built. More take longer."""


def mixed(context: PlanningContext, strategy: str, limit: TimeLimit, below: float = math.inf) -> list[tuple[float, Plan]]:
    """(estimated step, plan) of plans with mixed stages that fit memory and might take less than `below` seconds.

    The fastest is first; of plans with equal placement, the fastest two are returned, and the fastest two with moved layers.
    Once the time limit is reached, no more placements are estimated, and no plan is evaluated, except one if `below` is
    infinite, because there is none yet."""
    request, test = context.request, PlacementTest(context)
    costs, work = test.costs, Work(context)
    able = (pair for pair in mixed_placements(request, every_size=False) if work.bound(pair[0]) < below)
    able = (pair for pair in able if below == math.inf or test.quick(*pair) < below)
    in_time = itertools.takewhile(lambda _: not limit.is_up(), able)
    by_compute = ((candidate(costs, split_backward(shape), stages, False), (shape, stages)) for shape, stages in in_time)
    rough = ((layout.seconds, pair) for layout, pair in by_compute if layout is not None and layout.seconds < below)
    varied = best_of_each(rough, lambda pair: (pair[0].tp, pair[0].slots, len(pair[1])), OF_ONE_KIND)
    best = shortlist(varied, lambda pair: _with_whole_step(costs, *pair), ESTIMATED, limit)
    return plans_of(context, [(one.shape, one.stages) for one in best], strategy, limit, below, costs)


def plans_of(
    context: PlanningContext,
    placements: Iterable[Placed],
    strategy: str,
    limit: TimeLimit,
    below: float = math.inf,
    costs: MixedStageCosts | None = None,
) -> list[tuple[float, Plan]]:
    """`mixed` of some placements only. costs: those that are known of the context."""
    request, costs = context.request, costs or mixed_costs(context)
    found: list[MixedCandidate] = []
    for shape, stages in placements:
        if (found or below < math.inf) and limit.is_up():
            break
        for variant in variants_of_mixed(request, shape):
            layout = candidate(costs, variant, stages, True)
            if layout is not None and layout.seconds < below * (1 + GAIN):
                found.append(layout)
    found.sort(key=lambda layout: layout.seconds)
    first = itertools.takewhile(lambda layout: layout.seconds < below, found)
    every = _evaluated(request, first, strategy, limit, below == math.inf)
    shorter = (layout for layout in _moved(costs, found, limit) if layout.seconds < below)
    moved = _evaluated(request, shorter, strategy, limit, False)
    plans = (best_of_each(some, lambda plan: (plan.placement, plan.config.tp), OF_ONE_PLACEMENT) for some in (every, moved))
    return sorted(itertools.chain(*plans), key=lambda pair: pair[0])


def _moved(costs: MixedStageCosts, found: Iterable[MixedCandidate], limit: TimeLimit) -> Iterator[MixedCandidate]:
    """The first candidates after moves of layers: one of each placement and microbatch size."""
    kinds = {(one.stages, one.microbatches, one.shape.recompute): one for one in reversed(list(found))}
    for one in sorted(kinds.values(), key=lambda one: one.seconds)[:MOVED]:
        moved = None if limit.is_up() else with_moved_layers(costs, one)
        if moved is not None:
            yield moved


def _evaluated(
    request: Request, found: Iterable[MixedCandidate], strategy: str, limit: TimeLimit, one: bool
) -> list[tuple[float, Plan]]:
    """(seconds by the evaluator, or estimated ones if these are more, plan) of the first candidates that can be built and fit,
    up to `RANKS` ranks in all, and until the time limit; `one`: one at least."""
    evaluated: list[tuple[float, Plan]] = []
    ranks = 0
    for layout in found:
        size = layout.shape.tp * layout.shape.slots * len(layout.stages)
        if len(layout.stages) * max(layout.microbatches) > SIMULATED_WORK:
            continue
        if (ranks + size > RANKS and len(evaluated) >= 2) or ((evaluated or not one) and limit.is_up()):
            break
        ranks += size
        with suppress(NoRoute, NotDefined, NotModelled):
            placement = devices(layout.stages, layout.shape.tp)
            plan = assemble(request, layout.shape, layout.layers, placement, strategy, layout.microbatches)
            if fits(plan):
                evaluated.append((max(layout.seconds, float(evaluate([plan])[0])), plan))
    return evaluated


def is_mixed(plan: Plan) -> bool:
    """Whether the replicas of some stage are on several clusters."""
    config = plan.config
    of_stage = (plan.placement[config.first_rank(pp) : config.first_rank(pp + 1)] for pp in range(config.pp))
    return any(len({device.cluster for device in stage}) > 1 for stage in of_stage)


def mixed_placements(request: Request, every_size: bool = True) -> Iterator[tuple[Shape, tuple[StageSlots, ...]]]:
    """(shape, slots of each stage) of plans with mixed stages on all clusters that a plan may have: by slot order, then by
    replica.

    Nothing for one cluster, or where a pinned dp does not divide the batch.

    every_size: every microbatch size that divides a replica's batch, else the usual sizes."""
    several = [clusters for clusters in request.joinable() if len(clusters) > 1]
    shapes: tuple[Shape, ...] = ()
    if several:
        with suppress(Infeasible):
            shapes = tuple(searched(request, True, every_size, unequal=False))
    for clusters in several:
        yield from _by_slot_order(request, clusters, shapes)
        if not (request.limits.first or request.limits.last or request.limits.stages):
            yield from _by_replica(request, clusters, shapes)


def _by_slot_order(
    request: Request, clusters: list[Cluster], shapes: tuple[Shape, ...]
) -> Iterator[tuple[Shape, tuple[StageSlots, ...]]]:
    """Stages on consecutive slots of all clusters, where some stage is on several clusters."""
    layers, limits = request.workload.model.layers, request.limits
    for shape in shapes:
        able = [cluster for cluster in clusters if limits.allows_on(cluster.name, shape)]
        for order in itertools.islice(itertools.permutations(able), ORDERS):
            stages = cut(order, shape.tp, shape.slots, lengths.longest(request, shape) or layers)
            mixed = any(len(stage) > 1 for stage in stages) and lengths.allows(request, shape, len(stages))
            mixed = mixed and takes_pipelines(request, shape.tp, stages)
            used = (run.cluster.name for stage in stages for run in stage)
            names = ["+".join(run.cluster.name for run in stage) for stage in stages]
            if mixed and limits.allows_stages(names) and limits.uses_enough(used):
                yield with_tied_shards(request, shape), stages


def _by_replica(
    request: Request, clusters: list[Cluster], shapes: tuple[Shape, ...]
) -> Iterator[tuple[Shape, tuple[StageSlots, ...]]]:
    """Each replica on one cluster; dp is the number of replicas with pp stages that fit on the clusters."""
    layers, wishes, limits = request.workload.model.layers, request.wishes, request.limits
    seen: set[tuple[Shape, int]] = set()
    for shape in shapes:
        able = [limits.allows_on(one.name, shape, but=("dp",)) for one in clusters]
        capacity = [slots(one, shape.tp) // shape.cp * allowed for one, allowed in zip(clusters, able, strict=True)]
        lengths = (pp for pp in range(1, min(layers, max(capacity)) + 1) if pp <= SHORT or layers % pp == 0)
        for pp in [wishes.pp] if wishes.pp else lengths:
            pipelines = [count // pp for count in capacity]
            dp = sum(pipelines)
            total = request.workload.global_batch_size // shape.microbatch_size
            if sum(map(bool, pipelines)) < 2 or dp > total or wishes.dp not in (None, dp):
                continue
            one = with_tied_shards(request, changed(shape, dp=dp))
            used = [cluster.name for cluster, count in zip(clusters, pipelines, strict=True) if count]
            if not (limits.uses_enough(used) and all(limits.allows_on(name, one) for name in used)):
                continue
            if (one, pp) in seen or not (limits.allows("dp", dp) and limits.allows_length(one, pp)):
                continue
            seen.add((one, pp))
            if dp * shape.cp % shape.expert_rows or dp * shape.cp % (shape.zero_shard_size or 1):
                continue
            stages = tuple(_stage_by_replica(clusters, pipelines, shape.cp, stage) for stage in range(pp))
            if takes_pipelines(request, shape.tp, stages):
                yield one, stages


def _stage_by_replica(clusters: Iterable[Cluster], pipelines: list[int], cp: int, stage: int) -> StageSlots:
    """The slots of one stage, where cluster i has pipelines[i] replicas."""
    counts = zip(clusters, pipelines, strict=True)
    return tuple(Run(cluster, stage * count * cp, count * cp) for cluster, count in counts if count)


def _with_whole_step(costs: MixedStageCosts, shape: Shape, stages: tuple[StageSlots, ...]) -> list[MixedCandidate]:
    """The candidate under a schedule that splits the backward, or under another one if none may, or if deferred weight
    gradients do not fit."""
    others = list(variants_of_mixed(costs.context.request, shape))
    splits = [split_backward(shape)] if any(schedules.get(one.schedule).SPLITS_BACKWARD for one in others) else []
    every = (candidate(costs, one, stages, True) for one in [*splits, *others[:1]])
    return list(itertools.islice(filter(None, every), 1))
