"""Plans for other objectives than the step time: on fewer machines.

The fastest plan of given machines is also about the cheapest on them, for they are paid for whether they work or not. What is
cheaper leaves machines out. So the fastest plan of the whole fleet is searched with its proof, then plans on every choice of
clusters and on ever fewer nodes of each, the one with the lowest bound first (`planner.bounds.objectives.least`). A choice
whose bounds all lie above a plan that is known is passed over. What the searches have played is compared.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from planner.bounds.objectives import check, dominates, front, known, least, value
from planner.costs.context import Workshop
from planner.request import Question
from planner.search.searched_space import axes, outside
from planner.strategies import certified
from sim.errors import Infeasible
from sim.plan.plan import Certificate, Plan

Machines = tuple[tuple[str, int], ...]
"""Clusters and how many of their nodes."""
FEW = 4
"""Of so many clusters every choice is tried; of more each alone, and all without one (a guess at what is worth the time)."""
WHOLE = 0.5
"""Share of the time limit for the whole fleet."""


def best(question: Question, workshop: Workshop, objective: str) -> tuple[Plan, Plan]:
    """(the best plan found by an objective, with a certificate of that; the fastest one found).

    Raises PlanError where a device lacks a price or watts, Infeasible where no plan fits."""
    check(question, objective)
    plans = explore(question, workshop, (objective,))
    found, fastest = (
        min(plans, key=lambda plan: (value(plan, of), value(plan, "step-time"))) for of in (objective, "step-time")
    )
    bound, step = least(workshop, (objective, "step-time"))
    gap = 1 - bound / value(found, objective)
    certificate = Certificate(
        status="optimal" if gap <= certified.OPTIMAL_GAP else "feasible",
        objective_s=value(found, "step-time"),
        lower_bound_s=step,
        gap=gap,
        solver="closed form",
        seconds=question.time_limit,
        objective=objective,
        lower_bound_per_token=bound,
        space=axes(question),
        outside=outside(question),
    )
    return replace(found, certificate=certificate), fastest


def pareto(question: Question, workshop: Workshop) -> tuple[tuple[str, ...], tuple[Plan, ...], tuple[Plan, ...]]:
    """(objectives, plans of the front, the others that were played). Raises PlanError where only the step time is known."""
    objectives = known(question)
    if len(objectives) < 2:
        check(question, "cost")
    plans = explore(question, workshop, objectives)
    chosen = front(plans, objectives)
    return objectives, chosen, tuple(plan for plan in plans if plan not in chosen)


def explore(question: Question, workshop: Workshop, objectives: tuple[str, ...]) -> tuple[Plan, ...]:
    """What was played in a search of the whole fleet, and of parts that may hold a plan which no known one beats.

    The first is the fastest of the whole fleet. Raises Infeasible where no plan fits, PlanError where the wishes are wrong."""
    deadline = time.monotonic() + question.time_limit
    whole = Workshop(replace(question, time_limit=WHOLE * question.time_limit), workshop.progress)
    played = [certified.plan(whole.question, whole), *whole.played]
    workshop.interrupted = whole.interrupted
    try:
        for part, bounds in _promising(question, objectives):
            left = deadline - time.monotonic()
            if left <= 0 or workshop.interrupted:
                break
            if not any(_beats(plan, objectives, bounds) for plan in played):
                inside = Workshop(replace(part, time_limit=left), functools.partial(_tell, workshop, part))
                with suppress(Infeasible):
                    certified.plan(inside.question, inside)
                workshop.interrupted = inside.interrupted
                played += inside.played
    except KeyboardInterrupt:  # what was played so far is an answer
        workshop.interrupted = True
    unlike: dict[object, Plan] = {}
    for plan in played:
        unlike.setdefault((plan.config, plan.stages, plan.placement), plan)
    return tuple(unlike.values())


def _beats(plan: Plan, objectives: tuple[str, ...], bounds: tuple[float, ...]) -> bool:
    """Whether a plan is as good as anything within the bounds could be."""
    numbers = tuple(value(plan, objective) for objective in objectives)
    return numbers == bounds or dominates(numbers, bounds)


def _promising(question: Question, objectives: tuple[str, ...]) -> list[tuple[Question, tuple[float, ...]]]:
    """The question of every choice of machines, with bounds on its objectives.

    The lowest bound first, of the last objective before the others; of equal ones that of fewest devices, which is the quickest
    to search and often the cheapest."""
    found = []
    for machines in choices(question):
        part = replace(question, machines=machines)
        with suppress(Infeasible):
            found.append((part, least(Workshop(part), objectives)))

    def order(pair: tuple[Question, tuple[float, ...]]) -> tuple[tuple[float, ...], int]:
        spent = zip(objectives, pair[1], strict=True)
        bounds = tuple(bound for objective, bound in spent if objective != "step-time")
        return bounds[::-1], sum(cluster.devices for cluster in pair[0].clusters())

    return sorted(found, key=order)


def choices(question: Question) -> Iterator[Machines]:
    """Clusters in every choice but all of them, then each cluster with half of its nodes, a quarter, ... one."""
    whole = tuple((cluster.name, cluster.nodes) for cluster in question.clusters())
    sizes = range(len(whole) - 1, 0, -1) if len(whole) <= FEW else dict.fromkeys((len(whole) - 1, 1))
    for size in sizes:
        yield from itertools.combinations(whole, size)
    for name, nodes in whole:
        while nodes > 1:
            nodes = nodes // 2
            yield ((name, nodes),)


def _tell(workshop: Workshop, part: Question, text: str) -> None:
    """Say on which machines the search is."""
    nodes = ", ".join(f"{name} {count}" for name, count in part.machines)
    workshop.progress(f"on nodes of {nodes}: {text}")
