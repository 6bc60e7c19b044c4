"""Evaluation of the pipelines that deadline tests leave."""

from __future__ import annotations

import itertools
import math

import pytest

from planner.bounds.deadline_test import DeadlineTest, deadline_bound
from planner.bounds.orders import SomeOrder, deadline_tests
from planner.costs.node_classes import node_classes
from planner.search import generation
from planner.search.budgets import Budgets
from planner.search.evaluation import PipelineEvaluation
from planner.search.exhaust import Exhaust, OpenVariant
from planner.search.improvement import Improvement
from planner.search.incumbent import Incumbent
from planner.space.shapes import overlaps
from sim.hardware.cluster import Fabric
from tests import builders as make
from tests.planner.bounds.test_orders import line_of_cities
from tests.planner.builders import on_one_cluster, pipelines, shape
from tests.planner.search.searches import candidate, incumbent, simulated

NODES = {"nodes": 3, "nics": (make.nic("ethernet", 1e7),), "spec": make.device(speed=1e9, memory_bandwidth=1e12)}
REQUEST = on_one_cluster(6, 6, **NODES)


def opened(budgets: Budgets | None = None, settled: tuple[float, ...] = ()) -> tuple[Incumbent, Exhaust, OpenVariant]:
    """The pipelines of 1F1B on three nodes, with a slow pipeline as incumbent."""
    kept = incumbent(REQUEST, budgets, simulated(REQUEST, shape(), ("c", 1), ("c", 5)))
    tests = deadline_tests(kept.context, node_classes(kept.context, shape()), kept.target)
    return kept, Exhaust(kept, Improvement(kept), list(settled)), OpenVariant(tuple(tests))


def fastest() -> float:
    """The least evaluated step of all pipelines of two or three stages."""
    kept = incumbent(REQUEST)
    return min(candidate(kept.context, shape(), p).seconds for p in pipelines(REQUEST, shape()) if len(p) > 1)


def test_where_pipelines_are_few_the_bound_is_the_fastest_of_all():
    kept, exhaust, variant = opened()
    assert exhaust.closer(shape(), variant, 0.1) == (pytest.approx(fastest(), rel=1e-12), True)
    assert kept.cutoff == pytest.approx(fastest(), rel=0.05), "it is simulated, too"
    counted = exhaust.pipelines
    assert 0 < counted <= 15
    exhaust.closer(shape(), variant, 0.1)
    assert exhaust.pipelines == counted, "no pipeline is evaluated twice"


@pytest.mark.parametrize("many", [1, 1000])
def test_pipelines_ruled_out_without_gathers_change_no_bound(many, monkeypatch):
    """Two replicas gather weights. The bound is the fastest pipeline under both times of gathers."""
    monkeypatch.setattr("planner.search.exhaust.MANY", many)
    question = on_one_cluster(6, 12, **NODES | {"nodes": 4, "devices": 2})
    two = shape(dp=2)
    kept = incumbent(question, best=simulated(question, two, ("c", 3), ("c", 3)))
    tests = deadline_tests(kept.context, node_classes(kept.context, two), kept.target, True)
    exhaust, variant = Exhaust(kept, Improvement(kept), []), OpenVariant(tuple(tests))
    every = [
        candidate(kept.context, one, p, least=True).seconds
        for one in overlaps(two)
        for p in pipelines(question, one)
        if len(p) > 1
    ]
    bound, is_final = exhaust.closer(two, variant, 0.0)
    assert is_final and bound == pytest.approx(min(every), rel=1e-12)
    assert len(variant.evaluated) == len(overlaps(two)) == 2
    assert exhaust.pipelines == sum(len(one.seconds) for one in variant.evaluated.values())


def test_where_they_are_too_many_the_bound_stays_and_the_variant_is_searched():
    kept, exhaust, variant = opened(Budgets(few_pipelines=1, most_pipelines=1))
    assert exhaust.closer(shape(), variant, 0.1) == (0.1, True)
    assert kept.cutoff == pytest.approx(fastest(), rel=0.05)


def test_with_given_numbers_of_stages_messages_between_nodes_count():
    """Two stages of two replicas fill a node of four devices: a pipeline of three stages sends each microbatch to another
    node, and back."""
    question = on_one_cluster(6, 24, **NODES | {"nodes": 2, "devices": 4, "nics": (make.nic("ethernet", 1e6),)})
    two = shape(dp=2)
    kept = incumbent(question, best=simulated(question, two, ("c", 3), ("c", 3)))
    tests = deadline_tests(kept.context, node_classes(kept.context, two), kept.target)
    least, variant = deadline_bound(tests, 0.0, kept.target), OpenVariant(tuple(tests))
    fast = min(candidate(kept.context, two, p).seconds for p in pipelines(question, two) if len(p) > 1)
    assert least < 0.9 * fast
    assert 0.95 * fast < variant.by_counts(least, 2 * fast, 1e-3) <= fast * (1 + 1e-12)
    assert variant.counted


