"""Carriers of a plan: every collective and every pipeline message that its programs can ask for, with routes over links.

A carrier is one operation of one communication group (such as the all_gather of a dp group) or the messages of one rank to
one pipeline neighbour. It has one route for each protocol that its links offer (`sim.network.routes`) and picks the fastest
one for each payload. A route is a sequence of legs (rounds); all flows of a leg have one rate."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from sim import collectives
from sim.engine.replica_blocks import Copies
from sim.network.alpha_beta import AlphaBeta, alpha_beta_cost, group_costs, member_of, protocol_costs
from sim.network.gradient_routes import GradientRoutes, Shown, gradient_operations
from sim.network.memory_traffic import traffic_share
from sim.network.paths import Capacities
from sim.network.rings import Sites
from sim.network.routes import Leg, Route, message_route
from sim.plan import context_parallelism
from sim.plan.derived_groups import embedding_groups, gradient_groups
from sim.plan.groups import GRADIENT_KINDS, Group, with_transport
from sim.plan.parallel_config import ParallelConfig
from sim.plan.pipelines import PipelinesPlan
from sim.plan.plan import Plan

Key: TypeAlias = tuple[str | int, ...]
"""Name of a carrier: (kind of group, first rank, operation), ("embedding", first rank, rank of the head, operation),
("message", source rank, target rank) or, in unlike pipelines, ("dp" or "edp", section, slice, operation)."""


@dataclass(frozen=True, slots=True)
class Carrier:
    """Routes, the alpha-beta cost of each on an idle network, and the ranks that take part.

    `times` is the number of equal carriers that this one stands for (`sim.engine.replica_blocks`). A gradient collective spans
    all replicas, so its `times` is 1; where only shown ranks have carriers, `ranks` has only its shown ranks. traffic: how far
    it slows compute beside it because it takes the memory (`sim.network.memory_traffic`)."""

    routes: tuple[Route, ...]
    paces: tuple[AlphaBeta, ...]
    ranks: tuple[int, ...]
    times: int = 1
    traffic: float = 0.0

    @property
    def interference(self) -> float:
        """How far it slows compute beside it: by its links, and by what it takes of the memory."""
        return self.routes[0].interference + self.traffic

    @property
    def legs(self) -> tuple[Leg, ...]:
        """Legs of all routes, one route after the other."""
        return tuple(leg for route in self.routes for leg in route.legs)


def inner_operations(config: ParallelConfig) -> dict[str, Sequence[str]]:
    """Kind of group inside a stage and a replica -> the operations that it may run."""
    gathers = ("all_gather", "reduce_scatter")
    scaled = ("all_reduce",) if config.current_scaling else ()  # ranks find the largest value of what they gather in fp8
    return {
        "tp": (*gathers, *scaled) if config.sequence_parallel else ("all_gather", "all_reduce"),
        "cp": context_parallelism.operations(config),
        "etp": gathers,
        "ep": gathers if config.dispatcher == "allgather" else ("all_to_all",),
    }


def carriers_of(plan: Plan, sites: Sites | None = None, block_copies: Copies | None = None) -> dict[Key, Carrier]:
    """All carriers of a plan; with `sites` and `block_copies`, only those of shown ranks (`sim.engine.replica_blocks`).

    In the second case, gradient collectives have routes over trunks and the links of shown ranks only."""
    config, capacities = plan.config, Capacities(plan.fleet)
    carriers: dict[Key, Carrier] = {}

    def times(group: Group) -> int:
        return int(block_copies.times[group.ranks[0]]) if block_copies else 1

    listed = tuple(group for group in plan.groups if times(group))
    operations = inner_operations(config)
    for groups in _concurrent(plan, tuple(group for group in listed if group.kind in operations)):
        for operation in operations[groups[0].kind]:
            for together in _parts(plan, groups, operation):
                carriers |= _collectives(plan, together, operation, capacities, times)
    for group in listed:
        if group.kind == "pp":
            carriers |= _messages(plan, group, capacities, times(group))
    if plan.workload.model.tied_embeddings and config.pp > 1:
        tied = embedding_groups(plan, listed)
        carriers |= _collectives(plan, tied, "all_reduce", capacities, times)
    if sites is not None and block_copies is not None:
        return carriers | _gradients(plan, sites, block_copies, capacities)
    for groups in _concurrent(plan, gradient_groups(plan)):
        for operation in gradient_operations(config):
            carriers |= _collectives(plan, groups, operation, capacities, times)
    return carriers


def carriers_of_pipelines(plan: PipelinesPlan) -> dict[Key, Carrier]:
    """All carriers of unlike pipelines: those of each pipeline, and the gradient collectives of each section.

    The groups of a section's slices run at the same time and choose one protocol together, and so do the pairs of ranks with
    parts of a tied embedding."""
    carriers, capacities, config = dict[Key, Carrier](), Capacities(plan.fleet), plan.pipelines[0].config
    tied: list[Group] = []
    for first, pipeline in zip(plan.first_ranks, plan.pipelines, strict=True):
        for key, carrier in carriers_of(pipeline).items():
            name: Key = tuple(part + first if isinstance(part, int) else part for part in key)
            carriers[name] = replace(carrier, ranks=tuple(rank + first for rank in carrier.ranks))
        if plan.workload.model.tied_embeddings and pipeline.config.pp > 1:
            pairs = embedding_groups(pipeline, pipeline.groups)
            tied += (replace(pair, ranks=tuple(rank + first for rank in pair.ranks)) for pair in pairs)
    together: list[tuple[str, dict[Key, Group]]] = []
    if tied:
        together.append(("all_reduce", {_name(pair, "all_reduce"): pair for pair in tied}))
    for section, groups in (*plan.gradient_groups(), *plan.expert_gradient_groups()):
        for operation in gradient_operations(config):
            named: dict[Key, Group] = {(group.kind, section.number, one, operation): group for one, group in enumerate(groups)}
            together.append((operation, named))
    for operation, by_name in together:
        members = tuple(member_of(plan.placement, group) for group in by_name.values())
        costs = protocol_costs(plan.fleet, members, operation, capacities)
        paces = tuple(cost.cost for cost in costs)
        for index, (name, group) in enumerate(by_name.items()):
            traffic = _traffic(plan, group, operation, paces)
            carriers[name] = Carrier(tuple(cost.routes[index] for cost in costs), paces, group.ranks, traffic=traffic)
    return carriers


def _gradients(plan: Plan, sites: Sites, block_copies: Copies, capacities: Capacities) -> dict[Key, Carrier]:
    """Gradient collectives, with routes over trunks and the links of shown ranks."""
    listed = gradient_groups(plan)
    of_size: dict[int, list[int]] = {}
    for number, group in enumerate(listed):
        of_size.setdefault(len(group.ranks), []).append(number)
    rounds: dict[int, int] = {}
    for numbers in of_size.values():
        for ring, members in sites.rings(np.array([listed[number].ranks for number in numbers])):
            for number in (numbers[member] for member in members.tolist()):
                rounds[number] = ring.num_rounds(listed[number].collective, "all_gather")
    concurrent: dict[Key, list[Group]] = {}
    for number, group in enumerate(listed):
        pp_rank = plan.config.coordinates(group.ranks[0])[2]
        concurrent.setdefault((group.kind, pp_rank, group.collective, rounds[number]), []).append(group)
    shown = Shown(plan, sites, block_copies.shown)
    carriers: dict[Key, Carrier] = {}
    for groups in concurrent.values():
        for operation in gradient_operations(plan.config):
            gradient_routes = GradientRoutes(plan, sites, shown, groups, operation)
            of_protocol = tuple(gradient_routes.under(protocol) for protocol in gradient_routes.protocols())
            paces = tuple(alpha_beta_cost(routes, capacities) for routes in of_protocol)
            traffic = _traffic(plan, groups[0], operation, paces)
            for index, group in enumerate(groups):
                ranks = tuple(rank for rank in group.ranks if block_copies.times[rank])
                routes = tuple(routes[index] for routes in of_protocol)
                carriers[group.kind, min(group.ranks), operation] = Carrier(routes, paces, ranks, traffic=traffic)
    return carriers


def _traffic(plan: Plan | PipelinesPlan, group: Group, operation: str, paces: tuple[AlphaBeta, ...]) -> float:
    """How far a gradient collective slows compute, as it takes the memory of the devices of its stage (or, in unlike pipelines,
    of its group); 0 under ZeRO 3, whose passes count it (`sim.analytic.stage_amounts.traffic_seconds`), and of other groups."""
    ranks: Sequence[int] = group.ranks
    if group.kind not in GRADIENT_KINDS:
        return 0.0
    if isinstance(plan, Plan):
        pp_rank = plan.config.coordinates(min(ranks))[2]
        if plan.config.of_pp_rank(pp_rank).shards_parameters:
            return 0.0
        ranks = range(plan.config.first_rank(pp_rank), plan.config.first_rank(pp_rank + 1))
    clusters = dict.fromkeys(plan.placement[rank].cluster for rank in ranks)
    devices = (plan.fleet.cluster(name).node.device for name in clusters)
    return traffic_share(operation, min(pace.per_byte for pace in paces), devices)


def _concurrent(plan: Plan, listed: tuple[Group, ...]) -> list[tuple[Group, ...]]:
    """Sets of groups whose collectives run at the same time and choose one protocol together.

    A set has the gradient groups of one kind and pipeline rank, or the cp groups over cp consecutive dp_cp indices of one
    pipeline rank, or the etp or ep groups of expert meshes that share dp_cp indices; all have the same collective and number of
    rounds. Each tensor-parallel group is a set."""
    concurrent: dict[Key, list[Group]] = {}
    operations = inner_operations(plan.config)
    every = [plan.config.of_pp_rank(pp_rank) for pp_rank in range(plan.config.pp)]
    widths = [{"cp": own.cp, "ep": own.expert_rows, "etp": own.expert_rows} for own in every]
    for group in listed:
        _, index, pp_rank = plan.config.coordinates(min(group.ranks))
        if group.kind == "tp":
            concurrent["tp", min(group.ranks)] = [group]
        else:
            operation = operations.get(group.kind, ("all_gather",))[0]
            rounds = len(collectives.rounds(group.collective, operation, plan.hosts(group.ranks)))
            block = index // widths[pp_rank].get(group.kind, every[pp_rank].dp_cp)
            concurrent.setdefault((group.kind, pp_rank, block, group.collective, rounds), []).append(group)
    return [tuple(groups) for groups in concurrent.values()]


def _parts(plan: Plan, groups: tuple[Group, ...], operation: str) -> list[tuple[Group, ...]]:
    """The groups, or the parts of cp groups that run an operation by themselves, in sets of equal numbers of rounds."""
    if groups[0].kind != "cp" or plan.config.cp_algo != context_parallelism.HYBRID:
        return [groups]
    config = plan.config.of_pp_rank(plan.config.coordinates(min(groups[0].ranks))[2])
    found: dict[int, list[Group]] = {}
    for group in groups:
        own = context_parallelism.parts(config, operation, len(group.ranks))
        named = (("cp", tuple(sorted(group.ranks)[part]), group.collective) for part in own)
        for part in with_transport(plan.fleet, plan.placement, named):
            found.setdefault(len(collectives.rounds(part.collective, operation, plan.hosts(part.ranks))), []).append(part)
    return [tuple(side) for side in found.values()]


def _collectives(
    plan: Plan, groups: tuple[Group, ...], operation: str, capacities: Capacities, times: Callable[[Group], int]
) -> dict[Key, Carrier]:
    many = tuple(times(group) for group in groups)
    ways = group_costs(plan, groups, operation, capacities, many)
    paces = tuple(way.cost for way in ways)
    traffic = _traffic(plan, groups[0], operation, paces) if groups else 0.0
    return {
        _name(group, operation): Carrier(tuple(way.routes[index] for way in ways), paces, group.ranks, many[index], traffic)
        for index, group in enumerate(groups)
    }


def _name(group: Group, operation: str) -> Key:
    """The key of a collective's carrier."""
    return ("embedding", *group.ranks, operation) if group.kind == "embedding" else (group.kind, min(group.ranks), operation)


def _messages(plan: Plan, group: Group, capacities: Capacities, times: int) -> dict[Key, Carrier]:
    """Messages between neighbours of a pipeline, both ways; with virtual stages also between its last and its first rank."""
    carriers: dict[Key, Carrier] = {}
    ranks = sorted(group.ranks, key=lambda rank: plan.config.coordinates(rank)[2])
    pairs = list(itertools.pairwise(ranks))
    if plan.config.vpp > 1:
        pairs.append((ranks[-1], ranks[0]))
    for pair in [*pairs, *((b, a) for a, b in pairs)]:
        source, target = (plan.placement[rank] for rank in pair)
        nic = "intra_node" if (source.cluster, source.node) == (target.cluster, target.node) else group.nic
        route = message_route(plan.fleet, source, target, nic)
        carriers[("message", *pair)] = Carrier((route,), (alpha_beta_cost((route,), capacities),), pair, times)
    return carriers
