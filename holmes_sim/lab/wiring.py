"""The lab's network for a plan: hosts, NICs and their rates, bridges, trunks, addresses. Pure functions.

Each node that the plan uses is a host, and each NIC that a placed rank uses is an interface of it. A fabric is one bridge per
cluster and NIC type, plus one bridge per leaf switch if leaves are oversubscribed. Leaf uplinks and trunks are cables between
bridges. Bridges have static forwarding entries (`Bridge.ports`) along the simulator's `trunk_path` and forward nothing else. So
a cycle of trunks makes no loop, and fabrics without a `links` entry are not connected.

The rate of a link is what the model says it carries, scaled down: capacity x efficiency / scale in payload bytes, increased by
the share of packet headers (`PAYLOAD`). So the lab tests contention, overlap and placement, not TCP's headers against
InfiniBand's. A NIC has one rate: that of the most efficient operation the plan uses it for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from holmes_sim.lab.payload_rates import PayloadRates
from holmes_sim.lab.traffic import LabPlan
from sim.errors import HolmesError
from sim.hardware.cluster import Cluster, Device, Fleet
from sim.hardware.transport import trunk_between, trunk_path
from sim.network.paths import capacity, near_nics
from sim.units import BytesPerSecond, Seconds

MTU = 9000
"""Bytes of an IP packet: jumbo frames, because the CPU cost is per packet, not per byte."""
PAYLOAD = (MTU - 52) / (MTU + 14)
"""Payload share of a full packet: headers are 20 bytes IP, 32 TCP with timestamps (RFC 7323), and 14 Ethernet, as tbf counts
them.
"""
CONTROL = "ctl0"
"""Interface of every host that is not shaped, for rendezvous and barriers: these neither load the links nor wait for them."""
MOST_HOSTS = 250
"""Maximum number of hosts: one byte of an address is the host number."""
MOST_PORTS = 1023
"""Maximum number of ports of a Linux bridge (BR_MAX_PORTS, net/bridge/br_private.h)."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Rate (bytes of packets per second) and latency of one direction of a link."""

    rate: BytesPerSecond
    latency: Seconds


@dataclass(frozen=True, slots=True)
class Interface:
    """A NIC of a host. `port` is its other end, at `bridge`; both directions have the same shape."""

    name: str
    kind: str
    index: int
    address: str
    mac: str
    port: str
    bridge: str
    shape: Shape


@dataclass(frozen=True, slots=True)
class Host:
    """One node of the plan, with its address for control and its NICs."""

    cluster: str
    node: int
    control: str
    interfaces: tuple[Interface, ...]

    def __str__(self) -> str:
        return f"{self.cluster}/node{self.node}"

    def of_kind(self, kind: str) -> tuple[Interface, ...]:
        """The NICs of a type."""
        return tuple(interface for interface in self.interfaces if interface.kind == kind)


@dataclass(frozen=True, slots=True)
class Cable:
    """A leaf uplink or trunk between two bridges: (port, bridge) of each end, and the shape of the direction out of
    each end.
    """

    ends: tuple[tuple[str, str], tuple[str, str]]
    shapes: tuple[Shape, Shape]


@dataclass(frozen=True, slots=True)
class Bridge:
    """A switch: `ports` are (MAC, port) of all NICs that it forwards to."""

    name: str
    ports: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class RankLocation:
    """Where a rank runs: number of its host, its device, and for each NIC type the interfaces near its device."""

    rank: int
    local_rank: int
    host: int
    device: Device
    interfaces: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class Wiring:
    """The whole lab. `routes` of each host: (address of a NIC of another host, its MAC, the own interface that leads to it)."""

    scale: float
    hosts: tuple[Host, ...]
    bridges: tuple[Bridge, ...]
    cables: tuple[Cable, ...]
    routes: tuple[tuple[tuple[str, str, str], ...], ...]
    ranks: tuple[RankLocation, ...]


@dataclass(frozen=True, slots=True)
class _Switch:
    """A switch of the fabric of one NIC type: the spine of a cluster (leaf -1), or one of its leaves (from 0)."""

    kind: str
    cluster: str
    leaf: int = -1


