"""Communication groups of ranks that the parallel degrees require, and the NIC that each one uses."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sim.hardware.cluster import Device, Fleet
from sim.hardware.transport import common_transport
from sim.plan import token_parts
from sim.plan.parallel_config import ParallelConfig

GRADIENT_KINDS = ("dp", "edp")
"""Kinds of groups that reduce gradients and gather weights."""


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks that communicate, in ring order.

    `nic` is a NIC type or intra_node, `transport` is intra_node, rdma or tcp, `collective` a name in `sim.collectives`."""

    kind: str
    ranks: tuple[int, ...]
    nic: str
    transport: str
    collective: str


def group_ranks(config: ParallelConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """(kind, ranks) of every tp, cp, etp, ep, dp and pp group of two or more ranks.

    Where other pipelines hold the same weights, dp groups are those of all pipelines (`sim.plan.pipelines`)."""
    summed = not config.other_dp_cp
    for pp_rank, tp in enumerate(config.degrees):
        ranks = range(config.first_rank(pp_rank), config.first_rank(pp_rank + 1))
        yield from (("tp", tuple(ranks[first : first + tp])) for first in range(0, len(ranks), tp) if tp > 1)
        replica = tp * config.cp_of(pp_rank)
        for first in range(0, len(ranks), replica) if config.cp_of(pp_rank) > 1 else ():
            yield from (("cp", tuple(ranks[first + one : first + replica : tp])) for one in range(tp))
        for kind in ("etp", "ep") if config.splits_experts else ():
            yield from ((kind, tuple(ranks[own])) for own in config.of_pp_rank(pp_rank).expert_slices(kind))
        yield from (("dp", tuple(ranks[one::replica])) for one in range(replica) if summed and config.dp_of(pp_rank) > 1)
    yield from (("pp", chain) for chain in chains(config))


def chains(config: ParallelConfig) -> Iterator[tuple[int, ...]]:
    """The ranks of every pp group, stage by stage: `tp` for each replica, or for each part of the samples of a replica where
    stages have unlike dp. A rank of a stage with a smaller degree than others is in several. Where stages have unlike cp, a
    group for each part of the sequence that unlike ranks have."""
    if config.pp == 1:
        return
    if not config.has_stage_degrees:
        ranks = config.first_rank(1)
        yield from (tuple(range(first, config.world_size, ranks)) for first in range(ranks))
        return
    if config.stage_cp:
        yield from _chains_of_tokens(config)
        return
    stages = list(enumerate(config.degrees))
    firsts = [config.first_rank(pp_rank) for pp_rank, _ in stages]
    for part in range(config.most_dp_cp):
        rows = [config.row_of(part, pp_rank) for pp_rank, _ in stages]
        for one in range(config.tp):
            own = (tp * rows[pp_rank] + one * tp // config.tp for pp_rank, tp in stages)
            yield tuple(first + rank for first, rank in zip(firsts, own, strict=True))


def _chains_of_tokens(config: ParallelConfig) -> Iterator[tuple[int, ...]]:
    """`chains` of stages of unlike cp, in the order of the ranks of the stage with the largest."""
    degrees = [config.context_of(pp_rank) for pp_rank in range(config.pp)]
    number = max(map(token_parts.parts, degrees))
    every = set(zip(*(token_parts.holders(one, number) for one in degrees), strict=True))
    finest, samples = degrees.index(max(degrees)), max(config.dp_of(pp_rank) for pp_rank in range(config.pp))
    for sample, chain in itertools.product(range(samples), sorted(every, key=lambda one: (one[finest], one))):
        rows = (sample * config.dp_of(pp_rank) // samples * cp for pp_rank, (cp, _) in enumerate(degrees))
        yield tuple(config.rank(tp, row + cp, pp_rank) for pp_rank, (row, (cp, tp)) in enumerate(zip(rows, chain, strict=True)))


def groups_of(fleet: Fleet, config: ParallelConfig, placement: tuple[Device, ...]) -> tuple[Group, ...]:
    """All groups of a plan: ep groups exchange all_to_all, others use a ring, each on the NIC of `common_transport`."""
    ranks = ((kind, ranks, "all_to_all" if kind == "ep" else "ring") for kind, ranks in group_ranks(config))
    return tuple(with_transport(fleet, placement, ranks))


def with_transport(
    fleet: Fleet, placement: tuple[Device, ...], groups: Iterable[tuple[str, tuple[int, ...], str]]
) -> Iterator[Group]:
    """Groups of (kind, ranks, collective), each with the NIC and transport that `common_transport` selects."""
    for kind, ranks, collective in groups:
        yield Group(kind, ranks, *common_transport(fleet, tuple(placement[rank] for rank in ranks)), collective)
