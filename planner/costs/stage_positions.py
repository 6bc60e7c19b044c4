"""Default positions of the stages of a cluster: slots fill one node after the other, stage i takes slots i n to (i + 1) n - 1.

n is the number of slots (tensor-parallel groups) of a stage. The pattern in which stages share nodes repeats after `period`
stages, so costs of stages and of messages are computed once for each position of a stage in this pattern."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TypeAlias

from planner.space.device_slots import Run
from planner.space.shape import Shape
from planner.space.shapes import slot
from sim.hardware.cluster import Cluster, Device, Fleet
from sim.hardware.transport import joint_nics

End: TypeAlias = tuple[Cluster, int]
"""A stage: its cluster and its index there."""
Stages: TypeAlias = tuple[Cluster, int, int]
"""Neighbouring stages of a cluster: (cluster, index of the first, count)."""
Hop: TypeAlias = tuple[Device, Device, str, int]
"""A message: (source, target, NIC type, or "intra_node" inside a node, number of identical pairs that share its trunks)."""


def period(cluster: Cluster, shape: Shape) -> int:
    """Number of stages after which positions on the nodes repeat."""
    per_node = cluster.node.count // shape.tp_on(cluster.name)
    return per_node // math.gcd(per_node, shape.slots)


def alike_slots(clusters: Iterable[Cluster], shape: Shape) -> int:
    """The most slots, from the first one of a stage on, that one node holds at every stage of a pipeline on these clusters, and
    whose devices there have equal NICs; at least 1.

    Stage i begins with slot i n of its cluster, so any g slots of which n and the slots of each node are multiples stay
    together. Slots with the same NIC at one stage must have the same NIC at every other: so the devices of the g slots are
    whole groups of devices that share a NIC, or a part of one group (`sim.network.paths.near_nics`), and likewise those of one
    CPU; a part of one group where only the messages of one CPU cross the link between both."""
    holders = [cluster for cluster in clusters if shape.tp_on(cluster.name) <= cluster.node.count]
    found = math.gcd(shape.slots, *(cluster.node.count // shape.tp_on(cluster.name) for cluster in holders))
    return found if all(_equal_nics(one, found * shape.tp_on(one.name)) for one in holders) else 1


def have_equal_nics(clusters: Iterable[Cluster], shape: Shape) -> bool:
    """Whether all slots of a stage load NICs and the link between CPUs alike at every stage, where each stage fills whole nodes
    of these clusters, or whole stages a node."""
    for cluster in clusters:
        degree, per_node = shape.tp_on(cluster.name), cluster.node.count // shape.tp_on(cluster.name)
        ways = _sharing(cluster) if per_node > 1 else ()
        own = (one for one in ways if not one[1] or _crosses_sockets(cluster))
        if not all(
            width >= degree * per_node or _are_alike(degree * min(shape.slots, per_node), width, of_cpu)
            for width, of_cpu in own
        ):
            return False
    return True


def _equal_nics(cluster: Cluster, devices: int) -> bool:
    """Whether so many devices are whole groups that share a NIC of each type, or a part of one, and likewise a CPU."""
    return all(_are_alike(devices, width, of_cpu and _crosses_sockets(cluster)) for width, of_cpu in _sharing(cluster))


def _are_alike(devices: int, width: int, apart: bool) -> bool:
    """Whether so many devices are a part of one of the groups of so many, or whole groups unless these are `apart`."""
    return bool(width) and (width % devices == 0 if apart else _nested(devices, width))


def _crosses_sockets(cluster: Cluster) -> bool:
    """Whether messages of the devices of one CPU of a node take another way to a NIC than those of the other."""
    return bool(cluster.node.socket_link) and any(nic.socket is not None for nic in cluster.node.nics)


def _nested(a: int, b: int) -> bool:
    """Whether one of two sizes is a multiple of the other."""
    return a % b == 0 or b % a == 0


def alike_replicas(runs: Sequence[Run], tp: int) -> int:
    """The most slots, from the first one of a group of replicas on, that one node holds at every stage and whose devices there
    have equal NICs (`alike_slots`); at least 1. runs: the slots of the group at each stage."""
    most = min(min(run.count, run.cluster.node.count // tp - _offset(run, tp) // tp) for run in runs)
    return next((many for many in range(most, 1, -1) if _have_equal_nics(runs, tp, many)), 1)


def _offset(run: Run, tp: int) -> int:
    """Index of the first device of a run on its node."""
    return run.first % (run.cluster.node.count // tp) * tp


def _have_equal_nics(runs: Sequence[Run], tp: int, many: int) -> bool:
    """Whether devices of the first `many` slots that share a NIC at one stage share one at all others, or all share one."""
    cuts = set[int]()
    for run in runs:
        begin, end = _offset(run, tp), _offset(run, tp) + many * tp
        for width, of_cpu in _sharing(run.cluster):
            apart = of_cpu and _crosses_sockets(run.cluster)
            if not width or (begin // width != (end - 1) // width and (apart or begin % width or end % width)):
                return False
            cuts |= {width} if begin // width != (end - 1) // width else set()
    return all(_nested(a, b) for a, b in pairwise(sorted(cuts)))


def _sharing(cluster: Cluster) -> Iterator[tuple[int, bool]]:
    """(number of neighbouring devices of a node that share a NIC of each type, False), and those that share a CPU (True); 0
    where not all have as many."""
    count = cluster.node.count
    for number, of_cpu in (*((nic.count, False) for nic in cluster.node.nics), (2 * cluster.node.hosts, True)):
        uneven = count % number and number % count
        yield 0 if uneven else max(count // number, 1), of_cpu


def first_apart(cluster: Cluster, shape: Shape) -> int:
    """Index of the first stage of a cluster that shares no node with stage 0."""
    per_node = cluster.node.count // shape.tp_on(cluster.name)
    return math.ceil(math.ceil(shape.slots / per_node) * per_node / shape.slots)


def same_position(index: int, cluster: Cluster, shape: Shape, first: int) -> int:
    """The first stage from `first` on with the position of stage `index`; `index` itself where it is before `first`."""
    return index if index < first else first + (index - first) % period(cluster, shape)


def nic_kinds(fleet: Fleet, source: Cluster, target: Cluster) -> list[str]:
    """NIC types over which two clusters can communicate; "intra_node" for a cluster with itself that has no NIC."""
    names = (source.name,) if source == target else (source.name, target.name)
    return [nic.kind for nic in joint_nics(fleet, names)] or (["intra_node"] if source == target else [])


def hops(source: Cluster, i: int, target: Cluster, j: int, shape: Shape, nic: str) -> list[Hop]:
    """The messages from stage i of a cluster to stage j of a cluster: each device sends to its peers
    (`ParallelConfig.peers`), slot by slot.

    Without leaf switches the first nodes represent all nodes: the messages of other nodes are equal, and share only trunks with
    those of the first nodes."""
    whole = source.fabric or target.fabric  # nodes of a leaf share its uplinks
    degrees = shape.tp_on(source.name), shape.tp_on(target.name)
    widths = {cluster.node.count // tp for cluster, tp in zip((source, target), degrees, strict=True)}
    even = len(widths) == 1 and shape.slots % max(widths) == 0  # every stage begins with a node, so one node represents all
    some = max(widths) if even else 3 * max(source.node.count, target.node.count) // min(degrees)
    many = shape.slots if whole else min(shape.slots, some)
    ends = (source, i * shape.slots), (target, j * shape.slots)
    stages = (
        tuple(slot(cluster, tp, first + d) for d in range(many)) for (cluster, first), tp in zip(ends, degrees, strict=True)
    )
    each, more = divmod(shape.slots, many)
    slices = max(degrees)
    found = (
        (p[k * len(p) // slices], q[k * len(q) // slices], each + (d < more))
        for d, (p, q) in enumerate(zip(*stages, strict=True))
        for k in range(slices)
    )
    return [(x, y, nic, pairs) for x, y, pairs in found if x != y]
