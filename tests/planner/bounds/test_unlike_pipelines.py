"""Lower bounds on every plan of unlike pipelines: their terms by hand, and against drawn plans on any devices."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace

import pytest

from planner import api
from planner.bounds import unlike_pipelines as bounds
from planner.bounds.pipeline_modes import configuration, modes
from planner.costs.context import PlanningContext
from planner.placement.simulation import step
from planner.request import Request, Wishes
from sim.engine.engine import simulate
from sim.errors import Infeasible
from sim.formats import topology
from sim.kernels import memory
from sim.workload.adapter import Adapter
from tests.more import after
from tests.planner.pipelines.drawn import drawn
from tests.planner.pipelines.fleets import two_kinds


def least(asked: Request) -> float:
    return bounds.least_step(PlanningContext(asked))


def test_the_work_of_one_kind_of_devices():
    """Two equal devices share all layers, the embedding and the head of eight samples, in the best mode of a slot of one."""
    asked = two_kinds()
    own = modes(PlanningContext(asked))
    found = bounds.work_seconds(asked, {"a": 2, "b": 0}, own)
    best = min(8 * (3 * layer + embedding + head) / 2 for layer, embedding, head in (one.of_sample for one in own["a"]))
    assert found == pytest.approx(best, rel=1e-3)
    assert found <= best * (1 + 1e-12)


def test_slow_devices_help_as_far_as_they_compute():
    """The two devices of `b` compute half as fast as those of `a`."""
    asked = two_kinds()
    own = modes(PlanningContext(asked))
    both, fast, slow = (bounds.work_seconds(asked, some, own) for some in ({"a": 2, "b": 2}, {"a": 2}, {"b": 2}))
    assert slow == pytest.approx(2 * fast, rel=0.05)
    assert both == pytest.approx(1 / (1 / fast + 1 / slow), rel=0.05)
    assert bounds.work_seconds(asked, {"a": 0}, own) == math.inf


def test_gradients_of_nodes_of_one_device_leave_them():
    """fp32 gradients and 16-bit weights of all layers, half of each on two NICs of 1e6 bytes a second, or a third of both on
    each of three."""
    asked = two_kinds(nodes=(2, 1), devices=(1, 1), rate=1e6)
    config = configuration(asked, 1, 1, 1)
    parameters = memory.stage_parameters(asked.workload, config, 3, False, False)
    assert bounds.payload(asked) == pytest.approx(6 * parameters)
    assert sum(bounds.node_rate(cluster) * cluster.nodes for cluster in asked.clusters()) == pytest.approx(3e6)
    assert least(asked) == pytest.approx(6 * parameters / 3e6)


def test_gradients_inside_a_node_are_those_of_layers_that_it_computes():
    """Where one node has two devices, as many layers stay inside it as it computes; where nothing leaves nodes, one has all."""
    slow, asked = (two_kinds(nodes=(2, 1), devices=(1, 2), rate=rate) for rate in (1e6, 1e12))
    context = PlanningContext(slow)
    inside = bounds.work_seconds(slow, {"b": 2}, modes(context))
    assert least(slow) == pytest.approx(1 / (1 / inside + 3e6 / bounds.payload(slow)))
    assert least(asked) < inside
    every = two_kinds(devices=(2, 2), rate=1e-3)
    own = modes(PlanningContext(every))
    layers = 8 * 3 * min(one.of_sample[0] for one in own["a"]) / 2
    assert least(every) == bounds.leaving_seconds(every, own) == pytest.approx(layers)


def test_two_replicas_must_fit():
    assert least(two_kinds(memory=1e5)) == math.inf


def test_adapters_leave_frozen_weights_and_small_gradients():
    """Gradients and 16-bit weights of the adapters alone travel; each replica keeps all weights in 16 bits besides."""
    model, adapter = two_kinds().workload.model, Adapter(8)
    asked, trained = two_kinds(adapter=adapter), 3 * adapter.layer_parameters(model)
    assert bounds.payload(asked) == pytest.approx(6 * trained)
    assert bounds.kept_bytes(asked) == pytest.approx(6 * trained + 2 * model.parameters)
    found, whole = (bounds.parts_of_bound(PlanningContext(one)) for one in (asked, two_kinds()))
    assert found["gradients"] < whole["gradients"] and found["work"] < whole["work"]


def test_experts_may_stay_on_a_node_whose_dense_weights_leave_it():
    """Both nodes of `b` have two devices at 1e12 FLOP/s: 6 FLOPs for each of 2 x 8 x 256 tokens and weight of an expert."""
    asked = two_kinds(nodes=(1, 2), experts=4)
    model, devices = asked.workload.model, {"a": 0, "b": 4}
    flops = 6 * 2 * 8 * 256 * 3 * model.expert_linear_parameters / 4
    assert bounds.expert_seconds(asked, devices) == pytest.approx(flops / 4e12)
    dense, routed = (bounds.payload(asked, (kind,)) for kind in ("dp", "edp"))
    assert routed == 6 * 3 * model.expert_parameters
    assert dense + routed == bounds.payload(asked)
    assert bounds.crossing_seconds(asked, math.inf, 1e9, {"a": 0, "b": 0}) == pytest.approx((dense + routed) / 1e9)
    found = bounds.crossing_seconds(asked, 2.0, 1e9, devices)
    assert found == pytest.approx((dense + routed) / (1e9 + dense / 2 + routed * 4e12 / flops))


def test_the_space_in_words():
    assert "ep (divisors of the number of experts)" in bounds.SPACE and "cp 1 where devices are measured" in bounds.SPACE


@pytest.mark.parametrize("seed", after(10, range(400), last=40))
def test_no_drawn_plan_of_a_mixture_is_below_the_bound(seed):
    """Pipelines with and without ep, also with whole experts on tensor-parallel ranks."""
    asked, plan = drawn(seed, experts=4)
    if plan is not None:
        assert least(asked) <= simulate(plan).step_s * (1 + 1e-9)


@pytest.mark.parametrize("adapter", [None, Adapter(8)])
@pytest.mark.parametrize("seed", after(10, range(400), last=40))
def test_no_drawn_plan_is_below_the_bound(seed, adapter):
    """Pipelines on single devices, whole nodes and across nodes."""
    asked, plan = drawn(seed, adapter)
    if plan is not None:
        assert least(asked) <= simulate(plan).step_s * (1 + 1e-9)


@pytest.mark.parametrize(
    ("name", "batch", "near"),
    [("peers/sailor-one-32", 16, 0.98), ("peers/sailor-two-32", 32, 0.95), ("holmes-infiniband-4", 16, 0.9)],
)
def test_the_bound_is_near_plans_of_alike_replicas_on_one_node_of_each_cluster(name, batch, near):
    """Two or four replicas on profiled devices, and eight on others: plans of the space that are simulated. With stages each by
    itself in place of whole replicas, the bound was 0.46, 0.76 and 0.87 of them."""
    top = topology.load(f"topologies/{name}.yaml")
    clusters = tuple(replace(one, nodes=1) for one in top.fleet.clusters)
    workload = replace(top.workload, global_batch_size=batch)
    small = replace(top, fleet=replace(top.fleet, clusters=clusters), workload=workload)
    pins = (Wishes(tp=tp, dp=dp, schedule="1f1b", zero_stage=1, cp=1) for tp, dp in ((1, 4), (2, 2), (1, 8)))
    steps = list[float]()
    for wishes in pins:
        with suppress(Infeasible):
            steps.append(step(api.plan(Request(small, workload, wishes=wishes))))
    found = least(Request(small, workload))
    assert near * min(steps) <= found <= min(steps) * (1 + 1e-9)
