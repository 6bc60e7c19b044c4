"""The bounds of placements with mixed stages of layers that differ, against every split of every placement."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pytest

from planner.bounds.unlike_placed import PlacedCosts, may_finish, replicas_of
from planner.costs.context import PlanningContext
from planner.costs.mixed_stages import mixed_costs
from planner.costs.unlike_layers import UnlikeCosts
from planner.placement.ranks import assemble
from planner.placement.simulation import fits, simulate_plan, step
from planner.request import Request
from planner.search.mixed import mixed_placements
from planner.space import stand_in
from planner.space.device_slots import StageSlots, devices
from planner.space.shape import Shape
from planner.space.shapes import overlaps
from sim.errors import Infeasible, NoRoute, NotDefined, NotModelled
from sim.hardware.cluster import Trunk
from tests import builders as make
from tests.more import after
from tests.planner.builders import request
from tests.planner.unlike import CHEAP_FIRST, PINNED


def wanted_on(fast: int, slow: int, rate: float = 1e12, memory: float = 80e9, **facts: object) -> Request:
    """Devices of two speeds, joined by networks of a rate in bytes per second, and six layers of which the first are cheap."""
    nics = (make.nic("ethernet", rate),)
    clusters = [
        make.cluster(name, number, nics=nics, spec=replace(make.device(f"chip-{name}", speed), memory=memory))
        for name, number, speed in (("a", fast, 2e10), ("b", slow, 1e10))
    ]
    machines = make.fleet(*clusters, trunks=(Trunk(("a", "b"), "ethernet", rate, 0.0),))
    return request(machines, make.model(6, **(CHEAP_FIRST | facts)), 8, replace(PINNED, pp=None, dp=2))


def bound(costs: PlacedCosts, shape: Shape, placed: tuple[StageSlots, ...], cutoff: float = math.inf) -> float:
    """The largest bound of all replicas."""
    return max(replica.least(cutoff).seconds for replica in replicas_of(costs, shape, placed))


def costs_of(wanted: Request) -> PlacedCosts:
    """The costs of the places of a request."""
    costs = UnlikeCosts(PlanningContext(wanted))
    return PlacedCosts(mixed_costs(costs.context), costs.layers)


def steps(
    wanted: Request, part: Request, shape: Shape, placed: tuple[StageSlots, ...], microbatches: tuple[int, ...] = ()
) -> Iterator[float]:
    """Simulated steps of all splits of a placement that fit, with the model's own layers; `microbatches` of each replica."""
    layers, further = wanted.workload.model.layers, wanted.workload.model.mtp_layers
    for cut in itertools.combinations(range(1, layers + further), len(placed) - 1):
        counts = tuple(b - a for a, b in itertools.pairwise((0, *cut, layers + further)))
        with suppress(Infeasible, NoRoute, NotDefined, NotModelled):
            plan = stand_in.of_model(assemble(part, shape, counts, devices(placed, shape.tp), "test", microbatches), wanted)
            if fits(plan):
                yield step(simulate_plan(plan))


@pytest.mark.parametrize(("fast", "slow"), [(3, 1), (3, 3), (1, 3), (2, 3)])
@pytest.mark.parametrize("rate", [1e12, 2e7])
@pytest.mark.parametrize("facts", [{}, {"mtp_layers": 1}], ids=["", "mtp"])
def test_no_mixed_plan_of_equal_replicas_is_faster_than_the_bound_of_its_placement(fast, slow, rate, facts) -> None:
    """The bound of some placement is within 8 % of its fastest plan, on fast and on slow networks."""
    wanted = wanted_on(fast, slow, rate, **facts)
    (part,), costs, nearest = stand_in.stand_ins(wanted), costs_of(wanted), 0.0
    for base, placed in mixed_placements(part):
        for shape in overlaps(replace(base, schedule="1f1b")):
            least = min(steps(wanted, part, shape, placed))
            found = bound(costs, shape, placed)
            assert 0 < found <= least * (1 + 1e-9), (shape, placed)
            nearest = max(nearest, found / least)
    assert nearest > 0.92


