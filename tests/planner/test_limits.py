"""Limits of a plan: what they allow, what they refuse and in which words, and certificates under drawn limits."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from benchmarks.certificates.fleets import draw
from benchmarks.certificates.judge import NEAR, certified, judge
from benchmarks.certificates.limits import KINDS, limited
from planner.bounds.total_work import work_bound
from planner.costs.context import PlanningContext
from planner.limits import HOUR, NO_LIMITS, Limits
from planner.placement.simulation import step
from planner.request import Wishes
from planner.search.mixed import mixed_placements
from planner.strategies import get, names
from sim.errors import Infeasible
from sim.hardware.cluster import Trunk
from sim.plan.allowed import Allowed
from tests import builders as make
from tests.more import after
from tests.planner.builders import on_two_clusters, request, shape

SMALL = 1_500
SEEDS = range(36)
LATE = (17,)
"""Seeds whose plan may take more than `NEAR` longer than the best: messages share links, and the evaluator ranks five pipelines
before it. Without limits, the same pins give the same plan."""


def two(price: float | None = 1.0):
    """Clusters a and b of two nodes of two devices for `price` and twice as much USD per hour."""
    rents = {"a": price, "b": None if price is None else 2 * price}
    clusters = [
        make.cluster(name, 2, 2, spec=make.device(name, 1e12, price=None if rent is None else rent / HOUR))
        for name, rent in rents.items()
    ]
    return make.fleet(*clusters, trunks=(Trunk(("a", "b"), "infiniband", 1e10, 0.0),))


@pytest.mark.parametrize("seed", after(5, SEEDS[:18], last=10))
def test_no_bound_is_above_the_best_plan_that_the_limits_allow(seed):
    """Brute force builds every plan and drops those that the limits refuse."""
    verdict = judge(seed, SMALL, limited)
    assert not {"bound", "order", "feasible"} & set(verdict.faults), verdict
    if math.isfinite(verdict.best_s) and seed not in LATE:
        assert verdict.step_s <= verdict.best_s * (1 + NEAR), verdict


@pytest.mark.parametrize("seed", after(5, SEEDS[18:], last=12))
def test_plans_keep_to_the_limits_and_no_bound_by_work_is_above_them(seed):
    question = limited(draw(seed, SMALL), seed)
    plan = certified(question)
    if plan is not None:
        assert list(question.limits.faults(plan)) == []
        assert work_bound(PlanningContext(question)) <= step(plan) * (1 + 1e-9)


def test_the_seeds_draw_every_kind_of_limit():
    drawn = [limited(draw(seed, SMALL), seed).limits for seed in SEEDS]
    dimensions = {name for one in drawn for name, _ in one.dimensions}
    assert dimensions == {"tp", "pp", "dp", "microbatch_size", "vpp", "zero_stage", "schedule", "recompute"}
    others = "devices", "rent", "first", "last", "on_clusters", "nodes"
    assert all(any(getattr(one, name) for one in drawn) for name in others)
    assert len(KINDS) >= 10


@pytest.mark.parametrize("name", [name for name in names() if name != "certified"])
def test_every_strategy_keeps_to_the_limits(name):
    found = 0
    for seed in range(16):
        question = limited(draw(seed, 300), seed)
        try:
            plan = get(name).plan(question, PlanningContext(question))
        except Infeasible:
            continue
        found += 1
        assert list(question.limits.faults(plan)) == []
    assert found


def test_limits_in_words():
    dimensions = (("tp", Allowed(most=4)), ("recompute", Allowed(("none", "full"))))
    limits = Limits(dimensions, (("b", (("tp", Allowed((1,))),)),), 64, 180 / HOUR, 0.15e-6, "a", "b")
    limits = replace(limits, nodes=(("a", Allowed(least=1)),))
    assert list(limits.words()) == [
        "tp at most 4", "recompute none or full", "tp 1 on cluster b", "nodes at least 1 on cluster a",
        "devices at most 64", "rent at most 180 USD/h",
        "cost at most 0.15 USD/Mtoken",
        "first stage on cluster a", "last stage on cluster b",
    ]  # fmt: skip
    assert list(NO_LIMITS.words()) == []


def test_what_a_plan_does_not_keep_to():
    plan = make.plan(two(), tp=2, pp=2, dp=2, microbatches=2)  # a, then b
    limits = Limits(
        (("tp", Allowed(most=1)), ("pp", Allowed(most=2))),
        (("b", (("tp", Allowed((1,))),)),),
        7,
        11 / HOUR,
        first="b",
        last="b",
    )
    assert list(limits.faults(plan)) == [
        "tp 2, which should be at most 1",
        "tp 2 on cluster b, where it should be 1",
        "8 devices, more than 7",
        "rent of 12 USD/h, more than 11",
        "the first stage on a, not on b",
    ]
    assert list(Limits(devices=8, rent=12 / HOUR, first="a", last="b").faults(plan)) == []
    assert list(NO_LIMITS.faults(plan)) == []


def test_every_degree_of_unlike_stages_keeps_to_the_limits():
    plan = make.plan(two(), tp=2, pp=2, dp=2, microbatches=2, stage_tp=(2, 1))  # a, then b
    limits = Limits((("tp", Allowed(least=2)),), (("a", (("tp", Allowed(most=1)),)), ("b", (("tp", Allowed(most=1)),))))
    assert list(limits.faults(plan)) == [
        "tp 1, which should be at least 2",
        "tp 2 on cluster a, where it should be at most 1",
    ]
    assert list(Limits(first="a", last="b").faults(plan)) == []


def test_every_dp_of_unlike_stages_keeps_to_the_limits():
    plan = make.plan(two(), pp=2, dp=2, microbatches=2, stage_dp=(2, 4), microbatch_size=2)
    assert list(Limits((("dp", Allowed(most=3)),)).faults(plan)) == ["dp 4, which should be at most 3"]
    assert list(Limits((("dp", Allowed(least=2, most=4)),)).faults(plan)) == []


def test_a_stage_that_is_kept_on_a_cluster_must_be_there():
    plan = make.plan(two(), tp=2, pp=2, dp=2, microbatches=2)  # a, then b
    assert list(Limits(stages=((0, "a"), (1, "b"), (-2, "a"))).faults(plan)) == []
    assert list(Limits(stages=((1, "a"), (-2, "b"), (2, "b"), (-3, "a"))).faults(plan)) == [
        "stage 1 on b, not on a",
        "stage -2 on a, not on b",
        "2 stages, without stage 2, which should be on b",
        "2 stages, without stage -3, which should be on a",
    ]
    assert list(Limits(stages=((1, "b"),)).words()) == ["stage 1 on cluster b"]


@pytest.mark.parametrize(
    ("limits", "able"),
    [
        (Limits(stages=((0, "a"), (1, "b"), (2, "a"))), []),  # a cluster comes again
        (Limits(stages=((1, "a"), (1, "b"))), []),
        (Limits(first="a", stages=((0, "b"),)), []),
        (Limits(first="a", last="a", stages=((1, "b"),)), []),
        (Limits(stages=((0, "a"), (-1, "b"))), [2, 3, 4]),
        (Limits(stages=((1, "a"), (-2, "b"))), [2, 4]),  # of three stages, one would be on both
    ],
)
def test_the_stages_of_a_cluster_follow_one_another(limits: Limits, able: list[int]):
    assert [pp for pp in range(1, 5) if limits.allows_number(pp)] == able


def test_a_stage_on_several_clusters_is_on_none():
    plan = make.plan(two(), dp=8, microbatches=1)
    assert list(Limits(stages=((-1, "a"),)).faults(plan)) == ["stage -1 on a and b, not on a"]
    assert list(Limits(first="a").faults(plan)) == ["the first stage on a and b, not on a"]


def test_a_schedule_with_a_list_is_the_schedule():
    plan = make.plan(make.fleet(make.cluster(devices=2)), pp=2, schedule="zb-latency=1,0", microbatches=2)
    assert not list(Limits((("schedule", Allowed(("zb-latency",))),)).faults(plan))


def test_rent_counts_whole_nodes():
    """A stage of one device pays for its node of two; nodes of a cost 2 USD per hour, of b 4."""
    machines, one = two(), shape(dp=1)
    limits = Limits(rent=6 / HOUR)
    a, b = machines.clusters
    assert (limits.stages_on(a, one), limits.stages_on(b, one)) == (6, 2)
    assert limits.allows_nodes(machines, one, {"a": 2, "b": 2}) and limits.allows_nodes(machines, one, {"a": 1, "b": 1})
    assert not limits.allows_nodes(machines, one, {"a": 3, "b": 1})
    assert limits.stages_on(b, shape(dp=3)) == 0
    assert NO_LIMITS.stages_on(b, one) is None


def test_nodes_of_a_cluster_are_as_many_as_allowed():
    """Stages of two devices fill nodes of two."""
    machines, one = two(), shape(dp=2)
    limits = Limits(nodes=(("a", Allowed(least=2)), ("b", Allowed(most=1))))
    a, b = machines.clusters
    assert (limits.most_nodes(a), limits.most_nodes(b)) == (2, 1)
    assert limits.allows_nodes(machines, one, {"a": 2}) and limits.allows_nodes(machines, one, {"a": 2, "b": 1})
    assert not limits.allows_nodes(machines, one, {"a": 1}) and not limits.allows_nodes(machines, one, {"b": 1})
    assert limits.uses_enough(["b", "a"]) and not limits.uses_enough(["b"])
    assert NO_LIMITS.most_nodes(b) == 2 and NO_LIMITS.uses_enough([])
    asked = request(machines, make.model(4), 4)
    assert [one.nodes for one in replace(asked, limits=limits).clusters()] == [2, 1]


def test_what_a_plan_does_not_keep_to_of_its_nodes():
    plan = make.plan(two(), tp=2, dp=2, microbatches=2)  # both nodes of a
    limits = Limits(nodes=(("a", Allowed(most=1)), ("b", Allowed((1, 2)))))
    assert list(limits.faults(plan)) == [
        "2 nodes on cluster a, where there should be at most 1",
        "0 nodes on cluster b, where there should be 1 or 2",
    ]


def test_pipelines_are_as_long_as_devices_and_pp_allow():
    pp = (("pp", Allowed(least=2, most=6)),)
    assert Limits(pp).most_stages(shape()) == 6 and Limits(pp).least_stages == 2
    assert Limits(pp, devices=8).most_stages(shape(tp=2)) == 4
    assert Limits((("pp", Allowed((2, 8))),)).most_stages(shape()) == 8
    assert NO_LIMITS.most_stages(shape()) is None and NO_LIMITS.least_stages == 1
    limits = Limits((("pp", Allowed((2, 8))),), devices=8)
    assert [pp for pp in range(1, 10) if limits.allows_length(shape(dp=1), pp)] == [2, 8]
    assert [pp for pp in range(1, 10) if limits.allows_length(shape(dp=2), pp)] == [2]


def test_a_stage_may_have_no_more_devices_than_allowed():
    assert Limits(devices=4).allows_shape(shape(tp=2, dp=2)) and not Limits(devices=3).allows_shape(shape(tp=2, dp=2))


def test_mixed_stages_keep_to_limits():
    question = on_two_clusters(layers=4, batch=6, nodes=3)
    free = list(mixed_placements(question))
    few = list(mixed_placements(replace(question, limits=Limits(devices=4))))
    assert 0 < len(few) < len(free)
    assert all(one.tp * one.slots * len(stages) <= 4 for one, stages in few)
    begun = list(mixed_placements(replace(question, limits=Limits(first="b"))))
    assert begun == list(mixed_placements(replace(question, limits=Limits(stages=((0, "b"),)))))
    assert begun and all({run.cluster.name for run in stages[0]} == {"b"} for _, stages in begun)
    alone = replace(question, limits=Limits(on_clusters=(("b", (("tp", Allowed(least=2)),)),)))
    assert list(mixed_placements(alone)) == []


def test_devices_bound_the_work_by_the_fastest():
    """Devices of cluster a are the faster ones: two devices are those of a, three are those and one of b."""
    question = on_two_clusters(layers=4, batch=4, nodes=2)

    def bound(limits: Limits) -> float:
        return work_bound(PlanningContext(replace(question, limits=limits)))

    of_a, of_b = (bound(Limits(on_clusters=((other, (("tp", Allowed(least=2)),)),))) for other in "ba")
    assert of_a < of_b
    assert bound(Limits(devices=2)) == pytest.approx(of_a)
    assert 1 / bound(Limits(devices=3)) == pytest.approx(1 / of_a + 0.5 / of_b)
    assert bound(Limits(devices=4)) == pytest.approx(bound(NO_LIMITS))


def test_rent_bounds_the_work_by_the_cheapest():
    question = request(two(), make.model(4), 4)

    def bound(limits: Limits) -> float:
        return work_bound(PlanningContext(replace(question, limits=limits)))

    assert bound(Limits(rent=6 / HOUR)) == pytest.approx(bound(NO_LIMITS) * 8 / 5)  # two nodes of a, half a node of b


def test_offload_is_a_dimension_of_shapes_and_plans():
    """Shapes and plans have a tuple of what is offloaded."""
    limits = Limits((("offload", Allowed(("optimizer",))),))
    question = request(two(), make.model(2), 4)
    kept = shape(tp=1, dp=1)
    assert not limits.allows_shape(kept) and limits.allows_shape(replace(kept, offload=("optimizer",)))
    wanted = replace(question, limits=limits, wishes=Wishes(offload="optimizer"))
    plan = certified(wanted)
    assert plan is not None and plan.config.offload == ("optimizer",) and list(limits.faults(plan)) == []
    other = replace(plan, config=replace(plan.config, offload=()))
    assert list(limits.faults(other)) == ["offload none, which should be optimizer"]