def test_near_a_bound_only_some_pipelines_are_listed():
    """The listing grows until it has a pipeline; its bound is at most the fastest pipeline, and no lower than before."""
    kept, exhaust, variant = opened(Budgets(few_pipelines=1, bound_step=0.02))
    bound = fastest() * 0.9
    closer, is_final = exhaust.closer(shape(), variant, bound)
    assert bound < closer <= fastest() * (1 + 1e-12)
    for _ in range(20):
        if is_final or closer >= kept.target:
            break
        closer, is_final = exhaust.closer(shape(), variant, closer)
    assert kept.target <= closer <= fastest() * (1 + 1e-12)


def test_a_bound_above_a_settled_one_does_not_matter_and_is_counted():
    kept, exhaust, variant = opened(settled=(0.01,))
    exhaust.closer(shape(), variant, 0.1)
    assert kept.unproved == 0, "a faster plan was found"
    exhaust.closer(shape(), variant, 0.1)
    assert kept.unproved == 1
    kept, exhaust, variant = opened(settled=(math.inf,))
    exhaust.closer(shape(), variant, 0.1)
    exhaust.closer(shape(), variant, 0.1)
    assert kept.unproved == 0


def test_no_pipelines_are_listed_beyond_a_settled_bound():
    """The certificate takes the least bound, so a higher one of this variant would not change it."""
    limit = fastest() * 0.901
    _, exhaust, variant = opened(Budgets(few_pipelines=1, bound_step=0.5), settled=(limit,))
    assert exhaust.closer(shape(), variant, fastest() * 0.9) == (limit, False)
    assert exhaust.pipelines == 0


def test_pipelines_that_might_beat_the_target_are_listed_once(monkeypatch):
    """While the variant's bound rises, and again where a faster plan lowers the target."""
    kept, exhaust, variant = opened(Budgets(few_pipelines=1, bound_step=0.02))
    listed = []
    monkeypatch.setattr(DeadlineTest, "pipelines", lambda test, seconds, most: listed.append((seconds, most)))
    first = kept.target
    for bound in (0.1, 0.2):
        assert exhaust.closer(shape(), variant, bound) == (bound, True)
        assert listed[0] == (first, 1)
    targets = [seconds for seconds, most in listed if most == 1]
    assert targets == sorted(set(targets), reverse=True)


def test_on_an_oversubscribed_fabric_evaluated_seconds_are_no_bound():
    narrow = on_one_cluster(6, 6, fabric=Fabric(2, 4.0), **NODES)
    kept = incumbent(narrow, best=simulated(narrow, shape(), ("c", 1), ("c", 5)))
    tests = deadline_tests(kept.context, node_classes(kept.context, shape()), kept.target)
    closer = Exhaust(kept, Improvement(kept), []).closer(shape(), OpenVariant(tuple(tests)), 0.1)
    assert closer == (0.1, True)


def test_orders_of_many_clusters_are_listed_near_the_bound(monkeypatch):
    """Five cities in a line with slow links else: too many orders at the target, few near the bound."""
    question = line_of_cities(5, far=2e6)
    slow = simulated(question, shape(), ("a", 1), ("c", 1), ("e", 1), ("b", 1), ("d", 1))
    kept = incumbent(question, best=slow)
    tests = deadline_tests(kept.context, node_classes(kept.context, shape()), 20 * kept.target)
    assert [type(test) for test in tests] == [SomeOrder]
    variant, exhaust, bound, is_final = OpenVariant(tuple(tests)), Exhaust(kept, Improvement(kept), []), 0.0, False
    bound = deadline_bound(tests, 0.0, kept.target)
    for _ in range(40):
        bound, is_final = exhaust.closer(shape(), variant, bound)
        if is_final or bound >= kept.target:
            break
    monkeypatch.setattr(generation, "EVERY", math.inf)
    every = node_classes(kept.context, shape())
    sets = [some for number in range(2, 6) for some in itertools.combinations(every, number)]
    evaluations = [PipelineEvaluation(kept.context, shape(), some, True) for some in sets]
    least = min(seconds for one in evaluations for seconds, _ in one.evaluated(generation.every_pipeline(one) or []))
    assert bound <= least * (1 + 1e-9)
    assert kept.cutoff == pytest.approx(least, rel=0.02)
