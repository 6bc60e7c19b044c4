"""Local search moves single layers between the stages of a candidate."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given

from planner.costs.context import PlanningContext
from planner.search.local_search import improved
from tests.planner.builders import Drawn, drawn_plans, on_one_cluster, on_two_clusters, shape
from tests.planner.search.searches import candidate


def test_a_bad_split_of_two_stages_becomes_the_best_one():
    """Devices of 2 and 1 GFLOP/s: from one layer on the fast one to the best of all splits."""
    question = on_two_clusters(layers=12, batch=24)
    context = PlanningContext(question)
    every = [candidate(context, shape(), (("a", k), ("b", 12 - k))) for k in range(1, 12)]
    (found,) = improved([every[0]], 1)
    best = min(every, key=lambda one: one.seconds)
    assert found.seconds == pytest.approx(best.seconds, rel=1e-12)
    assert found.stages == best.stages
    assert best.stages[0][1] in (7, 8, 9)


def test_the_fastest_candidates_are_improved_and_the_others_dropped():
    """Two replicas gather weights in either order, so each candidate has a twin."""
    question = on_one_cluster(layers=6, batch=8, nodes=2, devices=2)
    context, two = PlanningContext(question), shape(dp=2)
    some = [candidate(context, two, (("c", k), ("c", 6 - k))) for k in (1, 2, 3)]
    assert len(improved(some, 2)) == 4
    assert {one.shape.overlap_param_gather for one in improved(some, 1)} == {True, False}


def test_after_the_time_limit_a_candidate_stays_as_it_is():
    context = PlanningContext(replace(on_two_clusters(layers=12, batch=24), time_limit=0.0))
    bad = candidate(context, shape(), (("a", 1), ("b", 11)))
    (found,) = improved([bad], 1)
    assert found.stages == bad.stages
    assert context.limit.reached


@given(drawn_plans(least_stages=2))
def test_no_single_move_shortens_what_was_improved(drawn: Drawn):
    """It is never slower than before, and no move of one layer between its first and last stage helps any more."""
    context = PlanningContext(drawn.request)
    before = candidate(context, drawn.shape, drawn.stages)
    after = improved([before], 1)[0]
    assert after.seconds <= before.seconds
    assert sorted(name for name, _ in after.stages) == sorted(name for name, _ in before.stages)
    capacity = after.evaluation.layer_capacity([i for i, _ in after.pipeline])
    ends = (0, len(after.pipeline) - 1)
    for source, target in itertools.permutations(ends, 2):
        moved = [list(stage) for stage in after.pipeline]
        moved[source][1] -= 1
        moved[target][1] += 1
        if moved[source][1] >= after.shape.vpp and moved[target][1] <= capacity[target]:
            ((seconds, _),) = after.evaluation.evaluated([tuple(map(tuple, moved))])
            assert seconds >= after.seconds * (1 - 1e-12) or after.seconds == after.link_seconds
