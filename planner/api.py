"""Entry points of the planner: one plan by one strategy, or a row of results for each of several strategies."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from planner import pareto_front, strategies
from planner.costs.context import PlanningContext
from planner.diagnosis.remedies import in_words
from planner.limits import NO_LIMITS
from planner.placement.simulation import fits, step
from planner.request import Request
from planner.search import along_a_v, kept_ranks, unlike_certificate
from planner.search.beside import Beside
from planner.search.fitting import fitting
from planner.space import stand_in
from planner.strategies import certified
from planner.target import ANY
from sim.errors import Infeasible, OptionError, TooLate
from sim.plan.plan import Plan
from sim.units import Seconds

DEFAULT = "certified"


@dataclass(frozen=True, slots=True)
class Row:
    """The result of a strategy: a plan with its prediction, or the reason why there is none.

    `planning_s`: wall time in seconds, with the simulations of the best plans; `interrupted`: the search was stopped, and the
    plan is the best so far.
    """

    name: str
    plan: Plan | None
    reason: str = ""
    planning_s: Seconds = 0.0
    interrupted: bool = False


def plan(request: Request, strategy: str = DEFAULT, context: PlanningContext | None = None) -> Plan:
    """The plan of a strategy, simulated. Raises OptionError for an unknown strategy, Infeasible where no plan exists.

    The text of Infeasible ends with the known remedies: changes with which the default strategy has a plan.
    """
    chosen, shared = strategies.get(strategy), context or PlanningContext(request)
    if kept_ranks.is_asked(request) and strategy == DEFAULT:
        return shared.answer(strategy, lambda: _in_time(request, chosen.plan(request, shared)))
    if along_a_v.is_asked(request):
        if strategy != DEFAULT:
            raise Infeasible(f"{strategy} does not plan with schedule {request.wishes.schedule}; use strategy {DEFAULT}")
        return shared.answer(strategy, functools.partial(_along_a_v, request, shared))
    if not request.workload.model.is_uniform:
        return shared.answer(strategy, functools.partial(_of_unlike_layers, request, strategy, shared))

    def compute() -> Plan:
        try:
            if strategy == DEFAULT:
                within = pareto_front.within_cost if request.limits.cost is not None else chosen.plan
                return _in_time(request, within(request, shared))
            return _within_limits(request, chosen.plan(request, shared))
        except TooLate:
            raise
        except Infeasible as error:
            if replace(request.limits, training=None) != NO_LIMITS:  # what conflicts helps more than a larger fleet
                raise (error if strategy == DEFAULT else certified.with_reasons(error, request)) from None
            raise Infeasible(f"{error}{_advice(request, strategy)}") from None

    return shared.answer(strategy, compute)


def _along_a_v(request: Request, context: PlanningContext) -> Plan:
    """The plan of a pinned schedule along a V, simulated. Raises Infeasible, with the remedies where nothing is required."""
    try:
        return _in_time(request, strategies.get(DEFAULT).plan(request, context))
    except TooLate:
        raise
    except Infeasible as error:
        if replace(request.limits, training=None) != NO_LIMITS:
            raise
        raise Infeasible(f"{error}{_advice(request, DEFAULT)}") from None


def _of_unlike_layers(request: Request, strategy: str, context: PlanningContext) -> Plan:
    """The fastest plan of the models of equal layers that stand for the request's, with its own layers, simulated.

    The default strategy then searches plans with the model's own layers, and proves a lower bound."""
    if strategy != DEFAULT or not context.proves:
        found, refused = _of_stand_ins(request, strategy, context)
        best = min(found, key=step, default=None)
    else:
        with Beside(context, _asked) as beside:
            found, refused = _of_stand_ins(request, strategy, context)
            best = min(found, key=step, default=None)
            if not context.interrupted:
                beside.plan()
                best = unlike_certificate.certified(request, context, best, functools.partial(_planned, context, beside))
    if best is None:
        raise refused or Infeasible(f"memory: no plan of model {request.workload.model.name} fits")
    return _within_limits(request, _in_time(request, best))


def _asked(strategy: str, context: PlanningContext) -> Plan:
    """The plan of a strategy for the request of a context. Raises Infeasible where it has none."""
    return plan(context.request, strategy, context)


def _planned(context: PlanningContext, beside: Beside) -> Iterator[Plan]:
    """The plans of the strategies beside the default one, whose result so is not slower than they are; after Ctrl-C those that
    are known."""
    if not context.interrupted:
        beside.collect()
    for name in filter(context.answers, context.beside):
        with suppress(Infeasible):
            yield plan(context.request, name, context)


