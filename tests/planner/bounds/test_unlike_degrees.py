"""Bounds on pipelines whose clusters have degrees of their own: never above a plan, and close to the best one."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest

from benchmarks.owned_fleets import draw
from planner.bounds.any_order import AnyOrder
from planner.bounds.unlike_degrees import (
    SomeShapes,
    UnlikeStages,
    below,
    layout_bound,
    leaving,
    message_bound,
    quick_bound,
)  # fmt: skip
from planner.bounds.unlike_listing import CountedStages, counted_bound
from planner.costs.context import PlanningContext
from planner.costs.node_classes import NodeClass
from planner.costs.unlike_messages import UnlikeMessages, ranks_of
from planner.placement.unlike_degrees import build_unlike
from planner.request import Request, Wishes
from sim.engine.engine import simulate
from sim.hardware.cluster import Trunk
from tests import builders as make
from tests.more import after
from tests.planner.builders import request
from tests.planner.unlike_degrees import drawn, drawn_plans, fastest_of, layout_of, question


def check(asked: Request, seed: int, most: int) -> int:
    """Check all bounds on drawn plans; returns their number."""
    context = PlanningContext(asked)
    messages, number = UnlikeMessages(context), 0
    for plan, classes, counts, some in drawn_plans(context, seed, most):
        number += 1
        seconds = simulate(plan).step_s * (1 + 1e-9)
        alone = tuple(SomeShapes([option]) for option in classes)
        together = tuple(SomeShapes(alike(option, some[option.cluster.name])) for option in classes)
        for layout in (alone, together):
            assert quick_bound(layout) <= seconds
            assert message_bound(layout, messages) <= seconds
            left = below(layout, messages, seconds)
            assert all(count <= some.max_stages for count, some in zip(counts, left, strict=True))
            stages = UnlikeStages(context, layout, messages, seconds).in_any_order()
            assert AnyOrder(layout, stages).within(seconds)
        stages = UnlikeStages(context, alone, messages, seconds).in_order()
        assert CountedStages(stages, tuple(counts), tuple(leaving(alone, messages))).within(seconds)
    return number


def alike(option: NodeClass, every: list[NodeClass]) -> list[NodeClass]:
    """The classes whose stages have as many ranks as those of one of them."""
    return [one for one in every if ranks_of(one.own) == ranks_of(option.own)]


@pytest.mark.parametrize("seed", after(4, [14, 41, 66, 98, 15, 35, 47, 62, 69, 84, 90, 112]))
def test_no_bound_is_above_the_simulated_step_of_a_drawn_plan(seed):
    assert check(replace(drawn(seed), wishes=Wishes()), seed, 6) == 6


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(60))
def test_no_bound_is_above_a_plan_on_fleets_that_users_own(seed):
    check(replace(draw(seed), wishes=Wishes(), time_limit=math.inf), seed, 8)


@pytest.mark.parametrize(
    ("speeds", "a", "b", "bounds", "best"),
    [
        ((2e11, 2e11), (1, 2, 2), (1, 4, 1), (17.666, 20.663, 20.663), 24.396),
        ((3e11, 1e11), (1, 2, 1), (1, 1, 2), (23.304, 57.232, 57.689), 58.163),
        ((3e11, 1e11), (1, 1, 4), (1, 4, 1), (27.494, 31.833, 31.883), 36.738),
        ((2e11, 2e11), (1, 2, 1), (1, 1, 2), (23.468, 36.663, 36.988), 38.814),
    ],
)
def test_each_bound_sees_more_than_the_one_before(speeds, a, b, bounds, best):
    """Milliseconds; the best of all pipelines of the layout, by simulation, is above all of them."""
    context = PlanningContext(question(speeds=speeds, room=64e6))
    layout, messages = layout_of(context, a=a, b=b), UnlikeMessages(context)
    found = [quick_bound(layout)]
    for better in (layout_bound, counted_bound):
        found.append(better(context, layout, messages, found[-1], 1.0))
    assert [round(one * 1e3, 3) for one in found] == list(bounds)
    assert round(fastest_of(context, layout) * 1e3, 3) == best >= max(bounds)


def test_messages_of_a_cluster_between_others_pass_its_nics_twice():
    """Four samples of 64 tokens of 384 values of 2 bytes are 196,608 bytes, which leave one NIC of 2e9 bytes/s, from two ranks
    on a and b; c has two nodes, each of which sends half of them."""
    wire = make.wire(bandwidth=1e10)
    clusters = [
        make.cluster(name, nodes, 2, nics=(make.nic("ethernet", 2e9),), intra_node=wire)
        for name, nodes in (("a", 1), ("b", 3), ("c", 2))
    ]
    trunks = tuple(Trunk(pair, "ethernet", 2e10, 1e-6) for pair in itertools.combinations("abc", 2))
    context = PlanningContext(request(make.fleet(*clusters, trunks=trunks), make.model(6, 384), 8, seq_len=64))
    layout, messages = layout_of(context, a=(1, 2, 2), b=(2, 1, 4), c=(1, 4, 1)), UnlikeMessages(context)
    one = 4 * 64 * 384 * 2 / 2e9
    assert leaving(layout, messages) == pytest.approx([one / 2, one / 2, one / 4])
    assert message_bound(layout, messages) == pytest.approx(2 * one)  # two microbatches; c may be the one between the others
    assert [some.max_stages for some in below(layout, messages, 4 * one)] == [1, 1, 1]
    assert [some.max_stages for some in below(layout, messages, 4.1 * one)] == [1, 3, 1]
    stages = UnlikeStages(context, layout, messages, 1.0).in_order()
    assert CountedStages(stages, (1, 1, 1), tuple(leaving(layout, messages))).sent == pytest.approx(4 * one)


def test_links_of_a_device_alone_do_not_limit_what_a_node_sends():
    """Each of eight devices has PCI-Express of 0.8 x 1e7 bytes/s to a NIC of 2e9, which all of them share: messages of all take
    as long as those of one."""
    spec = make.device(host_bandwidth=1e7)
    clusters = [make.cluster(name, 1, 8, nics=(make.nic("ethernet", 2e9),), spec=spec) for name in "ab"]
    fleet = make.fleet(*clusters, trunks=(Trunk(("a", "b"), "ethernet", 2e10, 1e-6),))
    context = PlanningContext(request(fleet, make.model(2, 384), 32, seq_len=64))
    layout, messages = layout_of(context, a=(1, 8, 1), b=(2, 4, 2)), UnlikeMessages(context)
    assert leaving(layout, messages) == pytest.approx([64 * 384 * 2 / 2e9] * 2)
    stages = [(some.cluster.name, some.own, 1) for some in layout]
    assert message_bound(layout, messages) <= simulate(build_unlike(context.request, stages, "by hand")).step_s


def test_no_layout_without_room_in_memory_has_a_step():
    context = PlanningContext(question(room=20e6))
    assert math.isinf(quick_bound(layout_of(context, a=(1, 1, 1), b=(1, 2, 1))))


def test_layouts_with_many_orders_and_numbers_of_stages_keep_the_bound_that_is_known(monkeypatch):
    context = PlanningContext(question())
    layout, messages = layout_of(context, a=(1, 2, 2), b=(1, 2, 2)), UnlikeMessages(context)
    assert counted_bound(context, layout, messages, 0.001, 1.0) > 0.001
    monkeypatch.setattr("planner.bounds.unlike_listing.COUNTED", 3)  # two orders, with one or two stages on `b`
    assert counted_bound(context, layout, messages, 0.001, 1.0) == 0.001
