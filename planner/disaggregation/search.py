"""The fastest stage with attention on devices of one type and experts on all others, by the closed form of its step.

Every device is used. The search tries each type of device for attention, the sizes of groups, recomputation, and the numbers
and sizes of microbatches; for each of them it tries how many experts attention ranks should keep, in chunks. A chunk is the
fewest experts of a layer that both sets of ranks can share equally; chunks are spread evenly over the layers, as "gather and
squeeze" does (HeterMoE, arXiv 2504.03871, algorithm 1), whose bubbles are not estimated here: the step is evaluated. At the end
single layers of the best stages get a chunk more or fewer, as long as that makes the step shorter."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from planner.time_limit import TimeLimit
from sim.disaggregation import memory
from sim.disaggregation.costs import TaskCosts, compute_bounds, step_seconds
from sim.disaggregation.rounds import extrapolated
from sim.disaggregation.simulation import simulated_step
from sim.disaggregation.stage import DisaggregatedStage
from sim.errors import NoRoute, NotModelled
from sim.hardware.cluster import Device
from sim.hardware.topology import Topology
from sim.network.routes import Devices
from sim.units import Seconds
from sim.workload.workload import Workload

MOST_RANKS = 64
"""Most ranks of a group (a guess): the links of an exchange are listed for each pair of them."""
MOST_DEVICES = 512
"""Most devices of a fleet that is searched (a guess): the exchanges of all groups are listed at once."""
TRIED = 8
"""Numbers of chunks of kept experts that are tried before and after the best one is known roughly (a guess)."""
MICROBATCHES = (4, 2, 8, 3, 6, 1, 12)
"""Numbers of microbatches at once that are tried, in this order (a guess): more hide more, and have more latencies."""
SIZES = (1, 2, 3, 4, 6, 8, 12, 16)
"""Sizes of microbatches that are tried (a guess). Without 3, 6 and 12, steps of 12 or 24 sequences are up to 6 % longer than
those of a brute force (`tests/planner/disaggregation/test_brute_force.py`)."""
NEAR, IMPROVED = 1.05, 8
"""At the end, up to `IMPROVED` stages whose steps are less than `NEAR` times the best one's are improved layer by layer.
Guesses; with only the best one improved, steps of small models are up to 1 % longer than those of a brute force."""
RECOMPUTE = ("none", "full")
"""What may be recomputed (`DisaggregatedStage.recompute`)."""


@dataclass(frozen=True, slots=True)
class Found:
    """A stage and the seconds of its step."""

    stage: DisaggregatedStage
    step: Seconds


def best(
    topology: Topology, workload: Workload, recompute: tuple[str, ...] = RECOMPUTE, limit: TimeLimit | None = None
) -> Found | None:
    """The fastest stage that fits the memory, found within the time limit, with its simulated step; None where there is none.

    Models that have no such stage (`DisaggregatedStage`) give None, and so do fleets of more than `MOST_DEVICES`. `recompute`:
    what may be recomputed."""
    if topology.fleet.devices > MOST_DEVICES:
        return None
    near: list[Found] = []
    for attention, experts in sides(topology, workload):
        for start in starts(topology, workload, attention, experts, recompute):
            if limit is not None and limit.is_up():
                break
            bound = replace(near[0], step=NEAR * near[0].step) if near else None
            if found := with_kept_experts(start, bound, limit):
                near = sorted([*near, found], key=lambda one: one.step)[:IMPROVED]
    if not near:
        return None
    fastest = min((improved(found, limit) for found in near), key=lambda one: one.step)
    return Found(fastest.stage, extrapolated(fastest.stage, simulated_step))


def sides(topology: Topology, workload: Workload) -> Iterator[tuple[Devices, Devices]]:
    """(devices for attention, devices for experts): each type of device for attention, all others for experts."""
    by_type: dict[str, list[Device]] = {}
    for cluster in topology.fleet.clusters:
        if not cluster.node.device.runs(workload.precision):
            return
        devices = (Device(cluster.name, node, index) for node in range(cluster.nodes) for index in range(cluster.node.count))
        by_type.setdefault(cluster.node.device.name, []).extend(devices)
    for name in by_type if len(by_type) > 1 else ():
        yield tuple(by_type[name]), tuple(device for other in by_type if other != name for device in by_type[other])


def starts(
    topology: Topology, workload: Workload, attention: Devices, experts: Devices, recompute: tuple[str, ...] = RECOMPUTE
) -> Iterator[DisaggregatedStage]:
    """Stages without kept experts: sizes of groups, recomputation, numbers and sizes of microbatches."""
    common = math.gcd(len(attention), len(experts))
    for groups in (number for number in range(1, common + 1) if common % number == 0):
        if (len(attention) + len(experts)) // groups > MOST_RANKS or workload.model.experts % (len(experts) // groups):
            continue
        for microbatches in MICROBATCHES:
            for size in SIZES:
                rounds, rest = divmod(workload.global_batch_size, len(attention) * microbatches * size)
                if rest or not rounds:
                    continue
                for again in recompute:
                    try:
                        yield DisaggregatedStage(
                            topology, workload, attention, experts, groups, microbatches, rounds, (), again
                        )
                    except NotModelled:
                        return


def with_kept_experts(start: DisaggregatedStage, found: Found | None = None, limit: TimeLimit | None = None) -> Found | None:
    """The stage with as many chunks of experts on attention ranks as make its step shortest; None where none fits, or none is
    faster than `found`.

    About `TRIED` numbers of chunks are tried that give all layers equally many, then as many on each side of the best of them.
    Those with which a set of ranks alone computes as long as `found` are not evaluated."""
    layers, costs, better = len(start.kept), TaskCosts(start), found
    most = (start.workload.model.experts - 1) // chunk_size(start)
    wide, chunks = layers * math.ceil(most / TRIED), layers * most
    if not memory.attention_fits(start) or not memory.experts_fit(_keeping(start, chunks)):
        return None
    try:
        for number in range(0, chunks + 1, wide or 1):
            better = _faster(_keeping(start, number), costs, better, limit)
        if better is not found and better is not None:
            middle, apart = sum(better.stage.kept) // chunk_size(start), math.ceil(wide / TRIED)
            for number in range(max(middle - wide + apart, 0), min(middle + wide, chunks + 1), apart or 1):
                better = _faster(_keeping(start, number), costs, better, limit)
    except NoRoute:
        return None
    return None if better is found else better


def improved(found: Found, limit: TimeLimit | None = None) -> Found:
    """The stage with a chunk of experts more or fewer on the attention ranks of single layers, as long as its step becomes
    shorter: a local optimum, unless the time is up."""
    costs, chunk = TaskCosts(found.stage), chunk_size(found.stage)
    better, before = found, None
    while better is not before:
        before = better
        for layer, more in itertools.product(range(len(better.stage.kept)), (chunk, -chunk)):
            kept = list(better.stage.kept)
            kept[layer] += more
            if 0 <= kept[layer] < better.stage.workload.model.experts:
                better = _faster(replace(better.stage, kept=tuple(kept)), costs, better, limit) or better
    return better


def _faster(stage: DisaggregatedStage, costs: TaskCosts, found: Found | None, limit: TimeLimit | None) -> Found | None:
    """The stage with its step where it fits and is faster than `found`, and time is left; else `found`."""
    most = found.step if found else math.inf
    if (limit is not None and limit.is_up()) or not memory.fits(stage):
        return found
    if max(compute_bounds(stage, costs.of(stage)).values()) >= most:
        return found
    step = extrapolated(stage, lambda one: step_seconds(one, costs.of(one)))
    return Found(stage, step) if step < most else found


def chunk_size(start: DisaggregatedStage) -> int:
    """The fewest experts of a layer that both sets of ranks can share equally."""
    return math.lcm(start.attention_ranks, start.expert_ranks)


def _keeping(start: DisaggregatedStage, chunks: int) -> DisaggregatedStage:
    """The stage with some chunks of kept experts, spread evenly over its layers."""
    layers = len(start.kept)
    ends = [layer * chunks // layers for layer in range(layers + 1)]
    return replace(start, kept=tuple(chunk_size(start) * (later - earlier) for earlier, later in itertools.pairwise(ends)))
