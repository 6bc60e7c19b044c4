"""What the variants of a shape consist of, where layers differ."""

from __future__ import annotations

import math

from planner import api
from planner.costs.context import PlanningContext
from planner.costs.unlike_layers import UnlikeCosts
from planner.placement.simulation import step
from planner.request import Request
from planner.search.unlike_variants import Variants
from planner.space import stand_in
from sim.field_changes import changed
from tests.planner.bounds.test_rank_programme import four_in_two_clusters
from tests.planner.unlike import interleaved, only_shape, question


def variants(wanted: Request) -> Variants:
    context = PlanningContext(wanted)
    return Variants(context, UnlikeCosts(context))


def test_lengths_of_a_variant_have_bounds_and_some_pipelines() -> None:
    wanted = question()
    (part,), shape, of = stand_in.stand_ins(wanted), only_shape(wanted), variants(wanted)
    seconds = step(api.plan(wanted))
    found = of.refine(part, shape, 0.0, math.inf)
    assert set(found.lengths) == {2}
    assert 0.9 * seconds < found.lengths[2] <= seconds * (1 + 1e-9)
    assert found.tried[0] == (("a", 6), ("a", 2)), "the fastest one"
    assert of.refined == 1


def test_both_orders_of_weight_gathers_are_bounded_once() -> None:
    wanted = question(interleaved(2))
    (part,), shape, of = stand_in.stand_ins(wanted), only_shape(wanted), variants(wanted)
    found = [of.refine(part, changed(shape, overlap_param_gather=way), 0.0, math.inf) for way in (True, False)]
    assert found[0].lengths == found[1].lengths
    assert of.refined == 1
    assert not found[0].tried, "all pipelines of two ranks can be listed"


def test_a_variant_above_the_cutoff_is_not_told_apart() -> None:
    wanted = question()
    (part,), shape = stand_in.stand_ins(wanted), only_shape(wanted)
    assert variants(wanted).refine(part, shape, 0.0, 1e-9)._replace(bound=0.0) == (0.0, {}, [])


def test_orders_have_bounds_up_to_the_cutoff() -> None:
    wanted = four_in_two_clusters(2e5, "1f1b", 1)
    shape, of = only_shape(wanted), variants(wanted)
    found = {ranks: seconds for seconds, ranks in of.orders(shape, 2, math.inf)}
    assert set(found) == {(0, 0), (1, 1), (0, 1), (1, 0)}
    middle = sorted(found.values())[1]
    assert {ranks: min(seconds, middle) for ranks, seconds in found.items()} == {
        ranks: seconds for seconds, ranks in of.orders(shape, 2, middle)
    }
