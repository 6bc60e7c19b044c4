"""Gradients of stages that share a node: bounds by hand, and none above the simulation."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import pytest

from planner.costs.context import PlanningContext
from planner.costs.gradient_loads import Rival, busy_until
from planner.placement.ranks import build
from planner.request import Request, Wishes
from planner.search.evaluation import PipelineEvaluation
from planner.space.shape import Shape
from planner.space.shapes import overlaps, searched, slots, variants
from sim.engine.engine import simulate
from sim.errors import HolmesError
from sim.hardware.cluster import Cluster, Trunk
from sim.kernels.payloads import gradient_bytes, parameter_bytes
from tests import builders as make
from tests.more import after
from tests.planner.builders import Stages, on_one_cluster, request, shape
from tests.planner.search.searches import candidate

THIN = {"nodes": 3, "devices": 4, "nics": (make.nic("ethernet", 1e6),), "spec": make.device(speed=1e10)}
"""Three nodes of four devices: two stages of six replicas share the second node, and its NIC of 1e6 bytes a second."""


def two_stages(**changes: object) -> tuple[Request, Shape]:
    return on_one_cluster(layers=4, batch=24, **THIN), shape(dp=6, **changes)


def held(question: Request, variant: Shape, of: object, layers: int, *ends: bool) -> float:
    """Bytes that a rank of a stage reduces or gathers."""
    return dict(of(question.workload, variant.config(question.workload, 2), layers, *ends))["dp"]  # type: ignore[operator]


def test_two_stages_load_the_nic_of_the_node_that_they_share():
    question, variant = two_stages()
    (cluster,) = question.clusters()
    shared = PlanningContext(question).gradients.shared(cluster, variant)
    each = 5 / 6 / 1e6  # of a ring of six, five sixths of the payload leave the node
    (link,) = shared.links
    assert link == ((0, pytest.approx(each), pytest.approx(each)), (1, pytest.approx(each), pytest.approx(each)))
    assert shared.first == ((pytest.approx(each), (Rival(1, pytest.approx(each), pytest.approx(0.5 / each), 0.0),)),)


@pytest.mark.parametrize("dp", [4, 8, 2, 1])
def test_stages_of_whole_nodes_and_whole_parts_of_nodes_share_no_nic(dp):
    question = on_one_cluster(layers=4, batch=24, **THIN)
    (cluster,) = question.clusters()
    assert PlanningContext(question).gradients.shared(cluster, shape(dp=dp)).links == ()


def test_the_first_stage_gathers_at_half_the_rate_as_long_as_the_second_one_does():
    question, variant = two_stages()
    (cluster,) = question.clusters()
    gradients = PlanningContext(question).gradients
    layers = np.array([[1, 3], [2, 2], [3, 1]])
    first = [held(question, variant, parameter_bytes, k, True, False) * 5 / 6 / 1e6 for k in (1, 2, 3)]
    second = [held(question, variant, parameter_bytes, k, False, True) * 5 / 6 / 1e6 for k in (3, 2, 1)]
    expected = [a + min(a, b) for a, b in zip(first, second, strict=True)]
    assert gradients.gathered([cluster, cluster], variant, layers) == pytest.approx(expected, rel=1e-6)
    assert gradients.gathered([cluster], variant, np.array([[4]])).tolist() == [0.0]


def test_a_link_ends_after_the_loads_of_all_stages_from_one_start_on():
    starts = np.array([[1.0, 1.0, 9.0], [3.0, 7.0, 0.0]])
    loads = np.array([[4.0, 4.0, 1.0], [2.0, 2.0, 3.0]])
    assert busy_until(starts, loads).tolist() == [1 + 4 + 2, 7 + 2, 9 + 1]


def test_a_step_ends_when_both_reductions_are_done_and_the_quicker_optimizer():
    question, variant = two_stages()
    (cluster,) = question.clusters()
    starts, optimizer = np.array([[2.0], [5.0]]), np.array([[0.25], [0.5]])
    loads = [held(question, variant, gradient_bytes, 2, *ends) * 5 / 6 / 1e6 for ends in ((True, False), (False, True))]
    expected = max(2.0 + sum(loads), 5.0 + loads[1]) + 0.25
    found = PlanningContext(question).gradients.ends([cluster] * 2, variant, np.array([[2, 2]]), starts, optimizer)
    assert found == pytest.approx([expected])


def test_the_bound_is_the_simulated_step_where_only_gradients_share_links():
    """Of a wide model, whose messages are short beside its weights."""
    question, variant = request(make.fleet(make.cluster(**THIN)), make.model(4, hidden=4800), batch=24), shape(dp=6)
    stages = (("c", 2), ("c", 2))
    bound = candidate(PlanningContext(question), variant, stages, least=True).seconds
    assert bound == pytest.approx(simulate(build(question, variant, stages, "by hand")).step_s, rel=0.002)


def fleet(seed: int) -> tuple[Request, random.Random]:
    """One or two clusters of nodes of two to eight devices with thin NICs."""
    rng = random.Random(seed)

    def cluster(name: str) -> Cluster:
        nics = (make.nic("ethernet", rng.choice([3e5, 1e6, 3e6]), latency=rng.choice([1e-4, 3e-3])),)
        if rng.random() < 0.5:
            nics = (make.nic("roce", rng.choice([3e6, 1e7])), *nics)
        wire = make.wire(bandwidth=rng.choice([5e6, 2e7, 1e8]), latency=rng.choice([0.0, 1e-3]))
        spec = make.device(f"chip-{name}", rng.choice([1e9, 2e9, 5e9]), 1e9, memory=1e12)
        return make.cluster(name, rng.randint(2, 5), rng.choice([2, 3, 4, 6, 8]), nics, spec, wire)

    clusters = [cluster(name) for name in "ab"[: rng.choice([1, 1, 2])]]
    trunks = (Trunk(("a", "b"), "ethernet", rng.choice([1e5, 1e6, 1e7]), 1e-3),) if len(clusters) > 1 else ()
    model = make.model(rng.randint(3, 8), rng.choice([96, 192]), tied_embeddings=rng.random() < 0.4)
    wishes = Wishes(tp=rng.choice([1, 1, 2]), recompute="none")
    return request(make.fleet(*clusters, trunks=trunks), model, rng.choice([6, 12, 24, 30]), wishes), rng


def pipelines(seed: int) -> Iterator[tuple[PlanningContext, Shape, Stages]]:
    """Pipelines of a fleet whose stages share nodes."""
    question, rng = fleet(seed)
    context, layers = PlanningContext(question), question.workload.model.layers
    bases = list(searched(question))
    rng.shuffle(bases)
    for base in bases[:6]:
        able = [cluster for cluster in question.clusters() if cluster.node.count >= base.tp]
        room = [cluster.name for cluster in able for _ in range(slots(cluster, base.tp) // base.slots)]
        if min(len(room), layers) < 2 or not any(context.gradients.shared(one, base).links for one in able):
            continue
        every = [one for variant in variants(question, base) for one in overlaps(variant) if one.vpp == 1]
        for variant in rng.sample(every, min(3, len(every))):
            pp = rng.randint(2, min(layers, len(room), 4))
            names = sorted(rng.sample(room, pp), reverse=rng.random() < 0.5)
            cuts = sorted(rng.sample(range(1, layers), pp - 1))
            sizes = (b - a for a, b in itertools.pairwise((0, *cuts, layers)))
            yield context, variant, tuple(zip(names, sizes, strict=True))


@pytest.mark.parametrize("seed", after(12, range(48), last=20))
def test_no_bound_is_above_the_simulation(seed):
    for context, variant, stages in pipelines(seed):
        with suppress(HolmesError):  # not every schedule is defined for every number of microbatches
            plan = build(context.request, variant, stages, "by hand")
            bound = candidate(context, variant, stages, least=True).seconds
            assert bound <= simulate(plan).step_s * (1 + 1e-9), (variant, stages)


def test_these_bounds_rise_above_those_of_an_idle_network(monkeypatch):
    every = [one for seed in range(20) for one in pipelines(seed)]
    raised = 0
    for context, variant, stages in every:
        with suppress(HolmesError), monkeypatch.context() as patch:
            bound = candidate(context, variant, stages, least=True).seconds
            patch.setattr(PipelineEvaluation, "_sharing", lambda *_: iter(()))
            raised += bound > candidate(context, variant, stages, least=True).seconds * (1 + 1e-9)
    assert raised > len(every) / 10