@pytest.mark.parametrize(
    ("fast", "slow", "rate", "schedule"),
    after(2, [(3, 1, 1e12, "1f1b"), (2, 3, 2e7, "zb-h2"), (3, 3, 2e7, "1f1b"), (3, 3, 1e12, "zb-h2"), (3, 1, 2e7, "zb-h2")]),
)
def test_no_replicas_with_numbers_of_their_own_are_faster_than_what_they_may_finish(fast, slow, rate, schedule) -> None:
    """All splits of all placements of two replicas, and all numbers of microbatches, of which there are eight."""
    wanted = wanted_on(fast, slow, rate)
    (part,), costs, tried = stand_in.stand_ins(wanted), costs_of(wanted), 0
    for base, placed in mixed_placements(part):
        shape = replace(base, schedule=schedule)
        every = (steps(wanted, part, shape, placed, (own, 8 - own)) for own in range(1, 8))
        least = min(itertools.chain(*every), default=math.inf)
        if math.isfinite(least):
            tried += 1
            assert may_finish(costs, shape, placed, least * (1 + 1e-6)), (shape, placed)
            assert not may_finish(costs, shape, placed, least / (2 if rate == 1e12 else 3))  # slow links are shared
    assert tried


def test_a_stage_on_both_clusters_is_as_slow_as_the_slower_one() -> None:
    """Two replicas of one stage have 4 microbatches of six layers each, one of them on the device of half the speed."""
    wanted = wanted_on(1, 1)
    (part,), costs = stand_in.stand_ins(wanted), costs_of(wanted)
    base, placed = next(iter(mixed_placements(part)))
    shape = replace(base, schedule="1f1b")
    fast, slow = replicas_of(costs, shape, placed)
    assert slow.least(math.inf).seconds == pytest.approx(min(steps(wanted, part, shape, placed)), rel=1e-3)
    assert slow.least(math.inf).layers == (6,)
    assert slow.least(math.inf).seconds == pytest.approx(2 * fast.least(math.inf).seconds, rel=0.02)


def test_no_cut_that_the_deadline_rules_out_gets_all_its_costs() -> None:
    wanted = wanted_on(3, 3)
    (part,), costs = stand_in.stand_ins(wanted), costs_of(wanted)
    base, placed = next(one for one in mixed_placements(part) if len(one[1]) == 3)
    shape = replace(base, schedule="1f1b")
    least = bound(costs, shape, placed)
    (replica, *_) = replicas_of(costs, shape, placed)
    assert replica.least(least / 100) == (least / 100, ())
    assert replica.least(math.inf).seconds <= least


@pytest.mark.parametrize(("memory", "fits_some"), [(1.2e9, False), (80e9, True)])
def test_a_placement_whose_stages_do_not_fit_has_no_cut(memory: float, fits_some: bool) -> None:
    """Torch and the workspace take 1 GiB beside the stages."""
    wanted = wanted_on(3, 3, memory=memory)
    (part,) = stand_in.stand_ins(wanted)
    base, placed = next(one for one in mixed_placements(part) if len(one[1]) == 3)
    assert math.isfinite(bound(costs_of(wanted), replace(base, schedule="1f1b"), placed)) == fits_some


def test_only_the_last_stage_may_be_without_layers_and_only_before_further_ones() -> None:
    """Three stages of two layers each, of which the head's layer that predicts further tokens is the slowest stage's."""
    for further, least in ((0, 1), (1, 0)):
        wanted = wanted_on(3, 3, mtp_layers=further, dense_layers=0)
        (part,), costs = stand_in.stand_ins(wanted), costs_of(wanted)
        base, placed = next(one for one in mixed_placements(part) if len(one[1]) == 3)
        for replica in replicas_of(costs, replace(base, schedule="1f1b"), placed):
            layers = replica.least(math.inf).layers
            assert sum(layers) == 6 and min(layers[:-1]) >= 1 and layers[-1] >= least
