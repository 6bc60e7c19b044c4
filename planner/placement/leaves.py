"""Assign the nodes of a plan to leaf switches, where the spine is oversubscribed.

By default a plan fills one node after the other, leaf by leaf. Nodes of a cluster differ in their leaf only, so an assignment
is a partition of the plan's nodes over the leaves. The objective is the step time of `planner.placement.oversubscription`. It
is not the number of bytes over the spine, because bytes delay a step differently: a message delays every microbatch, a ring
mostly overlaps with a backward, and two rings on one uplink slow each other. Of equal step times, the least time on the uplinks
decides, then the first candidate, which is the default.

Small clusters are searched exhaustively. For larger clusters the candidates are tilings: a fixed number of nodes of each
stage's ring under a leaf, stage by stage. A ring follows the order of ranks, so in a tiling it enters each leaf once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from planner.placement.oversubscription import Integers, OversubscriptionCosts
from sim.hardware.cluster import Cluster, Device
from sim.plan.plan import Plan

PARTITIONS, SEARCHED = 500, 16
"""Maximum number of partitions, and of nodes, of a cluster that is searched exhaustively: tenths of a second (a guess)."""


def arranged(plan: Plan) -> tuple[Device, ...]:
    """Devices of a plan, its nodes permuted inside oversubscribed clusters; unchanged where no permutation is faster.

    `plan` has its nodes in the default order, and keeps it with cp, ep, etp, `stage_tp`, `stage_dp` or `zero_shard_size`, whose
    groups have no costs here."""
    names = dict.fromkeys(device.cluster for device in plan.placement[:: plan.config.tp])
    narrow = [cluster for cluster in map(plan.fleet.cluster, names) if oversubscribed(cluster)]
    config = plan.config
    if not narrow or config.has_stage_degrees or config.cp > 1 or config.splits_experts or config.shards < config.dp:
        return plan.placement
    costs, moved = OversubscriptionCosts(plan), dict[tuple[str, int], int]()
    leaves = costs.leaves
    for cluster in narrow:
        used = costs.used(cluster.name)
        tried = [leaves, *(_with_leaves(costs, leaves, cluster, used, found) for found in _candidates(costs, cluster, used))]
        best = min(range(len(tried)), key=lambda index: costs.evaluate(tried[index]))  # of equal ones the first
        if best:
            leaves = tried[best]
            moved |= _new_nodes(cluster, used - costs.first_node[cluster.name], leaves[used] - costs.first_leaf[cluster.name])
    return tuple(Device(d.cluster, moved.get((d.cluster, d.node), d.node), d.index) for d in plan.placement)


def oversubscribed(cluster: Cluster) -> bool:
    """Whether traffic between the leaves of a cluster is slower than below them, and leaves hold several nodes."""
    fabric = cluster.fabric
    return fabric is not None and fabric.is_narrow and 1 < fabric.nodes_per_leaf < cluster.nodes


def _sizes(cluster: Cluster) -> list[int]:
    """Number of nodes under every leaf."""
    assert cluster.fabric is not None
    width = cluster.fabric.nodes_per_leaf
    return [min(width, cluster.nodes - first) for first in range(0, cluster.nodes, width)]


def _with_leaves(costs: OversubscriptionCosts, leaves: Integers, cluster: Cluster, used: Integers, found: Integers) -> Integers:
    """Leaves of all nodes, where the used nodes of a cluster have the leaves `found`."""
    assigned = leaves.copy()
    assigned[used] = costs.first_leaf[cluster.name] + found
    return assigned


def _new_nodes(cluster: Cluster, used: Integers, leaf: Integers) -> dict[tuple[str, int], int]:
    """(cluster, node) -> the node it moves to, the next free one of its new leaf."""
    assert cluster.fabric is not None
    nexts = [index * cluster.fabric.nodes_per_leaf for index in range(len(_sizes(cluster)))]
    moved = {}
    for node, number in zip(used.tolist(), leaf.tolist(), strict=True):
        moved[cluster.name, node] = nexts[number]
        nexts[number] += 1
    return moved


def _candidates(costs: OversubscriptionCosts, cluster: Cluster, used: Integers) -> Iterator[Integers]:
    """Candidates for the leaves of the used nodes: all partitions of a small cluster, else tilings."""
    sizes = _sizes(cluster)
    every = list(itertools.islice(partitions(len(used), sizes), PARTITIONS + 1)) if len(used) <= SEARCHED else []
    if 0 < len(every) <= PARTITIONS:
        return map(np.array, every)
    return tilings(costs.stage_of(used), sizes)


def partitions(items: int, sizes: list[int]) -> Iterator[tuple[int, ...]]:
    """All partitions of items over leaves, as the leaf of each item, up to permutation of leaves of the same size."""
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
    """Tilings: for several widths, the leaf of each node when leaves are filled by tiles of `width` nodes of a stage.

    `stage` is the stage of each node, ascending; `sizes` are the numbers of nodes under the leaves. The tiles of all stages
    with the same number follow one another. Each width gives two candidates: a tile begins where the previous one ends, or at
    the next leaf if it does not fit the rest of this one.
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
    """The leaf of every node of consecutive tiles, `whole` ones in one leaf if any holds them; None for too few leaves."""
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
