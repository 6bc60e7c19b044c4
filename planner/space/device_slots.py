"""Device slots of clusters in a line, cut into pipeline stages that may span clusters.

A slot is the devices of one tensor-parallel group (`planner.space.shapes.slot`). A stage takes the next slots of the line,
whatever clusters they are in. The strategies that assign ranks, not clusters, to stages (megatron, amp, metis, hethub) and the
search of mixed layouts place their stages so.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from planner.request import Request
from planner.space.shapes import slot, slots
from sim.errors import NotModelled
from sim.hardware.cluster import Cluster, Device
from sim.hardware.device_spec import DeviceSpec
from sim.network.replica_rows import KEPT_BLOCKS, ReplicaRows, block_nodes, joined

ORDERS = 24
"""Maximum number of orders of the device types along a line: all orders of four types (a guess). More cost time only."""

WORK = 3_000_000
"""Maximum number of devices of all candidates of a strategy, each of which is evaluated: some seconds (a guess). A larger one
keeps more candidates of large fleets."""

T = TypeVar("T")


def thinned(candidates: Sequence[T], devices: int) -> Sequence[T]:
    """Every k-th candidate, k the least for which all that are left have at most `WORK` devices; `devices` is that of each."""
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
    """Stages of `width` slots each along the clusters, at most `most` of them; slots left over at the end stay idle."""
    stages: list[StageSlots] = []
    runs: list[Run] = []
    room = width
    for cluster in clusters:
        first, left = 0, slots(cluster, tp)
        while left and len(stages) < most:
            count = min(left, room)
            runs.append(Run(cluster, first, count))
            first, left, room = first + count, left - count, room - count
            if not room:
                stages.append(tuple(runs))
                runs, room = [], width
    return tuple(stages)


def devices(stages: Iterable[StageSlots], tp: int) -> tuple[Device, ...]:
    """The device of every rank of a pipeline with these stages."""
    runs = itertools.chain.from_iterable(stages)
    return tuple(d for run in runs for index in range(run.first, run.first + run.count) for d in slot(run.cluster, tp, index))


def rows(stage: StageSlots, tp: int) -> ReplicaRows:
    """The slots of a stage as rows, one per slot. Of a long run only three of its identical blocks of nodes are listed."""
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
    """The clusters of every device type, in the order of the topology."""
    found: dict[DeviceSpec, list[Cluster]] = {}
    for cluster in request.clusters():
        found.setdefault(cluster.node.device, []).append(cluster)
    return found


def orders(request: Request) -> list[list[list[Cluster]]]:
    """Clusters grouped by device type, for every order of the types (the first `ORDERS`); those of a type in topology order."""
    every = itertools.permutations(types(request).values())
    return [list(order) for order in itertools.islice(every, ORDERS)]


def strips(stages: Sequence[StageSlots]) -> tuple[tuple[Run, ...], ...]:
    """Maximal groups of consecutive replicas that are on one cluster at every stage: for each group its run at each stage."""
    ends = sorted({end for stage in stages for end in itertools.accumulate(run.count for run in stage)})
    return tuple(tuple(_part(stage, start, end) for stage in stages) for start, end in itertools.pairwise([0, *ends]))


def replicas(stages: Sequence[StageSlots], cp: int) -> tuple[tuple[Run, ...], ...]:
    """`strips`, for replicas of cp slots each. Raises NotModelled where the cp ranks of a replica are on several clusters."""
    found = strips(stages)
    if any(group[0].count % cp for group in found):
        raise NotModelled("a replica's cp ranks straddle clusters")
    return found


def _part(stage: StageSlots, start: int, end: int) -> Run:
    """The slots of the replicas from `start` to `end`, which are in one run."""
    firsts = itertools.accumulate((run.count for run in stage), initial=0)
    before, run = next((before, run) for before, run in zip(firsts, stage, strict=False) if start < before + run.count)
    return Run(run.cluster, run.first + start - before, end - start)


def unlike(run: Run, tp: int, width: int) -> list[Run]:
    """Replicas of `width` slots each of a run, one for each distinct offset inside a node."""
    per_node = run.cluster.node.count // tp
    ways = min(run.count // width, per_node // math.gcd(per_node, width)) if width > 1 else 1
    return [Run(run.cluster, run.first + i * width, width) for i in range(ways)]


def borders(source: StageSlots, target: StageSlots, tp: int) -> tuple[tuple[Device, Device], ...]:
    """First devices of replicas that send to each other at a stage border: a pair for each two clusters, in a node or not."""
    found: dict[tuple[str, str, bool], tuple[Device, Device]] = {}
    for a, b in strips((source, target)):
        for step in range(min(a.count, a.cluster.node.count // tp)):
            x, y = slot(a.cluster, tp, a.first + step)[0], slot(b.cluster, tp, b.first + step)[0]
            found.setdefault((x.cluster, y.cluster, (x.cluster, x.node) == (y.cluster, y.node)), (x, y))
    return tuple(found.values())


def ring(stage: StageSlots, tp: int) -> tuple[tuple[Device, Device], ...]:
    """First devices of neighbours on the data-parallel ring of a stage, at least a pair of each kind; none for one replica."""
    if sum(run.count for run in stage) == 1:
        return ()
    pairs = []
    for run in stage:
        steps = range(run.first, run.first + min(run.count - 1, run.cluster.node.count // tp))
        pairs += [(slot(run.cluster, tp, i)[0], slot(run.cluster, tp, i + 1)[0]) for i in steps]
    for a, b in zip(stage, stage[1:] + stage[:1], strict=True):
        pairs.append((slot(a.cluster, tp, a.first + a.count - 1)[0], slot(b.cluster, tp, b.first)[0]))
    return tuple(pairs)


def level(seconds: Sequence[tuple[float, float]], most: Sequence[float], layers: int, least: int) -> tuple[int, ...] | None:
    """Layers of every stage with the least time of the slowest stage; None where the stages cannot hold all layers.

    A stage with (s, c) takes s + k c seconds for k layers and holds from `least` to its `most` layers. Greedy: each next layer
    goes to the stage that then takes least, of equals to the last. That is optimal because more layers take more time: moving a
    layer to another stage cannot make the slowest faster.
    """
    given = [least] * len(seconds)
    if any(least > limit for limit in most) or sum(given) > layers:
        return None
    heap = [(s + (least + 1) * c, -place) for place, (s, c) in enumerate(seconds) if least < most[place]]
    heapq.heapify(heap)
    for _ in range(layers - sum(given)):
        if not heap:
            return None
        place = -heap[0][1]
        given[place] += 1
        s, c = seconds[place]
        if given[place] < most[place]:
            heapq.heapreplace(heap, (s + (given[place] + 1) * c, -place))
        else:
            heapq.heappop(heap)
    return tuple(given)
