"""Branching of families of shapes, and pruning of those that cannot beat the target."""

from __future__ import annotations

import math

import pytest

from planner.bounds.orders import deadline_tests
from planner.costs.node_classes import node_classes
from planner.placement.simulation import step
from planner.request import Wishes
from planner.search.families import Branching
from planner.space.shapes import searched, variants
from tests.planner.builders import on_one_cluster, on_two_clusters, pipelines, plan_of, random_request, shape
from tests.planner.search.searches import incumbent, simulated


def test_without_a_plan_a_base_branches_into_all_its_variants():
    """First into schedules and vpp under its first ZeRO stage, then into ZeRO stages; nothing is pruned but vpp 4, with which
    four layers are no pipeline of two ranks."""
    question = on_one_cluster(layers=4, batch=4, nodes=2, devices=2)
    base = shape(dp=2)
    branching = Branching(incumbent(question), [])
    schedules = [one for one, _ in branching.schedules(base)]
    assert {one.zero_stage for one in schedules} == {1}
    assert len(set(schedules)) == len(schedules)
    found = [one for child in schedules for one, _ in branching.zero_stages(child, None)]
    assert sorted(found, key=str) == sorted((one for one in variants(question, base) if one.vpp < 4), key=str)
    assert branching.settled == [math.inf]


def test_families_that_cannot_beat_a_fast_plan_are_pruned_with_the_target():
    """The incumbent is a plan of the same pipeline with a hundredth of the layers' work: both kinds of schedules are pruned."""
    question, easy = (on_one_cluster(layers=4, batch=batch, nodes=2) for batch in (400, 4))
    kept = incumbent(question, best=simulated(easy, shape(), ("c", 2), ("c", 2)))
    branching = Branching(kept, [])
    assert list(branching.schedules(shape())) == []
    assert branching.settled == [kept.target, kept.target]


def test_orders_of_classes_that_cannot_finish_in_time_are_left_out():
    """Behind a slow trunk only pipelines on the fast cluster might beat its plan."""
    question = on_two_clusters(layers=4, batch=12, nodes=4, speeds=(4e9, 1e8), wishes=Wishes(recompute="none"))
    best = simulated(question, shape(schedule="zb-h1"), *[("a", 1)] * 4)
    branching = Branching(incumbent(question, best=best), [])
    children = list(branching.schedules(shape()))
    assert children
    assert all(orders is not None and ("b",) not in orders and ("b", "a") not in orders for _, orders in children)


def test_the_least_vpp_that_cannot_beat_the_best_plan_is_found_with_all_larger_ones():
    """Of 2, 3, 4, 6, 8 and 12 virtual stages, 4 or more cannot; each is ruled out by a test of its own, too."""
    question = on_one_cluster(layers=12, batch=8, nodes=4, wishes=Wishes(schedule="interleaved"))
    kept = incumbent(question, best=simulated(question, shape(), *[("c", 3)] * 4))
    branching = Branching(kept, [])
    assert [one.vpp for one in variants(question, shape())] == [2, 3, 4, 6, 8, 12]
    assert [one.vpp for one, _ in branching.schedules(shape())] == [2, 3]
    assert branching.settled == [kept.target, kept.target]
    assert kept.context.effort.layouts["schedule", "deadline test"] == 4
    for vpp in (4, 6, 8, 12):
        classes = node_classes(kept.context, shape(schedule="interleaved", vpp=vpp))
        assert deadline_tests(kept.context, classes, kept.target, either=True) == []


@pytest.mark.parametrize("seed", [0, 3, 5, 9, 17])
def test_no_family_of_a_faster_pipeline_is_pruned(seed):
    """With the plan of a random pipeline as incumbent, the shape and order of the best plan of all is left."""
    question = random_request(seed)
    best = plan_of(question)
    names = [best.placement[pp_rank * best.config.tp * best.config.dp_cp].cluster for pp_rank in range(best.config.pp)]
    order = tuple(dict.fromkeys(names))
    for base in searched(question):
        stages = next(iter(pipelines(question, base)), None)
        if stages is None or base.slots != best.config.dp_cp or base.microbatch_size != best.config.microbatch_size:
            continue
        slow = simulated(question, base, *stages)
        if step(best) >= step(slow) * 0.99:
            continue
        branching = Branching(incumbent(question, best=slow), [])
        children = {(one.schedule, one.vpp): orders for one, orders in branching.schedules(base)}
        assert (best.config.schedule, best.config.vpp) in children
        orders = children[best.config.schedule, best.config.vpp]
        assert best.config.pp == 1 or orders is None or order in orders
