"""certified against brute force: on small fleets every pipeline of whole stages is built, under every shape and schedule."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from planner import strategies
from planner.bounds.deadline_test import AnyOrder, DeadlineTest, deadline_bound, deadline_tests
from planner.bounds.mixed_deadline import mixed_bound
from planner.bounds.total_work import work_bound
from planner.costs.context import PlanningContext
from planner.costs.node_classes import node_classes
from planner.placement.ranks import build
from planner.placement.simulation import fits, simulate_plan, step
from planner.request import Request, Wishes
from planner.search.evaluation import PipelineEvaluation
from planner.search.mixed import is_mixed, layouts, mixed
from planner.space.shapes import Shape, overlaps, searched, slots, variants
from sim.analytic import plan_costs
from sim.errors import Infeasible, NotModelled, PlanError
from sim.formats.topology import load
from sim.hardware.cluster import Fleet, Trunk
from sim.hardware.topology import Topology
from sim.kernels import memory
from sim.plan.plan import Plan
from sim.workload.model import Model
from sim.workload.workload import Workload

SEEDS = range(24)
UNEXPECTED_SEED = 3
"""A request whose search calls every function of `UNEXPECTED`."""
TOPOLOGIES = Path(__file__).parents[2] / "topologies"


@pytest.fixture(scope="session")
def made(make_device, make_wire, make_nic, make_cluster, make_fleet, make_model):
    """A seed -> a question about one to three unlike clusters of up to eight machines, two to four layers (eight at times)."""

    def cluster(rng: random.Random, name: str, nodes: int, hidden: int):
        nics = (make_nic("ethernet", rng.choice([1e6, 3e6]), latency=rng.choice([3e-3, 2e-2])),)
        if rng.random() < 0.6:
            nics = (make_nic(rng.choice(["infiniband", "roce"]), rng.choice([5e6, 2e7]), latency=3e-3), *nics)
        spec = make_device(
            f"chip-{name}", rng.choice([1e9, 2e9, 5e9]), rng.choice([2e8, 1e9]),
            memory=rng.choice([8e6, 16e6, 1e9]) * (hidden / 96) ** 2 + memory.WORKSPACE + memory.OUTSIDE,
        )  # fmt: skip
        wire = make_wire(bandwidth=rng.choice([2e7, 1e8]), latency=rng.choice([0.0, 3e-3]))
        return make_cluster(name, nodes=nodes, devices=rng.randint(1, 2), nics=nics, spec=spec, intra_node=wire)

    def instance(seed: int) -> Request:
        rng = random.Random(seed)
        hidden, number = rng.choice([96, 192]), rng.choice([1, 2, 2, 3])
        clusters = [cluster(rng, name, rng.randint(1, 3 if number > 1 else 5), hidden) for name in "abc"[:number]]
        trunks = tuple(
            Trunk((a.name, b.name), "ethernet", rng.choice([1e5, 1e6, 1e7]), rng.choice([0.0, 5e-2]))
            for a, b in itertools.combinations(clusters, 2)
        )
        layers = 8 if number == 1 and clusters[0].devices <= 2 else rng.randint(2, 4)
        shaped = make_model(layers, hidden, tied_embeddings=rng.random() < 0.4)
        return asked(make_fleet(*clusters, trunks=trunks), shaped, rng.choice([2, 3, 4, 6]))

    return instance


@pytest.fixture(scope="session")
def wide(make_device, make_wire, make_nic, make_cluster, make_fleet, make_model):
    """A seed -> a question about one or two clusters of up to eight devices, with experts or long sequences or both."""

    def instance(seed: int) -> Request:
        rng = random.Random(seed)
        seq_len = rng.choice([64, 64, 8192, 16384])
        experts = rng.choice([0, 2, 4, 6]) if seq_len > 64 else rng.choice([2, 4, 6])
        speed = 128 if seq_len > 64 else 1

        def cluster(name: str, nodes: int):
            nics = (make_nic("ethernet", rng.choice([1e6, 3e6]) * speed, latency=rng.choice([3e-3, 2e-2])),)
            if rng.random() < 0.6:
                nics = (make_nic("roce", 2e7 * speed, latency=3e-3), *nics)
            room = rng.choice([10e6, 24e6, 1e9]) * (20 if seq_len > 64 else 1)
            spec = make_device(
                f"chip-{name}", rng.choice([1e9, 5e9]) * speed, 5e8 * speed, memory=room + memory.WORKSPACE + memory.OUTSIDE
            )
            wire = make_wire(bandwidth=rng.choice([2e7, 1e8]) * speed, latency=rng.choice([0.0, 3e-3]))
            return make_cluster(name, nodes=nodes, devices=rng.choice([1, 2, 4]), nics=nics, spec=spec, intra_node=wire)

        number = rng.choice([1, 1, 2])
        clusters = [cluster(name, rng.randint(1, 2 if number > 1 else 4)) for name in "ab"[:number]]
        trunks = (Trunk(("a", "b"), "ethernet", rng.choice([1e5, 1e7]) * speed, 1e-2),) if number > 1 else ()
        shape = {"experts": experts, "experts_per_token": rng.choice([1, 2])} if experts else {}
        shaped = make_model(rng.randint(1, 3), 96, tied_embeddings=rng.random() < 0.4, **shape)
        return asked(make_fleet(*clusters, trunks=trunks), shaped, rng.choice([1, 2, 4, 6]), seq_len)

    return instance


def asked(machines: Fleet, shaped: Model, batch: int, seq_len: int = 64) -> Request:
    workload = Workload(shaped, batch, seq_len, "bf16")
    topology = Topology("tiny", "", machines, workload, json.dumps({"name": "tiny"}))
    return Request(topology, workload, Wishes(tp=1, microbatch_size=1, recompute="none"), time_limit=30.0)


def pipelines(question: Request, shape: Shape) -> Iterator[tuple[tuple[str, int], ...]]:
    """Every pipeline of whole stages in which each cluster's stages stand together: all orders, sizes and lengths.

    Groups of cp and of ep stand on a part of a node, or on whole nodes."""
    layers = question.workload.model.layers
    able = [
        cluster
        for cluster in question.clusters()
        if all(cluster.node.count % width == 0 or width % cluster.node.count == 0 for width in (shape.cp, shape.ep))
    ]
    room = {cluster.name: slots(cluster, shape.tp) // shape.slots for cluster in able}
    names = [name for name, capacity in room.items() if capacity]
    for some in range(1, len(names) + 1):
        for order in itertools.permutations(names, some):
            for counts in itertools.product(*(range(1, min(room[name], layers) + 1) for name in order)):
                places = [name for name, count in zip(order, counts, strict=True) for _ in range(count)]
                for cuts in itertools.combinations(range(1, layers), len(places) - 1):
                    yield tuple(zip(places, (b - a for a, b in itertools.pairwise((0, *cuts, layers))), strict=True))


def brute(question: Request) -> float:
    """The fastest step that the engine gives; plans whose closed form is not below it need no simulation. Infinite for
    none."""
    found = []
    for base in searched(question):
        for shape in itertools.chain.from_iterable(map(overlaps, variants(question, base))):
            for stages in pipelines(question, shape):
                try:
                    plan = build(question, shape, stages, "by hand")
                except PlanError:
                    continue
                if fits(plan):
                    found.append((plan_costs.step_seconds(plan), len(found), plan))
    best = math.inf
    for closed, _, plan in sorted(found, key=lambda item: item[:2]):
        if closed >= best:
            break
        best = min(best, step(simulate_plan(plan)))
    return best


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_faster_than_certified_and_no_bound_is_above_it(made, seed):
    as_good_as_brute_force(made(seed))


@pytest.mark.parametrize("seed", range(20))
def test_so_it_is_with_experts_and_with_long_sequences(wide, seed):
    as_good_as_brute_force(wide(seed))


def test_the_best_of_those_have_experts_and_sequences_divided(wide):
    """The brute force above is not idle: in some of its questions cp, in some ep, in some both are more than 1."""
    found = {(plan.config.cp > 1, plan.config.ep > 1) for plan in map(planned, map(wide, range(20))) if plan is not None}
    assert {(True, False), (False, True)} <= found


def planned(question: Request) -> Plan | None:
    with suppress(Infeasible):
        return strategies.get("certified").plan(question, PlanningContext(question))
    return None


def as_good_as_brute_force(question: Request) -> None:
    """What certified plans is as fast as the fastest of all plans, or faster with mixed stages; no bound is above it."""
    best = brute(question)
    try:
        plan = strategies.get("certified").plan(question, PlanningContext(question))
    except Infeasible:
        assert best == math.inf
        return
    if is_mixed(plan):
        assert step(plan) < best
    else:
        assert step(plan) == pytest.approx(best, rel=1e-9)
    assert plan.certificate is not None
    assert plan.certificate.lower_bound_s <= min(best, step(plan)) * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_a_pipeline_reaches_as_far_as_it_does(made, seed):
    """The fastest pipeline of each order is not ruled out within its own seconds, is listed, and no bound is above it."""
    question = made(seed)
    context = PlanningContext(question)
    every = itertools.chain.from_iterable(variants(question, base) for base in searched(question))
    for shape in itertools.chain.from_iterable(map(overlaps, every)):
        orders = {
            tuple(option.cluster.name for option in test.order): test
            for test in deadline_tests(context, node_classes(context, shape), math.inf)
        }
        least: dict[tuple[str, ...], tuple[float, tuple[tuple[str, int], ...]]] = {}
        for stages in pipelines(question, shape):
            with suppress(PlanError):
                plan = build(question, shape, stages, "by hand")
                if len(stages) > 1 and fits(plan):
                    order = tuple(dict.fromkeys(name for name, _ in stages))
                    least[order] = min(least.get(order, (math.inf, ())), (step(simulate_plan(plan)), stages))
        for order, (seconds, stages) in least.items():
            assert orders[order].within(seconds * (1 + 1e-9))
            listed = orders[order].pipelines(seconds * (1 + 1e-9), 100_000)
            assert listed is not None
            assert tuple((order.index(name), layers) for name, layers in stages) in listed
            assert AnyOrder(node_classes(context, shape)).within(seconds * (1 + 1e-9))
            assert deadline_bound([orders[order]], 0.0, 2 * seconds) <= seconds * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", ["made", "wide"])
def test_bounds_of_mixed_stages_hold_and_the_closer_one_is_closer(kind, seed, request):
    question = request.getfixturevalue(kind)(seed)
    context = PlanningContext(question)
    bound, closer = work_bound(context), mixed_bound(context, layouts(question), 1e9)
    assert bound <= closer * (1 + 2e-3)  # it is sought to that share
    for _, plan in mixed(context, "by hand"):
        assert is_mixed(plan)
        assert max(bound, closer) <= step(simulate_plan(plan)) * (1 + 1e-9)
        assert sum(plan.config.num_microbatches) == question.workload.global_batch_size


@pytest.fixture(scope="session")
def loose(make_device, make_wire, make_nic, make_cluster, make_fleet, make_model):
    """A seed -> a question about nodes of three or four devices, each with a slow NIC of its own, that batches do not fill."""

    def instance(seed: int, **wishes: int) -> Request:
        rng = random.Random(seed)
        count = rng.choice([3, 4])
        nics = (make_nic("ethernet", rng.choice([1e6, 3e6]), latency=3e-4, count=count),)
        spec = make_device("chip", 1e9, 1e9, memory=1e9 + memory.WORKSPACE + memory.OUTSIDE)
        machines = make_cluster("c", rng.choice([2, 3]), count, nics, spec, make_wire(bandwidth=1e8, latency=1e-4))
        question = asked(make_fleet(machines), make_model(rng.choice([1, 3])), rng.choice([5, 7, 10]))
        return replace(question, wishes=replace(question.wishes, **wishes))

    return instance


def lying(question: Request, evenly: bool) -> float:
    """The fastest step of a pipeline of one place."""
    best = math.inf
    for base in searched(question):
        for shape in itertools.chain.from_iterable(map(overlaps, variants(question, base))):
            with suppress(PlanError):
                plan = build(question, shape, (("c", question.workload.model.layers),), "by hand", evenly)
                best = min(best, step(simulate_plan(plan)) if fits(plan) else math.inf)
    return best


def test_of_one_place_nodes_filled_and_nodes_evenly_used_are_both_looked_at(loose):
    """No plan of either is faster than certified, and its bound is above neither; in some questions the even one is faster."""
    gains = []
    for seed in range(8):
        question = loose(seed, pp=1)
        plan = strategies.get("certified").plan(question, PlanningContext(question))
        filled, even = (lying(question, evenly) for evenly in (False, True))
        assert step(plan) == pytest.approx(min(filled, even), rel=1e-9)
        assert plan.certificate is not None
        assert plan.certificate.lower_bound_s <= min(filled, even) * (1 + 1e-9)
        gains.append(filled / even)
    assert max(gains) > 1.05


def test_stages_that_fit_into_nodes_stand_inside_them(loose):
    """Three stages of three replicas on three nodes of four: filled ones would make two of the rings cross a slow network."""
    question = loose(7, dp=3, pp=3)
    model = replace(question.workload.model, layers=3)
    question = replace(question, workload=replace(question.workload, model=model, global_batch_size=6))
    (cluster,) = question.clusters()
    assert (cluster.nodes, cluster.node.count) == (3, 4)
    plan = strategies.get("certified").plan(question, PlanningContext(question))
    assert [device.node for device in plan.placement] == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_a_ring_is_not_made_slower_by_a_node_with_few_of_its_devices():
    """61 replicas on 8 nodes of 8: DT-FM deals them over the nodes, and certified knows that too."""
    topology = load(TOPOLOGIES / "peers" / "dtfm-0-datacenter.yaml")
    question = Request(topology, topology.workload, time_limit=30.0)
    plan, theirs = (strategies.get(name).plan(question, PlanningContext(question)) for name in ("certified", "dt_fm"))
    assert step(plan) <= step(theirs) * (1 + 1e-9)
    assert step(plan) == pytest.approx(3.245197, rel=1e-6)
    assert Counter(Counter(device.node for device in plan.placement).values()) == {8: 5, 7: 3}


def test_another_cluster_never_makes_a_plan_slower(tmp_path):
    """Beside fast nodes stand some behind thin, oversubscribed Ethernet: they are used where they help, and else left out."""
    fast = """
  new:
    nodes: 3
    node:
      devices: {type: h100-sxm5-80gb, count: 8}
      intra_node: nvlink4
      nics:
        - {type: roce, bandwidth: 400 Gbit/s, count: 8}
        - {type: ethernet, bandwidth: 100 Gbit/s}"""
    slow = """
  old:
    nodes: 5
    node:
      devices: {type: a100-sxm4-40gb, count: 4}
      intra_node: nvlink3
      nics:
        - {type: infiniband, bandwidth: 200 Gbit/s, count: 2}
        - {type: ethernet, bandwidth: 25 Gbit/s}
    fabric: {nodes_per_leaf: 2, oversubscription: 3}
