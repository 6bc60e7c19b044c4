"""The planner's face: one plan by one strategy, or a row for each of several."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass

from planner import pareto_front, strategies
from planner.costs.context import PlanningContext
from planner.diagnosis.remedies import told
from planner.request import Request
from planner.search.fitting import fitting
from sim.errors import Infeasible, PlanError
from sim.plan.plan import Plan
from sim.units import Seconds

DEFAULT = "certified"


@dataclass(frozen=True, slots=True)
class Row:
    """What a strategy answered: a plan with its prediction, or why there is none.

    `planning_s`: the seconds that it took (wall time, with the simulations of its best plans); `interrupted`: the plan is
    the best so far of a search that was stopped.
    """

    name: str
    plan: Plan | None
    reason: str = ""
    planning_s: Seconds = 0.0
    interrupted: bool = False


def plan(request: Request, strategy: str = DEFAULT, context: PlanningContext | None = None) -> Plan:
    """The plan of a strategy, simulated. Raises PlanError for an unknown strategy, Infeasible where no plan exists.

    What Infeasible says ends with what would cure it: the default strategy has a plan then.
    """
    chosen, shared = strategies.get(strategy), context or PlanningContext(request)

    def think() -> Plan:
        try:
            return chosen.plan(request, shared)
        except Infeasible as error:
            raise Infeasible(f"{error}{_advice(request, strategy)}") from None

    return shared.answer(strategy, think)


def _advice(request: Request, strategy: str) -> str:
    """What would cure it, behind the reason why a strategy has no plan."""
    if strategy != DEFAULT and fitting(request) is not None:
        return f"; use strategy {DEFAULT}"
    found = told(request)
    return f"; cured{'' if strategy == DEFAULT else f', with strategy {DEFAULT},'} by {found}" if found else ""


def plan_for(objective: str, request: Request, strategy: str, context: PlanningContext) -> tuple[Plan, tuple[Row, ...]]:
    """The best plan by an objective, and where that is not the step time the fastest one, as a row to hold it against.

    Raises PlanError where the strategy or the machines do not know the objective, Infeasible where no plan exists."""
    if objective == "step-time":
        return plan(request, strategy, context), ()
    if strategy != DEFAULT:
        raise PlanError(f"strategy {strategy} plans for the step time only; leave it out, or the objective {objective}")
    found, fastest = pareto_front.best(request, context, objective)
    return found, (Row("the fastest", fastest),)


def row(request: Request, strategy: str, context: PlanningContext) -> Row:
    """What a strategy answers in a context; what that knows already costs nothing. Raises PlanError."""
    begun = time.perf_counter()
    try:
        found, reason = plan(request, strategy, context), ""
    except Infeasible as error:
        found, reason = None, str(error)
    return Row(strategy, found, reason, time.perf_counter() - begun, context.interrupted)


def compare(request: Request, names: tuple[str, ...], progress: Callable[[str], None] = lambda text: None) -> tuple[Row, ...]:
    """One row for each strategy, in the order asked. Raises PlanError for an unknown one, before any is at work.

    Each has a context of its own, so that none lives on what another has thought out and its seconds are its own. Seconds of
    kernels and routes are remembered by the process, though: the first asked pays some tenths of a second more. Ctrl-C ends
    it: the rows done so far come back.
    """
    for name in names:
        strategies.get(name)
    rows: list[Row] = []
    for place, name in enumerate(names, 1):
        told = functools.partial(_tell, progress, f"{name} ({place} of {len(names)})", name)
        try:
            rows.append(row(request, name, PlanningContext(request, told)))
        except KeyboardInterrupt:
            break
        if rows[-1].interrupted:
            break
    return tuple(rows)


def _tell(progress: Callable[[str], None], who: str, name: str, text: str) -> None:
    """Pass on how far a strategy is; that it has begun is its name alone."""
    progress(who if text == f"strategy {name}" else f"{who}: {text}")
