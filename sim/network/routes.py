"""Routes of messages and collectives: the links that each of their rounds loads, under one protocol.

A collective runs round after round (`sim.collectives`). A round is one `Leg`: all its transfers flow at once, each over its
path (`sim.network.paths`), so a leg's weight of a link is the sum over the transfers that cross it.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from sim import collectives
from sim.collectives import ring
from sim.hardware.cluster import Device, Fleet
from sim.network.alike_paths import alike_transfers
from sim.network.paths import End, LinkName, Traffic, Use, path
from sim.network.replica_rows import Unlisted
from sim.units import Seconds

Devices: TypeAlias = tuple[Device, ...]
Hosts: TypeAlias = tuple[Devices, ...]


@dataclass(frozen=True, slots=True)
class Leg:
    """One round of a collective, or one message: `share` of the payload flows over `use`."""

    use: Use
    share: float
    latency: Seconds


@dataclass(frozen=True, slots=True)
class Route:
    """All legs of a collective or message, one after the other, under one protocol."""

    legs: tuple[Leg, ...]
    overhead: Seconds
    interference: float

    @property
    def latency(self) -> Seconds:
        """Seconds of an empty payload: the overhead and the latencies of all legs."""
        return self.overhead + sum(leg.latency for leg in self.legs)


@dataclass(frozen=True, slots=True)
class Member:
    """A group of devices with its network choices: devices host by host in ring order, NIC type, collective.

    Where blocks of the group share state (`zero_shard_size`), `blocks` are these blocks, and `copies` are the groups of devices
    that hold the same shard: a gradient is reduce_scattered in each block, then all_reduced among copies; weights are gathered
    in each block. In a long ring `hosts` may list only some hosts; `unlisted` says which of them stand for unlisted ones
    (`sim.network.replica_rows`). `queued`: the group's collectives are of gradients and parameters (`Traffic`).
    """

    hosts: Hosts
    nic: str
    collective: str
    blocks: tuple[Hosts, ...] = ()
    copies: tuple[Hosts, ...] = ()
    unlisted: Unlisted = ()
    queued: bool = False


def member(ring: Devices, nic: str, collective: str, ranked: Devices = (), shards: int = 0) -> Member:
    """A group of devices in ring order; of `ranked`, the same in rank order, every `shards` consecutive ones are a block."""
    if not shards or shards == len(ring):
        return Member(by_host(ring), nic, collective)
    blocks = tuple(by_host(ranked[first : first + shards]) for first in range(0, len(ranked), shards))
    return Member(by_host(ring), nic, collective, blocks, tuple(by_host(ranked[i::shards]) for i in range(shards)))


def by_host(members: Devices) -> Hosts:
    """Devices grouped by host, in the order given."""
    hosts: dict[tuple[str, int], list[Device]] = {}
    for device in members:
        hosts.setdefault((device.cluster, device.node), []).append(device)
    return tuple(tuple(host) for host in hosts.values())


@functools.lru_cache(maxsize=65536)  # the planner asks for the same routes for each pipeline
def message_route(fleet: Fleet, source: Device, target: Device, nic: str) -> Route:
    """Route of one message between two devices."""
    step = path(fleet, End(source, (source.index,)), End(target, (target.index,)), Traffic(nic, "send_recv", 2))
    return Route((Leg(step.use, 1.0, step.latency),), step.overhead, step.interference)


@functools.lru_cache(maxsize=256)  # a plan has few groups of different devices, and each has many operations and pipelines
def collective_route(
    fleet: Fleet, devices: Hosts, nic: str, name: str, operation: str, protocol: str = "", queued: bool = False
) -> Route:
    """Route of the collective `name` over devices given host by host, in ring order; `queued` as in `Traffic`."""
    ranks, members = sum(map(len, devices)), {(own[0].cluster, own[0].node): len(own) for own in devices}
    legs, overhead, interference = [], 0.0, 0.0
    pipelined = collectives.is_pipelined(name, operation)
    for current, groups in alike_transfers(fleet, devices, nic, name, operation):
        use, waits, gap = dict[LinkName, float](), list[Seconds](), 0.0
        for some in groups:
            source = some.source.device
            traffic = Traffic(nic, operation, members[source.cluster, source.node], ranks, protocol, queued)
            step = some.path(fleet, traffic)
            some.load(step, use)
            waits += some.waits(step.latency + (step.chunk if pipelined else 0.0))
            gap = max(gap, step.gap)
            overhead = max(overhead, step.overhead)
            interference = max(interference, step.interference)
        total = max(t.share for t in current.transfers)
        legs.append(Leg(tuple(use.items()), total * current.repeats, math.fsum(waits) + current.messages * gap))
    return Route(tuple(legs), overhead, interference)


def ring_route(fleet: Fleet, group: Member, operation: str, protocol: str = "") -> Route:
    """`collective_route` of a ring of which only some hosts are listed; it has the links of the listed hosts only."""
    hosts, unlisted = group.hosts, group.unlisted
    flat = [device for members in hosts for device in members]
    near = [tuple(device.index for device in members) for members in hosts]
    firsts = list(itertools.accumulate((len(members) for members in hosts), initial=0))
    of = [host for host, members in enumerate(hosts) for _ in members]
    ranks = len(flat) + sum((firsts[b] - firsts[a]) * times for a, b, times in unlisted)
    traffic = [Traffic(group.nic, operation, len(members), ranks, protocol, group.queued) for members in hosts]
    share, steps, repeats = ring.edge(operation, ranks)
    use, overhead, interference = dict[LinkName, float](), 0.0, 0.0
    latencies = np.empty(len(flat))
    for i, (source, target) in enumerate(zip(flat, flat[1:] + flat[:1], strict=True)):
        at, to = of[i], of[i + 1] if i + 1 < len(flat) else 0
        step = path(fleet, End(source, near[at]), End(target, near[to]), traffic[at])
        for link, weight in step.use:
            use[link] = use.get(link, 0.0) + weight * share / share
        latencies[i] = steps * step.latency
        overhead = max(overhead, step.overhead)
        interference = max(interference, step.interference)
    parts, done = [], 0
    for a, b, times in unlisted:
        parts += [latencies[done : firsts[b]], np.tile(latencies[firsts[a] : firsts[b]], times)]
        done = firsts[b]
    latency = math.fsum(np.concatenate([*parts, latencies[done:]]))  # exact, as in `collective_route`, whatever the order
    return Route((Leg(tuple(use.items()), share * repeats, latency),), overhead, interference)


def member_route(fleet: Fleet, group: Member, operation: str, protocol: str) -> Route:
    """Route of a collective of a group under a protocol; in its blocks and then among its copies where it has blocks."""
    if group.unlisted:
        return ring_route(fleet, group, operation, protocol)

    def over(hosts: Hosts, operation: str) -> Route:
        return collective_route(fleet, hosts, group.nic, group.collective, operation, protocol, group.queued)

    if not group.blocks:
        return over(group.hosts, operation)

    def merged(sides: tuple[Hosts, ...], operation: str) -> Route:
        return _merged([over(side, operation) for side in sides])

    inside = merged(group.blocks, operation)
    if operation == "all_gather":
        return inside
    across = merged(group.copies, "all_reduce")
    legs = tuple(replace(leg, share=leg.share / len(group.copies)) for leg in across.legs)
    interference = max(inside.interference, across.interference)
    return Route(inside.legs + legs, inside.overhead + across.overhead, interference)


def _merged(routes: list[Route]) -> Route:
    """One route for collectives with equally many rounds that run side by side."""
    merged = []
    for legs in zip(*(route.legs for route in routes), strict=True):
        share = max(leg.share for leg in legs)
        use: dict[LinkName, float] = {}
        for leg in legs:
            for link, weight in leg.use:
                use[link] = use.get(link, 0.0) + weight * leg.share / share
        merged.append(Leg(tuple(use.items()), share, max(leg.latency for leg in legs)))
    return Route(tuple(merged), max(r.overhead for r in routes), max(r.interference for r in routes))
