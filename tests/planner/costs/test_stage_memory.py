"""Layers and microbatches that fit in the memory of a stage, against the memory of whole plans."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given

from planner.costs.context import PlanningContext
from planner.costs.node_classes import node_classes
from planner.costs.stage_memory import StageMemory, single_stage_config
from planner.search.evaluation import roles
from sim.hardware.memory_facts import MEGATRON
from sim.kernels import communicators
from sim.plan import schedules
from tests import builders as make
from tests.planner import outside_torch
from tests.planner.builders import Drawn, drawn_plans, on_one_cluster, shape
from tests.planner.costs.memories import stage_memory


def test_a_pipeline_of_one_stage_has_pp_1():
    config = shape(dp=2).config(on_one_cluster().workload, 3)
    assert (single_stage_config(config).pp, single_stage_config(config).dp) == (1, 2)


@pytest.mark.parametrize("role", ["first", "middle", "last", "only"])
@pytest.mark.parametrize("held", [1, 3])
@pytest.mark.parametrize("facts", [MEGATRON, make.EAGER])
def test_the_most_layers_fit_and_one_more_does_not(role, held, facts):
    """On a device with the bytes of exactly three layers, and on one with one byte less."""
    exact = stage_memory(1e12, memory=facts).bytes_at(role, 3, held)
    just, less = (stage_memory(nbytes, memory=facts) for nbytes in (exact, exact * (1 - 1e-9)))
    assert just.most_layers(role, ((held, 0),)) == 3
    assert less.most_layers(role, ((held, 0),)) == 2
    assert just.held(role, 3) == held
    assert less.held(role, 3) == held - 1


def test_shapes_that_share_a_cache_have_their_own_bytes():
    """Shapes of one request and those of requests of their own need the same bytes, in whatever order they are asked for."""
    question = on_one_cluster(6, 8, nodes=4, devices=4)
    (cluster,), together = question.clusters(), PlanningContext(question)
    facts = itertools.product(
        (1, 2), (1, 4), (1, 2), ("none", "full"), (1, 2, 3), (("1f1b", 1), ("zb-h1", 1), ("interleaved", 2))
    )
    for tp, dp, size, recompute, zero, (schedule, vpp) in facts:
        one = shape(tp, dp, schedule, microbatch_size=size, recompute=recompute, zero_stage=zero, vpp=vpp)
        shared, alone = (StageMemory(context, cluster, one) for context in (together, PlanningContext(question)))
        for role in ("first", "middle", "last", "only"):
            assert shared.of_one_and_two(role, 3, 1, 2) == alone.of_one_and_two(role, 3, 1, 2)


def test_no_more_layers_than_the_model_has_and_none_without_room():
    assert stage_memory(1e12).most_layers("middle", ((1, 0),)) == 6
    assert stage_memory(outside_torch.CONTEXT).most_layers("middle", ((1, 0),)) == 0
    assert stage_memory(outside_torch.CONTEXT).held("middle", 1) < 0


def test_deferred_weight_gradients_take_memory():
    nbytes = stage_memory(1e12).bytes_at("middle", 4, 2)
    assert stage_memory(nbytes).most_layers("middle", ((2, 0),)) == 4
    assert stage_memory(nbytes).most_layers("middle", ((2, 2),)) < 4
    assert stage_memory(nbytes).most_layers("middle", ((2, 0), (3, 0))) == stage_memory(nbytes).most_layers("middle", ((3, 0),))


@given(drawn_plans())
def test_the_memory_of_stages_is_that_of_the_plan(drawn: Drawn):
    """Every stage of a plan that fits holds no more layers than its class says."""
    named = {option.cluster.name: option for option in node_classes(PlanningContext(drawn.request), drawn.shape)}
    one, pp = drawn.shape, len(drawn.stages)
    m = one.microbatches(drawn.request.workload)
    for stage, (role, (name, layers)) in enumerate(zip(roles(pp), drawn.stages, strict=True)):
        in_flight = schedules.in_flight(one.schedule, stage, pp, m, one.vpp)
        assert named[name].memory.most_layers(role, in_flight, pp) >= layers


@pytest.mark.usefixtures("real_communicators")
@pytest.mark.parametrize(("role", "more"), [("only", 0), ("first", 2), ("middle", 2), ("last", 2)])
def test_a_pipeline_leaves_torch_less_than_a_stage_alone(role, more):
    """Its ranks have communicators of their pipeline and of their replica beside those of all ranks and of gradients."""
    known = stage_memory(1e12, dp=2)
    outside = communicators.CONTEXT + (2 + more) * communicators.COMMUNICATOR
    assert known.room(role) == pytest.approx(1e12 - outside, rel=1e-12)


@pytest.mark.usefixtures("real_communicators")
@pytest.mark.parametrize("role", ["first", "middle", "last", "only"])
def test_the_communicators_of_a_stage_are_counted_to_the_byte(role):
    exact = stage_memory(1e12).bytes_at(role, 3, 2)
    just, less = (stage_memory(nbytes) for nbytes in (exact, exact * (1 - 1e-9)))
    assert (just.most_layers(role, ((2, 0),)), less.most_layers(role, ((2, 0),))) == (3, 2)
