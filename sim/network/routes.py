"""Which links a transfer uses, and how hard: the bridge from devices to the flow network.

A `Path` is a set of links with weights: a flow of r useful bytes per second takes r x weight of each link's wire rate. The
weight is 1 / efficiency of the link for the operation, split where several NICs carry the flow together. Links are named by
tuples: ("port", cluster, node, device, way), ("host", ...) between a device and the NICs, ("nic", cluster, node, type, index,
way), ("leaf", cluster, type, leaf, way), ("trunk", a, b, type, way).

Rails: a device uses the NICs near to it (device d of D and NIC i of N are near where d N // D = i, or the reverse); a
collective with several members on a node uses the NICs near to any of them, as NCCL's channels do.

A collective has one `Way` for each protocol that its links offer. It goes the way that takes least time for its payload on an
idle network, groups that run side by side counted together: closed forms and engine ask the same paces.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from sim import collectives
from sim.collectives import ring
from sim.errors import NoRoute
from sim.hardware.cluster import Cluster, Device, Fleet, Nic
from sim.hardware.link_spec import LinkSpec, Protocol
from sim.hardware.transport import trunk_between, trunk_path
from sim.network.replica_rows import Again
from sim.plan.groups import Group
from sim.plan.plan import Plan
from sim.units import BytesPerSecond, Seconds

LinkName: TypeAlias = tuple[str | int, ...]
Use: TypeAlias = tuple[tuple[LinkName, float], ...]
Devices: TypeAlias = tuple[Device, ...]
Hosts: TypeAlias = tuple[Devices, ...]

PCIE_EFFICIENCY = 0.8
"""Share of PCIe's nominal rate that large copies reach (SimAI f5efb5a9, calbusbw.h: 25.6 of 32 GB/s)."""


@dataclass(frozen=True, slots=True)
class Path:
    """Links and weights of one useful byte per second, latency of one step, overhead of one message or collective."""

    use: Use
    latency: Seconds
    overhead: Seconds
    interference: float


@dataclass(frozen=True, slots=True)
class Leg:
    """One round of a collective (or one message) on the network: `share` of the payload flows over `use` in one go."""

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
        """Overhead and latencies: what the smallest payload takes."""
        return self.overhead + sum(leg.latency for leg in self.legs)


@dataclass(frozen=True, slots=True)
class Member:
    """A group of devices as the network sees it: its devices host by host, its NIC type, its collective.

    Where blocks of the group share state (`zero_shard_size`), `blocks` are those, and `copies` join what they hold alike: a
    gradient is reduce_scattered in each block, then all_reduced among copies; weights are gathered in each block.

    Of a long ring some hosts may be left out that others stand for: `again` as in `sim.network.replica_rows`, of `hosts`.
    """

    hosts: Hosts
    nic: str
    collective: str
    blocks: tuple[Hosts, ...] = ()
    copies: tuple[Hosts, ...] = ()
    again: Again = ()


def member(ring: Devices, nic: str, collective: str, ranked: Devices = (), shards: int = 0) -> Member:
    """A group of devices in ring order; `ranked` in the order of ranks, of which every `shards` are a block."""
    if not shards or shards == len(ring):
        return Member(by_host(ring), nic, collective)
    blocks = tuple(by_host(ranked[first : first + shards]) for first in range(0, len(ranked), shards))
    return Member(by_host(ring), nic, collective, blocks, tuple(by_host(ranked[i::shards]) for i in range(shards)))


def by_host(members: Devices) -> Hosts:
    """Devices host by host, in the order given."""
    hosts: dict[tuple[str, int], list[Device]] = {}
    for device in members:
        hosts.setdefault((device.cluster, device.node), []).append(device)
    return tuple(tuple(host) for host in hosts.values())


