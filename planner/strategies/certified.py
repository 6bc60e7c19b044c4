"""certified: the fastest simulated plan over all shapes and schedules, with a certificate of how far it can be from the best.

It begins with the plan that the context gives, if any, and finds one quickly (`planner.search.first_plan`), also with
context parallelism that the bound does not cover (`planner.search.short_chunks`). Quick strategies
that are wanted beside it plan next, or all the while in a second process (`planner.search.beside`). Then it proves a lower
bound by branch and bound, which also finds plans (`planner.search.branch_and_bound`), and tries plans that the bound does not
cover (`planner.search.unlike_degrees`, `offloaded`, `recomputed_modules`). A bound on plans with mixed stages
(`planner.search.mixed_proof`) is proved beside that, or after it. Last comes the certificate. `planner.search` explains the
search, and `planner.search.searched_space` lists the space that the certificate holds for."""

from __future__ import annotations

import functools
import math
from contextlib import suppress
from dataclasses import replace

from planner.bounds.total_work import work_bound
from planner.costs.context import PlanningContext
from planner.diagnosis.remedies import why_none
from planner.placement.simulation import step
from planner.request import Request
from planner.search import along_a_v, kept_ranks
from planner.search.alike_nodes import simulate_alike
from planner.search.beside import Beside
from planner.search.branch_and_bound import Proof
from planner.search.budgets import Budgets
from planner.search.certificate import certificate, mixed_seconds, proof_seconds, work_of_mixed
from planner.search.crowded_links import move_layers
from planner.search.early_bounds import Bounds, EarlyBounds, higher, is_worth_more
from planner.search.first_plan import find_first_plan
from planner.search.fitting import fitting
from planner.search.improvement import Improvement
from planner.search.incumbent import Incumbent
from planner.search.mixed import mixed_placements
from planner.search.mixed_proof import ACTIVITY, MixedProof
from planner.search.offloaded import offload_seconds, try_offloaded
from planner.search.other_lengths import simulate_lengths
from planner.search.plain_schedule import with_plain_schedule
from planner.search.recomputed_modules import modules_seconds, try_modules
from planner.search.restaging import simulate_restarted
from planner.search.short_chunks import ShortChunks
from planner.search.short_chunks_beside import ShortChunksBeside
from planner.search.unlike_beside import UnlikeBeside
from planner.search.unlike_degrees import try_unlike, unlike_seconds
from planner.search.unlike_degrees_proof import unlike_bound
from planner.second_process import AHEAD_S
from planner.space import lengths
from planner.space.shape import Shape
from planner.space.shapes import searched
from planner.space.tied_shards import with_tied_shards
from planner.space.unlike_tp import unlike_shapes
from planner.strategies import get
from sim.errors import Infeasible
from sim.plan.plan import MadeBy, Plan

QUICK = ("holmes", "megatron")
"""Strategies that plan quickly; a search that the time limit ends is not slower than their plans."""


def plan(request: Request, context: PlanningContext, budgets: Budgets | None = None) -> Plan:
    """The fastest plan found; `budgets` limit the search, the usual ones if None. If the context proves, it has a certificate.

    Raises Infeasible where no plan fits."""
    if kept_ranks.is_asked(request):
        return kept_ranks.plan(request, context)
    if along_a_v.is_asked(request):
        return along_a_v.plan(request, context)
    if budgets is not None or not context.proves or not along_a_v.may_be_beside(request):
        return _plan(request, context, budgets)
    seconds = along_a_v.reserved(request)
    with context.limit.sooner(seconds):
        best = _plan(request, context, budgets)
    return best if context.interrupted else along_a_v.beside(request, context, best)


