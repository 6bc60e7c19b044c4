"""Fewest layers that a stage recomputes to fit, against the memory of plans with these layers."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given

from planner.costs.context import PlanningContext
from planner.costs.node_classes import node_classes
from planner.placement.ranks import build
from planner.placement.recomputation import fewest_recomputed
from planner.search.evaluation import roles
from sim.errors import PlanError
from sim.hardware.memory_facts import MEGATRON
from sim.kernels import communicators, memory
from sim.plan import schedules
from sim.plan.parallel_config import BLOCK
from tests import builders as make
from tests.planner.builders import Drawn, drawn_plans, on_one_cluster, shape
from tests.planner.costs.memories import block_memory, stage_memory


def bytes_at(layers: int, recomputed: int, held: int, **degrees: object) -> float:
    """Bytes of a middle stage, by `sim.kernels.memory` itself."""
    config = shape(**degrees).config(on_one_cluster(6, 8).workload, 2)
    config = replace(config, recompute="full", recompute_layers=(recomputed,))
    inside = memory.rank_bytes(on_one_cluster(6, 8).workload, config, layers, held, False, False)
    return inside + communicators.outside_torch(config)


@pytest.mark.parametrize("facts", [MEGATRON, make.EAGER])
@pytest.mark.parametrize("recomputed", [1, 2, 4])
def test_with_the_bytes_of_some_recomputed_layers_these_are_recomputed(recomputed, facts):
    """And with one byte less, one layer more."""
    exact = bytes_at(4, recomputed, 5, memory=facts)
    just, less = (block_memory(nbytes, memory=facts) for nbytes in (exact * (1 + 1e-12), exact - 1))
    assert just.fewest("middle", ((5, 0),))[4] == recomputed
    assert less.fewest("middle", ((5, 0),))[4] == min(recomputed + 1, 4)
    assert just.most_layers("middle", ((5, 0),)) >= 4
    assert just.most_kept("middle", ((5, 0),)) < 4


def test_a_stage_with_room_for_all_recomputes_none():
    ample = block_memory(1e12)
    assert ample.fewest("middle", ((5, 0),)) == (0,) * 7
    assert ample.most_layers("middle", ((5, 0),)) == ample.most_kept("middle", ((5, 0),)) == 6


def test_a_layer_that_keeps_all_beside_one_microbatch_fits_where_one_at_work_beside_its_input_does_not():
    """One layer, one microbatch: recomputation keeps the layer's input as well."""
    none, full = (stage_memory(1e12, recompute=one).bytes_at("middle", 1) for one in ("none", "full"))
    assert none < full
    assert block_memory((none + full) / 2).most_layers("middle", ((1, 0),)) == 1
    assert block_memory((none + full) / 2).fewest("middle", ((1, 0),))[1] == 0
    assert block_memory((none + full) / 2).held("middle", 1) == 1


def test_more_layers_and_more_microbatches_recompute_no_fewer_layers():
    tight = block_memory(bytes_at(5, 2, 3))
    by_held = [tight.fewest("middle", ((held, 0),)) for held in range(1, 6)]
    assert all(list(counts) == sorted(counts) for counts in by_held)
    assert all(a <= b for few, many in itertools.pairwise(by_held) for a, b in zip(few, many, strict=True))
    assert tight.fewest("middle", ((1, 0), (3, 0))) == by_held[2]


@given(drawn_plans())
def test_the_counts_are_those_of_the_plan(drawn: Drawn):
    """Those that the planner expects of each stage, by its class, and those that the plan gets from its own memory."""
    one, pp = replace(drawn.shape, recompute=BLOCK), len(drawn.stages)
    named = {option.cluster.name: option for option in node_classes(PlanningContext(drawn.request), one)}
    try:
        plan = build(drawn.request, one, drawn.stages, "by hand")
    except PlanError:
        return
    bare = replace(plan, config=plan.config.recomputing("none"))
    per_stage = [0] * pp
    for stage, count in enumerate(fewest_recomputed(bare)):
        per_stage[stage % pp] += count
    m = one.microbatches(drawn.request.workload)
    for stage, (role, (name, layers)) in enumerate(zip(roles(pp), drawn.stages, strict=True)):
        in_flight = schedules.in_flight(one.schedule, stage, pp, m, one.vpp)
        assert named[name].memory.fewest(role, in_flight, pp)[layers] == per_stage[stage]
