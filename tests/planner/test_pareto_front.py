"""Plans for cost and energy: machines that are not worth it are left out, bounds hold, a front has no dominated row."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest

from planner import api, pareto_front, strategies
from planner.api import plan_for
from planner.bounds.objectives import dominates, least, value
from planner.costs.context import PlanningContext
from planner.limits import Limits
from planner.request import Wishes
from planner.search.budgets import Budgets
from planner.strategies import certified
from sim.errors import Infeasible, OptionError
from sim.plan.prediction import OBJECTIVES
from tests import builders as make
from tests.more import after
from tests.planner.priced_fleet import FACTS, two_clusters

THIRSTY = {"fast": {"price": 3.0, "watts": 90.0}, "slow": {"price": 1.0, "watts": 10.0}}
"""The fast devices cost three times as much as the slow ones, and draw nine times as much."""


def on(plan) -> set[str]:
    return {device.cluster for device in plan.placement}


def test_what_was_simulated_before_an_interrupt_is_a_result(monkeypatch):
    whole, searched = certified.plan, []

    def interrupted(question, context):
        searched.append(question.machines)
        if question.machines:
            raise KeyboardInterrupt
        return whole(question, context)

    monkeypatch.setattr(certified, "plan", interrupted)
    context = PlanningContext(two_clusters())
    _, fastest = pareto_front.best(two_clusters(), context, "cost")
    assert searched == [(), (("fast", 1),)], "of equal bounds the fewest devices first"
    assert context.interrupted
    assert on(fastest) == {"fast", "slow"}


def test_choices_are_clusters_and_ever_fewer_nodes_of_each():
    question = two_clusters()
    machines = make.fleet(make.cluster("a", nodes=5), make.cluster("b"), make.cluster("c", nodes=2))
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


def test_of_many_clusters_each_is_tried_alone_and_all_without_one():
    question = two_clusters()
    machines = make.fleet(*(make.cluster(name) for name in "abcde"))
    question = replace(question, topology=replace(question.topology, fleet=machines))
    assert [len(machines) for machines in pareto_front.choices(question)] == [4] * 5 + [1] * 5


def test_a_front_found_has_no_dominated_row_and_the_fastest_first():
    objectives, chosen, others = pareto_front.pareto(two_clusters(), PlanningContext(two_clusters()))
    assert objectives == ("step-time", "cost", "energy")
    rows, rest = ([tuple(value(plan, name) for name in objectives) for plan in plans] for plans in (chosen, others))
    assert len(rows) >= 2
    assert rows == sorted(rows)
    assert not any(dominates(a, b) for a in [*rows, *rest] for b in rows)
    assert all(row in rows or any(dominates(a, row) for a in rows) for row in rest)


def test_a_device_without_watts_is_named():
    question = two_clusters({"fast": {"price": 1.0}, "slow": {"price": 1.0}})
    with pytest.raises(
        OptionError, match="no watts known of fast of cluster fast, slow of cluster slow; give it in the topology"
    ):
        pareto_front.best(question, PlanningContext(question), "energy")


def test_a_front_of_the_step_time_alone_is_refused():
    question = two_clusters({"fast": {}, "slow": {}})
    with pytest.raises(OptionError, match="no price known of fast of cluster fast"):
        pareto_front.pareto(question, PlanningContext(question))


@functools.cache
def planned(objective: str):
    """The plan of the two clusters for an objective, and what is beside it."""
    return plan_for(objective, two_clusters(), "certified", PlanningContext(two_clusters()))


@pytest.mark.parametrize("objective", ["cost", "energy"])
def test_a_cluster_that_is_slow_and_dear_is_left_out_though_the_step_is_shorter_with_it(objective):
    question = two_clusters()
    fastest = strategies.get("certified").plan(question, PlanningContext(question))
    found, (beside,) = planned(objective)
    assert on(fastest) == {"fast", "slow"}
    assert on(found) == {"fast"}
    assert value(found, "step-time") > value(fastest, "step-time")
    assert value(found, objective) < value(fastest, objective)
    assert beside.plan is not None
    assert value(beside.plan, "step-time") <= value(fastest, "step-time")


def test_a_slow_cluster_that_costs_next_to_nothing_is_the_cheapest():
    question = two_clusters({"fast": {"price": 1.0, "watts": 100.0}, "slow": {"price": 0.01, "watts": 100.0}})
    found, _ = plan_for("cost", question, "certified", PlanningContext(question))
    assert on(found) == {"slow"}


@pytest.mark.parametrize("objective", ["cost", "energy"])
def test_the_certificate_shows_how_far_the_objective_is_from_its_bound(objective):
    question, (found, _) = two_clusters(), planned(objective)
    certificate = found.certificate
    assert certificate is not None
    assert (certificate.objective, certificate.objective_s) == (objective, value(found, "step-time"))
    assert certificate.lower_bound_per_token == least(PlanningContext(question), (objective,))[0]
    assert certificate.gap == 1 - certificate.lower_bound_per_token / value(found, objective)
    assert 0 <= certificate.gap < 1
    assert certificate.status == ("optimal" if certificate.gap <= Budgets().optimal_gap else "feasible")


def test_unknown_objectives_and_other_strategies_are_refused():
    with pytest.raises(OptionError, match="objective 'speed' is unknown; known: step-time, cost, energy"):
        plan_for("speed", two_clusters(), "certified", PlanningContext(two_clusters()))
    with pytest.raises(OptionError, match="strategy holmes plans for the step time only"):
        plan_for("cost", two_clusters(), "holmes", PlanningContext(two_clusters()))


@pytest.mark.parametrize(
    ("facts", "wishes"),
    after(
        2,
        [
            (FACTS, Wishes(tp=2, recompute="none")),
            (THIRSTY, Wishes(tp=2, recompute="none")),
            (FACTS, Wishes(tp=1, recompute="none")),
            (THIRSTY, Wishes(tp=1, recompute="none")),
            (FACTS, Wishes(recompute="full")),
            (THIRSTY, Wishes(recompute="full")),
        ],
    ),
)
def test_no_simulated_plan_is_below_a_bound(facts, wishes):
    question = replace(two_clusters(facts), wishes=wishes)
    bounds = least(PlanningContext(question), tuple(OBJECTIVES))
    plans = pareto_front.explore(question, PlanningContext(question), tuple(OBJECTIVES))
    assert len(plans) >= 3
    for plan in plans:
        for objective, bound in zip(OBJECTIVES, bounds, strict=True):
            assert bound <= value(plan, objective) * (1 + 1e-9)


def test_machines_are_all_that_a_plan_stands_on():
    question = replace(two_clusters(), machines=(("fast", 1),))
    plan = strategies.get("certified").plan(question, PlanningContext(question))
    assert {(device.cluster, device.node) for device in plan.placement} == {("fast", 0)}
    assert plan.fleet == two_clusters().topology.fleet


def test_every_plan_of_a_front_is_simulated_to_the_end():
    """A slower plan may be cheaper, so no simulation is abandoned."""
    contexts, make_context = list[PlanningContext](), pareto_front.PlanningContext

    def recorded(*args):
        contexts.append(make_context(*args))
        return contexts[-1]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pareto_front, "PlanningContext", recorded)
        pareto_front.explore(two_clusters(), PlanningContext(two_clusters()), ("step-time", "cost"))
    searched = [context for context in contexts if context.simulated]
    assert len(searched) > 1
    assert all(context.effort.times["plans simulated"] == len(context.simulated) for context in searched)
    assert all(context.every_step for context in searched)


def test_the_fastest_plan_within_a_cost():
    """The slow devices cost as much as the fast ones: plans without them are slower and cheaper."""
    question = two_clusters()
    plans = pareto_front.explore(question, PlanningContext(question), ("step-time", "cost"))
    fastest = min(plans, key=lambda plan: value(plan, "step-time"))
    cheaper = min((plan for plan in plans if value(plan, "cost") < value(fastest, "cost")), key=lambda p: value(p, "step-time"))

    def within(cost: float):
        limited = replace(question, limits=Limits(cost=cost))
        return api.plan(limited, context=PlanningContext(limited))

    assert value(within(value(fastest, "cost")), "step-time") == value(fastest, "step-time")
    found = within(value(fastest, "cost") * 0.999)
    assert value(found, "step-time") <= value(cheaper, "step-time")
    assert found.certificate is not None and found.certificate.objective_s == value(found, "step-time")
    assert found.certificate.lower_bound_s <= value(fastest, "step-time")
    assert [axis.values for axis in found.certificate.space if axis.name == "required"]
    with pytest.raises(Infeasible, match="no plan that was found costs at most 1e-06 USD/Mtoken: the cheapest"):
        within(1e-12)


def test_other_strategies_and_fronts_keep_to_a_cost():
    question = two_clusters()
    dear = replace(question, limits=Limits(cost=1e-12))
    with pytest.raises(Infeasible, match="the plan has a cost of"):
        api.plan(dear, "random")
    with pytest.raises(Infeasible, match="no plan that was found has cost at most 1e-06 USD/Mtoken"):
        pareto_front.pareto(dear, PlanningContext(dear))
    with pytest.raises(Infeasible, match="the plan has a cost of"):
        plan_for("energy", dear, "certified", PlanningContext(dear))


def test_the_nodes_of_the_chosen_plan_are_searched_to_the_end():
    """A plan that fits the cost on the fast nodes alone is the best that a request of these nodes gives."""
    question = two_clusters()
    alone = replace(question, machines=(("fast", 2),))
    best = certified.plan(alone, PlanningContext(alone))
    limited = replace(question, limits=Limits(cost=value(best, "cost") * (1 + 1e-9)))
    assert value(api.plan(limited, context=PlanningContext(limited)), "step-time") <= value(best, "step-time") * (1 + 1e-9)
