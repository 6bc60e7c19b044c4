"""The fastest stage with attention on devices of one type and experts on all others, by the closed form of its step.

Every device is used. The search tries each type of device for attention, the sizes of groups, recomputation, and the numbers
and sizes of microbatches; for each of them it tries how many experts attention ranks should keep, in chunks. A chunk is the
fewest experts of a layer that both sets of ranks can share equally; chunks are spread evenly over the layers, as "gather and
squeeze" does (HeterMoE, arXiv 2504.03871, algorithm 1), whose bubbles are not estimated here: the step is evaluated."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from planner.time_limit import TimeLimit
from sim.disaggregation import memory
from sim.disaggregation.costs import TaskCosts, compute_bounds, step_seconds
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
MICROBATCHES = (4, 2, 8, 3, 6, 1)
"""Numbers of microbatches at once that are tried, in this order (a guess): more hide more, and have more latencies."""
SIZES = (1, 2, 4, 8, 16)
"""Sizes of microbatches that are tried (a guess)."""
RECOMPUTE = ("none", "full")
"""What may be recomputed (`DisaggregatedStage.recompute`)."""
ROUNDS = 3
"""Rounds of a step that are evaluated; each further one is taken to add as much as the last of these (a guess: by then all
streams have work)."""


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
    found: Found | None = None
    if topology.fleet.devices > MOST_DEVICES:
        return None
    for attention, experts in sides(topology, workload):
        for start in starts(topology, workload, attention, experts, recompute):
            if limit is not None and limit.is_up():
                break
            found = with_kept_experts(start, found, limit) or found
    return None if found is None else Found(found.stage, _extrapolated(found.stage, simulated_step))


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
    most = (start.workload.model.experts - 1) // _chunk(start)
    wide, chunks = layers * math.ceil(most / TRIED), layers * most
    if not memory.attention_fits(start) or not memory.experts_fit(_keeping(start, chunks)):
        return None
    try:
        for number in range(0, chunks + 1, wide or 1):
            better = _faster(_keeping(start, number), costs, better, limit)
        if better is not found and better is not None:
            middle, apart = sum(better.stage.kept) // _chunk(start), math.ceil(wide / TRIED)
            for number in range(max(middle - wide + apart, 0), min(middle + wide, chunks + 1), apart or 1):
                better = _faster(_keeping(start, number), costs, better, limit)
    except NoRoute:
        return None
    return None if better is found else better


def _faster(stage: DisaggregatedStage, costs: TaskCosts, found: Found | None, limit: TimeLimit | None) -> Found | None:
    """The stage with its step where it fits and is faster than `found`, and time is left; else `found`."""
    most = found.step if found else math.inf
    if (limit is not None and limit.is_up()) or not memory.fits(stage):
        return found
    if max(compute_bounds(stage, costs.of(stage)).values()) >= most:
        return found
    step = _extrapolated(stage, lambda one: step_seconds(one, costs.of(one)))
    return Found(stage, step) if step < most else found


def _chunk(start: DisaggregatedStage) -> int:
    """The fewest experts of a layer that both sets of ranks can share equally."""
    return math.lcm(start.attention_ranks, start.expert_ranks)


def _keeping(start: DisaggregatedStage, chunks: int) -> DisaggregatedStage:
    """The stage with some chunks of kept experts, spread evenly over its layers."""
    layers = len(start.kept)
    ends = [layer * chunks // layers for layer in range(layers + 1)]
    return replace(start, kept=tuple(_chunk(start) * (later - earlier) for earlier, later in itertools.pairwise(ends)))


def _extrapolated(stage: DisaggregatedStage, seconds: Callable[[DisaggregatedStage], Seconds]) -> Seconds:
    """`seconds` of a step, of which rounds after the first few are not evaluated."""
    if stage.rounds <= ROUNDS:
        return seconds(stage)
    batch = stage.workload.global_batch_size // stage.rounds
    fewer = (
        replace(stage, rounds=rounds, workload=replace(stage.workload, global_batch_size=batch * rounds))
        for rounds in (ROUNDS - 1, ROUNDS)
    )
    few, more = map(seconds, fewer)
    return more + (stage.rounds - ROUNDS) * (more - few)