def wire(plan: LabPlan, scale: float) -> Wiring:
    """The lab of a plan, `scale` times slower than its topology. Raises HolmesError if it has too many hosts or NICs."""
    fleet, payload = plan.fleet, PayloadRates(plan)
    used = dict.fromkeys(sorted((device.cluster, device.node) for device in payload.placement))
    if len(used) > MOST_HOSTS:
        raise HolmesError(f"the plan uses {len(used)} nodes; a lab has at most {MOST_HOSTS}")
    switches = tuple(_switches(fleet, payload.kinds, tuple(used)))
    names = {switch: f"br{number}" for number, switch in enumerate(switches)}
    hosts = tuple(_host(fleet, payload, scale, names, number, *place) for number, place in enumerate(used))
    crowded = Counter(nic.bridge for host in hosts for nic in host.interfaces).most_common(1)
    if crowded and crowded[0][1] > MOST_PORTS:
        raise HolmesError(f"the plan uses {crowded[0][1]} NICs of one fabric; a lab has at most {MOST_PORTS}")
    cables, between = _cables(fleet, payload, scale, names)
    bridges = tuple(Bridge(names[switch], tuple(_ports(fleet, switch, hosts, between))) for switch in switches)
    routes = tuple(tuple(_routes(fleet, host, hosts)) for host in hosts)
    return Wiring(scale, hosts, bridges, cables, routes, tuple(_ranks(fleet, payload.placement, hosts)))


def _switches(fleet: Fleet, kinds: tuple[str, ...], used: tuple[tuple[str, int], ...]) -> Iterator[_Switch]:
    """The spine of every cluster with a NIC type, and the leaves of used nodes if leaves are oversubscribed.

    Clusters without a rank have a spine too, because a path over several trunks may pass through them.
    """
    for kind in kinds:
        for cluster in fleet.clusters:
            if cluster.node.nic(kind) is None:
                continue
            yield _Switch(kind, cluster.name)
            nodes = [node for name, node in used if name == cluster.name] if _is_oversubscribed(cluster) else []
            yield from dict.fromkeys(_switch_of(cluster, node, kind) for node in nodes)


def _is_oversubscribed(cluster: Cluster) -> bool:
    return cluster.fabric is not None and cluster.fabric.oversubscription > 1


