"""Device slots of a sequence of clusters, cut into pipeline stages that may span clusters.

A slot is the devices of one tensor-parallel group (`planner.space.shapes.slot`). The slots of all clusters form one sequence,
and each stage takes the next slots of it, also across a border of clusters. The search of mixed stages uses this placement, and
so do the strategies that assign ranks, not clusters, to stages: megatron, amp, metis and hethub."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

from planner.request import Request
from planner.space.shapes import slot, slots
from sim.errors import NotModelled
from sim.hardware.cluster import Cluster, Device
from sim.hardware.device_spec import DeviceSpec
from sim.network.replica_rows import KEPT_BLOCKS, ReplicaRows, block_nodes, joined

ORDERS = 24
"""Maximum number of orders of the device types that are tried: all orders of four types (a guess). More take longer."""

WORK = 3_000_000
"""Maximum number of devices of all candidates that a strategy evaluates, summed over candidates: some seconds (a guess). A
larger number keeps more candidates of large fleets."""

T = TypeVar("T")


def thinned(candidates: Sequence[T], devices: int) -> Sequence[T]:
    """Every k-th candidate, where k is the least for which they have at most `WORK` devices in all; each has `devices`."""
    return candidates[:: max(1, -(-len(candidates) * devices // WORK))]


@dataclass(frozen=True, slots=True)
class Run:
    """`count` consecutive slots of a cluster, from slot `first` on."""

    cluster: Cluster
    first: int
    count: int


StageSlots: TypeAlias = tuple[Run, ...]
"""The slots of one stage, in the order of its replicas."""


def cut(clusters: Iterable[Cluster], tp: int, width: int, most: float = math.inf) -> tuple[StageSlots, ...]:
    """Stages of `width` slots each along the clusters, at most `most` of them; remaining slots stay idle."""
    stages: list[StageSlots] = []
    runs: list[Run] = []
    missing = width
    for cluster in clusters:
        first, left = 0, slots(cluster, tp)
        while left and len(stages) < most:
            count = min(left, missing)
            runs.append(Run(cluster, first, count))
            first, left, missing = first + count, left - count, missing - count
            if not missing:
                stages.append(tuple(runs))
                runs, missing = [], width
    return tuple(stages)


def devices(stages: Iterable[StageSlots], tp: int) -> tuple[Device, ...]:
    """The device of every rank of a pipeline with these stages."""
    runs = itertools.chain.from_iterable(stages)
    return tuple(d for run in runs for index in range(run.first, run.first + run.count) for d in slot(run.cluster, tp, index))


def rows(stage: StageSlots, tp: int) -> ReplicaRows:
    """The slots of a stage as rows, one per slot. Only three of the identical blocks of nodes of a long run are listed."""
    return joined(_rows(run, tp) for run in stage)


def _rows(run: Run, tp: int) -> ReplicaRows:
    block = block_nodes(run.cluster) * (run.cluster.node.count // tp)
    head = min(-run.first % block, run.count)
    many = (run.count - head) // block
    left = max(many - KEPT_BLOCKS, 0)
    cut = head + (KEPT_BLOCKS - 1) * block
    listed = [*range(cut), *range(cut + left * block, run.count)] if left else range(run.count)

    def slots_of(indices: Iterable[int]) -> tuple[tuple[Device, ...], ...]:
        return tuple(slot(run.cluster, tp, run.first + index) for index in indices)

    return ReplicaRows(slots_of(listed), ((head + block, cut, left),) if left else (), lambda: slots_of(range(run.count)))


def types(request: Request) -> dict[DeviceSpec, list[Cluster]]:
    """The clusters of every device type, in the order of the topology. Names, prices and watts make no type."""
    found: dict[DeviceSpec, list[Cluster]] = {}
    for cluster in request.clusters():
        hardware = replace(cluster.node.device, name="", price=None, watts=None, idle_watts=None)
        found.setdefault(hardware, []).append(cluster)
    return found


def orders(request: Request) -> list[list[list[Cluster]]]:
    """Clusters grouped by device type, for every order of the types (the first `ORDERS`); clusters of one type in topology
    order."""
    every = itertools.permutations(types(request).values())
    return [list(order) for order in itertools.islice(every, ORDERS)]


def replica_groups(stages: Sequence[StageSlots], cp: int = 1) -> tuple[tuple[Run, ...], ...]:
    """Maximal groups of consecutive replicas, of cp slots each, that are on one cluster at every stage.

    Returns for each group its run at each stage. Raises NotModelled where the cp ranks of a replica are on several clusters."""
    ends = sorted({end for stage in stages for end in itertools.accumulate(run.count for run in stage)})
    found = tuple(tuple(_part(stage, start, end) for stage in stages) for start, end in itertools.pairwise([0, *ends]))
    if any(group[0].count % cp for group in found):
        raise NotModelled("a replica's cp ranks straddle clusters")
    return found


def _part(stage: StageSlots, start: int, end: int) -> Run:
    """The slots of the replicas from `start` to `end`, which are in one run."""
    firsts = itertools.accumulate((run.count for run in stage), initial=0)
    before, run = next((before, run) for before, run in zip(firsts, stage, strict=False) if start < before + run.count)
    return Run(run.cluster, run.first + start - before, end - start)


def distinct_offsets(run: Run, tp: int, width: int) -> list[Run]:
    """Replicas of `width` slots each of a run, one for each distinct offset inside a node."""
    per_node = run.cluster.node.count // tp
    offsets = min(run.count // width, per_node // math.gcd(per_node, width)) if width > 1 else 1
    return [Run(run.cluster, run.first + i * width, width) for i in range(offsets)]


def borders(source: StageSlots, target: StageSlots, tp: int) -> tuple[tuple[Device, Device], ...]:
    """Pairs of devices that send to each other at a stage border: one for each pair of clusters, inside a node and between
    nodes."""
    found: dict[tuple[str, str, bool], tuple[Device, Device]] = {}
    for a, b in replica_groups((source, target)):
        for step in range(min(a.count, a.cluster.node.count // tp)):
            x, y = slot(a.cluster, tp, a.first + step)[0], slot(b.cluster, tp, b.first + step)[0]
            found.setdefault((x.cluster, y.cluster, (x.cluster, x.node) == (y.cluster, y.node)), (x, y))
    return tuple(found.values())


def ring(stage: StageSlots, tp: int) -> tuple[tuple[Device, Device], ...]:
    """Pairs of neighbours on the data-parallel ring of a stage, at least one for each kind of link; empty for one replica."""
    if sum(run.count for run in stage) == 1:
        return ()
    pairs = []
    for run in stage:
        steps = range(run.first, run.first + min(run.count - 1, run.cluster.node.count // tp))
        pairs += [(slot(run.cluster, tp, i)[0], slot(run.cluster, tp, i + 1)[0]) for i in steps]
    for a, b in zip(stage, stage[1:] + stage[:1], strict=True):
        pairs.append((slot(a.cluster, tp, a.first + a.count - 1)[0], slot(b.cluster, tp, b.first)[0]))
    return tuple(pairs)


def minmax_layers(
    seconds: Sequence[tuple[float, float]], most: Sequence[float], layers: int, least: int
) -> tuple[int, ...] | None:
    """Layers of every stage with the least time of the slowest stage; None where the stages cannot hold all layers.

    seconds: (s, c) of each stage, which takes s + k c seconds for k layers; a stage holds from `least` to its `most` layers.
    Greedy (list scheduling; Graham, Bell System Technical Journal 45(9), 1966): each next layer goes to the stage that takes
    least time with it; of equal stages, to the last. This is optimal, because layers are equal and more layers take more time:
    the slowest stage got its last layer when every other stage would have taken at least as long with one more."""
    given = [least] * len(seconds)
    if any(least > limit for limit in most) or sum(given) > layers:
        return None
    heap = [(s + (least + 1) * c, -stage) for stage, (s, c) in enumerate(seconds) if least < most[stage]]
    heapq.heapify(heap)
    for _ in range(layers - sum(given)):
        if not heap:
            return None
        stage = -heap[0][1]
        given[stage] += 1
        s, c = seconds[stage]
        if given[stage] < most[stage]:
            heapq.heapreplace(heap, (s + (given[stage] + 1) * c, -stage))
        else:
            heapq.heappop(heap)
    return tuple(given)