def _plan(request: Request, context: PlanningContext, budgets: Budgets | None) -> Plan:
    """`plan` of schedules without pairs of passes."""
    if not lengths.exist(request):
        raise Infeasible(why_none(request))
    incumbent = Incumbent(request, context, budgets or Budgets(), context.limit)
    improvement = Improvement(incumbent)
    proof = Proof(incumbent, improvement)
    bases, unequal = _by_division(request)
    unlike = list(unlike_shapes(request, bases))
    spent = context.effort.spent
    open_bounds, mixed, spared, apart_bound = [0.0], None, 0.0, None
    bounded: Bounds | None = None
    short = ShortChunks(incumbent)
    every = EarlyBounds(context, [*bases, *unequal, *unlike])
    unlike_proof = UnlikeBeside(context, bases)
    short_beside = ShortChunksBeside(context)
    with Beside(context, asked) as beside, MixedProof(context) as mixed_proof, every as early, unlike_proof, short_beside:

        def drafted() -> None:
            if context.proves:
                incumbent.work_bound = incumbent.work_bound or work_bound(context)

        def after_draft() -> None:
            early.begin(incumbent)
            short.try_first()
            short_beside.begin(incumbent)

        try:
            if context.start is not None:
                incumbent.begin(context.start)
            with spent("estimates"), context.limit.sooner(proof_seconds(incumbent)):
                others = after_draft if context.proves else None
                find_first_plan(incumbent, bases, unequal, unlike, others, drafted=drafted)
            if context.proves:
                if not early.has_begun:
                    mixed_proof.begin(incumbent)
                with spent("estimates"), context.limit.sooner(proof_seconds(incumbent)):
                    short.try_after()
                wanted = context.spared(incumbent.plan) if incumbent.plan is not None else 0.0
                spared = min(wanted, max(context.limit.seconds_left - _proving_seconds(incumbent), 0.0))
                context.limit.reserve(spared)
                with spent("other strategies"):
                    beside.plan()
                away = offload_seconds(incumbent) + modules_seconds(incumbent)
                reserved = AHEAD_S if early.has_begun else mixed_proof.reserved(incumbent)
                apart = unlike_seconds(incumbent)
                context.limit.reserve(reserved + apart + away)
                with spent("bounds"):
                    early.after_plan(incumbent)
                    shapes = [*bases, *unequal, *unlike]
                    open_bounds = proof.run(shapes, lambda: simulate_alike(incumbent, proof.least_shapes))
                    simulate_lengths(incumbent)
                    waits = incumbent.is_best_mixed and incumbent.lower_bound >= incumbent.target
                    if not waits:
                        move_layers(incumbent)
                    unlike_proof.begin(incumbent)
                    proof.raise_by_simulation()
                    simulate_restarted(incumbent)
                    short_beside.settle(incumbent, short)
                context.limit.reserve(-apart)
                try_unlike(incumbent, bases)
                short.try_unlike()
                apart_bound = unlike_proof.collect(incumbent)
                context.limit.reserve(-away)
                try_offloaded(incumbent)
                try_modules(incumbent)
                context.limit.reserve(-reserved)
                with spent("other strategies"):
                    beside.collect()
                    _keep_those_beside(incumbent)
                if context.limit.reached and not context.punctual and context.limit.seconds_left > -incumbent.budgets.late_s:
                    with spent("other strategies"):
                        _compare_with_baselines(incumbent)
                incumbent.report(ACTIVITY)
                with spent("mixed stages"):
                    bounded = early.collect(incumbent)
                    mixed = bounded.mixed if bounded is not None else None
                    if mixed is None or is_worth_more(incumbent, mixed):
                        mixed = higher(mixed, mixed_proof.collect(incumbent))
                    if waits and mixed is not None and mixed.seconds < incumbent.target:
                        move_layers(incumbent)  # the best plan has mixed stages, whose bound is known only now
        except KeyboardInterrupt:  # return the best plan so far, with the bound that is proved
            if incumbent.plan is None:
                raise
            context.interrupted = True
            open_bounds = [max(incumbent.lower_bound, incumbent.work_bound)]
    context.limit.reserve(-spared)
    best = _with_whole_sums(context, incumbent.plan) if incumbent.plan is not None else _any_plan(context)
    best = with_plain_schedule(request, context, best)
    if not context.proves:
        return best.annotated(made_by=MadeBy("certified", best.made_by.version))
    bounds = [*proof.settled, *open_bounds]
    if mixed is None:
        mixed = work_of_mixed(incumbent)
    layout = proof.least_layout
    if bounded is not None and bounded.whole > min(bounds, default=math.inf):
        bounds, layout = [bounded.whole], bounded.least_layout
    apart_from = unlike_bound(request, step(best), apart_bound, bases)
    certified = certificate(incumbent, best, bounds, mixed, improvement.solvers, layout or None, apart_from)
    return best.annotated(certificate=certified, made_by=MadeBy("certified", best.made_by.version))


