"""What the cores of this machine carry, measured before a plan runs in the lab, and the scale that follows from it.

Traffic costs CPU time: inside a namespace (tensor-parallel groups of a node) as well as between namespaces. Three ranks of a
small lab exchange messages of gloo, and their CPU seconds are counted. A step of a plan sends the same bytes at every scale, so
that it takes the same CPU seconds, in a step that is `scale` times longer: the scale is chosen so that they are a small share
of the free cores' time (`TRAFFIC`)."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from holmes_sim.lab.lab import Lab
from holmes_sim.lab.load import Load, Sampler
from holmes_sim.lab.payload_rates import rounded_up, smallest_scale
from holmes_sim.lab.traffic import LabPlan, traffic_of
from sim.disaggregation.plan import DisaggregatedPlan
from sim.engine.durations import Durations
from sim.engine.rank_plans import RankPlans
from sim.formats.documents import parse
from sim.formats.topology import from_document
from sim.hardware.cluster import Device
from sim.kernels import lowering
from sim.plan.groups import groups_of
from sim.plan.islands import IslandsPlan
from sim.plan.parallel_config import ParallelConfig
from sim.plan.plan import MadeBy, Plan, Stage
from sim.plan.program import BESIDE, Action
from sim.units import MEBI, MEGA, Bytes, BytesPerSecond, Seconds

NBYTES, TIMES = 8 * MEBI, 4
"""Bytes of an all_reduce, and their number: enough for a tenth of a CPU second, few enough to take a second (guesses)."""
QUIET: Seconds = 0.5
"""How long the load by other programs is sampled (a guess)."""
TRAFFIC = 0.1
"""Largest share of the free cores' time that the traffic of a step takes (a guess): ranks wait for messages one after the
other, so half of it is too much. lab-slow-trunk with tp 2 was predicted 15 % too fast at scale 20, 4 % at 40 and 1 % at 80,
with cores busy for 33, 21 and 15 % of the time."""
LEAST_FREE = 0.25
"""Least share of the cores that is taken for free, where other programs use all: the scale must end somewhere (a guess)."""
SHARES = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0}
"""Operation -> bytes that each of n ranks sends for a byte of the buffer, times n / (n - 1): of a ring, as gloo and the torch
backend have it."""
TOPOLOGY = """
format: holmes-sim/topology/1
name: capacity
clusters:
  c:
    nodes: 2
    node:
      devices: {type: a100-sxm4-80gb, count: 2}
      intra_node: nvlink3
      nics: [{type: ethernet, bandwidth: 2 Gbit/s, count: 1}]
workload: {model: gpt-1.7b, global_batch_size: 2, seq_len: 128, precision: bf16}
"""
"""Two nodes of two devices: ranks 0 and 1 share a node, rank 2 is on the other one."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """Bytes that ranks send for a CPU second of all ranks that take part, `inside` a namespace and `between` two; shares of the
    cores' time that `others` use: other programs, and the host of a virtual machine (`stolen`)."""

    inside: BytesPerSecond
    between: BytesPerSecond
    others: Load

    def __str__(self) -> str:
        rates = f"{self.inside / MEGA:.0f} MB inside a namespace and {self.between / MEGA:.0f} MB between two"
        return (
            f"a CPU second of this machine carries {rates}; other programs use {self.others.busy:.0%} of the cores, "
            f"{self.others.stolen:.0%} are stolen"
        )

    @property
    def free(self) -> float:
        """Share of the cores' time that is left for the lab."""
        return max(1.0 - self.others.busy - self.others.stolen, LEAST_FREE)


def measure() -> Capacity:
    """Measure this machine, which takes some seconds. Raises HolmesError where no lab can run."""
    with Sampler() as sampler:
        time.sleep(QUIET)
    program = [sys.executable, "-m", "holmes_sim.torch_backend.capacity_rank", str(NBYTES), str(TIMES)]
    with Lab(_plan(), 1.0) as lab:
        outputs = lab.run(lambda location: program if location.rank < 3 else ["true"])
    found = [json.loads(rank.output) for rank in outputs if rank.rank < 3]
    sent = 2.0 * NBYTES * TIMES  # each of two ranks sends the buffer once in an all_reduce
    inside, between = (sent / sum(rank.get(kind, 0.0) for rank in found) for kind in ("intra_node", "ethernet"))
    return Capacity(inside, between, sampler.over(QUIET))


def _plan() -> Plan:
    """Two tensor-parallel pairs, each on a node, whose gradients go between the nodes."""
    topology = from_document(parse("capacity", TOPOLOGY))
    assert topology.workload is not None
    config = ParallelConfig(tp=2, dp=2, num_microbatches=(1, 1))
    placement = tuple(Device("c", node, index) for node in range(2) for index in range(2))
    stages = (Stage(0, topology.workload.model.layers),)
    groups = groups_of(topology.fleet, config, placement)
    return Plan(topology, topology.workload, config, stages, placement, groups, MadeBy("lab", ""))


def scale_for(plan: LabPlan, cores: int, capacity: Capacity, step: Seconds) -> float:
    """The smallest scale at which the NICs of a plan send no more than the cores carry, and the traffic of a step of `step`
    seconds takes at most `TRAFFIC` of the cores' free time."""
    needed = cpu_seconds(plan, capacity) / (TRAFFIC * capacity.free * cores * step)
    return max(smallest_scale(plan, cores), rounded_up(needed))


def cpu_seconds(plan: LabPlan, capacity: Capacity) -> Seconds:
    """CPU seconds that the traffic of a step takes; of islands, that of the inner steps of all; of two sets of ranks, none."""
    return sum(inside / capacity.inside + between / capacity.between for inside, between in bytes_sent(plan))


def bytes_sent(plan: LabPlan) -> Iterator[tuple[Bytes, Bytes]]:
    """(bytes that a rank sends inside its node in a step, bytes that it sends over NICs), for each rank."""
    if isinstance(plan, DisaggregatedPlan):
        return
    if isinstance(plan, IslandsPlan):
        for island in plan.islands:
            yield from bytes_sent(island)
        return
    groups = {(group.kind, rank): group for group in traffic_of(plan).groups for rank in group.ranks}
    plans, durations = RankPlans(plan), Durations(plan)
    for rank in range(len(plan.placement)):
        number, pp_rank, microbatches = plans.program(rank)
        sent = [0.0, 0.0]
        for action in lowering.program(plans.plans[number], pp_rank, microbatches, plans.sections_of(number, pp_rank)):
            kind = "pp" if action.kind == "send" else action.group
            group = groups.get((kind, rank))
            if group is not None and not durations.include(rank, action):
                sent[group.nic != "intra_node"] += _sent(action, len(group.ranks))
        yield sent[0], sent[1]


def _sent(action: Action, ranks: int) -> Bytes:
    """Bytes that each of the ranks of a group sends for an action; a wait sends none."""
    if action.kind in ("wait", "recv"):
        return 0.0
    operation = BESIDE.get(action.kind, action.operation)
    return action.nbytes * action.times * (SHARES[operation] * (ranks - 1) / ranks if operation in SHARES else 1.0)
