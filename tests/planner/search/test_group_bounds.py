"""Bounds of groups of pipelines are below the step of each of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from planner.costs.context import PlanningContext
from planner.costs.node_classes import under
from planner.search import group_bounds
from planner.search.evaluation import PipelineEvaluation
from planner.search.group_bounds import ruled_out
from planner.space.shapes import overlaps
from tests import builders as make
from tests.planner.builders import Drawn, drawn_plans, on_one_cluster, on_two_clusters, pipelines, shape
from tests.planner.search.searches import candidate


@given(drawn_plans())
def test_no_pipeline_takes_less_than_the_bound_of_its_group(drawn: Drawn):
    """Whatever is ruled out, in large groups and small ones, whenever weights are gathered."""
    context = PlanningContext(drawn.request)
    own = candidate(context, drawn.shape, drawn.stages, least=True)
    every = _moved(own.pipeline, own.evaluation.layer_capacity([i for i, _ in own.pipeline]), drawn.shape.vpp)
    exact = {one: seconds for seconds, one in own.evaluation.evaluated(every, gathers=False)}
    for limit in (0.0, float(np.median(list(exact.values()))) * 0.999):
        found = ruled_out(own.evaluation, every, limit)
        assert all(limit < bound <= exact[one] * (1 + 1e-9) for one, bound in found.items())
        for late in overlaps(drawn.shape):
            classes = under(context, late, own.evaluation.classes)
            steps = PipelineEvaluation(context, late, classes, least=True).evaluated(every)
            assert all(found.get(one, 0.0) <= seconds * (1 + 1e-9) for seconds, one in steps)


def _moved(pipeline, capacity, vpp):
    """The pipeline, and those with a layer moved from one stage to another."""
    every = [pipeline]
    for a, (i, layers) in enumerate(pipeline):
        for b, (j, more) in enumerate(pipeline):
            if a != b and layers > vpp and more < capacity[b]:
                moved = list(pipeline)
                moved[a], moved[b] = (i, layers - 1), (j, more + 1)
                every.append(tuple(moved))
    return every


def test_groups_of_one_rule_out_every_slow_pipeline(monkeypatch):
    """A pipeline alone is bounded by its own step, where nothing is recomputed and no collective slows compute."""
    monkeypatch.setattr(group_bounds, "SIZES", (3, 1))
    question = on_two_clusters(layers=8, batch=6)
    context = PlanningContext(question)
    own = candidate(context, shape(), (("a", 4), ("b", 4))).evaluation
    every = [((0, k), (1, 8 - k)) for k in range(1, 8)] + [((1, k), (0, 8 - k)) for k in range(1, 8)]
    exact = {one: seconds for seconds, one in own.evaluated(every, gathers=False)}
    limit = sorted(exact.values())[4]
    found = ruled_out(own, every, limit)
    assert found.keys() == {one for one, seconds in exact.items() if seconds > limit * (1 + 1e-9)}
    assert 0 < len(found) < len(every)


def test_large_groups_are_divided_where_they_hold_a_fast_pipeline():
    question = on_one_cluster(12, 24, nodes=4, spec=make.device(speed=1e9, memory_bandwidth=1e12))
    context = PlanningContext(question)
    listed = [one for one in pipelines(question, shape()) if len(one) == 3]
    own = candidate(context, shape(), listed[0]).evaluation
    every = [tuple((0, layers) for _, layers in one) for one in listed]
    steps = own.evaluated(every, gathers=False)
    limit = steps[0][0]
    found = ruled_out(own, every, limit)
    assert len(every) == 55, "a large group, and smaller ones"
    assert steps[0][1] not in found
    assert len(found) == 15
    assert ruled_out(own, every, steps[-1][0]) == {}
    assert ruled_out(own, [], limit) == {}


@pytest.mark.parametrize(
    "which, size, starts",
    [([0, 0, 0, 1, 1], 2, [0, 2, 3]), ([0] * 5, 8, [0]), ([0, 1, 2], 8, [0, 1, 2]), ([0, 0, 0], 1, [0, 1, 2])],
)
def test_groups_have_one_sequence_of_classes(which, size, starts):
    assert group_bounds._starts(np.array(which), size).tolist() == starts