def capacity(fleet: Fleet, link: LinkName) -> BytesPerSecond:
    """Wire rate of a link in one direction."""
    kind = link[0]
    if kind == "trunk":
        return trunk_between(fleet, str(link[1]), str(link[2]), str(link[3])).bandwidth
    cluster = fleet.cluster(str(link[1]))
    if kind == "port":
        return cluster.node.intra_node.bandwidth
    if kind == "host":
        return cluster.node.device.host_bandwidth * PCIE_EFFICIENCY
    nic = cluster.node.nic(str(link[3] if kind == "nic" else link[2]))
    assert nic is not None
    if kind == "nic":
        return nic.bandwidth
    assert cluster.fabric is not None
    return nic.bandwidth * nic.count * cluster.fabric.nodes_per_leaf / cluster.fabric.oversubscription


def near_nics(node_devices: int, nics: int, index: int) -> tuple[int, ...]:
    """NICs near to a device of a node."""
    if nics <= node_devices:
        return (index * nics // node_devices,)
    return tuple(i for i in range(nics) if i * node_devices // nics == index)


@functools.lru_cache(maxsize=65536)  # alike stages of many shapes have the same neighbours
def path(
    fleet: Fleet, nic: str, source: Device, target: Device, operation: str,
    near_source: tuple[int, ...], near_target: tuple[int, ...], members: int, ranks: int = 2, protocol: str = "",
) -> Path:  # fmt: skip
    """Path of one transfer of a group of `ranks`, of whom `members` share the node.

    `near_*` are the devices of each end's node whose NICs may carry it. Between other nodes that lie alike it is the same path
    over other links.
    """
    here, there = fleet.cluster(source.cluster), fleet.cluster(target.cluster)
    up, down = _leaf(here, source), _leaf(there, target)
    if source.cluster != target.cluster or source.node == target.node:
        beside = 0
    else:
        beside = 1 if up == down or here.fabric is None else here.fabric.nodes_per_leaf
    ends = Device(source.cluster, 0, source.index), Device(target.cluster, beside, target.index)
    alike = _path(fleet, nic, *ends, operation, near_source, near_target, members, ranks, protocol)
    at = {"out": source.node, "in": target.node, "up": up, "down": down}

    def here_and_there(link: LinkName) -> LinkName:
        if link[0] == "trunk":
            return link
        number = at[str(link[-1])]
        return (*link[:3], number, *link[4:]) if link[0] == "leaf" else (*link[:2], number, *link[3:])

    use = tuple((here_and_there(link), weight) for link, weight in alike.use)
    return Path(use, alike.latency, alike.overhead, alike.interference)


@functools.lru_cache(maxsize=65536)
def _path(
    fleet: Fleet, nic: str, source: Device, target: Device, operation: str,
    near_source: tuple[int, ...], near_target: tuple[int, ...], members: int, ranks: int, protocol: str,
) -> Path:  # fmt: skip
    """The path between devices on the first nodes that lie as the real ones do."""
    if (source.cluster, source.node) == (target.cluster, target.node):
        link = fleet.cluster(source.cluster).node.intra_node
        return _inside(link, source, target, operation, members, ranks, link.protocol(protocol))
    here, there = _nic(fleet, source, nic), _nic(fleet, target, nic)
    latency = max(end.spec.protocol(protocol).latency for end in (here, there))
    overhead = max(end.spec.protocol(protocol).overhead for end in (here, there))
    use: dict[LinkName, float] = {}
    for place, ends, used, way in ((source, near_source, here, "out"), (target, near_target, there, "in")):
        cluster = fleet.cluster(place.cluster)
        for index in ends:
            use["host", place.cluster, place.node, index, way] = 1 / len(ends)
        rails = sorted({i for index in ends for i in near_nics(cluster.node.count, used.count, index)})
        weight = 1 / len(rails) / _reached(used.spec, operation, protocol)
        for rail in rails:
            use["nic", place.cluster, place.node, nic, rail, way] = weight
    latency += _between(fleet, source, target, nic, operation, use, protocol)
    interference = max(here.spec.interference, there.spec.interference)
    return Path(tuple(use.items()), latency, overhead, interference)


def _nic(fleet: Fleet, device: Device, kind: str) -> Nic:
    found = fleet.cluster(device.cluster).node.nic(kind)
    if found is None:
        raise NoRoute(f"{device} has no {kind} NIC")
    return found


def _reached(spec: LinkSpec, operation: str, protocol: str) -> float:
    """Share of the wire rate that an operation reaches under a protocol."""
    return spec.efficiency_of(operation) * spec.protocol(protocol).share


def _inside(
    link: LinkSpec, source: Device, target: Device, operation: str, members: int, ranks: int, protocol: Protocol
) -> Path:
    """Inside a node: out of one port, into the other, as fast as a group of so many members drives it."""
    weight = link.bandwidth / link.port_bandwidth(members) / (link.efficiency_of(operation) * protocol.share)
    if protocol.in_switch:
        weight *= (ranks + 1) / (2 * (ranks - 1))
    elif operation != "send_recv":
        weight *= 1 + link.own_piece / ((ranks - 1) * (2 if operation == "all_reduce" else 1))
    ports = tuple((("port", d.cluster, d.node, d.index, way), weight) for d, way in ((source, "out"), (target, "in")))
    return Path(ports, protocol.latency, protocol.overhead, link.interference)


def _between(
    fleet: Fleet, source: Device, target: Device, nic: str, operation: str, use: dict[LinkName, float], protocol: str
) -> Seconds:
    """Add leaf and trunk links between two nodes to `use`; returns the latency that trunks add."""
    trunks = trunk_path(fleet, source.cluster, target.cluster, nic)
    if trunks is None:
        raise NoRoute(f"no {nic} link joins clusters {source.cluster} and {target.cluster}")
    here, there = fleet.cluster(source.cluster), fleet.cluster(target.cluster)
    if trunks or _leaf(here, source) != _leaf(there, target):
        for cluster, place, way in ((here, source, "up"), (there, target, "down")):
            if cluster.fabric is not None:
                reached = _reached(_nic(fleet, place, nic).spec, operation, protocol)
                use["leaf", cluster.name, nic, _leaf(cluster, place), way] = 1 / reached
    added = 0.0
    for trunk, forward in trunks:
        a, b = trunk.between if forward else trunk.between[::-1]
        use["trunk", a, b, nic, "out"] = 1 / _reached(_nic(fleet, source, nic).spec, operation, protocol)
        added += trunk.latency
    return added


def _leaf(cluster: Cluster, place: Device) -> int:
    return place.node // cluster.fabric.nodes_per_leaf if cluster.fabric else 0


def collective_route(fleet: Fleet, devices: Hosts, nic: str, name: str, operation: str, protocol: str = "") -> Route:
    """Route of a collective over devices given host by host, in ring order, under a protocol of its links."""
    numbered: list[tuple[int, ...]] = []
    flat: list[tuple[Device, int]] = []
    for host, members in enumerate(devices):
        numbered.append(tuple(range(len(flat), len(flat) + len(members))))
        flat += [(device, host) for device in members]
    legs, overhead, interference = [], 0.0, 0.0
    indices = [tuple(device.index for device in members) for members in devices]
    for current in collectives.rounds(name, operation, tuple(numbered)):
        use: dict[LinkName, float] = {}
        latency = 0.0
        total = max(t.share for t in current.transfers)
        for t in current.transfers:
            (source, at), (target, to) = flat[t.source], flat[t.target]
            step = path(fleet, nic, source, target, operation, indices[at], indices[to], len(devices[at]), len(flat), protocol)
            for link, weight in step.use:
                use[link] = use.get(link, 0.0) + weight * t.share / total
            latency += t.steps * step.latency
            overhead = max(overhead, step.overhead)
            interference = max(interference, step.interference)
        legs.append(Leg(tuple(use.items()), total * current.repeats, latency))
    return Route(tuple(legs), overhead, interference)


def ring_route(fleet: Fleet, hosts: Hosts, again: Again, nic: str, operation: str, protocol: str = "") -> Route:
    """`collective_route` of a ring of which some hosts are left out: it has the links of those that are listed."""
    flat = [device for members in hosts for device in members]
    near = [tuple(device.index for device in members) for members in hosts]
    firsts = list(itertools.accumulate((len(members) for members in hosts), initial=0))
    of = [host for host, members in enumerate(hosts) for _ in members]
    ranks = len(flat) + sum((firsts[b] - firsts[a]) * times for a, b, times in again)
    share, steps, repeats = ring.edge(operation, ranks)
    use, overhead, interference = dict[LinkName, float](), 0.0, 0.0
    latencies = np.empty(len(flat))
    for i, (source, target) in enumerate(zip(flat, flat[1:] + flat[:1], strict=True)):
        at, to = of[i], of[i + 1] if i + 1 < len(flat) else 0
        step = path(fleet, nic, source, target, operation, near[at], near[to], len(hosts[at]), ranks, protocol)
        for link, weight in step.use:
            use[link] = use.get(link, 0.0) + weight * share / share
        latencies[i] = steps * step.latency
        overhead = max(overhead, step.overhead)
        interference = max(interference, step.interference)
    parts, done = [], 0
    for a, b, times in again:
        parts += [latencies[done : firsts[b]], np.tile(latencies[firsts[a] : firsts[b]], times)]
        done = firsts[b]
    latency = float(np.cumsum(np.concatenate([*parts, latencies[done:]]))[-1])  # one after the other, as where all are listed
    return Route((Leg(tuple(use.items()), share * repeats, latency),), overhead, interference)


def member_route(fleet: Fleet, group: Member, operation: str, protocol: str) -> Route:
    """Route of a collective of a group under a protocol of its links, in blocks and among their copies where it has such."""
    if group.again:
        return ring_route(fleet, group.hosts, group.again, group.nic, operation, protocol)
    if not group.blocks:
        return collective_route(fleet, group.hosts, group.nic, group.collective, operation, protocol)

    def together(sides: tuple[Hosts, ...], operation: str) -> Route:
        return _together([collective_route(fleet, side, group.nic, group.collective, operation, protocol) for side in sides])

    inside = together(group.blocks, operation)
    if operation == "all_gather":
        return inside
    across = together(group.copies, "all_reduce")
    legs = tuple(replace(leg, share=leg.share / len(group.copies)) for leg in across.legs)
    interference = max(inside.interference, across.interference)
    return Route(inside.legs + legs, inside.overhead + across.overhead, interference)


def _together(routes: list[Route]) -> Route:
    """Routes of alike collectives that run side by side, as one."""
    merged = []
    for legs in zip(*(route.legs for route in routes), strict=True):
        share = max(leg.share for leg in legs)
        use: dict[LinkName, float] = {}
        for leg in legs:
            for link, weight in leg.use:
                use[link] = use.get(link, 0.0) + weight * leg.share / share
        merged.append(Leg(tuple(use.items()), share, max(leg.latency for leg in legs)))
    return Route(tuple(merged), max(r.overhead for r in routes), max(r.interference for r in routes))


def protocols(fleet: Fleet, groups: tuple[Member, ...], operation: str) -> tuple[str, ...]:
    """Protocols that all links of these groups offer. A switch reduces for rings inside one node only."""
    switched = all(len(group.hosts) == 1 and group.collective == "ring" for group in groups)
    return offered((spec for group in groups for spec in _specs(fleet, group)), operation, switched)


def offered(specs: Iterable[LinkSpec], operation: str, switched: bool) -> tuple[str, ...]:
    """Protocols that all these links offer for an operation, links that tell of none left out; ("",) where there is none.

    Exchanges made of messages take what messages take.
    """
    offers = list(dict.fromkeys(spec.protocols for spec in specs if spec.protocols)) if operation != "send_recv" else []
    if not offers:
        return ("",)
    switched = switched and operation == "all_reduce"
    names = [{p.name for p in offer if switched or not p.in_switch} for offer in offers]
    return tuple(p.name for p in offers[0] if all(p.name in offered for offered in names)) or ("",)


def _specs(fleet: Fleet, group: Member) -> Iterator[LinkSpec]:
    """Every interconnect and NIC type that a group may use."""
    hosts = {(host[0].cluster, len(host) > 1) for host in group.hosts}
    return link_specs(fleet, hosts, group.nic if len(group.hosts) > 1 else "")


def link_specs(fleet: Fleet, hosts: Iterable[tuple[str, bool]], nic: str) -> Iterator[LinkSpec]:
    """Interconnects and NICs that members on hosts use: (cluster, whether a host has several members) of each; a NIC or ""."""
    for name, several in hosts:
        if several:
            yield fleet.cluster(name).node.intra_node
        if nic:
            yield _nic(fleet, Device(name, 0, 0), nic).spec


def ways(
    fleet: Fleet, groups: tuple[Member, ...], operation: str, capacities: Capacities, times: tuple[int, ...] = ()
) -> tuple[Way, ...]:
    """Ways of a collective over alike groups that run side by side."""
    found = []
    for protocol in protocols(fleet, groups, operation):
        routes = tuple(member_route(fleet, group, operation, protocol) for group in groups)
        found.append(Way(routes, pace(routes, capacities, times)))
    return tuple(found)


def group_ways(
    plan: Plan, groups: tuple[Group, ...], operation: str, capacities: Capacities, times: tuple[int, ...] = ()
) -> tuple[Way, ...]:
    """Ways of a collective over groups of a plan that run side by side; `times` as in `pace`."""

    def joined(group: Group) -> Member:
        ring, ranked = (tuple(plan.placement[rank] for rank in ranks) for ranks in (group.ranks, sorted(group.ranks)))
        return member(ring, group.nic, group.collective, ranked, plan.config.shards if group.kind == "dp" else 0)

    return ways(plan.fleet, tuple(joined(group) for group in groups), operation, capacities, times)


def message_route(fleet: Fleet, source: Device, target: Device, nic: str) -> Route:
    """Route of one message between two devices."""
    step = path(fleet, nic, source, target, "send_recv", (source.index,), (target.index,), 2)
    return Route((Leg(step.use, 1.0, step.latency),), step.overhead, step.interference)


class Capacities:
    """Wire rates of the links of a fleet, each looked up once."""

    def __init__(self, fleet: Fleet):
        self._of = functools.lru_cache(maxsize=None)(functools.partial(capacity, fleet))

    def __call__(self, link: LinkName) -> BytesPerSecond:
        """Wire rate of a link in one direction."""
        return self._of(link)


@dataclass(frozen=True, slots=True)
class AlphaBeta:
    """A collective or message on an idle network: seconds however small it is, and seconds for each byte, in one way."""

    latency: Seconds
    per_byte: Seconds

    def seconds(self, nbytes: float, count: float = 1) -> Seconds:
        """Seconds of `count` collectives of `nbytes` each, one after the other."""
        return count * (self.latency + nbytes * self.per_byte)


@dataclass(frozen=True, slots=True)
class Way:
    """One protocol in which groups side by side run a collective: the route of each, and the pace they have together."""

    routes: tuple[Route, ...]
    pace: AlphaBeta


def pace(routes: tuple[Route, ...], capacities: Capacities, times: tuple[int, ...] = ()) -> AlphaBeta:
    """AlphaBeta of alike collectives that run side by side, one over each of `routes`, and share the links they have in common.

    `times` tells how often each is there; its copies share trunks with it, and nothing else (`sim.engine.replica_blocks`).
    """
    per_byte = 0.0
    for legs in zip(*(route.legs for route in routes), strict=True):
        load: dict[LinkName, float] = {}
        for leg, many in zip(legs, times or itertools.repeat(1), strict=False):
            for link, weight in leg.use:
                load[link] = load.get(link, 0.0) + weight * (many if link[0] == "trunk" else 1)
        per_byte += legs[0].share * max(weight / capacities(link) for link, weight in load.items())
    return AlphaBeta(routes[0].latency, per_byte)