def _proving_seconds(incumbent: Incumbent) -> float:
    """Seconds of the time limit for the proof of whole stages and what comes with it, which no later search is spared."""
    beside = mixed_seconds(incumbent) + unlike_seconds(incumbent) + offload_seconds(incumbent) + modules_seconds(incumbent)
    return proof_seconds(incumbent) + beside


def _by_division(request: Request) -> tuple[list[Shape], list[Shape]]:
    """The searched shapes whose dp divides the batch, and the others; the latter come first where there are no other ones.

    None where only plans with mixed stages have room, such as for a dp above the slots of every cluster. Raises Infeasible
    where these have none either."""
    try:
        every = [with_tied_shards(request, shape) for shape in searched(request)]
    except Infeasible:
        if next(mixed_placements(request), None) is None:
            raise
        every = []
    equal = [shape for shape in every if shape.divides(request.workload)]
    return (equal, [shape for shape in every if not shape.divides(request.workload)]) if equal else (every, [])


def _keep_those_beside(incumbent: Incumbent) -> None:
    """Keep the fastest plan of the strategies that were planned beside the search, if it is faster than the search's."""
    for name in incumbent.context.beside:
        plan = _planned_by(incumbent, name) if incumbent.context.answers(name) else None
        if plan is not None:
            incumbent.keep(plan)


def _compare_with_baselines(incumbent: Incumbent) -> None:
    """Compare with the plans that two quick strategies now make, once the time limit has ended a search beside which none were
    planned, so that the result is not slower than theirs."""
    for name in QUICK if not incumbent.context.beside else ():
        plan = _planned_by(incumbent, name)
        if plan is not None:
            incumbent.keep(plan)


def _planned_by(incumbent: Incumbent, name: str) -> Plan | None:
    """The plan of a strategy for the same request; None where it has none."""
    with suppress(Infeasible):
        return incumbent.context.answer(name, functools.partial(asked, name, incumbent.context))
    return None


def asked(name: str, context: PlanningContext) -> Plan:
    """The plan of a strategy for the request of a context. Raises Infeasible where it has none."""
    try:
        return get(name).plan(context.request, context)
    except Infeasible as error:
        raise with_reasons(error, context.request) from None


def with_reasons(error: Infeasible, request: Request) -> Infeasible:
    """Why a published strategy has no plan, which may also be the target or the limits of the request."""
    target, required = request.target, "; ".join(request.limits.words())
    others = [f"{target.can_not} run any such layout"] if target is not None else []
    others += [f"none of them has {required}"] if required else []
    return Infeasible(", or ".join([str(error), *others]))


def _with_whole_sums(context: PlanningContext, best: Plan) -> Plan:
    """The plan without `tied_shards`, which no framework can run, where that is as fast (`Budgets.optimal_gap`)."""
    if not best.config.tied_shards:
        return best
    most = step(best) * (1 + Budgets().optimal_gap)
    without = replace(best, config=replace(best.config, tied_shards=False), prediction=None)
    whole = context.timelines.simulate_up_to(without, most)
    return whole if isinstance(whole, Plan) and step(whole) <= most else best


def _any_plan(context: PlanningContext) -> Plan:
    """A plan that fits memory, where the search found none in time. Raises Infeasible with the requirement that fails."""
    fits = fitting(context.request, "certified")
    if fits is None:
        raise Infeasible(why_none(context.request))
    return context.timelines.simulate(fits)
