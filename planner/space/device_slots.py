"""Slots of clusters in a line, cut into stages: where planners that think in ranks, not in clusters, put their work.

A stage takes the next slots of the line, whatever clusters they are in, so it may stand on several.
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
from sim.hardware.cluster import Cluster, Device, DeviceSpec
from sim.network.replica_rows import KEPT_BLOCKS, ReplicaRows, block_nodes, joined

ORDERS = 24
"""Orders of types of devices along a line that are tried: all of four types, the first of more (a guess)."""

WORK = 3_000_000
"""Devices that candidates may have in all: pricing one looks at each of its devices. Some seconds (a guess)."""

T = TypeVar("T")


def thinned(candidates: Sequence[T], devices: int) -> Sequence[T]:
    """Every k-th of candidates over so many devices each, so that the work is bounded whatever the fleet; all where k is 1."""
    return candidates[:: max(1, -(-len(candidates) * devices // WORK))]


@dataclass(frozen=True, slots=True)
class Run:
    """`count` slots of a cluster side by side, from slot `first` on."""

    cluster: Cluster
    first: int
    count: int


Stand: TypeAlias = tuple[Run, ...]
"""Where one stage stands: its replicas in order."""


def cut(clusters: Iterable[Cluster], tp: int, width: int, most: float = math.inf) -> tuple[Stand, ...]:
    """Stages of `width` slots each along the clusters, so many at most; slots left over at the end stay idle."""
    stands: list[Stand] = []
    runs: list[Run] = []
    room = width
    for cluster in clusters:
        first, left = 0, slots(cluster, tp)
        while left and len(stands) < most:
            count = min(left, room)
            runs.append(Run(cluster, first, count))
            first, left, room = first + count, left - count, room - count
            if not room:
                stands.append(tuple(runs))
                runs, room = [], width
    return tuple(stands)


def devices(stands: Iterable[Stand], tp: int) -> tuple[Device, ...]:
    """The device of every rank of a pipeline of such stages."""
    runs = itertools.chain.from_iterable(stands)
    return tuple(d for run in runs for index in range(run.first, run.first + run.count) for d in slot(run.cluster, tp, index))


def rows(stand: Stand, tp: int) -> ReplicaRows:
    """The slots of a stage, one a row; of the many blocks of a run that are alike, three."""
    return joined(_rows(run, tp) for run in stand)


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
    """Clusters of every type of device, as listed."""
    found: dict[DeviceSpec, list[Cluster]] = {}
    for cluster in request.clusters():
        found.setdefault(cluster.node.device, []).append(cluster)
    return found


def orders(request: Request) -> list[list[list[Cluster]]]:
    """Clusters by type of device, the types in every order (the first `ORDERS`), clusters of a type as listed."""
    every = itertools.permutations(types(request).values())
    return [list(order) for order in itertools.islice(every, ORDERS)]


def strips(stands: Sequence[Stand]) -> tuple[tuple[Run, ...], ...]:
    """Replicas that stand on one cluster at every stage, as long as they do: their run at each stage."""
    ends = sorted({end for stand in stands for end in itertools.accumulate(run.count for run in stand)})
    return tuple(tuple(_part(stand, start, end) for stand in stands) for start, end in itertools.pairwise([0, *ends]))


def replicas(stands: Sequence[Stand], cp: int) -> tuple[tuple[Run, ...], ...]:
    """Replicas that stand alike, each on one cluster at every stage. Raises NotModelled where one's cp ranks do not."""
    found = strips(stands)
    if any(group[0].count % cp for group in found):
        raise NotModelled("a replica's cp ranks straddle clusters")
    return found


def _part(stand: Stand, start: int, end: int) -> Run:
    """Replicas from `start` to `end`, which stand in one run."""
    firsts = itertools.accumulate((run.count for run in stand), initial=0)
    before, run = next((before, run) for before, run in zip(firsts, stand, strict=False) if start < before + run.count)
    return Run(run.cluster, run.first + start - before, end - start)


def unlike(run: Run, tp: int, width: int) -> list[Run]:
    """Replicas of `width` slots each of a run, one for every way in which they can lie on nodes."""
    per_node = run.cluster.node.count // tp
    ways = min(run.count // width, per_node // math.gcd(per_node, width)) if width > 1 else 1
    return [Run(run.cluster, run.first + i * width, width) for i in range(ways)]


def borders(source: Stand, target: Stand, tp: int) -> tuple[tuple[Device, Device], ...]:
    """First devices of replicas that hand on to each other: one pair for every two clusters, in one node or in two."""
    found: dict[tuple[str, str, bool], tuple[Device, Device]] = {}
    for a, b in strips((source, target)):
        for step in range(min(a.count, a.cluster.node.count // tp)):
            x, y = slot(a.cluster, tp, a.first + step)[0], slot(b.cluster, tp, b.first + step)[0]
            found.setdefault((x.cluster, y.cluster, (x.cluster, x.node) == (y.cluster, y.node)), (x, y))
    return tuple(found.values())


def ring(stand: Stand, tp: int) -> tuple[tuple[Device, Device], ...]:
    """First devices of replicas that are neighbours on the ring of a stage: a pair of each kind; none for one replica."""
    if sum(run.count for run in stand) == 1:
        return ()
    pairs = []
    for run in stand:
        steps = range(run.first, run.first + min(run.count - 1, run.cluster.node.count // tp))
        pairs += [(slot(run.cluster, tp, i)[0], slot(run.cluster, tp, i + 1)[0]) for i in steps]
    for a, b in zip(stand, stand[1:] + stand[:1], strict=True):
        pairs.append((slot(a.cluster, tp, a.first + a.count - 1)[0], slot(b.cluster, tp, b.first)[0]))
    return tuple(pairs)


def level(seconds: Sequence[tuple[float, float]], most: Sequence[float], layers: int, least: int) -> tuple[int, ...] | None:
    """Layers of stages that take (s, c) seconds, s + k c for k layers, so that the slowest takes least.

    Every stage holds from `least` to its `most` layers; None where they cannot hold all. Each next layer goes to the stage that
    is then done soonest, of equals to the last: no exchange can make the slowest faster, as more layers take more time.
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
