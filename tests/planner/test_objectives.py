"""Cost and energy as objectives: machines that are not worth it are left out, bounds hold, a front has no dominated row."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import pareto_front, strategies
from planner.api import plan_for
from planner.bounds.objectives import check, dominates, front, known, least, value
from planner.costs.context import PlanningContext
from planner.request import Request, Wishes
from planner.search.budgets import Budgets
from planner.strategies import certified
from sim.errors import PlanError
from sim.hardware.cluster import Trunk
from sim.hardware.topology import Topology
from sim.plan.prediction import OBJECTIVES, Prediction
from sim.workload.workload import Workload

FACTS = {"fast": {"price": 1.0, "watts": 100.0}, "slow": {"price": 1.0, "watts": 100.0}}
"""As dear and as thirsty as the fast devices, which are twice as fast."""


@pytest.fixture(scope="session")
def asked(make_device, make_cluster, make_fleet, make_model, make_nic):
    """Two nodes of two fast devices, one of two slow ones, 8 layers and 8 samples; facts of the devices are given."""

    def made(facts: dict[str, dict[str, float]] = FACTS) -> Request:
        nics = (make_nic("ethernet", 1e8),)
        clusters = [
            make_cluster(name, nodes=nodes, devices=2, nics=nics, spec=make_device(name, speed, **facts[name]))
            for name, nodes, speed in (("fast", 2, 4e9), ("slow", 1, 2e9))
        ]
        machines = make_fleet(*clusters, trunks=(Trunk(("fast", "slow"), "ethernet", 1e8, 0.0),))
        workload = Workload(make_model(8), 8, 64, "bf16")
        topology = Topology("tiny", "", machines, workload, json.dumps({"name": "tiny"}))
        return Request(topology, workload, Wishes(tp=1, microbatch_size=1, recompute="none"), time_limit=60.0)

    return made


def on(plan) -> set[str]:
    return {device.cluster for device in plan.placement}


@pytest.mark.parametrize("objective", ["cost", "energy"])
def test_a_cluster_that_is_slow_and_dear_is_left_out_though_the_step_is_shorter_with_it(asked, objective):
    question = asked()
    fastest = strategies.get("certified").plan(question, PlanningContext(question))
    found, (beside,) = plan_for(objective, question, "certified", PlanningContext(question))
    assert on(fastest) == {"fast", "slow"}
    assert on(found) == {"fast"}
    assert value(found, "step-time") > value(fastest, "step-time")
    assert value(found, objective) < value(fastest, objective)
    assert beside.plan is not None
    assert value(beside.plan, "step-time") <= value(fastest, "step-time")


def test_a_slow_cluster_that_costs_next_to_nothing_is_the_cheapest(asked):
    question = asked({"fast": {"price": 1.0, "watts": 100.0}, "slow": {"price": 0.01, "watts": 100.0}})
    found, _ = plan_for("cost", question, "certified", PlanningContext(question))
    assert on(found) == {"slow"}


@pytest.mark.parametrize("objective", ["cost", "energy"])
def test_the_certificate_tells_how_far_the_objective_is_from_its_bound(asked, objective):
    question = asked()
    found, _ = plan_for(objective, question, "certified", PlanningContext(question))
    told = found.certificate
    assert told is not None
    assert (told.objective, told.objective_s) == (objective, value(found, "step-time"))
    assert told.lower_bound_per_token == least(PlanningContext(question), (objective,))[0]
    assert told.gap == 1 - told.lower_bound_per_token / value(found, objective)
    assert 0 <= told.gap < 1
    assert told.status == ("optimal" if told.gap <= Budgets().optimal_gap else "feasible")


@pytest.mark.parametrize("wishes", [Wishes(tp=1, recompute="none"), Wishes(tp=2, recompute="none"), Wishes(recompute="full")])
@pytest.mark.parametrize("facts", [FACTS, {"fast": {"price": 3.0, "watts": 90.0}, "slow": {"price": 1.0, "watts": 10.0}}])
def test_no_plan_that_is_played_lies_below_a_bound(asked, facts, wishes):
    question = replace(asked(facts), wishes=wishes)
    bounds = least(PlanningContext(question), tuple(OBJECTIVES))
    plans = pareto_front.explore(question, PlanningContext(question), tuple(OBJECTIVES))
    assert len(plans) >= 3
    for plan in plans:
        for objective, bound in zip(OBJECTIVES, bounds, strict=True):
            assert bound <= value(plan, objective) * (1 + 1e-9)


def test_the_bound_is_the_work_of_the_layers_at_the_least_price_of_a_flop(asked):
    """8 samples of 64 tokens through 8 layers of width 96: 72 s h^2 (1 + 3.5/3 s/12h) FLOPs each (an attention's backward is
    2.5 forwards), at 4e9 FLOP/s for 1 USD/s and 100 W; passes through memory add the rest."""
    flops = 8 * 8 * 72 * 64 * 96**2 * (1 + 3.5 / 3 * 64 / 12 / 96)
    usd, joules = least(PlanningContext(asked()), ("cost", "energy"))
    assert usd == pytest.approx(flops / 4e9 / (8 * 64), rel=5e-3)
    assert joules == pytest.approx(100 * usd, rel=1e-12)


def test_what_was_played_before_an_interrupt_is_an_answer(asked, monkeypatch):
    whole, searched = certified.plan, []

    def interrupted(question, context):
        searched.append(question.machines)
        if question.machines:
            raise KeyboardInterrupt
        return whole(question, context)

    monkeypatch.setattr(certified, "plan", interrupted)
    context = PlanningContext(asked())
    _, fastest = pareto_front.best(asked(), context, "cost")
    assert searched == [(), (("fast", 1),)], "of equal bounds the fewest devices first"
    assert context.interrupted
    assert on(fastest) == {"fast", "slow"}


def test_machines_are_all_that_a_plan_stands_on(asked):
    question = replace(asked(), machines=(("fast", 1),))
    plan = strategies.get("certified").plan(question, PlanningContext(question))
    assert {(device.cluster, device.node) for device in plan.placement} == {("fast", 0)}
    assert plan.fleet == asked().topology.fleet


def test_choices_are_clusters_and_ever_fewer_nodes_of_each(make_cluster, make_fleet, asked):
    question = asked()
    machines = make_fleet(make_cluster("a", nodes=5), make_cluster("b"), make_cluster("c", nodes=2))
    question = replace(question, topology=replace(question.topology, fleet=machines))
    assert list(pareto_front.choices(question)) == [
        (("a", 5), ("b", 1)),
        (("a", 5), ("c", 2)),
        (("b", 1), ("c", 2)),
        (("a", 5),),
        (("b", 1),),
        (("c", 2),),
        (("a", 2),),
        (("a", 1),),
        (("c", 1),),
    ]


def test_of_many_clusters_each_is_tried_alone_and_all_without_one(make_cluster, make_fleet, asked):
    question = asked()
    machines = make_fleet(*(make_cluster(name) for name in "abcde"))
    question = replace(question, topology=replace(question.topology, fleet=machines))
    assert [len(machines) for machines in pareto_front.choices(question)] == [4] * 5 + [1] * 5


def test_a_front_found_has_no_dominated_row_and_the_fastest_first(asked):
    objectives, chosen, others = pareto_front.pareto(asked(), PlanningContext(asked()))
    assert objectives == ("step-time", "cost", "energy")
    rows, rest = ([tuple(value(plan, name) for name in objectives) for plan in plans] for plans in (chosen, others))
    assert len(rows) >= 2
    assert rows == sorted(rows)
    assert not any(dominates(a, b) for a in [*rows, *rest] for b in rows)
    assert all(row in rows or any(dominates(a, row) for a in rows) for row in rest)


@given(st.lists(st.tuples(*[st.integers(1, 4)] * 3), min_size=1, max_size=12))
def test_a_front_is_what_nothing_dominates(numbers):
    plans = [Played(*row) for row in numbers]
    chosen = [tuple(value(plan, name) for name in OBJECTIVES) for plan in front(plans, tuple(OBJECTIVES))]
    assert chosen == sorted({row for row in numbers if not any(dominates(other, row) for other in numbers)})


class Played:
    """A plan as the front sees it: its prediction."""

    def __init__(self, *numbers: float) -> None:
        self.prediction = Prediction(numbers[0], 0, 0, 0, 0, (), 0, 0, 0, *numbers[1:])


def test_one_row_dominates_another_if_it_is_nowhere_larger_and_somewhere_smaller():
    assert dominates((1, 2), (1, 3))
    assert not dominates((1, 2), (1, 2))
    assert not dominates((1, 2), (0, 3))


def test_a_device_without_a_price_is_named(asked):
    question = asked({"fast": {"price": 1.0, "watts": 100.0}, "slow": {"watts": 100.0}})
    assert known(question) == ("step-time", "energy")
    with pytest.raises(PlanError) as raised:
        check(question, "cost")
    assert str(raised.value) == (
        "objective cost: no price known of slow of cluster slow; give it in the topology, "
        "clusters.slow.node.devices.price: 2.50 USD/h"
    )


def test_a_device_without_watts_is_named(asked):
    question = asked({"fast": {"price": 1.0}, "slow": {"price": 1.0}})
    with pytest.raises(
        PlanError, match="no watts known of fast of cluster fast, slow of cluster slow; give it in the topology"
    ):
        pareto_front.best(question, PlanningContext(question), "energy")


def test_a_front_of_the_step_time_alone_is_refused(asked):
    question = asked({"fast": {}, "slow": {}})
    with pytest.raises(PlanError, match="no price known of fast of cluster fast"):
        pareto_front.pareto(question, PlanningContext(question))


def test_unknown_objectives_and_other_strategies_are_refused(asked):
    with pytest.raises(PlanError, match="objective 'speed' is unknown; known: step-time, cost, energy"):
        plan_for("speed", asked(), "certified", PlanningContext(asked()))
    with pytest.raises(PlanError, match="strategy holmes plans for the step time only"):
        plan_for("cost", asked(), "holmes", PlanningContext(asked()))
