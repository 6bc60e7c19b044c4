"""Alpha-beta costs of messages and collectives on an idle network: seconds = alpha + beta x bytes (Hockney's model).

A collective has one cost for each protocol that its links offer, and runs under the protocol that takes least time for its
payload. The network is idle except for the same collective of the groups that run side by side with it. Closed forms and the
engine use the same costs.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

from sim.hardware.cluster import Device, Fleet
from sim.network.paths import Capacities, LinkName
from sim.network.protocols import protocols
from sim.network.routes import Member, Route, member, member_route
from sim.plan.groups import GRADIENT_KINDS, Group
from sim.plan.plan import Plan
from sim.units import Seconds

EQUAL = 1e-9
"""Relative difference below which seconds count as equal: far above the rounding of a sum of loads."""


@dataclass(frozen=True, slots=True)
class AlphaBeta:
    """Cost of a collective or message on an idle network under one protocol: `latency` (alpha) and `per_byte` (beta)."""

    latency: Seconds
    per_byte: Seconds

    def seconds(self, nbytes: float, count: float = 1) -> Seconds:
        """Seconds of `count` collectives of `nbytes` each, one after the other."""
        return count * (self.latency + nbytes * self.per_byte)


@dataclass(frozen=True, slots=True)
class ProtocolCost:
    """A collective over groups that run side by side, under one protocol: the route of each group, and their common cost."""

    routes: tuple[Route, ...]
    cost: AlphaBeta


def alpha_beta_cost(routes: tuple[Route, ...], capacities: Capacities, times: tuple[int, ...] = ()) -> AlphaBeta:
    """Cost of collectives with equally many legs that run side by side, one over each of `routes`, and share links.

    A leg takes as long as its busiest link; latency and shares are those of the first route. `times` counts how often each
    route exists: its copies load the same trunks, but other links (`sim.engine.symmetry`).
    """
    per_byte = 0.0
    for legs in zip(*(route.legs for route in routes), strict=True):
        load: dict[LinkName, float] = {}
        for leg, many in zip(legs, times or itertools.repeat(1), strict=False):
            for link, weight in leg.use:
                load[link] = load.get(link, 0.0) + weight * (many if link[0] == "trunk" else 1)
        per_byte += legs[0].share * max(weight / capacities(link) for link, weight in load.items())
    return AlphaBeta(routes[0].latency, per_byte)


def are_equal(routes: tuple[Route, ...], capacities: Capacities) -> bool:
    """Whether collectives that run side by side over these routes take equally long: equal latencies, and in each leg busiest
    links with equal loads."""
    for legs in zip(*(route.legs for route in routes), strict=True):
        load = dict[LinkName, float]()
        for leg in legs:
            for link, weight in leg.use:
                load[link] = load.get(link, 0.0) + weight / capacities(link)
        busiest = [max((load[link] for link, _ in leg.use), default=0.0) for leg in legs]
        if min(busiest) < max(busiest) * (1 - EQUAL):
            return False
    latencies = [route.latency for route in routes]
    return min(latencies) >= max(latencies) * (1 - EQUAL)


def route_loads(routes: tuple[Route, ...], capacities: Capacities) -> dict[LinkName, Seconds]:
    """Link -> the seconds that it needs for each byte of the payload of collectives over `routes`, at its full rate."""
    load: dict[LinkName, Seconds] = {}
    for route in routes:
        for leg in route.legs:
            for link, weight in leg.use:
                load[link] = load.get(link, 0.0) + leg.share * weight / capacities(link)
    return load


def protocol_costs(
    fleet: Fleet, groups: tuple[Member, ...], operation: str, capacities: Capacities, times: tuple[int, ...] = ()
) -> tuple[ProtocolCost, ...]:
    """Costs of a collective over groups that run side by side, one for each protocol; `times` as in `alpha_beta_cost`."""
    costs = []
    for protocol in protocols(fleet, groups, operation):
        routes = tuple(member_route(fleet, group, operation, protocol) for group in groups)
        costs.append(ProtocolCost(routes, alpha_beta_cost(routes, capacities, times)))
    return tuple(costs)


def group_costs(
    plan: Plan, groups: tuple[Group, ...], operation: str, capacities: Capacities, times: tuple[int, ...] = ()
) -> tuple[ProtocolCost, ...]:
    """`protocol_costs` of groups of a plan."""
    members = tuple(member_of(plan.placement, group, plan.config.zero_shard_size) for group in groups)
    return protocol_costs(plan.fleet, members, operation, capacities, times)


def member_of(placement: tuple[Device, ...], group: Group, zero_shard_size: int | None = None) -> Member:
    """A group of ranks on their devices."""
    ring, ranked = (tuple(placement[rank] for rank in ranks) for ranks in (group.ranks, sorted(group.ranks)))
    shards = zero_shard_size or len(ring)
    found = member(ring, group.nic, group.collective, ranked, shards if group.kind == "dp" else 0)
    return replace(found, queued=group.kind in GRADIENT_KINDS)
