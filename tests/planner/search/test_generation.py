"""Promising pipelines, generated without a solver."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from planner.request import Wishes
from planner.search.generation import assigned_layers, every_pipeline, promising
from planner.space.shape import Shape
from sim.errors import NoRoute
from tests import builders as make
from tests.planner.builders import on_one_cluster, on_two_clusters, pipelines, random_request, shape
from tests.planner.search.searches import evaluation


@pytest.mark.parametrize("one", [shape(), shape(schedule="interleaved", vpp=2), shape(dp=2)])
def test_where_there_are_few_pipelines_all_are_listed(one: Shape):
    """Those on all classes whose stages can be cut into virtual stages, and whose length the schedule allows."""
    question = on_two_clusters(layers=5, batch=4, nodes=2)
    of = evaluation(question, one)
    names = [option.cluster.name for option in of.classes]
    expected = {
        tuple((names.index(name), layers) for name, layers in stages)
        for stages in pipelines(question, one)
        if {name for name, _ in stages} == set(names)
        and min(layers for _, layers in stages) >= one.vpp
        and (one.vpp == 1 or of.microbatches % len(stages) == 0)
    }
    found = every_pipeline(of)
    assert len(found) == len(set(found)) == len(expected) > 0
    assert set(found) == expected


def test_a_pinned_pp_and_many_pipelines():
    pinned = on_one_cluster(layers=6, nodes=4, wishes=Wishes(pp=3))
    assert {len(pipeline) for pipeline in every_pipeline(evaluation(pinned, shape()))} == {3}
    assert every_pipeline(evaluation(on_one_cluster(layers=16, nodes=8), shape())) is None


@given(st.integers(0, 59), st.sampled_from(["1f1b", "zb-h2", "interleaved"]), st.sampled_from([None, 2, 3]))
def test_promising_pipelines_are_pipelines(seed, schedule, pp):
    """All layers, a stage on each class, as many as pinned, as much as memory holds."""
    question = random_request(seed)
    question = replace(question, wishes=replace(question.wishes, pp=pp))
    one = shape(schedule=schedule, vpp=2 if schedule == "interleaved" else 1)
    try:
        of = evaluation(question, one)
    except NoRoute:
        assume(False)
    for pipeline in promising(of):
        classes = [i for i, _ in pipeline]
        assert sum(layers for _, layers in pipeline) == of.layers
        assert set(classes) == set(range(len(of.classes)))
        assert len(list(itertools.groupby(classes))) == len(of.classes), "stages of a class are neighbours"
        assert pp in (None, len(pipeline))
        assert all(one.vpp <= k <= most for (_, k), most in zip(pipeline, of.layer_capacity(classes), strict=True))
        assert all(classes.count(i) <= option.max_stages for i, option in enumerate(of.classes))


def test_layers_follow_the_speed_of_the_classes():
    """Of 24 layers on devices of 2 and 1 GFLOP/s with many microbatches, about two thirds are on the fast one."""
    of = evaluation(on_two_clusters(layers=24, batch=240), shape(schedule="zb-h2"))
    found = list(promising(of))
    assert found
    assert all(dict(pipeline)[0] in (15, 16, 17) for pipeline in found)


def test_stages_that_wait_for_messages_between_nodes_have_fewer_layers():
    """Four nodes of four devices, one stage on each. A message between nodes takes 0.123 s, three layers 0.136 s. Without
    messages, the first stages, which begin first, have most layers; with them, those at a border of two nodes have fewest."""
    nics, spec = (make.nic("ethernet", 1e5),), make.device(speed=1e9, memory_bandwidth=1e12)
    of = evaluation(on_one_cluster(32, 32, nodes=4, devices=4, nics=nics, spec=spec), shape())
    assert assigned_layers(of, [0] * 16, waits=False) == [3, *[2] * 14, 1]
    assert assigned_layers(of, [0] * 16) == [3, 3, 3, 1, 1, 3, 3, 1, 1, 3, 2, 1, 1, 2, 2, 2]
