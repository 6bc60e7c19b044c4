"""What the lab wires for a plan: hosts, NICs and their rates, bridges, trunks, addresses. Pure: nothing touches the system.

Each node that the plan uses is a host, each NIC that a placed rank uses an interface of it. A fabric is a bridge per cluster
and NIC type, with one more per leaf switch where the leaves are oversubscribed; leaf uplinks and trunks are cables between
bridges. Bridges know by heart through which port every NIC is reached (`Bridge.ports`), by the simulator's `trunk_path`, and
forward nothing else: a ring of trunks makes no loop, and what no `links` entry joins is not joined.

Every rate is what the model says a link carries, scaled down: capacity x efficiency / scale of useful bytes, and as much more
as headers take (`PAYLOAD`). So contention, overlap and placement are put to the test, and not TCP's headers against
InfiniBand's. A NIC has one rate: that of the operation that does best on it among those the plan uses it for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from holmes_sim.lab.goodput import Goodput
from sim.errors import HolmesError
from sim.hardware.cluster import Cluster, Device, Fleet
from sim.hardware.transport import trunk_between, trunk_path
from sim.network.paths import capacity, near_nics
from sim.plan.plan import Plan
from sim.units import BytesPerSecond, Seconds

MTU = 9000
"""Bytes of an IP packet: jumbo frames, because packets cost the CPU and not bytes."""
PAYLOAD = (MTU - 52) / (MTU + 14)
"""Share of a full packet that is data: 20 bytes IP, 32 TCP with timestamps (RFC 7323), 14 Ethernet, as tbf counts them."""
CONTROL = "ctl0"
"""The interface of every host that is not shaped: rendezvous and barriers neither cost nor wait on the links."""
MOST_HOSTS = 250
"""One byte of an address tells the host."""
MOST_PORTS = 1023
"""Ports of a Linux bridge (BR_MAX_PORTS, net/bridge/br_private.h)."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What one direction of a link does: bytes of packets a second, and how late they are."""

    rate: BytesPerSecond
    latency: Seconds


@dataclass(frozen=True, slots=True)
class Interface:
    """A NIC of a host. `port` is its other end, in `bridge`; both directions have the same shape."""

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
    """A leaf uplink or trunk between two bridges: (port, bridge) of each end, and the shape out of each."""

    ends: tuple[tuple[str, str], tuple[str, str]]
    shapes: tuple[Shape, Shape]


@dataclass(frozen=True, slots=True)
class Bridge:
    """A switch: `ports` says through which port each NIC's MAC is reached; what is not there is not reached."""

    name: str
    ports: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Seat:
    """Where a rank runs: its host by number, and for each NIC type the interfaces near to its device."""

    rank: int
    local_rank: int
    host: int
    device: Device
    interfaces: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class Wiring:
    """The whole lab. `routes` of each host: (address of a NIC elsewhere, its MAC, the interface that leads to it)."""

    scale: float
    hosts: tuple[Host, ...]
    bridges: tuple[Bridge, ...]
    cables: tuple[Cable, ...]
    routes: tuple[tuple[tuple[str, str, str], ...], ...]
    seats: tuple[Seat, ...]


@dataclass(frozen=True, slots=True)
class _Switch:
    """A place in the fabric of one NIC type: a cluster's spine, or (from 0) one of its leaves."""

    kind: str
    cluster: str
    leaf: int = -1


def wire(plan: Plan, scale: float) -> Wiring:
    """The lab of a plan, `scale` times slower than its topology. Raises HolmesError where it is too large."""
    fleet, goodput = plan.fleet, Goodput(plan)
    used = dict.fromkeys(sorted((device.cluster, device.node) for device in plan.placement))
    if len(used) > MOST_HOSTS:
        raise HolmesError(f"the plan uses {len(used)} nodes; a lab has at most {MOST_HOSTS}")
    switches = tuple(_switches(fleet, goodput.kinds, tuple(used)))
    names = {switch: f"br{number}" for number, switch in enumerate(switches)}
    hosts = tuple(_host(plan, goodput, scale, names, number, *place) for number, place in enumerate(used))
    crowded = Counter(nic.bridge for host in hosts for nic in host.interfaces).most_common(1)
    if crowded and crowded[0][1] > MOST_PORTS:
        raise HolmesError(f"the plan uses {crowded[0][1]} NICs of one fabric; a lab has at most {MOST_PORTS}")
    cables, between = _cables(fleet, goodput, scale, names)
    bridges = tuple(Bridge(names[switch], tuple(_ports(fleet, switch, hosts, between))) for switch in switches)
    routes = tuple(tuple(_routes(fleet, host, hosts)) for host in hosts)
    return Wiring(scale, hosts, bridges, cables, routes, tuple(_seats(plan, hosts)))


def _switches(fleet: Fleet, kinds: tuple[str, ...], used: tuple[tuple[str, int], ...]) -> Iterator[_Switch]:
    """Spines of every cluster that has a NIC type, and the leaves of used nodes where those are oversubscribed.

    Clusters without a rank have a spine as well, because a path over several trunks may lead through them.
    """
    for kind in kinds:
        for cluster in fleet.clusters:
            if cluster.node.nic(kind) is None:
                continue
            yield _Switch(kind, cluster.name)
            nodes = [node for name, node in used if name == cluster.name] if _is_oversubscribed(cluster) else []
            yield from dict.fromkeys(_at(cluster, node, kind) for node in nodes)


def _is_oversubscribed(cluster: Cluster) -> bool:
    return cluster.fabric is not None and cluster.fabric.oversubscription > 1


