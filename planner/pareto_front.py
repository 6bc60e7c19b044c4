"""Plans for objectives other than the step time, and the Pareto front: search on subsets of the machines.

Machines cost the same whether they compute or wait, so the fastest plan on given machines is about the cheapest plan on them,
and a cheaper plan uses fewer machines. The search therefore finds the fastest plan of the whole fleet and its certificate. Then
it plans on subsets: sets of clusters, and half, a quarter, ... of the nodes of each cluster. The subset with the lowest bound
(`planner.bounds.objectives.least`) is searched first, without a proof. A subset is pruned if a simulated plan is at least as
good as its bounds in every objective (Pareto dominance). For one objective, or a limit of the cost, the nodes of the best plan
are then searched with a proof. The result is chosen from all simulated plans."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from planner.bounds.objectives import check, dominates, front, known, least, value
from planner.costs.context import PlanningContext
from planner.request import Request
from planner.search.along_a_v import is_asked
from planner.search.budgets import Budgets
from planner.search.mixed import is_mixed
from planner.search.searched_space import axes, outside
from planner.space.unlike_tp import has_searched_degrees
from planner.strategies import certified
from sim.errors import Infeasible, OptionError
from sim.plan.certificate import Certificate
from sim.plan.plan import Plan
from sim.results.cost_energy import occupied
from sim.units import MEGA

Machines = tuple[tuple[str, int], ...]
"""Names of clusters with the number of their nodes."""
FEW = 4
"""Maximum number of clusters up to which every subset is searched (a guess). With more clusters, each cluster alone and all
clusters but one are searched."""
NEAR, SEARCHED = 0.25, 3
"""Of plans that cost up to 25 % more than allowed, and are faster than all that are cheap enough: number of sets of nodes that
are searched to the end for a cheaper plan (guesses)."""
WHOLE = 0.5
"""Fraction of the time limit for the whole fleet (a guess). A larger value leaves less time for the subsets."""


def best(request: Request, context: PlanningContext, objective: str) -> tuple[Plan, Plan]:
    """(the best plan by an objective, with a certificate for it; the fastest plan).

    Raises OptionError where a device lacks a price or watts, or ranks are kept, Infeasible where no plan fits."""
    check(request, objective)
    _refuse_kept_ranks(request, f"objective {objective}")
    if is_asked(request):
        raise OptionError(
            f"objective {objective}: plans of schedule {request.wishes.schedule} are searched for their step alone"
        )
    plans = explore(request, context, (objective,) if request.limits.training is None else ("step-time", objective))
    plans += tuple(_on_its_machines(request, context, min(_allowed(request, plans), key=lambda plan: value(plan, objective))))
    found, fastest = (
        min(_allowed(request, plans), key=lambda plan: (value(plan, of), value(plan, "step-time")))
        for of in (objective, "step-time")
    )
    bound, step = least(context, (objective, "step-time"))
    gap = max(1 - bound / value(found, objective), 0.0)
    certificate = Certificate(
        status="optimal" if gap <= Budgets().optimal_gap and not _is_beside(request, found) else "feasible",
        objective_s=value(found, "step-time"),
        lower_bound_s=min(step, value(found, "step-time")),
        gap=gap,
        solver="closed form",
        time_limit_reached=context.limit.reached,
        objective=objective,
        lower_bound_per_token=bound,
        beside_space=_is_beside(request, found),
        space=axes(request),
        outside=outside(request, tried=True, every_step=True),
    )
    return replace(found, certificate=certificate), fastest


def _refuse_kept_ranks(request: Request, what: str) -> None:
    if request.limits.ranks is not None:
        raise OptionError(f"{what}: plans with {request.limits.ranks} are searched for their step alone")


def _allowed(request: Request, plans: tuple[Plan, ...]) -> tuple[Plan, ...]:
    """The simulated plans within the limits of the request; all of them where none is."""
    return tuple(plan for plan in plans if not any(request.limits.faults(plan))) or plans


def within_cost(request: Request, context: PlanningContext) -> Plan:
    """The fastest of the simulated plans that cost no more per token than the limits of the request allow.

    Its certificate bounds the step of all plans, also of those that cost more. Raises OptionError where a device lacks a price,
    Infeasible where no plan fits, or none of those found is cheap enough."""
    check(request, "cost")
    most = request.limits.cost
    assert most is not None
    free = replace(request, limits=replace(request.limits, cost=None))
    plans = explore(free, context, ("step-time", "cost"))
    able = [plan for plan in plans if value(plan, "cost") <= most * (1 + 1e-12)]
    by_nodes: dict[object, Plan] = {}
    for plan in sorted(plans, key=lambda plan: value(plan, "step-time")):
        if value(plan, "cost") <= most * (1 + NEAR):
            by_nodes.setdefault(frozenset((cluster.name, count) for cluster, count in occupied(plan)), plan)
    for plan in list(by_nodes.values())[:SEARCHED]:
        if value(plan, "step-time") <= min((value(one, "step-time") for one in able), default=math.inf):
            able += [one for one in _on_its_machines(free, context, plan) if value(one, "cost") <= most * (1 + 1e-12)]
    if not able:
        cheapest, (bound,) = min(value(plan, "cost") for plan in plans), least(PlanningContext(free), ("cost",))
        raise Infeasible(
            f"no plan that was found costs at most {most * MEGA:.4g} USD/Mtoken: the cheapest costs {cheapest * MEGA:.4g}, and "
            f"none costs less than {bound * MEGA:.4g}"
        )
    found, proof = min(able, key=lambda plan: (value(plan, "step-time"), value(plan, "cost"))), plans[0].certificate
    assert proof is not None
    step = value(found, "step-time")
    bound, beside = proof.lower_bound_s, _is_beside(request, found)
    certificate = replace(
        proof,
        objective_s=step,
        lower_bound_s=bound,
        gap=1 - bound / step,
        status="optimal" if 1 - bound / step <= Budgets().optimal_gap and not beside else "feasible",
        beside_space=beside,
        space=axes(request),
    )
    return replace(found, certificate=certificate)


def _is_beside(request: Request, plan: Plan) -> bool:
    """Whether a plan is outside of the space that its certificate holds for."""
    return not is_mixed(plan) and not has_searched_degrees(request, plan)


def _on_its_machines(request: Request, context: PlanningContext, plan: Plan) -> list[Plan]:
    """Plans of a whole search on the nodes that a plan uses, which begins with it; empty where it uses the whole fleet."""
    used = tuple((cluster.name, devices // cluster.node.count) for cluster, devices in occupied(plan))
    if set(used) == {(cluster.name, cluster.nodes) for cluster in request.clusters()} or context.interrupted:
        return []
    part = replace(request, machines=used, time_limit=context.limit.seconds_left)
    inside = PlanningContext(part, functools.partial(_report, context, part), start=plan)
    inside.every_step = True
    found = certified.plan(part, inside)
    context.interrupted = inside.interrupted
    return [found, *inside.simulated]


def pareto(request: Request, context: PlanningContext) -> tuple[tuple[str, ...], tuple[Plan, ...], tuple[Plan, ...]]:
    """(objectives, plans of the front, other simulated plans). Raises OptionError where only the step time can be evaluated,
    or ranks are kept, Infeasible where no plan keeps to the limits."""
    _refuse_kept_ranks(request, "the Pareto front")
    objectives = known(request)
    if len(objectives) < 2:
        check(request, "cost")
    plans = tuple(plan for plan in explore(request, context, objectives) if not any(request.limits.faults(plan)))
    if not plans:
        raise Infeasible(f"no plan that was found has {'; '.join(request.limits.words())}")
    chosen = front(plans, objectives)
    return objectives, chosen, tuple(plan for plan in plans if plan not in chosen)


def explore(request: Request, context: PlanningContext, objectives: tuple[str, ...]) -> tuple[Plan, ...]:
    """Distinct plans simulated in searches of the whole fleet and of the subsets that are not pruned.

    The first plan is the fastest one of the whole fleet. Raises Infeasible if no plan fits, PlanError if pins contradict each
    other."""
    whole = PlanningContext(replace(request, time_limit=WHOLE * request.time_limit), context.progress)
    whole.every_step = True
    simulated = [certified.plan(whole.request, whole), *whole.simulated]
    context.interrupted = whole.interrupted
    context.limit.reached |= whole.limit.reached
    try:
        for part, bounds in _promising(request, objectives):
            if context.interrupted or context.limit.is_up():
                break
            if not any(_beats(plan, objectives, bounds) for plan in simulated):
                inside = PlanningContext(
                    replace(part, time_limit=context.limit.seconds_left), functools.partial(_report, context, part)
                )
                inside.every_step, inside.proves = True, False
                with suppress(Infeasible):
                    certified.plan(inside.request, inside)
                context.interrupted = inside.interrupted
                context.limit.reached |= inside.limit.reached
                simulated += inside.simulated
    except KeyboardInterrupt:  # the plans simulated so far are the result
        context.interrupted = True
    distinct: dict[object, Plan] = {}
    for plan in simulated:
        distinct.setdefault((plan.config, plan.stages, plan.placement), plan)
    return tuple(distinct.values())


def _beats(plan: Plan, objectives: tuple[str, ...], bounds: tuple[float, ...]) -> bool:
    """Whether a plan is at least as good in every objective as any plan within the bounds."""
    numbers = tuple(value(plan, objective) for objective in objectives)
    return numbers == bounds or dominates(numbers, bounds)


def _promising(request: Request, objectives: tuple[str, ...]) -> list[tuple[Request, tuple[float, ...]]]:
    """(request, lower bounds on its objectives) for every subset of the machines, sorted by the bounds.

    The bound on the last objective is compared first; the bound on the step time is not compared. Subsets with equal bounds are
    sorted by their number of devices, because a small subset is quick to search and often the cheapest."""
    found = []
    for machines in choices(request):
        part = replace(request, machines=machines)
        with suppress(Infeasible):
            found.append((part, least(PlanningContext(part), objectives)))

    def order(pair: tuple[Request, tuple[float, ...]]) -> tuple[tuple[float, ...], int]:
        spent = zip(objectives, pair[1], strict=True)
        bounds = tuple(bound for objective, bound in spent if objective != "step-time")
        return bounds[::-1], sum(cluster.devices for cluster in pair[0].clusters())

    return sorted(found, key=order)


def choices(request: Request) -> Iterator[Machines]:
    """Proper subsets of the clusters (see `FEW`), then each cluster with half of its nodes, a quarter, ... one."""
    whole = tuple((cluster.name, cluster.nodes) for cluster in request.clusters())
    sizes = range(len(whole) - 1, 0, -1) if len(whole) <= FEW else dict.fromkeys((len(whole) - 1, 1))
    for size in sizes:
        yield from itertools.combinations(whole, size)
    for name, nodes in whole:
        while nodes > 1:
            nodes = nodes // 2
            yield ((name, nodes),)


def _report(context: PlanningContext, part: Request, text: str) -> None:
    """Report progress with the machines that are searched."""
    nodes = ", ".join(f"{name} {count}" for name, count in part.machines)
    context.progress(f"on nodes of {nodes}: {text}")
