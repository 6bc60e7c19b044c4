"""The certificate: how far the plan can be from the fastest one of the searched space (`planner.search.searched_space`)."""

from __future__ import annotations

import math
from collections.abc import Iterable

from planner.bounds.mixed_deadline import MixedBound, mixed_bound
from planner.bounds.total_work import work_bound
from planner.placement.simulation import step
from planner.search.incumbent import Incumbent
from planner.search.left_out import BOUNDED, TRIED
from planner.search.mixed import is_mixed, mixed_placements
from planner.search.searched_space import axes, outside
from planner.space.shapes import searched_schedules
from planner.space.unlike_tp import has_searched_degrees
from sim.plan.certificate import Certificate, SpaceBound
from sim.plan.plan import Plan
from sim.units import Seconds


def certificate(
    incumbent: Incumbent, plan: Plan, bounds: Iterable[float], mixed: MixedBound | None, solvers: Iterable[str],
    least_layout: str | None = None, unlike: SpaceBound | None = None,
) -> Certificate:  # fmt: skip
    """The certificate of a simulated plan, which also says whether the time limit ended the search for it.

    The least of `bounds` is a lower bound on all pipelines of whole stages, `least_layout` the layout with it, `mixed` a lower
    bound on all plans with mixed stages; the bound of the space is the lower of both. `solvers` are the names of solvers that
    found plans. A plan whose stages have degrees of their own (`planner.search.unlike_degrees`), or whose cp is not searched
    (`planner.search.short_chunks`), is outside of the space: the bounds may be above its step. `unlike`: what is proved of the
    plans with degrees of their own; the lower bound of such a plan is at most that."""
    request, objective = incumbent.request, step(plan)
    whole = min(bounds, default=math.inf)
    bound = min([objective, whole] if mixed is None else [objective, whole, mixed.seconds])
    if mixed is not None and mixed.seconds == bound <= whole:
        least_layout = mixed.words
    if bound >= incumbent.target:
        least_layout = None
    beside = not is_mixed(plan) and not has_searched_degrees(request, plan)
    config = plan.config
    if beside and unlike is not None and (config.has_stage_degrees or config.stage_ep or config.stage_etp):
        bound = min(bound, unlike.lower_bound_s)
    gap, in_space = (
        1 - bound / objective,
        plan.config.schedule in dict(searched_schedules(request)) or bool(request.wishes.schedule),
    )
    return Certificate(
        status="optimal" if in_space and not beside and gap <= incumbent.budgets.optimal_gap else "feasible",
        objective_s=objective,
        lower_bound_s=bound,
        gap=gap,
        solver="+".join(["closed form", *sorted(solvers)]),
        time_limit_reached=incumbent.limit.reached,
        mixed_lower_bound_s=None if mixed is None else mixed.seconds,
        whole_lower_bound_s=whole if math.isfinite(whole) else None,
        least_bound_layout=least_layout,
        beside_space=beside,
        unlike_degrees=unlike,
        space=axes(request),
        outside=_outside(incumbent, unlike),
    )


def _outside(incumbent: Incumbent, unlike: SpaceBound | None) -> tuple[str, ...]:
    """What a plan could have and the search leaves out; `unlike`: as in `certificate`."""
    found = outside(incumbent.request, incumbent.context.proves, incumbent.context.every_step)
    if unlike is None:
        return found
    return tuple(text.replace(TRIED, BOUNDED) if text.startswith("stage_") else text for text in found)


def mixed_lower_bound(incumbent: Incumbent) -> MixedBound | None:
    """A lower bound of plans with mixed stages, at most the best step; None where there are none, or no plan yet."""
    unproved = work_of_mixed(incumbent)
    if incumbent.best is None or unproved is None or incumbent.limit.is_up():  # to list the placements takes tenths of a second
        return unproved
    return mixed_bound(incumbent.context, mixed_placements(incumbent.request), incumbent.cutoff, incumbent.limit)


def work_of_mixed(incumbent: Incumbent) -> MixedBound | None:
    """The bound of plans with mixed stages by total work alone; None where there are none."""
    if all(len(clusters) < 2 for clusters in incumbent.request.joinable()):
        return None
    return MixedBound(min(incumbent.work_bound or work_bound(incumbent.context), incumbent.cutoff))


def proof_seconds(incumbent: Incumbent) -> Seconds:
    """Seconds of the time limit that the first plan leaves for the proof; none where it is `punctual` or has no limit."""
    seconds = incumbent.budgets.proof_share * incumbent.request.time_limit
    return seconds if incumbent.context.proves and not incumbent.context.punctual and math.isfinite(seconds) else 0.0


def mixed_seconds(incumbent: Incumbent) -> Seconds:
    """Seconds of the time limit that the proof leaves for `mixed_lower_bound`; none where the search is `punctual`."""
    if incumbent.context.punctual or len(list(incumbent.request.clusters())) < 2:
        return 0.0
    return min(incumbent.budgets.mixed_bound_s, incumbent.budgets.mixed_share * incumbent.request.time_limit)
