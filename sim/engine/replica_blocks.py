"""Interchangeable blocks of replicas: the first step of the symmetry reduction (`sim.engine.symmetry`).

A block is a set of replicas that share nodes or leaf switches, directly or through other replicas of the set; the ranks of a
cp or ep group are always in one block. Two blocks are copies if their ranks agree, one by one, in cluster, index on the node,
microbatches, groups, the transfers of gradient collectives over each rank, and in which ranks share a node or a leaf.
Invariant: swapping two copies maps the plan onto itself, since all else that a block uses, trunks and gradient groups, is
common to all blocks. So one block of each kind represents all its copies. Its ranks are the shown ranks; the behaviour of
their copies and the load of the copies' links are the same.

Everything is computed with arrays over ranks, which is fast compared to finding routes; only shown ranks need routes. The
features of a rank are compared by a hash of 64 bits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sim.engine.disjoint_sets import DisjointSets
from sim.engine.faults import NO_FAULTS, DrawnFaults
from sim.network.gradient_routes import gradient_operations, gradient_parts
from sim.network.hashes import Hashes, hash_arrays, hash_facts
from sim.network.rings import Integers, Sites
from sim.plan.derived_groups import gradient_groups
from sim.plan.groups import Group
from sim.plan.plan import Plan


@dataclass(frozen=True, slots=True)
class Copies:
    """`shown`: the ranks of one block of each kind; `representative[rank]`: the shown rank that a rank is a copy of.

    `times[rank]`: the number of copies of a shown rank, itself included; 0 for ranks that are not shown."""

    shown: tuple[int, ...]
    representative: Integers
    times: Integers


def no_copies(ranks: int) -> Copies:
    """Every rank is shown, and has no copy."""
    return Copies(tuple(range(ranks)), np.arange(ranks), np.ones(ranks, np.int64))


def copies(plan: Plan, sites: Sites, drawn: DrawnFaults = NO_FAULTS) -> Copies:
    """The blocks of a plan, and which of them are copies of one another; blocks with different faults are not.

    A unit, of which blocks consist, is consecutive dp_cp indices: those of whole cp groups and expert meshes."""
    config = plan.config
    unit = math.lcm(config.cp, config.expert_rows)
    features = _features(plan, sites)
    _mark_faults(features, plan, drawn)
    ends = [(config.first_rank(pp_rank), config.first_rank(pp_rank + 1)) for pp_rank in range(config.pp)]
    of_unit = np.concatenate([np.arange(*both).reshape(config.dp_cp // unit, -1) for both in ends], axis=1)
    times, representative = np.zeros(config.world_size, np.int64), np.empty(config.world_size, np.int64)
    first: dict[bytes, Integers] = {}
    for blocks in _blocks(sites.leaf[of_unit]):
        ranks = of_unit[blocks].reshape(len(blocks), -1)
        compared = [features[ranks], _renumbered(sites.node[ranks]), _renumbered(sites.leaf[ranks])]
        for mine, facts in zip(ranks, np.stack(compared, axis=2), strict=True):
            shown = first.setdefault(facts.tobytes(), mine)
            times[shown] += 1
            representative[mine] = shown
    return Copies(tuple(np.flatnonzero(times).tolist()), representative, times)


def _features(plan: Plan, sites: Sites) -> Hashes:
    """A hash for each rank of its site, its microbatches, its groups, and the gradient transfers from and to it."""
    config = plan.config
    widths = (tp * config.split_of(pp_rank) * config.cp_of(pp_rank) for pp_rank, tp in enumerate(config.degrees))
    microbatches = np.concatenate([np.repeat(config.num_microbatches, width) for width in widths])
    features = hash_arrays(sites.cluster, sites.index, microbatches)
    alike: dict[tuple[str, int], list[Group]] = {}
    for group in plan.groups:
        alike.setdefault((group.kind, len(group.ranks)), []).append(group)
    for (kind, _), groups in alike.items():
        if kind != "dp":
            ranks = np.array([group.ranks for group in groups])
            words = np.array([hash_facts(kind, group.nic, group.collective) for group in groups])
            order = ranks.T - ranks[:, 0] if kind != "pp" else ()
            np.add.at(features, ranks, hash_arrays(words, *order)[:, None])
    gradient_kinds: dict[tuple[str, str, str, int], list[Group]] = {}
    for group in gradient_groups(plan):
        gradient_kinds.setdefault((group.kind, group.nic, group.collective, len(group.ranks)), []).append(group)
    for facts, groups in gradient_kinds.items():
        for collective in gradient_operations(config):
            for part, (rows, operation, _) in enumerate(gradient_parts(groups, collective, config.zero_shard_size)):
                for ring, _ in sites.rings(rows):
                    for turn, passes in enumerate(ring.rounds(groups[0].collective, operation)):
                        fact = np.array([hash_facts(*facts, collective, part, turn)])
                        out = hash_arrays(passes.kind, passes.share.view(np.uint64), fact)
                        np.add.at(features, ring.ranks[passes.source], out)
                        np.add.at(features, ring.ranks[passes.target], hash_arrays(out))
    return features


def _mark_faults(features: Hashes, plan: Plan, drawn: DrawnFaults) -> None:
    """Change the features of ranks on a node with faults, so that they equal only those of nodes with the same faults."""
    marks: dict[tuple[str, int], list[tuple[int, tuple[object, ...]]]] = {}
    for node, index, fault in drawn.by_node():
        marks.setdefault(node, []).append((index, fault))
    for rank, device in enumerate(plan.placement) if marks else ():
        for index, fault in marks.get((device.cluster, device.node), ()):
            if index in (-1, device.index):
                features[rank : rank + 1] += hash_arrays(np.array([hash_facts(*fault)]))


def _blocks(leaf: Integers) -> Iterator[Integers]:
    """Connected components of units (rows of `leaf`) that share leaves, by union-find.

    Yields one array for each size of a block; each of its rows has the units of one block."""
    unit = np.repeat(np.arange(len(leaf)), leaf.shape[1])
    places, units = np.divmod(np.unique(leaf.ravel() * len(leaf) + unit), len(leaf))
    joined = places[:-1] == places[1:]
    joined_units = DisjointSets()
    for a, b in zip(units[:-1][joined].tolist(), units[1:][joined].tolist(), strict=True):
        joined_units.join(a, b)
    by_root: dict[int, list[int]] = {}
    for one in range(len(leaf)):
        by_root.setdefault(joined_units.root(one), []).append(one)
    by_size: dict[int, list[list[int]]] = {}
    for block in by_root.values():
        by_size.setdefault(len(block), []).append(block)
    for blocks in by_size.values():
        yield np.array(blocks)


def _renumbered(numbers: Integers) -> Integers:
    """Replace the numbers of each row by 0, 1, 2 ... in rising order; equal numbers stay equal."""
    order = np.argsort(numbers, axis=1, kind="stable")
    ordered = np.take_along_axis(numbers, order, axis=1)
    steps = np.zeros_like(ordered)
    steps[:, 1:] = np.cumsum(ordered[:, 1:] != ordered[:, :-1], axis=1)
    counted = np.empty_like(steps)
    np.put_along_axis(counted, order, steps, axis=1)
    return counted