def _at(cluster: Cluster, node: int, kind: str) -> _Switch:
    """The switch that a node's NICs are on."""
    if cluster.fabric is None or not _is_oversubscribed(cluster):
        return _Switch(kind, cluster.name)
    return _Switch(kind, cluster.name, node // cluster.fabric.nodes_per_leaf)


def _host(plan: Plan, goodput: Goodput, scale: float, names: dict[_Switch, str], number: int, cluster: str, node: int) -> Host:
    found = plan.fleet.cluster(cluster)
    devices = sorted(device.index for device in plan.placement if (device.cluster, device.node) == (cluster, node))
    interfaces: list[Interface] = []
    for numbered, kind in enumerate(goodput.kinds):
        nic = found.node.nic(kind)
        if nic is None:
            continue
        shape = Shape(nic.bandwidth * goodput.share(cluster, kind) / PAYLOAD / scale, goodput.latency(cluster, kind) * scale)
        for index in sorted({i for d in devices for i in near_nics(found.node.count, nic.count, d)}):
            address = f"10.{numbered + 1}.{number}.{index + 1}"
            mac = f"02:00:00:{numbered + 1:02x}:{number:02x}:{index + 1:02x}"
            port, bridge = f"h{number}n{len(interfaces)}", names[_at(found, node, kind)]
            interfaces.append(Interface(f"{kind[:11]}{index}", kind, index, address, mac, port, bridge, shape))
    return Host(cluster, node, f"10.0.{number}.1", tuple(interfaces))


def _cables(
    fleet: Fleet, goodput: Goodput, scale: float, names: dict[_Switch, str]
) -> tuple[tuple[Cable, ...], dict[tuple[_Switch, _Switch], str]]:
    """All cables, and for each pair of switches that one joins the port at the first of them."""
    found: list[Cable] = []
    between: dict[tuple[_Switch, _Switch], str] = {}

    def lay(a: _Switch, b: _Switch, rates: tuple[BytesPerSecond, BytesPerSecond], latency: Seconds) -> None:
        ports = f"c{len(found)}a", f"c{len(found)}b"
        between[a, b], between[b, a] = ports
        out, back = (Shape(rate / PAYLOAD / scale, latency * scale) for rate in rates)
        found.append(Cable(((ports[0], names[a]), (ports[1], names[b])), (out, back)))

    for switch in names:
        if switch.leaf >= 0:
            rate = capacity(fleet, ("leaf", switch.cluster, switch.kind, switch.leaf, "up"))
            rate *= goodput.share(switch.cluster, switch.kind)
            lay(switch, _Switch(switch.kind, switch.cluster), (rate, rate), 0.0)
    for kind, a, b in dict.fromkeys((trunk.kind, *sorted(trunk.between)) for trunk in fleet.trunks):
        if kind in goodput.kinds:
            trunk = trunk_between(fleet, a, b, kind)
            rates = trunk.bandwidth * goodput.share(a, kind), trunk.bandwidth * goodput.share(b, kind)
            lay(_Switch(kind, a), _Switch(kind, b), rates, trunk.latency)
    return tuple(found), between


def _ports(
    fleet: Fleet, switch: _Switch, hosts: tuple[Host, ...], between: dict[tuple[_Switch, _Switch], str]
) -> Iterator[tuple[str, str]]:
    """(MAC, port) of every NIC that is reached through a switch."""
    for host in hosts:
        there = _at(fleet.cluster(host.cluster), host.node, switch.kind)
        for interface in host.of_kind(switch.kind):
            if there == switch:
                yield interface.mac, interface.port
            elif (port := _next(fleet, switch, there, between)) is not None:
                yield interface.mac, port


def _next(fleet: Fleet, switch: _Switch, there: _Switch, between: dict[tuple[_Switch, _Switch], str]) -> str | None:
    """The port of a switch that leads to another one of its NIC type; None where nothing does."""
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
    """Over which NIC a host reaches those of the others. gloo does not bind what it connects with, so the target alone decides:
    its own rail, that is the NIC as far along among the host's as the target is among its host's."""
    for other in hosts:
        for target in other.interfaces if other != host else ():
            mine = host.of_kind(target.kind)
            if not mine or trunk_path(fleet, host.cluster, other.cluster, target.kind) is None:
                continue
            yield target.address, target.mac, rail(fleet, host, other, target).name


def rail(fleet: Fleet, host: Host, other: Host, target: Interface) -> Interface:
    """The NIC of a host that leads to one of another host."""
    here, there = (fleet.cluster(h.cluster).node.nic(target.kind) for h in (host, other))
    assert here is not None and there is not None
    wanted = target.index * here.count // there.count
    return min(host.of_kind(target.kind), key=lambda interface: (abs(interface.index - wanted), interface.index))


def _seats(plan: Plan, hosts: tuple[Host, ...]) -> Iterator[Seat]:
    number = {(host.cluster, host.node): at for at, host in enumerate(hosts)}
    taken = [0] * len(hosts)
    for rank, device in enumerate(plan.placement):
        at, node = number[device.cluster, device.node], plan.fleet.cluster(device.cluster).node
        near: dict[str, list[str]] = {}
        for interface in hosts[at].interfaces:
            nic = node.nic(interface.kind)
            if nic is not None and interface.index in near_nics(node.count, nic.count, device.index):
                near.setdefault(interface.kind, []).append(interface.name)
        yield Seat(rank, taken[at], at, device, tuple((kind, tuple(names)) for kind, names in near.items()))
        taken[at] += 1
