"""ZeRO 1 dominates ZeRO 2 where it fits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given

from planner.bounds.orders import deadline_tests
from planner.costs.context import PlanningContext
from planner.costs.node_classes import node_classes
from planner.placement.ranks import build
from planner.placement.simulation import fits
from planner.request import Request, Wishes
from planner.search.dominance import dominating, is_dominated, undominated
from sim.analytic.evaluator import evaluate
from tests import builders as make
from tests.planner.builders import Drawn, drawn_plans, on_one_cluster, request, shape
from tests.planner.search.searches import incumbent, simulated


def test_zero_2_is_not_dominated_where_software_all_reduces_under_zero_1():
    question = on_one_cluster()
    assert dominating(question, shape(dp=2, zero_stage=2)) is not None
    assert dominating(question, shape(dp=2, zero_stage=2, all_reduces=True)) is None


@pytest.mark.parametrize(("zero", "pinned", "other"), [(1, None, None), (2, None, 1), (3, None, None), (2, 2, None)])
def test_only_an_unpinned_zero_2_is_dominated(zero, pinned, other):
    question = on_one_cluster(wishes=Wishes(zero_stage=pinned))
    found = dominating(question, shape(dp=2, zero_stage=zero))
    assert found == (None if other is None else shape(dp=2, zero_stage=other))


@given(drawn_plans())
def test_a_pipeline_is_never_slower_under_the_dominating_variant(drawn: Drawn):
    """On an idle network, where it fits under both."""
    assume(dominating(drawn.request, replace(drawn.shape, zero_stage=2)) is not None and drawn.shape.slots > 1)
    assume(drawn.shape.divides(drawn.request.workload))  # else ZeRO 2 is not defined
    first, second = (build(drawn.request, replace(drawn.shape, zero_stage=zero), drawn.stages, "by hand") for zero in (1, 2))
    assume(fits(first) and fits(second))
    seconds = [float(evaluate([plan])[0]) for plan in (first, second)]
    assert seconds[0] <= seconds[1] * (1 + 1e-9)


def tight() -> Request:
    """Four layers on nodes whose devices hold a first stage of three layers under ZeRO 2, but not under ZeRO 1."""
    roomy = on_one_cluster(4, 4, nodes=4, devices=2)
    (option,) = node_classes(PlanningContext(roomy), shape(dp=2, zero_stage=2))
    nbytes = option.memory.bytes_at("first", 3, 2)
    return on_one_cluster(4, 4, nodes=4, devices=2, spec=make.device(memory=nbytes))


def test_a_variant_is_dominated_where_everything_fits_under_zero_1():
    question = on_one_cluster(4, 4, nodes=4, devices=2)
    best = simulated(question, shape(dp=2), ("c", 2), ("c", 2))
    assert is_dominated(incumbent(question, best=best), shape(dp=2, zero_stage=2))
    assert not is_dominated(incumbent(question, best=best), shape(dp=2, zero_stage=1))
    assert not is_dominated(incumbent(tight()), shape(dp=2, zero_stage=2))


def test_the_head_of_a_short_interleaved_pipeline_needs_room_as_well():
    """Of two microbatches a pipeline of two stages keeps the logits of both, one of four stages would keep those of one."""
    clusters, variant = make.cluster(nodes=4, devices=2), shape(dp=2, schedule="interleaved", vpp=2, zero_stage=2)

    def question(memory: float) -> Request:
        machines = replace(clusters, node=replace(clusters.node, device=make.device(memory=memory)))
        return request(make.fleet(machines), make.model(8, vocab=76_800), batch=4, seq_len=2048)

    (option,) = node_classes(PlanningContext(question(1e12)), replace(variant, zero_stage=1))
    whole = option.memory.bytes_at  # two microbatches in flight; of the ends' roles "only" needs most
    one_head = whole("only", 8, 1) + whole("middle", 8, 2) - whole("middle", 8, 1)
    head = 4 * 2048 * (76_800 + 96)
    assert not is_dominated(incumbent(question(one_head + 0.1 * head)), variant)
    assert is_dominated(incumbent(question(one_head + head)), variant)


def test_pipelines_that_fit_under_zero_1_are_left_out():
    """Where memory is short only pipelines with a stage that is too large under ZeRO 1 are left."""
    question, two = tight(), shape(dp=2, zero_stage=2)
    kept, free = incumbent(question), incumbent(on_one_cluster(4, 4, nodes=4, devices=2))
    layers_of = {}
    for name, one in (("tight", kept), ("free", free)):
        (test,) = deadline_tests(one.context, node_classes(one.context, two), 1e9)
        every = test.pipelines(1e9, 1_000)
        left = undominated(one, two, test, 1e9, 1_000)
        layers_of[name] = sorted(tuple(k for _, k in pipeline) for pipeline in left)
        for pipeline in every:
            plan = build(one.request, shape(dp=2), tuple(("c", k) for _, k in pipeline), "by hand")
            assert (pipeline in left) is not fits(plan)
    assert layers_of["free"] == []
    assert (3, 1) in layers_of["tight"]
    assert (2, 2) not in layers_of["tight"]
