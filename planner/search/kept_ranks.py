"""The search of plans whose ranks keep the weights that a plan of today has on their devices.

Layers, degrees and devices are those of that plan, so few dimensions are left: the number of replicas (the first ones that
every stage still has, or those that no stage lost before others), the microbatch size, the schedule, the ZeRO stage and
recomputation. All combinations that are valid, allowed and fit memory are built, and simulated in the order of their closed
form, until that of the next one is not below the best step. Invariant: a plan that is left out takes no less than the best plan
on an idle network, or than all devices at their peaks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from planner.bounds.peak_work import peak_seconds
from planner.costs.context import PlanningContext
from planner.kept_ranks import KeptRanks
from planner.placement.ranks import launched
from planner.placement.recomputation import recomputing
from planner.placement.simulation import fits, step
from planner.request import Request
from planner.search.budgets import Budgets
from planner.space import runnable
from sim import __version__
from sim.analytic import plan_costs
from sim.errors import HolmesError, Infeasible, NotModelled
from sim.field_changes import changed
from sim.hardware.cluster import Device
from sim.plan import schedules
from sim.plan.certificate import Axis, Certificate
from sim.plan.groups import groups_of
from sim.plan.offloading import choice_of
from sim.plan.parallel_config import BLOCK, RECOMPUTE, ParallelConfig
from sim.plan.plan import MadeBy, Plan
from sim.plan.under_stack import config_under
from sim.units import Seconds

FIXED = ("tp", "pp", "cp", "ep", "etp", "vpp")
"""Degrees that weights on devices decide."""
OUTSIDE = (
    "other subsets of the replicas than the first ones",
    "switches that differ from today's, such as overlaps and offload",
)
"""What plans that keep ranks could have and the search leaves out."""
WORDS = {"": "as today", BLOCK: "as few layers of each stage as memory requires"}
"""Recomputation in words, where its name does not say what it is."""


def is_asked(request: Request) -> bool:
    """Whether ranks have to stay where they are."""
    return request.limits.ranks is not None


def plan(request: Request, context: PlanningContext) -> Plan:
    """The fastest plan, simulated, with its certificate. Raises Infeasible where there is none."""
    context.progress("plans that keep ranks where they are")
    search = Search(request, context)
    try:
        search.run()
    except KeyboardInterrupt:  # return the best plan so far
        if search.best is None:
            raise
        context.interrupted, search.ended = True, False
    if search.best is None:
        raise Infeasible(f"no plan that fits memory has {'; '.join(request.limits.words())}")
    return search.best.annotated(certificate=_certificate(search, search.best), made_by=MadeBy("certified", __version__))


class Search:
    """The search of one request: the best plan so far, and whether every other one is known to be slower (`ended`)."""

    def __init__(self, request: Request, context: PlanningContext):
        self.request, self.context, self.ended = request, context, False
        self.best: Plan | None = None

    def run(self) -> None:
        """Evaluate all candidates, and simulate them in the order of their closed form."""
        is_up, found = self.context.limit.is_up, list[tuple[Seconds, Plan]]()
        for pair in candidates(self.request):
            found.append(pair)
            if is_up():
                break
        self.ended = not self.context.limit.reached
        for seconds, candidate in sorted(found, key=lambda pair: pair[0]):
            least = math.inf if self.best is None else step(self.best)
            if seconds >= least:
                break
            if self.best is not None and is_up():
                self.ended = False
                break
            simulated = self.context.timelines.simulate_up_to(candidate, least)
            if isinstance(simulated, Plan) and step(simulated) < least and not self.request.refuses(simulated):
                self.best = simulated


def some_plan(request: Request) -> Plan | None:
    """A plan that fits memory, not simulated; None where there is none."""
    return next((plan for _, plan in candidates(request)), None)


def candidates(request: Request) -> Iterator[tuple[Seconds, Plan]]:
    """(seconds on an idle network, plan) of every plan that is valid, allowed and fits memory; the layout of today first."""
    kept = request.limits.ranks
    assert kept is not None
    seen = set[tuple[ParallelConfig, tuple[Device, ...]]]()
    for placement, config, recompute in _layouts(request, kept):
        with suppress(HolmesError):  # not defined, not modelled, or nothing joins a group: no plan
            groups = groups_of(request.topology.fleet, config, placement)
            made_by = MadeBy("certified", __version__)
            whole = Plan(request.topology, request.workload, config, kept.stages, placement, groups, made_by)
            whole = replace(whole, config=config_under(request.topology.stack, whole))
            built = launched(request, recomputing(whole) if recompute == BLOCK else (whole,))
            if (built.config, placement) not in seen and fits(built):
                seen.add((built.config, placement))
                yield _estimate(built), built


def _estimate(plan: Plan) -> Seconds:
    """Seconds on an idle network; 0 where they have no closed form, so that the plan is simulated."""
    try:
        return plan_costs.step_seconds(plan)
    except NotModelled:
        return 0.0


def _layouts(request: Request, kept: KeptRanks) -> Iterator[tuple[tuple[Device, ...], ParallelConfig, str]]:
    """(device of each rank, configuration, recomputation) of every combination that the pins allow."""
    wishes, today, batch = request.wishes, kept.config, request.workload.global_batch_size
    for name in FIXED:
        if getattr(wishes, name) not in (None, getattr(today, name) or (today.tp if name == "etp" else None)):
            return
    if wishes.offload not in (None, choice_of(today.offload)) or wishes.zero_shard_size not in (None, today.zero_shard_size):
        return
    for dp, placement in kept.placements():
        for size, name, zero, recompute in itertools.product(*_values(request, today)):
            if wishes.dp not in (None, dp) or batch // size < dp:
                continue
            with suppress(HolmesError):
                config = changed(kept.with_replicas(dp, batch // size), microbatch_size=size, schedule=name)
                config = changed(config, zero_stage=zero if config.sums_gradients else today.zero_stage)
                config = config if recompute in ("", BLOCK) else config.recomputing(recompute)
                yield placement, config, recompute


def _values(request: Request, today: ParallelConfig) -> tuple[Sequence[int], Sequence[str], Sequence[int], Sequence[str]]:
    """The values of microbatch size, schedule, ZeRO stage and recomputation, those of today first; "" recomputes what stages
    recompute today."""
    wishes, limits, batch = request.wishes, request.limits, request.workload.global_batch_size
    able = (today.microbatch_size,) if today.stage_microbatch_size else range(1, batch + 1)
    sizes = [size for size in able if batch % size == 0 and limits.allows("microbatch_size", size)]
    known = (*map(str, limits.listed("schedule")), *runnable.schedules_for(request.target, request.workload))
    names = [name for name in known if (today.vpp > 1) == schedules.get(name).CHUNKED] + [today.schedule]
    own = bool(today.stage_zero or today.zero_shard_size)
    zeros = (today.zero_stage,) if own else (1, 2, 3, *map(int, limits.listed("zero_stage")), today.zero_stage)
    alike = () if today.offloads_activations else (*RECOMPUTE, BLOCK)
    return (
        [size for size in sizes if wishes.microbatch_size in (None, size)],
        [name for name in dict.fromkeys(names) if wishes.schedule in (None, name) and limits.allows("schedule", name)],
        [zero for zero in sorted(set(zeros)) if wishes.zero_stage in (None, zero) and limits.allows("zero_stage", zero)],
        ("", *alike) if wishes.recompute is None else (wishes.recompute,),
    )


def _certificate(search: Search, best: Plan) -> Certificate:
    """The bound is the best step if the search ended, else that of the devices at their peaks."""
    request, objective = search.request, step(best)
    bound = objective if search.ended else min(peak_seconds(request), objective)
    gap = 1 - bound / objective
    return Certificate(
        status="optimal" if gap <= Budgets().optimal_gap else "feasible",
        objective_s=objective,
        lower_bound_s=bound,
        gap=gap,
        solver="closed form",
        time_limit_reached=search.context.limit.reached,
        whole_lower_bound_s=bound,
        space=tuple(_axes(request)),
        outside=(
            "plans in which a rank loads other weights than its device has",
            "plans on devices that are idle today",
            *OUTSIDE,
        ),
    )


def _axes(request: Request) -> Iterator[Axis]:
    """The dimensions of the search with their values."""
    kept, limits = request.limits.ranks, request.limits
    assert kept is not None
    today = kept.config
    sizes, names, zeros, recomputations = _values(request, today)
    for name in FIXED:
        own = getattr(today, f"stage_{name}", ())
        value = ", ".join(map(str, own)) + " by stage" if own else getattr(today, name)
        yield from (Axis(name, (value,)),) if value is not None else ()
    yield Axis("dp", tuple(sorted({dp for dp, _ in kept.placements() if request.wishes.dp in (None, dp)})))
    yield Axis("microbatch_size", tuple(sizes))
    yield Axis("schedule", tuple(names))
    yield Axis("zero_stage", tuple(zeros))
    yield Axis("recompute", tuple(WORDS.get(one, one) for one in recomputations))
    yield Axis("layers", (f"as in {kept.name}",))
    if request.target is not None:
        yield Axis("target", (request.target.name,))
    yield Axis("required", tuple(limits.words()))
    chosen = "of each stage the first replicas, or those that no stage lost first"
    yield Axis("placement", (f"each rank where it has its weights in {kept.name}; {chosen}",))
