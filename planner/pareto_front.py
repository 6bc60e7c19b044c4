"""Plans for objectives other than the step time, and the Pareto front: search on subsets of the machines.

The fastest plan on given machines is also about the cheapest on them, because they are paid for whether they work or not; a
cheaper plan uses fewer machines. So the search finds the fastest plan of the whole fleet with its proof, then plans on every
choice of clusters and on ever fewer nodes of each, the choice with the lowest bound first (`planner.bounds.objectives.least`).
A choice is pruned if a simulated plan is at least as good as its bounds in every objective. All simulated plans are compared.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from planner.bounds.objectives import check, dominates, front, known, least, value
from planner.costs.context import PlanningContext
from planner.request import Request
from planner.search.budgets import Budgets
from planner.search.searched_space import axes, outside
from planner.strategies import certified
from sim.errors import Infeasible
from sim.plan.certificate import Certificate
from sim.plan.plan import Plan

Machines = tuple[tuple[str, int], ...]
"""Names of clusters with the number of their nodes."""
FEW = 4
"""Maximum number of clusters of which every subset is searched; of more, each alone and all but one (a guess)."""
WHOLE = 0.5
"""Share of the time limit for the whole fleet (a guess); a larger one leaves less to its subsets."""


def best(request: Request, context: PlanningContext, objective: str) -> tuple[Plan, Plan]:
    """(the best plan by an objective, with a certificate for it; the fastest plan).

    Raises PlanError where a device lacks a price or watts, Infeasible where no plan fits."""
    check(request, objective)
    plans = explore(request, context, (objective,))
    found, fastest = (
        min(plans, key=lambda plan: (value(plan, of), value(plan, "step-time"))) for of in (objective, "step-time")
    )
    bound, step = least(context, (objective, "step-time"))
    gap = 1 - bound / value(found, objective)
    certificate = Certificate(
        status="optimal" if gap <= Budgets().optimal_gap else "feasible",
        objective_s=value(found, "step-time"),
        lower_bound_s=step,
        gap=gap,
        solver="closed form",
        time_limit_reached=time.monotonic() > context.deadline,
        objective=objective,
        lower_bound_per_token=bound,
        space=axes(request),
        outside=outside(request),
    )
    return replace(found, certificate=certificate), fastest


def pareto(request: Request, context: PlanningContext) -> tuple[tuple[str, ...], tuple[Plan, ...], tuple[Plan, ...]]:
    """(objectives, plans of the front, other simulated plans). Raises PlanError where only the step time can be evaluated."""
    objectives = known(request)
    if len(objectives) < 2:
        check(request, "cost")
    plans = explore(request, context, objectives)
    chosen = front(plans, objectives)
    return objectives, chosen, tuple(plan for plan in plans if plan not in chosen)


def explore(request: Request, context: PlanningContext, objectives: tuple[str, ...]) -> tuple[Plan, ...]:
    """Distinct plans simulated in searches of the whole fleet, then of subsets whose bounds no simulated plan reaches.

    The first is the fastest of the whole fleet. Raises Infeasible where no plan fits, PlanError where pins are wrong."""
    deadline = time.monotonic() + request.time_limit
    whole = PlanningContext(replace(request, time_limit=WHOLE * request.time_limit), context.progress)
    simulated = [certified.plan(whole.request, whole), *whole.simulated]
    context.interrupted = whole.interrupted
    try:
        for part, bounds in _promising(request, objectives):
            left = deadline - time.monotonic()
            if left <= 0 or context.interrupted:
                break
            if not any(_beats(plan, objectives, bounds) for plan in simulated):
                inside = PlanningContext(replace(part, time_limit=left), functools.partial(_tell, context, part))
                with suppress(Infeasible):
                    certified.plan(inside.request, inside)
                context.interrupted = inside.interrupted
                simulated += inside.simulated
    except KeyboardInterrupt:  # the plans simulated so far are the result
        context.interrupted = True
    unlike: dict[object, Plan] = {}
    for plan in simulated:
        unlike.setdefault((plan.config, plan.stages, plan.placement), plan)
    return tuple(unlike.values())


def _beats(plan: Plan, objectives: tuple[str, ...], bounds: tuple[float, ...]) -> bool:
    """Whether a plan is at least as good in every objective as any plan within the bounds."""
    numbers = tuple(value(plan, objective) for objective in objectives)
    return numbers == bounds or dominates(numbers, bounds)


def _promising(request: Request, objectives: tuple[str, ...]) -> list[tuple[Request, tuple[float, ...]]]:
    """Requests for every choice of machines, with lower bounds on their objectives, in the order of these bounds.

    The bounds of the last objective are compared first, that of the step time not at all. Of equal ones the choice with the
    fewest devices is first, which is the quickest to search and often the cheapest."""
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


def _tell(context: PlanningContext, part: Request, text: str) -> None:
    """Report progress with the machines that are searched."""
    nodes = ", ".join(f"{name} {count}" for name, count in part.machines)
    context.progress(f"on nodes of {nodes}: {text}")
