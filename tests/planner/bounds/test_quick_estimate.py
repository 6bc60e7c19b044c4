"""The quick estimate of a step, which orders shapes."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
from hypothesis import given

from planner.bounds.quick_estimate import class_sets, estimate_over, quick_estimate
from planner.costs.context import PlanningContext
from planner.costs.node_classes import node_classes
from planner.space.shape import Shape
from sim.hardware.cluster import Trunk
from tests import builders as make
from tests.planner.builders import Drawn, drawn_plans, on_one_cluster, on_two_clusters, request, shape


def test_the_estimate_knows_that_the_first_message_and_the_tied_embedding_cross_the_trunk():
    """One microbatch: a message goes there and one back, which nothing hides; the embedding sums over the trunk, too."""
    ethernet, chip = make.nic("ethernet", 1e6), make.device(speed=1e9)
    shape = Shape(1, 1, 1, "none", "zb-h2", 1, 1)

    def estimate(tied: bool) -> tuple[float, float, float]:
        clusters = [make.cluster(name, 1, 1, (ethernet,), chip) for name in ("a", "b")]
        machines = make.fleet(*clusters, trunks=(Trunk(("a", "b"), "ethernet", 1e6, 0.0),))
        question = request(machines, make.model(2, tied_embeddings=tied), 1)
        context = PlanningContext(question)
        classes = node_classes(context, shape)
        message, summed = context.messages.least(*clusters, shape), context.tied.least(*clusters, shape, 1)
        assert message > 0
        assert (summed > 0) is tied
        crossing = estimate_over(context, shape, classes, False, True)
        return crossing - estimate_over(context, shape, classes, False, False), message, summed

    for tied in (False, True):
        more, message, summed = estimate(tied)
        assert more == pytest.approx(2 * message + summed)


def test_a_single_stage_by_hand():
    """Six microbatches on four layers, without a tail."""
    context = PlanningContext(on_one_cluster(layers=4, batch=6))
    (option,) = node_classes(context, shape())
    assert quick_estimate(context, shape(), [option], False, False) == pytest.approx(6 * 4 * option.layer_seconds, rel=0.05)


def test_an_estimate_is_that_of_the_best_class_or_of_all():
    context = PlanningContext(on_two_clusters(layers=12, batch=60))
    fast, slow = classes = node_classes(context, shape())
    every = [estimate_over(context, shape(), some, True, True) for some in ([fast], [slow], classes)]
    assert quick_estimate(context, shape(), classes) == min(every) == every[2]
    assert quick_estimate(context, shape(), []) == math.inf


def test_two_of_three_clusters_may_be_best():
    """A third cluster that is a thousand times slower, and behind a slow link, only delays the pipeline of the other two."""
    fast, slow = make.device(speed=1e12), make.device("slow", speed=1e9)
    nics = (make.nic("ethernet", 1e9),)
    clusters = [make.cluster(name, 1, 1, nics, chip) for name, chip in (("a", fast), ("b", fast), ("c", slow))]
    trunks = [Trunk(pair, "ethernet", rate, 0.0) for pair, rate in ((("a", "b"), 1e9), (("a", "c"), 1e6), (("b", "c"), 1e6))]
    question = request(make.fleet(*clusters, trunks=tuple(trunks)), make.model(12), 60)
    context = PlanningContext(question)
    a, b, c = classes = node_classes(context, shape())
    both, every = (estimate_over(context, shape(), some, True, True) for some in ((a, b), (a, b, c)))
    assert quick_estimate(context, shape(), classes, between=True) == both < every
    assert quick_estimate(context, shape(), [a, b], between=True) == math.inf


@given(drawn_plans())
def test_an_estimate_without_messages_and_tails_is_never_larger(drawn: Drawn):
    """The ranking of shapes in `planner.search.first_plan` relies on it."""
    context = PlanningContext(drawn.request)
    classes = node_classes(context, drawn.shape)
    least = quick_estimate(context, drawn.shape, classes, False, False)
    assert least <= quick_estimate(context, drawn.shape, classes, False) * (1 + 1e-12)
    assert least <= quick_estimate(context, drawn.shape, classes) * (1 + 1e-12)


def test_sets_of_up_to_three_classes_are_all_there_are():
    assert list(class_sets("abc")) == [("a",), ("b",), ("c",), ("a", "b"), ("a", "c"), ("b", "c"), ("a", "b", "c")]


def test_of_more_classes_the_fastest_the_fastest_two_and_so_on():
    classes = [SimpleNamespace(name=name, layer_seconds=s) for name, s in zip("abcd", (3.0, 1.0, 4.0, 2.0), strict=True)]
    assert ["".join(option.name for option in some) for some in class_sets(classes)] == ["b", "bd", "abd", "abcd"]
