"""Requests, shapes and pipelines for tests of the planner; `tests.builders` has the machines and models."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice

from hypothesis import assume
from hypothesis import strategies as st

from benchmarks.certificates.fleets import draw
from benchmarks.certificates.scarce import squeezed
from planner import strategies
from planner.costs.context import PlanningContext
from planner.placement.ranks import build
from planner.placement.simulation import fits
from planner.request import Request, Wishes
from planner.search.budgets import Budgets
from planner.space.shape import Shape
from planner.space.shapes import overlaps, searched, slots, variants
from planner.strategies import certified
from sim.errors import Infeasible, PlanError
from sim.hardware.cluster import Cluster, Fleet, Trunk
from sim.hardware.memory_facts import WORKSPACE
from sim.hardware.stack import DEFAULT
from sim.hardware.topology import Topology
from sim.plan.plan import Plan
from sim.workload.model import Model
from sim.workload.workload import Workload
from tests import builders as make
from tests.planner import outside_torch

Stages = tuple[tuple[str, int], ...]
"""(cluster, layers) of each stage."""
NO_LIMIT = math.inf
"""Time limit of a request whose search ends by its counted budgets, however busy the machine is."""
SEARCHED_ONCE = Wishes(tp=1, microbatch_size=1, recompute="none")
"""Pins that leave dp, schedule, vpp, ZeRO stage and pp to the search."""
NO_PROOF = Budgets(unproved_variants=0)
"""The search ends after the first plan: no family of shapes is opened."""


def shape(tp: int = 1, dp: int = 1, schedule: str = "1f1b", **degrees: object) -> Shape:
    """A shape with microbatches of one sequence, without recomputation and virtual stages, under ZeRO 1 unless given."""
    usual = {"microbatch_size": 1, "recompute": "none", "vpp": 1, "zero_stage": 1}
    return Shape(tp=tp, dp=dp, schedule=schedule, **(usual | degrees))


def request(
    machines: Fleet, model: Model, batch: int = 4, wishes: Wishes | None = None, seq_len: int = 64, precision: str = "bf16"
) -> Request:
    """A request without a time limit, on a topology `tiny`."""
    workload = Workload(model, batch, seq_len, precision)
    topology = Topology("tiny", "", machines, workload, json.dumps({"name": "tiny"}))
    return Request(topology, workload, wishes or Wishes(), NO_LIMIT)


def on_one_cluster(layers: int = 4, batch: int = 4, wishes: Wishes | None = None, **cluster: object) -> Request:
    """A request on one cluster of ideal devices (`tests.builders.cluster`)."""
    return request(make.fleet(make.cluster(**cluster)), make.model(layers), batch, wishes)


def on_two_clusters(
    layers: int = 4, batch: int = 4, wishes: Wishes | None = None, speeds: tuple[float, float] = (2e9, 1e9), nodes: int = 1
) -> Request:
    """A request on clusters `a` and `b`, whose nodes have one device each; Ethernet of 1e6 bytes a second joins all nodes."""
    nics = (make.nic("ethernet", 1e6),)
    clusters = [
        make.cluster(name, nodes, nics=nics, spec=make.device(f"chip-{name}", speed, 1e9))
        for name, speed in zip("ab", speeds, strict=True)
    ]
    machines = make.fleet(*clusters, trunks=(Trunk(("a", "b"), "ethernet", 1e6, 0.0),))
    return request(machines, make.model(layers), batch, wishes)


def plan_of(question: Request, strategy: str = "certified", budgets: Budgets | None = None) -> Plan | None:
    """The plan of a strategy in a context of its own; None where it has none. `budgets` are those of certified."""
    with suppress(Infeasible):
        if budgets is not None:
            assert strategy == "certified"
            return certified.plan(question, PlanningContext(question), budgets)
        return strategies.get(strategy).plan(question, PlanningContext(question))
    return None


# random requests


def random_request(seed: int) -> Request:
    """One to three different clusters of up to five nodes, two to four layers (or eight), with messages that matter.

    Some have software that all-reduces gradients under ZeRO 1. Where all nodes have two devices, some do not pin tp, and have
    a host that launches kernels later in tensor-parallel pipelines."""
    rng, software = random.Random(seed), random.Random(f"software {seed}")
    hidden, number = rng.choice([96, 192]), rng.choice([1, 2, 2, 3])
    clusters = [_random_cluster(rng, name, rng.randint(1, 3 if number > 1 else 5), hidden) for name in "abc"[:number]]
    trunks = tuple(
        Trunk((a.name, b.name), "ethernet", rng.choice([1e5, 1e6, 1e7]), rng.choice([0.0, 5e-2]))
        for a, b in itertools.combinations(clusters, 2)
    )
    layers = 8 if number == 1 and clusters[0].devices <= 2 else rng.randint(2, 4)
    model = make.model(layers, hidden, tied_embeddings=rng.random() < 0.4)
    batch, wishes = rng.choice([2, 3, 4, 6]), SEARCHED_ONCE
    if min(cluster.node.count for cluster in clusters) == 2 and software.random() < 0.7:
        clusters = [_late(cluster, software.uniform(2e-3, 5e-2)) for cluster in clusters]
        wishes = replace(wishes, tp=None)
    found = request(make.fleet(*clusters, trunks=trunks), model, batch, wishes)
    stack = replace(DEFAULT, all_reduces=software.random() < 0.4)
    return replace(found, topology=replace(found.topology, stack=stack))


def many_clusters(seed: int, number: int, layers: int = 6, batch: int = 4) -> Request:
    """So many different clusters of one node, and a model of few layers."""
    rng = random.Random(seed)
    clusters = [_random_cluster(rng, name, 1, 96) for name in "abcdefgh"[:number]]
    trunks = tuple(
        Trunk((a.name, b.name), "ethernet", rng.choice([1e6, 1e7]), rng.choice([0.0, 5e-2]))
        for a, b in itertools.combinations(clusters, 2)
    )
    return request(make.fleet(*clusters, trunks=trunks), make.model(layers, 96), batch, SEARCHED_ONCE)


def long_pipelines(seed: int) -> Request:
    """One to three clusters of two to six nodes with much memory on slow networks, and a model of 12 to 40 layers in few
    microbatches."""
    rng = random.Random(seed)
    clusters = [_random_cluster(rng, name, rng.randint(2, 6), 96, (1e9,)) for name in "abcde"[: rng.choice([1, 2, 3, 5])]]
    trunks = tuple(
        Trunk((a.name, b.name), "ethernet", rng.choice([1e5, 1e6, 1e7]), rng.choice([0.0, 5e-2]))
        for a, b in itertools.combinations(clusters, 2)
    )
    model = make.model(rng.randint(12, 40), 96)
    return request(make.fleet(*clusters, trunks=trunks), model, rng.choice([4, 8, 16, 48]), SEARCHED_ONCE)


def _late(cluster: Cluster, seconds: float) -> Cluster:
    """The cluster with `launch_per_rank` seconds."""
    return replace(cluster, node=replace(cluster.node, device=replace(cluster.node.device, launch_per_rank=seconds)))


def _random_cluster(
    rng: random.Random, name: str, nodes: int, hidden: int, memories: Sequence[float] = (8e6, 16e6, 1e9)
) -> Cluster:
    nics = (make.nic("ethernet", rng.choice([1e6, 3e6]), latency=rng.choice([3e-3, 2e-2])),)
    if rng.random() < 0.6:
        nics = (make.nic(rng.choice(["infiniband", "roce"]), rng.choice([5e6, 2e7]), latency=3e-3), *nics)
    spec = make.device(
        f"chip-{name}", rng.choice([1e9, 2e9, 5e9]), rng.choice([2e8, 1e9]),
        memory=rng.choice(memories) * (hidden / 96) ** 2 + WORKSPACE + outside_torch.CONTEXT,
    )  # fmt: skip
    wire = make.wire(bandwidth=rng.choice([2e7, 1e8]), latency=rng.choice([0.0, 3e-3]))
    return make.cluster(name, nodes=nodes, devices=rng.randint(1, 2), nics=nics, spec=spec, intra_node=wire)


def random_request_with_experts_or_long_sequences(seed: int) -> Request:
    """One or two clusters of up to eight devices; a model with experts, or sequences of up to 16,384 tokens, or both."""
    rng = random.Random(seed)
    seq_len = rng.choice([64, 64, 8192, 16384])
    experts = rng.choice([0, 2, 4, 6]) if seq_len > 64 else rng.choice([2, 4, 6])
    speed = 128 if seq_len > 64 else 1

    def cluster(name: str, nodes: int) -> Cluster:
        nics = (make.nic("ethernet", rng.choice([1e6, 3e6]) * speed, latency=rng.choice([3e-3, 2e-2])),)
        if rng.random() < 0.6:
            nics = (make.nic("roce", 2e7 * speed, latency=3e-3), *nics)
        room = rng.choice([10e6, 24e6, 1e9]) * (20 if seq_len > 64 else 1)
        spec = make.device(
            f"chip-{name}", rng.choice([1e9, 5e9]) * speed, 5e8 * speed, memory=room + WORKSPACE + outside_torch.CONTEXT
        )
        wire = make.wire(bandwidth=rng.choice([2e7, 1e8]) * speed, latency=rng.choice([0.0, 3e-3]))
        return make.cluster(name, nodes=nodes, devices=rng.choice([1, 2, 4]), nics=nics, spec=spec, intra_node=wire)

    number = rng.choice([1, 1, 2])
    clusters = [cluster(name, rng.randint(1, 2 if number > 1 else 4)) for name in "ab"[:number]]
    trunks = (Trunk(("a", "b"), "ethernet", rng.choice([1e5, 1e7]) * speed, 1e-2),) if number > 1 else ()
    parts = {"experts": experts, "experts_per_token": rng.choice([1, 2])} if experts else {}
    model = make.model(rng.randint(1, 3), 96, tied_embeddings=rng.random() < 0.4, **parts)
    return request(make.fleet(*clusters, trunks=trunks), model, rng.choice([1, 2, 4, 6]), SEARCHED_ONCE, seq_len)


# pipelines


def pipelines(question: Request, shape: Shape) -> Iterator[Stages]:
    """Every pipeline of whole stages in which the stages of each cluster are neighbours: all orders, sizes and lengths.

    Each group of cp and of ep is on a part of a node, or on whole nodes."""
    layers = question.workload.model.layers
    capacity = capacities(question, shape)
    for number in range(1, len(capacity) + 1):
        for order in itertools.permutations(capacity, number):
            for counts in itertools.product(*(range(1, min(capacity[name], layers) + 1) for name in order)):
                names = [name for name, count in zip(order, counts, strict=True) for _ in range(count)]
                if len(names) == 1 and shape.vpp > 1:
                    continue  # virtual stages need a pipeline
                for cuts in itertools.combinations(range(1, layers), len(names) - 1):
                    yield tuple(zip(names, (b - a for a, b in itertools.pairwise((0, *cuts, layers))), strict=True))


def capacities(question: Request, shape: Shape) -> dict[str, int]:
    """Clusters that can hold a stage of a shape, and the most stages that each can hold."""
    able = [
        cluster
        for cluster in question.clusters()
        if cluster.node.count >= shape.tp
        and all(cluster.node.count % width == 0 or width % cluster.node.count == 0 for width in (shape.cp, shape.ep))
    ]
    found = {cluster.name: slots(cluster, shape.tp) // shape.slots for cluster in able}
    return {name: capacity for name, capacity in found.items() if capacity}


@dataclass(frozen=True)
class Drawn:
    """A plan that fits memory, drawn from the searched space of a request, not simulated."""

    request: Request
    base: Shape
    shape: Shape
    stages: Stages
    plan: Plan


@st.composite
def drawn_plans(draw: st.DrawFn, least_stages: int = 1, seeds: int = 60) -> Drawn:
    """A plan of the searched space of a random request (`random_request`): any variant of any shape, any pipeline.

    Devices may have too little memory for it without recomputation."""
    question = random_request(draw(st.integers(0, seeds - 1)))
    base = draw(st.sampled_from(list(searched(question))))
    variant = draw(st.sampled_from(list(variants(question, base))))
    chosen = draw(st.sampled_from(overlaps(variant)))
    capacity, layers = capacities(question, chosen), question.workload.model.layers
    order = draw(st.permutations(list(capacity)))[: draw(st.integers(1, len(capacity)))]
    counts = [draw(st.integers(1, min(capacity[name], layers))) for name in order]
    assume(least_stages <= sum(counts) <= layers)
    cuts = sorted(draw(st.permutations(range(1, layers)))[: sum(counts) - 1])
    names = [name for name, count in zip(order, counts, strict=True) for _ in range(count)]
    stages = tuple(zip(names, (b - a for a, b in itertools.pairwise((0, *cuts, layers))), strict=True))
    plan = None
    with suppress(PlanError):
        plan = build(question, chosen, stages, "by hand")
    assume(plan is not None)
    assert plan is not None
    tight = squeezed(question, plan, draw(st.sampled_from((1.0, 0.6, 0.2))))
    if fits(again := build(tight, chosen, stages, "by hand")):
        question, plan = tight, again
    assume(fits(plan))
    return Drawn(question, base, chosen, stages, plan)


def families(seed: int, most: int) -> Iterator[tuple[PlanningContext, list[Shape]]]:
    """The variants of each of the first `most` shapes of a random request of the certificate benchmark."""
    question = draw(seed, 2_000)
    context = PlanningContext(question)
    for base in islice(searched(question), most):
        yield context, list(variants(question, base))