def _switch_of(cluster: Cluster, node: int, kind: str) -> _Switch:
    """The switch that a node's NICs of a type are connected to."""
    if cluster.fabric is None or not _is_oversubscribed(cluster):
        return _Switch(kind, cluster.name)
    return _Switch(kind, cluster.name, node // cluster.fabric.nodes_per_leaf)


def _host(
    fleet: Fleet, payload: PayloadRates, scale: float, names: dict[_Switch, str], number: int, cluster: str, node: int
) -> Host:
    """A host with the NICs near its placed devices."""
    found = fleet.cluster(cluster)
    devices = sorted(device.index for device in payload.placement if (device.cluster, device.node) == (cluster, node))
    interfaces: list[Interface] = []
    for kind_number, kind in enumerate(payload.kinds):
        nic = found.node.nic(kind)
        if nic is None:
            continue
        shape = Shape(nic.bandwidth * payload.share(cluster, kind) / PAYLOAD / scale, payload.latency(cluster, kind) * scale)
        for index in sorted({i for d in devices for i in near_nics(found.node.count, nic.count, d)}):
            address = f"10.{kind_number + 1}.{number}.{index + 1}"
            mac = f"02:00:00:{kind_number + 1:02x}:{number:02x}:{index + 1:02x}"
            port, bridge = f"h{number}n{len(interfaces)}", names[_switch_of(found, node, kind)]
            interfaces.append(Interface(f"{kind[:11]}{index}", kind, index, address, mac, port, bridge, shape))
    return Host(cluster, node, f"10.0.{number}.1", tuple(interfaces))


def _cables(
    fleet: Fleet, payload: PayloadRates, scale: float, names: dict[_Switch, str]
) -> tuple[tuple[Cable, ...], dict[tuple[_Switch, _Switch], str]]:
    """(all cables, (switch, neighbour) -> port at the switch)."""
    found: list[Cable] = []
    between: dict[tuple[_Switch, _Switch], str] = {}

    def connect(a: _Switch, b: _Switch, rates: tuple[BytesPerSecond, BytesPerSecond], latency: Seconds) -> None:
        ports = f"c{len(found)}a", f"c{len(found)}b"
        between[a, b], between[b, a] = ports
        out, back = (Shape(rate / PAYLOAD / scale, latency * scale) for rate in rates)
        found.append(Cable(((ports[0], names[a]), (ports[1], names[b])), (out, back)))

    for switch in names:
        if switch.leaf >= 0:
            rate = capacity(fleet, ("leaf", switch.cluster, switch.kind, switch.leaf, "up"))
            rate *= payload.wire_share(switch.cluster, switch.kind)
            connect(switch, _Switch(switch.kind, switch.cluster), (rate, rate), 0.0)
    for kind, a, b in dict.fromkeys((trunk.kind, *sorted(trunk.between)) for trunk in fleet.trunks):
        if kind in payload.kinds:
            trunk = trunk_between(fleet, a, b, kind)
            rates = trunk.bandwidth * payload.wire_share(a, kind), trunk.bandwidth * payload.wire_share(b, kind)
            connect(_Switch(kind, a), _Switch(kind, b), rates, trunk.latency)
    return tuple(found), between


def _ports(
    fleet: Fleet, switch: _Switch, hosts: tuple[Host, ...], between: dict[tuple[_Switch, _Switch], str]
) -> Iterator[tuple[str, str]]:
    """(MAC, port) of every NIC that a switch forwards to."""
    for host in hosts:
        there = _switch_of(fleet.cluster(host.cluster), host.node, switch.kind)
        for interface in host.of_kind(switch.kind):
            if there == switch:
                yield interface.mac, interface.port
            elif (port := _port_towards(fleet, switch, there, between)) is not None:
                yield interface.mac, port


def _port_towards(fleet: Fleet, switch: _Switch, there: _Switch, between: dict[tuple[_Switch, _Switch], str]) -> str | None:
    """The port of a switch that leads to another switch of its NIC type; None if there is no path."""
    path = trunk_path(fleet, switch.cluster, there.cluster, switch.kind)
    if path is None:
        return None
    if switch.leaf >= 0:
        return between[switch, _Switch(switch.kind, switch.cluster)]
    if not path:
        return between[switch, there]
    trunk, is_forward = path[0]
    return between[switch, _Switch(switch.kind, trunk.between[1 if is_forward else 0])]


def _routes(fleet: Fleet, host: Host, hosts: tuple[Host, ...]) -> Iterator[tuple[str, str, str]]:
    """Routes of a host to the NICs of other hosts.

    gloo does not bind the sockets it connects with, so the target address alone selects the NIC: the NIC on the target's rail,
    that is at the same relative index among the host's NICs.
    """
    for other in hosts:
        for target in other.interfaces if other != host else ():
            mine = host.of_kind(target.kind)
            if not mine or trunk_path(fleet, host.cluster, other.cluster, target.kind) is None:
                continue
            yield target.address, target.mac, rail(fleet, host, other, target).name


def rail(fleet: Fleet, host: Host, other: Host, target: Interface) -> Interface:
    """The NIC of a host that leads to a NIC of another host."""
    here, there = (fleet.cluster(h.cluster).node.nic(target.kind) for h in (host, other))
    assert here is not None and there is not None
    wanted = target.index * here.count // there.count
    return min(host.of_kind(target.kind), key=lambda interface: (abs(interface.index - wanted), interface.index))


def _ranks(fleet: Fleet, placement: tuple[Device, ...], hosts: tuple[Host, ...]) -> Iterator[RankLocation]:
    """The location of each rank."""
    number = {(host.cluster, host.node): at for at, host in enumerate(hosts)}
    taken = [0] * len(hosts)
    for rank, device in enumerate(placement):
        at, node = number[device.cluster, device.node], fleet.cluster(device.cluster).node
        near: dict[str, list[str]] = {}
        for interface in hosts[at].interfaces:
            nic = node.nic(interface.kind)
            if nic is not None and interface.index in near_nics(node.count, nic.count, device.index):
                near.setdefault(interface.kind, []).append(interface.name)
        yield RankLocation(rank, taken[at], at, device, tuple((kind, tuple(names)) for kind, names in near.items()))
        taken[at] += 1
