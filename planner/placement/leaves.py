"""Which leaf switch each node's work stands under, where the spine is narrower than the leaves.

A plan in order fills one node after the other, leaf by leaf. Nodes of a cluster are alike but for their leaf, so the choice is
a partition of the nodes that the plan uses over the leaves. What is minimised is not the bytes over the spine: a message holds
up every microbatch, a ring mostly hides behind a backward, and two rings on one uplink do not. It is the step as
`planner.placement.oversubscription` has it; of equal steps the one with least time on the uplinks; of those the first, and a
plan in order is the very first.

Small clusters are searched completely; others over tilings: so many nodes of each stage's ring under a leaf, stage by stage.
A ring goes on in the order of ranks, so that in a tiling it enters each leaf once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from planner.placement.oversubscription import Integers, SpineCosts
from sim.hardware.cluster import Cluster, Device
from sim.plan.plan import Plan

PARTITIONS, SEARCHED = 500, 16
"""Ways to stand under leaves, and nodes, of a cluster that is searched completely: tenths of a second (a guess)."""


def arranged(plan: Plan) -> tuple[Device, ...]:
    """Devices of a plan in order, its nodes permuted within clusters with a narrow spine; as they are where that gains nothing.

    With cp, ep or `zero_shard_size` the plan stays in order: their groups are not looked at here."""
    names = dict.fromkeys(device.cluster for device in plan.placement[:: plan.config.tp])
    narrow = [cluster for cluster in map(plan.fleet.cluster, names) if oversubscribed(cluster)]
    if not narrow or plan.config.cp > 1 or plan.config.ep > 1 or plan.config.shards < plan.config.dp:
        return plan.placement
    spine, moved = SpineCosts(plan), dict[tuple[str, int], int]()
    leaves = spine.leaves
    for cluster in narrow:
        used = spine.used(cluster.name)
        tried = [leaves, *(_standing(spine, leaves, cluster, used, found) for found in _ways(spine, cluster, used))]
        best = min(range(len(tried)), key=lambda index: spine.judged(tried[index]))  # the first of equal ones
        if best:
            leaves = tried[best]
            moved |= _moves(cluster, used - spine.first_node[cluster.name], leaves[used] - spine.first_leaf[cluster.name])
    return tuple(Device(d.cluster, moved.get((d.cluster, d.node), d.node), d.index) for d in plan.placement)


def oversubscribed(cluster: Cluster) -> bool:
    """Whether it matters on which nodes of a cluster stages stand: its leaves have less to the spine than to their nodes."""
    fabric = cluster.fabric
    return fabric is not None and fabric.oversubscription > 1 and 1 < fabric.nodes_per_leaf < cluster.nodes


def _sizes(cluster: Cluster) -> list[int]:
    """Nodes of every leaf."""
    assert cluster.fabric is not None
    width = cluster.fabric.nodes_per_leaf
    return [min(width, cluster.nodes - first) for first in range(0, cluster.nodes, width)]


def _standing(spine: SpineCosts, leaves: Integers, cluster: Cluster, used: Integers, found: Integers) -> Integers:
    """Leaves of all nodes, those of a cluster's used nodes as found."""
    standing = leaves.copy()
    standing[used] = spine.first_leaf[cluster.name] + found
    return standing


def _moves(cluster: Cluster, used: Integers, leaf: Integers) -> dict[tuple[str, int], int]:
    """(cluster, node) -> the node it moves to: the next one of its new leaf."""
    assert cluster.fabric is not None
    nexts = [index * cluster.fabric.nodes_per_leaf for index in range(len(_sizes(cluster)))]
    moved = {}
    for node, number in zip(used.tolist(), leaf.tolist(), strict=True):
        moved[cluster.name, node] = nexts[number]
        nexts[number] += 1
    return moved


def _ways(spine: SpineCosts, cluster: Cluster, used: Integers) -> Iterator[Integers]:
    """Leaves of the used nodes: every partition of a small cluster, else tilings."""
    sizes = _sizes(cluster)
    every = list(itertools.islice(partitions(len(used), sizes), PARTITIONS + 1)) if len(used) <= SEARCHED else []
    if 0 < len(every) <= PARTITIONS:
        return map(np.array, every)
    return tilings(spine.stage_of(used), sizes)


def partitions(items: int, sizes: list[int]) -> Iterator[tuple[int, ...]]:
    """Leaf of each of some items, in all ways that differ in more than the names of leaves of one size."""
    if not items:
        yield ()
        return
    for before in partitions(items - 1, sizes):
        untouched = set[int]()
        for leaf, size in enumerate(sizes):
            taken = before.count(leaf)
            if taken < size and (taken or size not in untouched):
                yield (*before, leaf)
            if not taken:
                untouched.add(size)


def tilings(stage: Integers, sizes: list[int]) -> Iterator[Integers]:
    """Leaves of nodes of which each belongs to a stage: strips of so many nodes of every stage, stage by stage, leaf by leaf.

    Each in two ways: a tile begins where the one before ends, or at the next leaf if it does not fit the rest of this one.
    """
    within = np.arange(len(stage)) - np.searchsorted(stage, stage)
    widest = int(within.max()) + 1
    widths = {widest, *(2**i for i in range(widest.bit_length())), *(max(sizes) // i for i in range(1, 5)), -(-widest // 2)}
    for width in sorted(width for width in widths if 0 < width <= widest):
        order = np.lexsort((within, stage, within // width))
        tiles = np.unique(np.stack([(within // width)[order], stage[order]]), axis=1, return_counts=True)[1].tolist()
        for whole in (False, True):
            filled = _filled(tiles, sizes, whole)
            if filled is not None:
                found = np.empty(len(stage), np.int64)
                found[order] = filled
                yield found


def _filled(tiles: list[int], sizes: list[int], whole: bool) -> list[int] | None:
    """The leaf of every node of tiles one after the other; None where there are not enough leaves."""
    found: list[int] = []
    leaf, room = 0, sizes[0]
    for tile in tiles:
        if whole and room < tile <= max(sizes):
            room = 0
        for _ in range(tile):
            if not room:
                leaf += 1
                if leaf == len(sizes):
                    return None
                room = sizes[leaf]
            found.append(leaf)
            room -= 1
    return found
