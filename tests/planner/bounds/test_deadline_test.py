"""The deadline test: monotone sizes, the least tail, errors that propagate, families of shapes, prices of real fleets."""

from __future__ import annotations

import itertools
import math
from contextlib import suppress
from dataclasses import replace

import pytest

from benchmarks.certificates.fleets import draw
from planner import strategies
from planner.bounds.any_order import AnyOrder
from planner.bounds.deadline_test import DeadlineTest, deadline_bound
from planner.bounds.greedy_filling import Filling
from planner.bounds.ordered_stages import OrderedStages
from planner.bounds.orders import deadline_tests
from planner.costs.context import PlanningContext
from planner.costs.fleet_views import FleetViews
from planner.costs.node_classes import node_classes
from planner.placement.ranks import build
from planner.placement.simulation import fits, simulate_plan, step
from planner.request import Request, Wishes
from planner.space.shape import Shape
from planner.space.shapes import overlaps, searched, variants
from sim.analytic import plan_costs
from sim.analytic.stage_costs import StageCosts
from sim.errors import Infeasible, NoRoute, NotDefined, NotModelled, PlanError
from sim.formats.topology import load
from sim.plan.plan import Plan
from tests.more import after
from tests.planner.builders import NO_LIMIT, Stages, pipelines, random_request
from tests.planner.real_nodes import EIGHT_H100, on_real_nodes, tied_on_pcie

SEEDS = (1, 2, 3, 4, 5, 7, 11, 12, 13)
"""Random requests; those left out have the most pipelines."""


def test_two_servers_of_pcie_cards_have_a_bound_below_their_best_pipeline():
    """`plan` said 4.83 s, none below 4.806 s; eight stages of microbatches of 1 under 1F1B take 4.40 s."""
    free, eight = (
        strategies.get("certified").plan(question, PlanningContext(question))
        for question in (tied_on_pcie(), replace(tied_on_pcie(), wishes=Wishes(pp=8, microbatch_size=1, schedule="1f1b")))
    )
    assert step(eight) <= 4.401
    assert step(free) <= step(eight) * (1 + 1e-9)
    assert free.certificate is not None
    assert free.certificate.lower_bound_s <= step(eight)


def test_every_size_that_holds_is_listed_where_a_smaller_one_does_not(monkeypatch):
    """Of two stages and six layers, the last may hold 1, 2, 4 or 5 layers, not 3: all four pipelines are listed."""
    question = on_real_nodes(
        EIGHT_H100, 1, {"layers": 6, "hidden": 256, "heads": 4, "ffn_hidden": 1024, "vocab": 1024}, 8, 256, pp=2
    )
    context = PlanningContext(question)
    (option,) = node_classes(context, Shape(1, 4, 1, "none", "1f1b", 1, 1))
    room = Filling.room

    def but_three(self, i, role, k, *more):
        return room(self, i, role, k, *more) if k != 3 else -math.inf

    monkeypatch.setattr(Filling, "room", but_three)
    listed = DeadlineTest(OrderedStages(context, (option,))).pipelines(1e9, 100)
    assert sorted(row[1][1] for row in listed) == [1, 2, 4, 5]


def test_an_unexpected_error_inside_a_bound_is_not_swallowed(monkeypatch):
    """Otherwise its candidates would be dropped, and the bound raised."""
    question = replace(tied_on_pcie(), wishes=Wishes(tp=1, dp=1, microbatch_size=1, recompute="none", zero_stage=1))

    def broken(self, *args, **kwargs):
        raise PlanError("a fault of the model")

    monkeypatch.setattr(FleetViews, "nic_of", broken)
    context = PlanningContext(question)
    with pytest.raises(PlanError, match="a fault of the model"):
        deadline_tests(context, node_classes(context, Shape(1, 1, 1, "none", "1f1b", 1, 1)), math.inf)
    monkeypatch.undo()
    monkeypatch.setattr(StageCosts, "of", broken)
    with pytest.raises(PlanError, match="a fault of the model"):
        strategies.get("certified").plan(question, PlanningContext(question))


