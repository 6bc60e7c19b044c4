"""Bounds in closed form, with layers divided at will."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.bounds.relaxation import filled_and_drained, in_any_order, quick_bound, relaxed_bound, with_a_layer_each
from planner.costs.context import PlanningContext
from planner.costs.node_classes import node_classes
from planner.placement.ranks import build
from planner.placement.simulation import simulate_plan, step
from planner.request import Wishes
from planner.space.shapes import searched
from sim.analytic import plan_costs
from tests import builders as make
from tests.planner import outside_torch
from tests.planner.builders import Drawn, drawn_plans, on_one_cluster, on_two_clusters, pipelines, request, shape

ONE_SIZE = Wishes(tp=1, microbatch_size=1, recompute="none")


def bound(question, **degrees) -> tuple[float, list[float]]:
    """The bound of 1F1B, and the seconds of a layer on each class."""
    context, one = PlanningContext(question), shape(**degrees)
    classes = node_classes(context, one)
    return quick_bound(context, one, classes), [option.layer_seconds for option in classes]


def test_a_single_stage_computes_every_layer_of_every_microbatch():
    found, (layer,) = bound(on_one_cluster(layers=4, batch=6))
    assert found == pytest.approx(24 * layer)


def test_a_single_stage_is_bounded_without_launches_for_each_rank():
    """Two nodes of two devices, four layers of 2.3 ms alone and 11.5 ms in a pipeline, for three microbatches."""
    spec = make.device(speed=1e30, memory_bandwidth=1e30, launch=1e-3, launch_per_rank=2e-3)
    machines = {"nodes": 2, "devices": 2, "spec": spec, "intra_node": make.wire(bandwidth=1e30)}
    alone, _ = bound(on_one_cluster(layers=4, batch=3, **machines), tp=2)
    assert alone == pytest.approx(3 * 4 * 2.3e-3)
    pinned, (layer,) = bound(on_one_cluster(layers=4, batch=3, wishes=Wishes(pp=2), **machines), tp=2)
    assert layer == pytest.approx(11.5e-3)
    assert pinned >= 3 * 2 * 11.5e-3


def test_many_microbatches_approach_an_even_share_of_the_layers():
    """Four stages of one layer each for 600 microbatches: m layers, and a little for fill and drain."""
    found, (layer,) = bound(on_one_cluster(layers=4, batch=600, nodes=4))
    assert 600 * layer < found < 603 * layer


def test_crossing_classes_share_layers_by_speed():
    """Devices of t and 2 t seconds a layer, twelve layers: 12 / (1 / t + 1 / 2 t) for each of 600 microbatches."""
    question = on_two_clusters(layers=12, batch=600)
    found, (fast, slow) = bound(question, schedule="zb-h2")  # it overlaps messages
    assert found == pytest.approx(600 * 12 / (1 / fast + 1 / slow), rel=1e-2)
    assert bound(question)[0] > found, "under 1F1B the stages at the border wait for messages"


def test_work_fill_and_drain_count_together():
    """Eight equal stages and microbatches under 1F1B: work and fill alone take 64 layers, together nearly 98."""
    found, (layer,) = bound(on_one_cluster(layers=64, batch=8, nodes=8))
    assert found >= 64 * layer / (1 - (1 - 1 / 8) ** 8) * (1 - 1e-9)


@given(st.lists(st.tuples(st.floats(0.1, 9.0), st.floats(0, 1), st.integers(0, 9)), min_size=1, max_size=6), st.integers(1, 50))
def test_work_fill_and_drain_bound_every_pipeline(stages, m):
    """Stages of (seconds of a layer, the share of these for which the stages behind it wait, layers)."""
    waits = [seconds * share * layers for seconds, share, layers in stages]
    step = max(m * seconds * layers + sum(waits[:stage]) for stage, (seconds, _, layers) in enumerate(stages))
    total, paces = sum(layers for _, _, layers in stages), [(1 / seconds, seconds * share) for seconds, share, _ in stages]
    found = filled_and_drained(total, m, paces)
    assert found <= step * (1 + 1e-9)
    assert filled_and_drained(total, m, in_any_order(paces)) <= found * (1 + 1e-9)


def test_each_stage_waits_for_a_layer_of_all_before_it():
    """Four stages of a layer a second, for two microbatches of four layers: (8 + 0 + 1 + 2 + 3) / 4 seconds; where a layer
    passes in no time 8 / 4, and where that takes long, one stage has all of them."""
    assert with_a_layer_each(4, 2, [1.0] * 4, 1.0) == 3.5
    assert with_a_layer_each(4, 2, [1.0] * 4, 0.0) == 2.0
    assert with_a_layer_each(4, 2, [1.0] * 4, 100.0) == 8.0


@given(st.lists(st.floats(0.1, 9.0), min_size=1, max_size=4), st.floats(0.0, 3.0), st.integers(1, 9), st.integers(1, 5))
def test_the_fastest_stages_come_first_where_all_wait_equally_long(speeds, passed, layers, m):
    """No order of any of the stages has room for all layers in less time."""
    least = with_a_layer_each(layers, m, sorted(speeds, reverse=True), passed)

    def held(seconds: float, order: tuple[float, ...]) -> float:
        return sum(max(seconds - j * passed, 0.0) * speed / m for j, speed in enumerate(order))

    every = [order for n in range(1, len(speeds) + 1) for order in itertools.permutations(speeds, n)]
    assert max(held(least, order) for order in every) == pytest.approx(layers)


def test_slow_stages_wait_for_each_other_at_their_own_pace():
    """Two microbatches on stages of 1 and 4 seconds a layer: in T seconds the first has T / 2 layers, the other T / 16."""
    assert filled_and_drained(18, 2, [(1.0, 1.0), (0.25, 4.0)]) == pytest.approx(18 / (1 / 2 + 1 / 16))
    assert filled_and_drained(18, 2, [(0.25, 4.0), (1.0, 1.0)]) == pytest.approx(18 / (1 / 2)), "better without the slow one"


def test_a_pinned_pp_leaves_the_slowest_stages_out():
    question = replace(on_one_cluster(layers=8, batch=600, nodes=4), wishes=Wishes(pp=2))
    found, (layer,) = bound(question)
    assert 600 * 4 * layer < found < 603 * 4 * layer
    assert bound(replace(question, wishes=Wishes(pp=5)))[0] == math.inf


@given(drawn_plans())
def test_no_simulated_step_is_shorter(drawn: Drawn):
    """The bound of the shape, that for any schedule, and that of the request."""
    context, base = PlanningContext(drawn.request), drawn.base
    own = quick_bound(context, drawn.shape, node_classes(context, drawn.shape))
    seconds = step(simulate_plan(drawn.plan)) * (1 + 1e-9)
    assert own <= seconds
    anywhere = quick_bound(context, base, node_classes(context, base), True)
    assert anywhere <= own * (1 + 1e-9)
    assert relaxed_bound(drawn.request, context) <= anywhere * (1 + 1e-9) or anywhere == math.inf


def test_a_model_that_no_memory_holds_has_no_bound():
    """Four devices of memory for one layer each hold four layers, and not five."""
    room = on_one_cluster(layers=4, nodes=4, wishes=ONE_SIZE)
    (option,) = node_classes(PlanningContext(room), shape())
    one_layer = option.memory.bytes_at("middle", 1)
    tight = make.device(memory=one_layer * (1 + 1e-9))
    for layers, feasible in ((4, True), (5, False)):
        question = on_one_cluster(layers, nodes=4, spec=tight, wishes=replace(ONE_SIZE, dp=1))
        assert math.isfinite(relaxed_bound(question, PlanningContext(question))) is feasible
    assert one_layer > outside_torch.CONTEXT


def test_the_relaxed_bound_is_the_least_of_all_shapes():
    question = on_one_cluster(layers=4, nodes=3, wishes=Wishes(tp=1))
    context, bases = PlanningContext(question), list(searched(question))
    assert relaxed_bound(question, context) == min(
        quick_bound(context, base, node_classes(context, base), True) for base in bases
    )


def test_the_quick_bound_holds_for_few_microbatches():
    """Two microbatches, two stages: 4 | 2 layers end sooner (8) than 3 | 3 (9), as the second stage waits for the first."""
    machines = make.fleet(make.cluster(nodes=2, spec=make.device(speed=1e9)))
    question = request(machines, make.model(6, vocab=24), 2)
    one = shape()
    context = PlanningContext(question)
    plans = [build(question, one, stages, "by hand") for stages in pipelines(question, one)]
    fastest = min(plans, key=plan_costs.step_seconds)
    assert [stage.layers for stage in fastest.stages] == [4, 2]
    assert quick_bound(context, one, node_classes(context, one)) <= plan_costs.step_seconds(fastest)