links:
  - {between: [new, old], type: ethernet, bandwidth: 100 Gbit/s, latency: 100 us}"""
    steps = []
    for number, clusters in enumerate((fast, fast + slow)):
        path = tmp_path / f"{number}.yaml"
        path.write_text(
            f"format: holmes-sim/topology/1\nname: site\nclusters:{clusters}\n"
            "workload: {model: llama-2-7b, global_batch_size: 256, seq_len: 4096, precision: bf16}\n"
        )
        topology = load(path)
        question = Request(topology, topology.workload, Wishes(recompute="none", microbatch_size=2), time_limit=10.0)
        steps.append(step(strategies.get("certified").plan(question, PlanningContext(question))))
    assert steps[1] <= steps[0] * (1 + 1e-9)


UNEXPECTED = {
    "deadline test": (DeadlineTest, "within"),
    "deadline test of any order": (AnyOrder, "within"),
    "listing of pipelines": (DeadlineTest, "pipelines"),
    "evaluator": (PipelineEvaluation, "evaluated"),
    "evaluator of the proof": ("planner.search.exhaust", "priced"),
    "evaluator of one stage": ("planner.search.single_stage", "priced"),
    "evaluator of plans": ("planner.search.incumbent", "evaluate"),
    "test of mixed stages": ("planner.strategies.certified", "mixed_lower_bound"),
}
"""Functions of the search -> where they are."""


@pytest.mark.parametrize("name", UNEXPECTED)
def test_an_unexpected_error_is_not_swallowed(made, monkeypatch, name):
    """A family whose test fails is not ruled out: an error that was swallowed would raise the certified bound."""
    where, function = UNEXPECTED[name]
    target = f"{where}.{function}" if isinstance(where, str) else f"{where.__module__}.{where.__name__}.{function}"

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("unexpected")

    monkeypatch.setattr(target, broken)
    question = made(UNEXPECTED_SEED)
    with pytest.raises(RuntimeError, match="unexpected"):
        strategies.get("certified").plan(question, PlanningContext(question))


@pytest.mark.parametrize("seed", range(6))
def test_pipelines_that_the_evaluator_does_not_model_keep_their_bound(made, monkeypatch, seed):
    question = made(seed)
    fastest = planned(question)

    def not_modelled(*_: object) -> None:
        raise NotModelled("not modelled")

    monkeypatch.setattr(PipelineEvaluation, "evaluated", not_modelled)
    plan = planned(question)
    assert (plan is None) == (fastest is None)
    if plan is not None and fastest is not None:
        assert plan.certificate is not None
        assert plan.certificate.lower_bound_s <= min(step(plan), step(fastest)) * (1 + 1e-9)
