"""The search against every plan of unlike pipelines on whole nodes: all sets of nodes, tp, pp, dp, layers and divisions."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from planner.bounds.unlike_pipelines import least_step
from planner.costs.context import PlanningContext
from planner.pipelines.assembly import step_of
from planner.pipelines.part_bounds import PartBounds
from planner.pipelines.parts import parts
from planner.pipelines.search import best
from planner.request import Request
from planner.time_limit import TimeLimit
from sim.engine.engine import simulate
from sim.hardware.cluster import Cluster, Device, Trunk
from sim.plan.groups import groups_of
from sim.plan.parallel_config import ParallelConfig
from sim.plan.pipelines import PipelinesPlan, of_plans
from sim.plan.plan import MadeBy, Plan, Stage
from sim.results.report import predict
from tests import builders as make
from tests.more import after
from tests.planner.builders import request

FIRST = (34, 19, 7, 9)
SEEDS = (*FIRST, *(seed for seed in range(50) if seed not in FIRST))
QUICK = len(FIRST)
"""Number of seeds that `make test` tries; `make test-more` tries a few more, `make test-deep` all others."""
SLOWER = {
    0: 0.079, 2: 0.039, 5: 0.053, 8: 0.004, 11: 0.023, 12: 0.057, 14: 0.028, 16: 0.023, 17: 0.153, 18: 0.007, 21: 0.01,
    22: 0.039, 24: 0.054, 26: 0.045, 27: 0.054, 31: 0.039, 32: 0.039, 33: 0.045, 35: 0.003, 36: 0.079, 37: 0.045, 38: 0.046,
    39: 0.004, 40: 0.079, 41: 0.079, 42: 0.003, 43: 0.009, 44: 0.079, 45: 0.023, 46: 0.009, 47: 0.081, 48: 0.003,
}  # fmt: skip
"""How much slower the found plan is at most, by seed; 0 for others. The gradients of these models take about as long as their
compute, and a plan that splits layers otherwise sums some of them earlier; the search does not move layers."""
LAYERS, BATCH = 3, 8
Nodes = tuple[tuple[str, int], ...]


def drawn(seed: int) -> Request:
    """Two clusters of up to two nodes of one or two devices, and a model of three layers, at random: computing takes most of
    the time, or the sum of gradients does."""
    rng = random.Random(seed)
    rate, nodes = rng.choice([1e8, 3e8, 1e9]), rng.choice([(1, 1), (1, 1), (1, 1), (2, 1)])
    clusters: list[Cluster] = []
    for name, number, speed in zip("ab", nodes, (rng.choice([1e12, 2e12, 3e12]), 1e12), strict=True):
        spec, devices = make.device(f"chip-{name}", speed, 1e12), rng.choice([1, 2]) if number == 1 else 1
        clusters.append(make.cluster(name, number, devices, (make.nic(bandwidth=rate),), spec))
    machines = make.fleet(*clusters, trunks=(Trunk(("a", "b"), "infiniband", rate, 0.0),))
    return request(machines, make.model(LAYERS), BATCH, seq_len=256)


def sets(nodes: Nodes) -> Iterator[tuple[Nodes, ...]]:
    """All ways to divide nodes into sets, with nodes left out: the first set of each way is that of the nodes that are not
    used."""
    if not nodes:
        yield ((),)
        return
    for some in sets(nodes[1:]):
        for index in range(len(some)):
            yield (*some[:index], (nodes[0], *some[index]), *some[index + 1 :])
        yield (*some, (nodes[0],))


def plans(asked: Request, nodes: Nodes) -> Iterator[Plan]:
    """All plans on all devices of some nodes, in their order, with one microbatch for each replica."""
    fleet = asked.topology.fleet
    devices = [Device(name, node, index) for name, node in nodes for index in range(fleet.cluster(name).node.count)]
    for tp, pp in itertools.product((1, 2), range(1, min(len(devices), LAYERS) + 1)):
        if len(devices) % (tp * pp) or any(fleet.cluster(name).node.count % tp for name, _ in nodes):
            continue
        dp = len(devices) // (tp * pp)
        config = ParallelConfig(tp=tp, pp=pp, dp=dp, num_microbatches=(1,) * dp, sequence_parallel=True)
        workload = replace(asked.workload, global_batch_size=dp)
        for cuts in itertools.combinations(range(1, LAYERS), pp - 1):
            stages = tuple(Stage(*pair) for pair in itertools.pairwise((0, *cuts, LAYERS)))
            placement = tuple(devices)
            groups = groups_of(fleet, config, placement)
            topology = replace(asked.topology, workload=workload)
            yield Plan(topology, workload, config, stages, placement, groups, MadeBy("by hand", "1"))


def with_microbatches(plan: Plan, microbatches: int, size: int) -> Plan | None:
    """A plan with so many microbatches of all replicas together; None where some replica would have none."""
    dp = plan.config.dp
    if microbatches < dp:
        return None
    numbers = tuple(microbatches // dp + (one < microbatches % dp) for one in range(dp))
    config = replace(plan.config, num_microbatches=numbers, microbatch_size=size)
    workload = replace(plan.workload, global_batch_size=microbatches * size)
    return replace(plan, config=config, workload=workload, topology=replace(plan.topology, workload=workload))


def fastest(asked: Request) -> PipelinesPlan:
    """The fastest of all plans, simulated; a plan whose slowest pipeline alone is slower is not simulated."""
    clusters = asked.topology.fleet.clusters
    nodes = tuple((cluster.name, node) for cluster in clusters for node in range(cluster.nodes))
    of_set: dict[Nodes, dict[int, list[tuple[float, Plan]]]] = {}
    least, found = float("inf"), None
    for _, *some in sets(nodes):
        if len(some) < 2:
            continue
        for one in some:
            if one not in of_set:
                of_set[one] = {}
                for plan, number, size in itertools.product(plans(asked, one), range(1, BATCH + 1), (1, 2, 4)):
                    if (entry := with_microbatches(plan, number, size)) is not None:
                        alone = predict(entry, simulate(entry)).step_s
                        of_set[one].setdefault(number * size, []).append((alone, entry))
        for samples in itertools.product(range(1, BATCH), repeat=len(some)):
            if sum(samples) != BATCH:
                continue
            for entries in itertools.product(*(of_set[one].get(own, []) for one, own in zip(some, samples, strict=True))):
                if max(alone for alone, _ in entries) < least:
                    plan = of_plans([entry for _, entry in entries], entries[0][1].made_by)
                    prediction = predict(plan, simulate(plan))
                    if prediction.step_s < least:
                        least, found = prediction.step_s, plan.annotated(prediction)
    assert found is not None
    return found


@pytest.mark.parametrize("seed", after(QUICK, SEEDS, last=6))
def test_no_plan_is_much_faster(seed):
    """The search has one plan for a part with a number of replicas, where the brute force has all of them. No bound is above
    the fastest of all plans."""
    asked = drawn(seed)
    least = step_of(fastest(asked))
    assert least_step(PlanningContext(asked)) <= least
    assert not PartBounds(asked).rules_out(parts(asked), least * (1 + 1e-9), TimeLimit(math.inf))
    found = best(asked, 2 * least)
    assert found is not None
    assert found.step_s <= least * (1 + SLOWER.get(seed, 0.0) + 1e-9)
