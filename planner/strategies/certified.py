"""certified: the fastest simulated plan over all shapes and schedules, with a certificate of how far it can be from the best.

First a plan, soon (`planner.search.first_plan`); then a proof by branch and bound, which also finds plans
(`planner.search.branch_and_bound`); last a bound of plans with mixed stages, and the certificate. `planner.search` explains the
search, and `planner.search.searched_space` lists the space that the certificate holds for.
"""

from __future__ import annotations

import functools
import time
from contextlib import suppress

from planner.bounds.relaxation import relaxed_bound
from planner.bounds.total_work import work_bound
from planner.costs.context import PlanningContext
from planner.diagnosis.remedies import why_none
from planner.placement.simulation import simulate_plan
from planner.request import Request
from planner.search.branch_and_bound import Proof
from planner.search.budgets import Budgets
from planner.search.certificate import certificate, mixed_lower_bound
from planner.search.first_plan import find_first_plan
from planner.search.fitting import fitting
from planner.search.improvement import Improvement
from planner.search.incumbent import Incumbent
from planner.search.mixed import is_mixed
from planner.space.shapes import searched
from planner.strategies import get
from sim.errors import Infeasible
from sim.plan.plan import MadeBy, Plan


def plan(request: Request, context: PlanningContext) -> Plan:
    """The fastest plan found, with its certificate. Raises Infeasible where no plan fits."""
    incumbent = Incumbent(request, context, Budgets(), time.monotonic() + request.time_limit)
    improvement = Improvement(incumbent)
    proof = Proof(incumbent, improvement)
    bases = list(searched(request))
    open_bounds, mixed, timed_out = [0.0], None, False
    try:
        find_first_plan(incumbent, bases)
        timed_out = incumbent.seconds_left <= 0
        if not request.machines:  # on part of the fleet a plan is wanted, not a proof
            open_bounds = proof.run(bases)
            timed_out = incumbent.seconds_left <= 0
            if -incumbent.budgets.late_s < incumbent.seconds_left <= 0:
                _ask_others(incumbent)
            mixed = mixed_lower_bound(incumbent)
    except KeyboardInterrupt:  # the best plan so far, with its gap, is an answer
        if incumbent.best is None:
            raise
        context.interrupted = True
        open_bounds = [relaxed_bound(request, context)]
    best = incumbent.best if incumbent.best is not None else _any_plan(request)
    if is_mixed(best) and mixed is None:
        mixed = work_bound(context)
    bounds = [*proof.settled, *open_bounds]
    certified = certificate(incumbent, best, bounds, mixed, improvement.solvers, timed_out)
    return best.annotated(certificate=certified, made_by=MadeBy("certified", best.made_by.version))


def _ask_others(incumbent: Incumbent) -> None:
    """Where time ran out, compare with two quick strategies, so that the plan is not slower than theirs."""
    for name in ("holmes", "megatron"):
        with suppress(Infeasible):
            think = functools.partial(get(name).plan, incumbent.request, incumbent.context)
            incumbent.keep(incumbent.context.answer(name, think))


def _any_plan(request: Request) -> Plan:
    """A plan that fits memory, where the search found none in time. Raises Infeasible, which says which demand fails."""
    fits = fitting(request, "certified")
    if fits is None:
        raise Infeasible(why_none(request))
    return simulate_plan(fits)
