"""Copies: blocks of replicas that can change places without anybody noticing, so that one of each needs to be looked at.

A block is the replicas that share a node or a leaf switch (with cp or ep, that exchange anything but gradients), and those that
share one with these. Two blocks are copies if they stand alike: the same clusters, places on their nodes, sharing of nodes and
leaves, microbatches and groups, and gradient collectives that pass alike over each of their ranks. To swap them changes
nothing: whatever else a block uses, trunks and gradient groups, all blocks use together. So the ranks of one block of each kind
are shown, counted as often as it has copies; what they do, and what is on their links, is what every copy does and has.

All of it is arrays over ranks: the cost of looking for copies is small beside that of routes, which only shown ranks need.
Sixty-four bits of a hash stand for the looks of a rank."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sim.engine.faults import NOTHING, Drawn
from sim.network.gradient_routes import gradient_operations, gradient_parts
from sim.network.hashes import Hashes, hash_arrays, hash_facts
from sim.network.rings import Integers, Sites
from sim.plan.plan import Group, Plan, gradient_groups


@dataclass(frozen=True, slots=True)
class Copies:
    """`shown` are the ranks of one block of each kind; `standing[rank]` is the shown rank that a rank is a copy of.

    `times[rank]` tells how many copies a shown rank stands for, itself counted; 0 for ranks that are not shown.
    """

    shown: tuple[int, ...]
    standing: Integers
    times: Integers


def copies(plan: Plan, sites: Sites, drawn: Drawn = NOTHING) -> Copies:
    """Find the blocks of a plan and those that are copies of one another; not those that trouble tells apart."""
    config = plan.config
    unit = math.lcm(config.cp, config.ep)
    looks = _looks(plan, sites)
    _mark(looks, plan, drawn)
    numbered = np.arange(config.world_size).reshape(config.pp, config.dp_cp // unit, unit, config.tp).swapaxes(0, 1)
    of_unit = numbered.reshape(len(numbered), -1)
    times, standing = np.zeros(config.world_size, np.int64), np.empty(config.world_size, np.int64)
    first: dict[bytes, Integers] = {}
    for blocks in _blocks(sites.leaf[of_unit]):
        ranks = of_unit[blocks].reshape(len(blocks), -1)
        seen = [looks[ranks], _within(sites.node[ranks]), _within(sites.leaf[ranks])]
        for mine, look in zip(ranks, np.stack(seen, axis=2), strict=True):
            stands = first.setdefault(look.tobytes(), mine)
            times[stands] += 1
            standing[mine] = stands
    return Copies(tuple(np.flatnonzero(times).tolist()), standing, times)


def _looks(plan: Plan, sites: Sites) -> Hashes:
    """What tells a rank apart by itself: where it stands, its microbatches, its groups, and how gradients pass over it."""
    config = plan.config
    microbatches = np.array(config.num_microbatches)[np.arange(config.world_size) // config.tp % config.dp_cp // config.cp]
    looks = hash_arrays(sites.cluster, sites.index, microbatches)
    alike: dict[tuple[str, int], list[Group]] = {}
    for group in plan.groups:
        alike.setdefault((group.kind, len(group.ranks)), []).append(group)
    for (kind, _), groups in alike.items():
        if kind != "dp":
            ranks = np.array([group.ranks for group in groups])
            words = np.array([hash_facts(kind, group.nic, group.collective) for group in groups])
            order = ranks.T - ranks[:, 0] if kind != "pp" else ()
            looks[ranks] += hash_arrays(words, *order)[:, None]
    together: dict[tuple[str, str, str, int], list[Group]] = {}
    for group in gradient_groups(plan):
        together.setdefault((group.kind, group.nic, group.collective, len(group.ranks)), []).append(group)
    for facts, groups in together.items():
        for does in gradient_operations(config):
            for part, (rows, operation, _) in enumerate(gradient_parts(groups, does, config.shards)):
                for ring, _ in sites.rings(rows):
                    for turn, passes in enumerate(ring.rounds(groups[0].collective, operation)):
                        fact = np.array([hash_facts(*facts, does, part, turn)])
                        out = hash_arrays(passes.kind, passes.share.view(np.uint64), fact)
                        np.add.at(looks, ring.ranks[passes.source], out)
                        np.add.at(looks, ring.ranks[passes.target], hash_arrays(out))
    return looks


def _mark(looks: Hashes, plan: Plan, drawn: Drawn) -> None:
    """Ranks on a node in trouble look like those on a node in the same trouble only."""
    marks: dict[tuple[str, int], list[tuple[int, tuple[object, ...]]]] = {}
    for node, index, said in drawn.marks():
        marks.setdefault(node, []).append((index, said))
    for rank, device in enumerate(plan.placement) if marks else ():
        for index, said in marks.get((device.cluster, device.node), ()):
            if index in (-1, device.index):
                looks[rank : rank + 1] += hash_arrays(np.array([hash_facts(*said)]))


def _blocks(leaf: Integers) -> Iterator[Integers]:
    """Units (rows of `leaf`) that share a leaf, directly or through others: blocks of equal size together, a row for each."""
    unit = np.repeat(np.arange(len(leaf)), leaf.shape[1])
    places, units = np.divmod(np.unique(leaf.ravel() * len(leaf) + unit), len(leaf))
    joined = places[:-1] == places[1:]
    parent = list(range(len(leaf)))

    def root(one: int) -> int:
        while parent[one] != one:
            parent[one] = one = parent[parent[one]]
        return one

    for a, b in zip(units[:-1][joined].tolist(), units[1:][joined].tolist(), strict=True):
        a, b = root(a), root(b)
        parent[max(a, b)] = min(a, b)
    by_root: dict[int, list[int]] = {}
    for one in range(len(leaf)):
        by_root.setdefault(root(one), []).append(one)
    by_size: dict[int, list[list[int]]] = {}
    for block in by_root.values():
        by_size.setdefault(len(block), []).append(block)
    for blocks in by_size.values():
        yield np.array(blocks)


def _within(numbers: Integers) -> Integers:
    """Numbers of each row counted through from 0 in their order: equal ones stay equal, which they are does not matter."""
    order = np.argsort(numbers, axis=1, kind="stable")
    ordered = np.take_along_axis(numbers, order, axis=1)
    steps = np.zeros_like(ordered)
    steps[:, 1:] = np.cumsum(ordered[:, 1:] != ordered[:, :-1], axis=1)
    counted = np.empty_like(steps)
    np.put_along_axis(counted, order, steps, axis=1)
    return counted
