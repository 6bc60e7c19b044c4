"""Some plan that fits memory, or the layout that comes nearest."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.costs.context import PlanningContext
from planner.costs.node_classes import node_classes
from planner.limits import Limits
from planner.placement.ranks import build
from planner.placement.simulation import fits
from planner.request import Request, Wishes
from planner.search.fitting import fitting, nearest
from planner.space.shapes import overlaps, searched, variants
from sim.errors import NoRoute, NotDefined
from tests import builders as make
from tests.planner.builders import on_one_cluster, on_two_clusters, pipelines, random_request, shape
from tests.planner.unlike import question

ONE = Wishes(tp=1, dp=1, microbatch_size=1, recompute="none", schedule="1f1b")


def on_devices_of(nbytes: float, layers: int = 4, nodes: int = 2) -> Request:
    return on_one_cluster(layers, 4, nodes=nodes, spec=make.device(memory=nbytes), wishes=ONE)


def first_stage_bytes(layers: int, held: int) -> float:
    (option,) = node_classes(PlanningContext(on_devices_of(80e9)), shape())
    return option.memory.bytes_at("first", layers, held)


def test_a_pipeline_that_just_fits_is_found_and_one_byte_less_is_not():
    """Four layers on two stages: the first holds two layers and two microbatches, which is most."""
    nbytes = first_stage_bytes(2, 2)
    plan = fitting(on_devices_of(nbytes))
    assert plan is not None and fits(plan)
    assert [stage.layers for stage in plan.stages] == [2, 2]
    assert plan.made_by.strategy == "fitting"
    assert plan.prediction is None
    assert fitting(on_devices_of(nbytes - 1)) is None


@pytest.mark.parametrize(
    ("pp", "stages", "clusters"),
    [
        (3, ((1, "a"),), "aab"),
        (3, ((-2, "b"),), "abb"),
        (4, ((0, "b"), (2, "a")), "bbaa"),
        (4, ((1, "a"), (-2, "b")), "aabb"),
        (3, ((1, "a"), (-2, "b")), None),
        (3, ((3, "a"),), None),
    ],
)
def test_stages_are_on_the_clusters_where_they_are_kept(pp, stages, clusters):
    asked = on_two_clusters(layers=4, batch=4, nodes=2, wishes=replace(ONE, pp=pp))
    plan = fitting(replace(asked, limits=Limits(stages=stages)))
    assert (plan and "".join(device.cluster for device in plan.placement)) == clusters


def test_the_nearest_layout_says_what_is_missing():
    nbytes = first_stage_bytes(2, 2)
    short = nearest(on_devices_of(nbytes - 1000))
    assert short is not None
    assert short.nbytes == pytest.approx(1000, abs=1)
    assert (short.stage, short.layers, len(short.pipeline)) == (0, (2, 2), 2)
    enough = nearest(on_devices_of(nbytes))
    assert enough is not None and enough.nbytes == pytest.approx(0, abs=1)


@given(st.integers(0, 59))
def test_there_is_a_fitting_plan_where_brute_force_finds_one(seed):
    question = random_request(seed)
    found = fitting(question)
    assert found is None or fits(found)
    if found is None:
        for base in searched(question):
            for variant in variants(question, base):
                for one in overlaps(variant):
                    for stages in pipelines(question, one):
                        try:
                            assert not fits(build(question, one, stages, "by hand"))
                        except (NoRoute, NotDefined):
                            continue


def test_a_request_without_any_layout_has_no_plan_and_no_nearest_layout():
    question = on_one_cluster(wishes=Wishes(tp=5))
    assert fitting(question) is None
    assert nearest(question) is None
    assert math.isfinite(first_stage_bytes(1, 1))


def test_a_model_whose_layers_differ_has_its_own_layers():
    wanted = question()
    plan = fitting(wanted)
    assert plan is not None and fits(plan)
    assert plan.workload == wanted.workload
    assert sum(stage.layers for stage in plan.stages) == 8
