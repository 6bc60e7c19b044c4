"""Plans that keep ranks where they are: against every such plan, one by one, on drawn fleets; pins, limits, and time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pytest

from planner import api, pareto_front
from planner.costs.context import PlanningContext
from planner.kept_ranks import KeptRanks
from planner.limits import Limits
from planner.placement.ranks import with_collectives
from planner.placement.simulation import fits, simulate_plan, step
from planner.request import Request, Wishes
from planner.search import kept_ranks
from planner.search.fitting import fitting
from sim.errors import HolmesError, Infeasible, OptionError
from sim.field_changes import changed
from sim.plan.allowed import Allowed
from sim.plan.groups import groups_of
from sim.plan.parallel_config import RECOMPUTE
from sim.plan.plan import MadeBy, Plan
from tests.more import after
from tests.planner.builders import random_request

SEEDS = 24
"""Drawn requests; a third of them have a plan of several ranks."""


def asked(seed: int, lost: int = -1) -> Request | None:
    """A drawn request whose ranks are those of some plan of it, of which one device may be gone."""
    question = random_request(seed)
    plans = (fitting(replace(question, wishes=Wishes(dp=dp))) for dp in (2, 1))
    plan = next((plan for plan in plans if plan is not None), None)
    if plan is None or plan.config.world_size < 2:
        return None
    gone = plan.placement[lost % plan.config.world_size] if lost >= 0 else None
    devices = tuple(None if device == gone else device for device in plan.placement)
    ranks = KeptRanks("old.json", question.workload.model.name, plan.config, plan.stages, devices)
    return replace(question, limits=Limits(ranks=ranks), wishes=Wishes())


def every_plan(request: Request) -> Iterator[Plan]:
    """All plans on the devices of the kept ranks, by hand: each with each size, schedule, ZeRO stage and recomputation."""
    ranks, batch = request.limits.ranks, request.workload.global_batch_size
    assert ranks is not None
    names = ("interleaved",) if ranks.config.vpp > 1 else ("1f1b", "gpipe", "zb-h1", "zb-h2")
    sizes = [size for size in range(1, batch + 1) if batch % size == 0]
    for dp, placement in ranks.placements():
        for size, name, zero, recompute in itertools.product(sizes, names, (1, 2, 3), RECOMPUTE):
            with suppress(HolmesError):
                config = changed(
                    ranks.with_replicas(dp, batch // size), microbatch_size=size, schedule=name, zero_stage=zero
                ).recomputing(recompute)  # fmt: skip
                groups = groups_of(request.topology.fleet, config, placement)
                plan = Plan(request.topology, request.workload, config, ranks.stages, placement, groups, MadeBy("hand", "1"))
                if fits(plan):
                    yield simulate_plan(with_collectives(plan))


@pytest.mark.parametrize("seed", after(4, range(SEEDS)))
def test_no_plan_that_keeps_the_ranks_is_faster(seed: int) -> None:
    request = asked(seed, lost=seed % 3 - 1)
    if request is None:
        return
    steps = [step(plan) for plan in every_plan(request)]
    if not steps:
        with pytest.raises(Infeasible):
            api.plan(request)
        return
    best = api.plan(request)
    assert best.certificate is not None and request.limits.ranks is not None
    assert request.limits.ranks.fault(best) == ""
    assert best.certificate.lower_bound_s <= min(steps) * (1 + 1e-9)
    assert step(best) <= min(steps) * (1 + 1e-9)
    assert (best.certificate.status, best.certificate.gap) == ("optimal", 0.0)


def several(seed: int = 0) -> Request:
    """The first drawn request with two replicas or more."""
    found = (asked(one) for one in range(seed, 200))
    return next(one for one in found if one is not None and one.limits.ranks and one.limits.ranks.config.dp > 1)


def test_pins_and_limits_hold_and_the_space_says_so() -> None:
    request = several()
    ranks = request.limits.ranks
    assert ranks is not None
    fewer = replace(request, wishes=Wishes(dp=1, recompute="full"), limits=replace(request.limits, devices=ranks.config.pp * 8))
    best = api.plan(fewer)
    assert (best.config.dp, best.config.recompute) == (1, "full") and best.certificate is not None
    space = {axis.name: axis.values for axis in best.certificate.space}
    assert (space["dp"], space["recompute"], space["tp"]) == ((1,), ("full",), (ranks.config.tp,))
    assert space["required"][-1] == "ranks kept as in old.json"
    with pytest.raises(Infeasible, match=r"no plan that fits memory has ranks kept as in old.json"):
        api.plan(replace(request, wishes=Wishes(tp=ranks.config.tp + 1)))
    assert fitting(replace(request, wishes=Wishes(pp=ranks.config.pp + 1))) is None
    found = fitting(request)
    assert found is not None and ranks.fault(found) == ""


def test_without_time_the_bound_is_that_of_the_peaks() -> None:
    request = several()
    best = kept_ranks.plan(request, PlanningContext(replace(request, time_limit=0.0)))
    assert best.certificate is not None
    assert best.certificate.time_limit_reached
    assert 0 < best.certificate.lower_bound_s < best.certificate.objective_s


def test_published_strategies_and_other_objectives_are_refused() -> None:
    request = several()
    one = replace(request, limits=replace(request.limits, dimensions=(("tp", Allowed((99,))),)))
    with pytest.raises(Infeasible):
        api.plan(one, "megatron")
    with pytest.raises(OptionError, match="are searched for their step alone"):
        pareto_front.pareto(request, PlanningContext(request))
