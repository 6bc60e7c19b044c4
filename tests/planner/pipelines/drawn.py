"""Plans of unlike pipelines on any devices of small fleets, at random."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from planner.request import Request
from sim.hardware.cluster import Device
from sim.plan.groups import groups_of
from sim.plan.parallel_config import ParallelConfig
from sim.plan.pipelines import PipelinesPlan, of_plans
from sim.plan.plan import MadeBy, Plan, Stage
from sim.workload.adapter import Adapter
from tests.planner.pipelines.fleets import two_kinds


def drawn(seed: int, adapter: Adapter | None = None, experts: int = 0) -> tuple[Request, PipelinesPlan | None]:
    """A fleet, and pipelines on some of its devices: stages, layers, tp, cp, microbatches and recomputation at random; of a
    mixture, some divide experts among the ranks of a stage."""
    rng = random.Random(seed)
    batch = rng.choice([4, 8, 12])
    nodes, devices = (rng.randint(1, 3), rng.randint(1, 2)), (rng.choice([1, 2, 3]), rng.choice([1, 2, 4]))
    asked = two_kinds(nodes, devices, rng.choice([1e8, 1e10]), batch, adapter=adapter, experts=experts)
    common = {"schedule": rng.choice(["1f1b", "zb-h1", "gpipe"]), "overlap_param_gather": rng.choice([True, False])}
    slots = list[tuple[Device, ...]]()
    for cluster in asked.topology.fleet.clusters:
        for node in range(cluster.nodes):
            free = [Device(cluster.name, node, index) for index in range(cluster.node.count)]
            while free:
                tp = rng.choice([one for one in (1, 2, 4) if one <= len(free)])
                slots.append(tuple(free[:tp]))
                free = free[tp:]
    rng.shuffle(slots)
    entries, left = list[Plan](), batch
    while slots and left:
        pp = min(rng.randint(1, 3), len(slots))
        own, slots = slots[:pp], slots[pp:]
        size = rng.choice([one for one in (1, 2, 4) if left % one == 0])
        number = left // size if not slots else rng.randint(1, left // size)
        left -= number * size
        entries.append(entry(asked, own, number, size, rng, common))
    if left or len(entries) < 2:
        return asked, None
    return asked, of_plans(entries, MadeBy("by hand", "1"))


def entry(
    asked: Request, own: list[tuple[Device, ...]], number: int, size: int, rng: random.Random, common: dict[str, Any]
) -> Plan:
    """A pipeline with a stage on each slot, whose devices divide tensors, or sequences in two parts."""
    cp = 2 if len({len(slot) for slot in own}) == 1 and len(own[0]) > 1 and rng.random() < 0.5 else 1
    degrees = tuple(len(slot) // cp for slot in own)
    is_mixture = asked.workload.model.experts > 0 and len(set(degrees)) == 1
    ep, etp = rng.choice([(1, None), (cp, None), (len(own[0]), 1 if degrees[0] > 1 else None)]) if is_mixture else (1, None)
    config = ParallelConfig(
        tp=max(degrees), stage_tp=degrees if len(set(degrees)) > 1 else (), pp=len(own), dp=1, cp=cp, ep=ep, etp=etp,
        num_microbatches=(number,), microbatch_size=size, sequence_parallel=True,
        recompute="full" if rng.random() < 0.3 else "none", **common,
    )  # fmt: skip
    cuts = sorted(rng.sample(range(1, 3), len(own) - 1))
    stages = tuple(Stage(first, past) for first, past in zip((0, *cuts), (*cuts, 3), strict=True))
    placement = tuple(device for slot in own for device in slot)
    workload = replace(asked.workload, global_batch_size=number * size)
    topology, groups = replace(asked.topology, workload=workload), groups_of(asked.topology.fleet, config, placement)
    return Plan(topology, workload, config, stages, placement, groups, MadeBy("by hand", "1"))