def _of_stand_ins(request: Request, strategy: str, context: PlanningContext) -> tuple[list[Plan], Infeasible | None]:
    """The plans of the stand-ins with the model's own layers, simulated, and why one of them has none."""
    found: list[Plan] = []
    fastest: Plan | None = None  # those that follow seek nothing that takes longer
    refused: Infeasible | None = None
    timeless = replace(request, limits=replace(request.limits, training=None))  # the model itself may be faster
    for number, part in enumerate(stand_in.stand_ins(timeless)):
        if number not in context.stand_ins:
            context.stand_ins[number] = PlanningContext(
                part, context.progress, fastest, punctual=context.punctual, watch=context.watch, beside=context.beside
            )
            context.stand_ins[number].fleets.share(context.fleets)
            context.stand_ins[number].proves = False  # no bound of a stand-in holds for the model
        inside = context.stand_ins[number]
        if strategy != DEFAULT:
            inside.limit = context.limit  # the default strategy has only a share of the time
        try:
            fastest = plan(part, strategy, inside)
            candidate = stand_in.of_model(fastest, request)
            if fits(candidate):
                found.append(context.timelines.simulate(candidate))
        except Infeasible as error:
            refused = refused or error
        context.interrupted |= inside.interrupted
        if context.interrupted and found:
            break
    return found, refused


def _in_time(request: Request, plan: Plan) -> Plan:
    """The fastest plan that was found. Raises Infeasible where it takes more days than the request allows."""
    training = request.limits.training
    if training is not None and training.fault(plan):
        raise training.too_late(plan)
    return plan


def _within_limits(request: Request, plan: Plan) -> Plan:
    """A simulated plan. Raises Infeasible where a limit forbids it, such as that of its cost."""
    refused = request.refuses(plan)
    if refused:
        raise Infeasible(refused)
    return plan


def _advice(request: Request, strategy: str) -> str:
    """The end of the message that says why a strategy has no plan: the strategy or the remedies that help."""
    if strategy != DEFAULT and fitting(request) is not None:
        return f"; use strategy {DEFAULT}"
    found = in_words(request)
    return f"; remedy{'' if strategy == DEFAULT else f' with strategy {DEFAULT}'}: {found}" if found else ""


def plan_for(objective: str, request: Request, strategy: str, context: PlanningContext) -> tuple[Plan, tuple[Row, ...]]:
    """The best plan by an objective and, if that is not the step time, a row with the fastest plan for comparison.

    Raises OptionError where the strategy does not support the objective or a device lacks its price or watts, Infeasible where
    no plan exists."""
    if objective == "step-time":
        return plan(request, strategy, context), ()
    if strategy != DEFAULT:
        raise OptionError(f"strategy {strategy} plans for the step time only; leave it out, or the objective {objective}")
    found, fastest = pareto_front.best(request, context, objective)
    _in_time(request, fastest)
    return _within_limits(request, found), (Row("the fastest", fastest),)


def row(request: Request, strategy: str, context: PlanningContext) -> Row:
    """The result of a strategy in a context, which caches it. Raises OptionError for wrong input."""
    begun = time.perf_counter()
    try:
        found, reason = plan(request, strategy, context), ""
    except Infeasible as error:
        found, reason = None, str(error)
    return Row(strategy, found, reason, time.perf_counter() - begun, context.interrupted)


def compare(request: Request, names: tuple[str, ...], progress: Callable[[str], None] = lambda text: None) -> tuple[Row, ...]:
    """One row for each strategy, in the given order. Raises OptionError for an unknown name before any strategy runs.

    Each strategy has its own context, so that no strategy uses cached results of another. Kernel times and routes are cached
    for the whole process, however, so the first strategy takes some tenths of a second longer. Ctrl-C returns the rows done
    so far.
    """
    for name in names:
        strategies.get(name)
    rows: list[Row] = []
    for index, name in enumerate(names, 1):
        report = functools.partial(_report, progress, f"{name} ({index} of {len(names)})", name)
        one = request if name == DEFAULT else _as_published(request)
        context = PlanningContext(one, report, beside=certified.QUICK if name == DEFAULT else ())
        try:
            rows.append(row(one, name, context))
        except KeyboardInterrupt:
            break
        if rows[-1].interrupted:
            break
    return tuple(rows)


def _as_published(request: Request) -> Request:
    """The request of a published strategy, which does not know frameworks: without the target that is any of them."""
    return replace(request, target=None) if request.target is not None and request.target.name == ANY else request


def _report(progress: Callable[[str], None], who: str, name: str, text: str) -> None:
    """Report the progress of a strategy; when the strategy begins, report `who` alone."""
    progress(who if text == f"strategy {name}" else f"{who}: {text}")
