"""The deadline test of mixed stages of layers that differ, against every split of every placement."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pytest

from planner.bounds import unlike_mixed
from planner.bounds.unlike_deadline import largest_weight
from planner.bounds.unlike_mixed import mixed_seconds
from planner.bounds.unlike_work import UnlikeWork
from planner.costs.context import PlanningContext
from planner.costs.unlike_layers import UnlikeCosts
from planner.placement.ranks import assemble
from planner.placement.simulation import simulate_plan, step
from planner.request import Request
from planner.search.mixed import mixed_placements
from planner.space import stand_in
from planner.space.device_slots import StageSlots, devices
from planner.space.shape import Shape
from sim.errors import Infeasible, NoRoute, NotDefined, NotModelled
from sim.hardware.cluster import Trunk
from tests import builders as make
from tests.planner.builders import request
from tests.planner.unlike import CHEAP_FIRST, PINNED


def wanted_on(fast: int, slow: int, batch: int = 8) -> Request:
    """Devices of two speeds; every network is fast, so that compute decides."""
    nics = (make.nic("ethernet", 1e12),)
    clusters = [
        make.cluster(name, number, nics=nics, spec=make.device(f"chip-{name}", speed))
        for name, number, speed in (("a", fast, 2e10), ("b", slow, 1e10))
    ]
    machines = make.fleet(*clusters, trunks=(Trunk(("a", "b"), "ethernet", 1e12, 0.0),))
    return request(machines, make.model(6, **CHEAP_FIRST), batch, replace(PINNED, pp=None, dp=2))


def steps(wanted: Request, part: Request, shape: Shape, placed: tuple[StageSlots, ...]) -> Iterator[float]:
    """Simulated steps of all splits of a placement, with the model's own layers."""
    for cut in itertools.combinations(range(1, 6), len(placed) - 1):
        layers = tuple(b - a for a, b in itertools.pairwise((0, *cut, 6)))
        with suppress(Infeasible, NoRoute, NotDefined, NotModelled):
            plan = assemble(part, replace(shape, schedule="1f1b"), layers, devices(placed, shape.tp), "test")
            yield step(simulate_plan(stand_in.of_model(plan, wanted)))


@pytest.mark.parametrize(("fast", "slow"), [(3, 1), (3, 3), (1, 3), (2, 3)])
def test_no_mixed_plan_of_equal_replicas_is_faster_than_the_bound_of_its_shape(monkeypatch, fast: int, slow: int) -> None:
    monkeypatch.setattr(unlike_mixed, "runs_alike", lambda *_: True)
    wanted = wanted_on(fast, slow)
    (part,) = stand_in.stand_ins(wanted)
    costs = UnlikeCosts(PlanningContext(wanted))
    work, tried = UnlikeWork(costs.context, costs.layers), 0
    for shape, placed in mixed_placements(part):
        least = min(steps(wanted, part, shape, placed), default=math.inf)
        bound = mixed_seconds(costs, work, part, shape, work.bound(shape), 1e9)
        tried += math.isfinite(least)
        assert work.bound(shape) <= bound <= least * (1 + 1e-9), (shape, placed)
    assert tried > 1


def test_a_stage_on_both_clusters_is_as_slow_as_the_slower_one(monkeypatch) -> None:
    """Two replicas of one stage: 4 microbatches of six layers on the device of half the speed; four of them are cheap."""
    monkeypatch.setattr(unlike_mixed, "runs_alike", lambda *_: True)
    wanted = wanted_on(1, 1)
    (part,) = stand_in.stand_ins(wanted)
    costs = UnlikeCosts(PlanningContext(wanted))
    work = UnlikeWork(costs.context, costs.layers)
    shape, placed = next(iter(mixed_placements(part)))
    slow = next(cluster for cluster in wanted.clusters() if cluster.name == "b")
    cheap, expensive = work.seconds(slow, shape)
    assert len(placed) == 1
    bound = mixed_seconds(costs, work, part, shape, work.bound(shape), 1e9)
    assert 4 * (4 * cheap + 2 * expensive) * 0.99 < bound
    assert work.bound(shape) < 0.8 * bound


@pytest.mark.parametrize("alike", [None, 1, 2])
def test_replicas_of_unlike_numbers_of_microbatches_have_the_bound_of_work_alone(monkeypatch, alike: int | None) -> None:
    """Also where only pipelines of one stage, or only those of several, have equal replicas (`alike`)."""
    if alike is not None:
        monkeypatch.setattr(unlike_mixed, "runs_alike", lambda _request, _shape, pp, _able: pp == alike)
    wanted = wanted_on(1, 1)
    (part,) = stand_in.stand_ins(wanted)
    costs = UnlikeCosts(PlanningContext(wanted))
    work = UnlikeWork(costs.context, costs.layers)
    shape, _ = next(iter(mixed_placements(part)))
    assert mixed_seconds(costs, work, part, shape, work.bound(shape), 1e9) == work.bound(shape)


@pytest.mark.parametrize(
    ("free", "many", "weight"),
    [
        (((3.0, 3.0, 3.0), (1.0, 1.0, 1.0)), (1, 3), 5.0),  # one of the first class, and two of the second one
        (((3.0, 3.0, 3.0), (1.0, 1.0, 1.0)), (3, 2), 6.0),  # two in all
        (((1.0, 1.0), (4.0, 2.0)), (2, 2), 6.0),  # the second class is better
        (((5.0,), (4.0,), (3.0,)), (1, 1, 2), 8.0),  # one of the first two classes
    ],
)
def test_the_largest_weight_of_nested_classes(free, many, weight: float) -> None:
    assert largest_weight(free, many) == weight