@pytest.mark.parametrize("seed", after(1, (404, 400, 405, 406, 407, 408, 410, 411), last=4))
def test_what_the_evaluator_does_not_hold_is_not_ruled_out(monkeypatch, seed):
    """Without the evaluator no bound is above the plan that is found with it; interleaved pipelines of one stage included."""
    question = draw(seed, 1_500)
    try:
        with_it = strategies.get("certified").plan(question, PlanningContext(question))
    except Infeasible:
        return

    def refuse(config):
        raise NotModelled("not held")

    monkeypatch.setattr("sim.analytic.evaluator.check", refuse)
    without = strategies.get("certified").plan(question, PlanningContext(question))
    assert without.certificate is not None
    assert without.certificate.lower_bound_s <= step(with_it) * (1 + 1e-9)


def test_where_nothing_joins_clusters_no_pipeline_crosses(monkeypatch):
    def unjoined(self, *args):
        raise NoRoute("nothing joins them")

    monkeypatch.setattr(FleetViews, "nic_of", unjoined)
    context = PlanningContext(tied_on_pcie())
    assert deadline_tests(context, node_classes(context, Shape(1, 1, 1, "none", "1f1b", 1, 1)), math.inf) == []


@pytest.mark.parametrize(
    ("topology", "batch", "wishes", "more"),
    after(
        0,
        [
            ("holmes-infiniband-4", 96, {"recompute": "none"}, {"microbatch_size": 3}),
            ("holmes-infiniband-4", 60, {"recompute": "none", "tp": 1, "dp": 10}, {"vpp": 5, "pp": 2}),
        ],
    ),
)
def test_sizes_that_only_pins_reached_are_searched(topology, batch, wishes, more):
    """At batch 96 the bound was 0.783 s, and microbatches of 3 took 0.761 s."""
    read = load(f"topologies/{topology}.yaml")
    question = Request(read, replace(read.workload, global_batch_size=batch), Wishes(**wishes), NO_LIMIT)
    free, pinned = (
        strategies.get("certified").plan(one, PlanningContext(one))
        for one in (question, replace(question, wishes=Wishes(**wishes, **more)))
    )
    assert free.certificate is not None
    assert free.certificate.lower_bound_s <= step(pinned)
    assert step(free) <= step(pinned) * 1.005


@pytest.mark.parametrize("seed", after(2, SEEDS, last=6))
def test_the_fastest_pipeline_of_each_order_is_not_ruled_out_within_its_seconds(seed):
    """It is listed, too, and no bound is above it."""
    question = random_request(seed)
    context = PlanningContext(question)
    every = itertools.chain.from_iterable(variants(question, base) for base in searched(question))
    for shape in itertools.chain.from_iterable(map(overlaps, every)):
        orders = {
            tuple(option.cluster.name for option in test.order): test
            for test in deadline_tests(context, node_classes(context, shape), math.inf)
        }
        built: dict[tuple[str, ...], list[tuple[float, Stages, Plan]]] = {}
        for stages in pipelines(question, shape):
            with suppress(NoRoute, NotDefined):
                plan = build(question, shape, stages, "by hand")
                if len(stages) > 1 and fits(plan):
                    order = tuple(dict.fromkeys(name for name, _ in stages))
                    built.setdefault(order, []).append((plan_costs.step_seconds(plan), stages, plan))
        for order, plans in built.items():
            _, stages, plan = min(plans, key=lambda item: item[:2])
            seconds = step(simulate_plan(plan))
            assert orders[order].within(seconds * (1 + 1e-9))
            listed = orders[order].pipelines(seconds * (1 + 1e-9), 100_000)
            assert listed is not None
            assert tuple((order.index(name), layers) for name, layers in stages) in listed
            assert AnyOrder(node_classes(context, shape)).within(seconds * (1 + 1e-9))
            whole = deadline_bound([orders[order]], 0.0, 2 * seconds)
            counts = orders[order].by_counts(2 * seconds)
            assert counts is not None
            assert whole <= deadline_bound(counts, whole, 2 * seconds) <= seconds * (1 + 1e-9)
