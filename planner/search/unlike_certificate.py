"""The certificate of a plan of a model whose layers differ: how far it can be from the fastest of its stated space."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from planner.costs.context import PlanningContext
from planner.placement.simulation import step
from planner.request import Request
from planner.search.branch_and_bound import in_words
from planner.search.budgets import Budgets
from planner.search.mixed import is_mixed
from planner.search.plain_schedule import with_plain_schedule
from planner.search.searched_space import axes, outside
from planner.search.short_chunks import with_short_chunks
from planner.search.unlike_layers import UnlikeSearch
from planner.space import stand_in
from planner.space.shapes import searched_schedules
from planner.space.unlike_tp import has_searched_degrees
from planner.time_limit import SOON
from sim.errors import Infeasible
from sim.plan.certificate import Axis, Certificate
from sim.plan.plan import MadeBy, Plan
from sim.units import Seconds

PROOF_SHARE, PROOF_S = 0.8, 60.0
"""Share of the seconds left that plans with short chunks leave for those with the model's own layers, and most seconds of it
(guesses)."""
LAST_S = 1.0
"""Seconds that the search has in any case where some plan is known (a guess). A larger value may exceed the time limit
further."""
SOLVER = "closed form"
"""What computes the bound, as in other certificates."""


def certified(
    request: Request, context: PlanningContext, best: Plan | None, others: Callable[[], Iterable[Plan]] = tuple
) -> Plan | None:
    """The fastest plan with the model's own layers and its certificate; None where none is found.

    best: the fastest plan of the stand-ins, if any; others: gives plans of other strategies, once the search is over. What is
    left of the time limit is used, and in any case `LAST_S`, or `SOON` without such a plan."""
    search = UnlikeSearch(request, context, best, context.limit.at_least(SOON if best is None else LAST_S))
    try:
        if not context.limit.is_up():
            context.progress("short chunks of sequences")
            with search.limit.sooner(min(PROOF_SHARE * search.limit.seconds_left, PROOF_S)):
                search.best = with_short_chunks(request, context, best, search.limit)
        context.progress("splits of the model's own layers")
        bound = search.run()
        search.polish()
    except KeyboardInterrupt:
        if search.best is None:
            raise
        context.interrupted, bound = True, search.work
    search.best = min([*filter(None, [search.best]), *others()], key=step, default=None)
    if search.best is None:
        return None
    plan = with_plain_schedule(request, context, search.best)
    found = certificate(search, plan, bound)
    return plan.annotated(certificate=found, made_by=MadeBy("certified", plan.made_by.version))


def certificate(search: UnlikeSearch, plan: Plan, bound: Seconds) -> Certificate:
    """The certificate of a simulated plan; `bound`: a lower bound on all plans of whole stages."""
    request, objective = search.request, step(plan)
    several = any(len(clusters) > 1 for clusters in request.joinable())
    beside = not is_mixed(plan) and not has_searched_degrees(request, plan)
    least = min(objective, bound, search.mixed.seconds) if several else min(objective, bound)
    gap = 1 - least / objective
    parts = stand_in.stand_ins(request)
    in_space = plan.config.schedule in dict(searched_schedules(parts[0])) or bool(request.wishes.schedule)
    return Certificate(
        status="optimal" if in_space and not beside and gap <= Budgets().optimal_gap else "feasible",
        objective_s=objective,
        lower_bound_s=least,
        gap=gap,
        solver=SOLVER,
        time_limit_reached=search.limit.reached,
        mixed_lower_bound_s=min(search.mixed.seconds, objective) if several else None,
        whole_lower_bound_s=bound if math.isfinite(bound) else None,
        least_bound_layout=_least_layout(search, bound) if least < search.cutoff else None,
        beside_space=beside,
        space=space(request, parts),
        outside=_outside(request, parts),
    )


def _least_layout(search: UnlikeSearch, bound: Seconds) -> str | None:
    """The layout with the least bound in words; `bound`: of plans of whole stages."""
    if search.mixed.seconds < bound:
        return search.mixed.words
    return None if search.least_shape is None else in_words(search.least_shape, "variant")


def space(request: Request, parts: Sequence[Request]) -> tuple[Axis, ...]:
    """The searched dimensions: all values of the stand-ins, which share them but for their recomputation."""
    found: dict[str, dict[str | int, None]] = {}
    for part in parts:
        try:
            every = axes(part)
        except Infeasible:
            continue
        for axis in every:
            found.setdefault(axis.name, {}).update(dict.fromkeys(axis.values))
    found["layers"] = dict.fromkeys([_split(request)])
    return tuple(Axis(name, tuple(values)) for name, values in found.items())


def _split(request: Request) -> str:
    """The layers of stages, in words."""
    further = request.workload.model.mtp_layers
    alone = "; the last stage may have the head without a layer of the model" if further else ""
    return f"any split of the model's own layers{alone}"


def _outside(request: Request, parts: Sequence[Request]) -> tuple[str, ...]:
    """What a plan could have and the search leaves out."""
    free = replace(parts[0], wishes=replace(parts[0].wishes, recompute=None)) if request.wishes.recompute is None else parts[0]
    found = [text for text in outside(free, tried=True, every_step=True) if not text.startswith("recompute ")]
    return ("recompute selective", *found, *_OTHER) if request.wishes.recompute is None else tuple(found)


_OTHER = ("recomputation of some layers of a stage, which is not modelled where layers differ",)
