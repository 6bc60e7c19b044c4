"""Bounds on pipelines of layers that differ by their number of ranks."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest

from planner.bounds.unlike_lengths import bounds_by_length, shares
from planner.costs.context import PlanningContext
from planner.costs.unlike_layers import UnlikeCosts
from planner.placement.ranks import build
from planner.placement.simulation import simulate_plan, step
from planner.request import Request
from planner.space import stand_in
from sim.hardware.cluster import Trunk
from tests import builders as make
from tests.planner.builders import request
from tests.planner.unlike import CHEAP_FIRST, PINNED, interleaved, only_shape


def two_classes(trunk: float, vpp: int = 1, layers: int = 6) -> Request:
    """Two devices of each of two classes, joined by a trunk of so many bytes a second."""
    nics = (make.nic("ethernet", 1e8),)
    clusters = [
        make.cluster(name, 2, nics=nics, spec=make.device(f"chip-{name}", speed)) for name, speed in (("a", 2e10), ("b", 1e10))
    ]
    machines = make.fleet(*clusters, trunks=(Trunk(("a", "b"), "ethernet", trunk, 0.0),))
    wishes = replace(interleaved(vpp) if vpp > 1 else PINNED, pp=None)
    return request(machines, make.model(layers, **CHEAP_FIRST), 8, wishes)


def bounds(wanted: Request, cutoff: float = math.inf) -> dict[int, float]:
    context, shape = PlanningContext(wanted), only_shape(wanted)
    return bounds_by_length(context, shape, UnlikeCosts(context).classes(shape), cutoff)


def simulated(wanted: Request, stages: tuple[tuple[str, int], ...]) -> float:
    (part,) = stand_in.stand_ins(wanted)
    plan = stand_in.of_model(build(part, only_shape(wanted), stages, "test"), wanted)
    return step(simulate_plan(plan))


def test_shares_of_a_total() -> None:
    assert list(shares(4, [3, 2])) == [(2, 2), (3, 1)]
    assert list(shares(3, [2])) == []
    assert list(shares(7, [7, 7], 2)) == [(2, 5), (3, 4), (4, 3), (5, 2)]


@pytest.mark.parametrize(("trunk", "vpp"), [(1e8, 1), (1e8, 2), (1e5, 1), (1e5, 2)])
def test_no_pipeline_is_faster_than_the_bound_of_its_length(trunk: float, vpp: int) -> None:
    wanted = two_classes(trunk, vpp)
    found = bounds(wanted)
    assert set(found) == ({1, 2, 3, 4} if vpp == 1 else {2})  # interleaved: two ranks or more, which divide 8 microbatches
    steps = [
        simulated(wanted, ((first, n), (second, 6 - n)))
        for first, second in (("a", "b"), ("b", "a"), ("a", "a"), ("b", "b"))
        for n in range(vpp, 7 - vpp)
    ]
    assert vpp > 1 or found[1] <= min(simulated(wanted, ((name, 6),)) for name in "ab")
    assert 0.6 * min(steps) < found[2] <= min(steps) * (1 + 1e-9)


def test_a_pipeline_over_a_slow_trunk_takes_as_long_as_all_its_messages() -> None:
    """Four ranks are on both clusters: 8 microbatches of 64 tokens of hidden size 96 in two bytes, there and back."""
    wanted = two_classes(1e5)
    model, nbytes = wanted.workload.model, wanted.workload.seq_len * wanted.workload.model.hidden * 2
    assert bounds(wanted)[4] >= 8 * nbytes / 1e5
    assert model.layers == 6
    assert bounds(wanted, cutoff=1e-6)[4] == 1e-6


@pytest.mark.parametrize("schedule", ["zb-h1", "zb-h2", "zb-latency"])
@pytest.mark.parametrize("trunk", [1e8, 1e5])
def test_pipelines_that_split_the_backward_are_no_faster_than_the_bound_of_their_length(schedule: str, trunk: float) -> None:
    """All pipelines of two and of three ranks; without slow messages the bound of one length is within 20 % of its fastest."""
    wanted = two_classes(trunk)
    wanted = replace(wanted, wishes=replace(wanted.wishes, schedule=schedule))
    found, nearest = bounds(wanted), 0.0
    for pp in (2, 3):
        orders = [one for one in itertools.product("ab", repeat=pp) if list(one) in (sorted(one), sorted(one)[::-1])]
        orders = [one for one in orders if max(map(one.count, "ab")) <= 2]
        cuts = [(0, *cut, 6) for cut in itertools.combinations(range(1, 6), pp - 1)]
        layers = [tuple(b - a for a, b in itertools.pairwise(cut)) for cut in cuts]
        fastest = min(simulated(wanted, tuple(zip(order, own, strict=True))) for order in orders for own in layers)
        assert 0 < found[pp] <= fastest * (1 + 1e-9)
        nearest = max(nearest, found[pp] / fastest)
    assert nearest > (0.8 if trunk == 1e8 else 0.5)
