"""Paths: the links that a transfer between two devices uses, and the share of each that it takes.

A `Path` is a set of links with weights: a flow of r useful bytes per second takes r x weight of each link's wire rate. The
weight is 1 / efficiency of the link for the operation, divided by the number of NICs where several carry the flow together.
Links are named by tuples, with direction "out" or "in", "up" or "down": ("port", cluster, node, device, direction), ("host",
cluster, node, device, direction) between a device and the NICs (and other devices, `over_host_link`), ("uplink", cluster, node,
switch, direction) between a PCIe switch of several devices and the rest of the host (`Node.uplink_devices`), ("send", cluster,
node, device, type, direction) for messages and all_to_alls of a device that the library sends slower than the NICs could,
("socket", cluster, node, direction) between the two CPUs of a node, ("nic", cluster, node, type, index, direction), ("leaf",
cluster, type, leaf, direction), ("trunk", a, b, type, "out"), and ("tcp", cluster, node, device, target cluster, type, "out")
for the TCP connections of a device to another cluster, where the links between the two limit them (`sim.network.tcp`).

Rails: a device uses the NICs near to it (device d of D and NIC i of N are near if d N // D = i, or the reverse); a collective
with several members on a node uses the NICs near to any of them, as NCCL's channels do.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

from sim.errors import NoRoute
from sim.hardware.cluster import Cluster, Device, Fleet, Nic, Node
from sim.hardware.link_spec import LinkSpec
from sim.hardware.transport import trunk_between, trunk_path
from sim.network import tcp
from sim.units import BytesPerSecond, Seconds

LinkName: TypeAlias = tuple[str | int, ...]
Use: TypeAlias = tuple[tuple[LinkName, float], ...]

PCIE_EFFICIENCY = 0.8
"""Share of PCIe's nominal rate that large copies reach (SimAI f5efb5a9, calbusbw.h: 25.6 of 32 GB/s)."""


@dataclass(frozen=True, slots=True)
class Path:
    """Links and weights of one useful byte per second, latency of one step, overhead of one message or collective.

    Between nodes, `chunk` is the seconds that a step of a pipelined collective waits for its chunk. `gap` is the seconds
    between two messages of a rank to different peers."""

    use: Use
    latency: Seconds
    overhead: Seconds
    interference: float
    chunk: Seconds = 0.0
    gap: Seconds = 0.0


class End(NamedTuple):
    """Source or target of a transfer: a device, and the devices of its node (by index) whose NICs may carry the transfer."""

    device: Device
    near: tuple[int, ...]


class Traffic(NamedTuple):
    """What a transfer is part of: a collective, or a "send_recv" message, of `ranks` ranks, `members` of them on the source's
    node, over one type of NIC, under one protocol of its links ("" where links have none). `queued`: a collective of gradients
    or parameters, which waits behind others, so that the delay of the NIC type is hidden."""

    nic: str
    operation: str
    members: int
    ranks: int = 2
    protocol: str = ""
    queued: bool = False


def capacity(fleet: Fleet, link: LinkName) -> BytesPerSecond:
    """Wire rate of a link in one direction."""
    kind = link[0]
    if kind == "trunk":
        return trunk_between(fleet, str(link[1]), str(link[2]), str(link[3])).bandwidth
    cluster = fleet.cluster(str(link[1]))
    if kind == "port":
        return cluster.node.intra_node.bandwidth
    if kind in ("host", "uplink"):
        return cluster.node.device.host_bandwidth * PCIE_EFFICIENCY
    if kind == "socket":
        return cluster.node.socket_link
    if kind == "send":
        limited = cluster.node.nic(str(link[4]))
        assert limited is not None
        return limited.send_limit
    if kind == "tcp":
        trunks = trunk_path(fleet, cluster.name, str(link[4]), str(link[5]))
        rate = tcp.rank_rate(trunk for trunk, _ in trunks or ())
        assert rate is not None
        return rate
    nic = cluster.node.nic(str(link[3] if kind == "nic" else link[2]))
    assert nic is not None
    if kind == "nic":
        return nic.bandwidth
    assert cluster.fabric is not None
    return nic.bandwidth * nic.count * cluster.fabric.nodes_per_leaf / cluster.fabric.oversubscription


class Capacities:
    """Wire rates of the links of a fleet, each computed once.

    `shared`: costs of collectives on idle links of the fleet, by what decides them (`sim.network.collective_costs`); `passes`:
    seconds of passes of stages without any."""

    def __init__(self, fleet: Fleet):
        self.shared: dict[object, Any] = {}
        self.passes: dict[tuple[object, ...], tuple[Seconds, Seconds]] = {}
        self._of = functools.lru_cache(maxsize=None)(functools.partial(capacity, fleet))

    def __call__(self, link: LinkName) -> BytesPerSecond:
        """Wire rate of a link in one direction."""
        return self._of(link)


def near_nics(node_devices: int, nics: int, index: int) -> tuple[int, ...]:
    """Indices of the NICs near to device `index` of a node."""
    if nics <= node_devices:
        return (index * nics // node_devices,)
    return tuple(i for i in range(nics) if i * node_devices // nics == index)


def nic_of(fleet: Fleet, device: Device, kind: str) -> Nic:
    """The NICs of one type on a device's node; raises NoRoute where it has none."""
    nic = fleet.cluster(device.cluster).node.nic(kind)
    if nic is None:
        raise NoRoute(f"{device} has no {kind} NIC")
    return nic


@functools.lru_cache(maxsize=65536)  # stages of equal shape have equal neighbours
def path(fleet: Fleet, source: End, target: End, traffic: Traffic) -> Path:
    """Path of one transfer; raises NoRoute where no link joins its ends.

    Equivalent pairs of nodes (same clusters; same node, same leaf, or different leaves) have the same path except for the
    numbers of nodes and leaves. So a path is found once, between the first such nodes, and renumbered.
    """
    here, there = fleet.cluster(source.device.cluster), fleet.cluster(target.device.cluster)
    near = source.device.cluster != target.device.cluster or source.device.node == target.device.node
    equivalent = first_path(fleet, source, target, traffic, 0 if near else second_node(here, source.device, target.device))
    up, down = leaf(here, source.device), leaf(there, target.device)
    numbers = {"out": source.device.node, "in": target.device.node, "up": up, "down": down}
    use = tuple(
        (link if link[0] == "trunk" else of_number(link, numbers[str(link[-1])]), weight) for link, weight in equivalent.use
    )
    return replace(equivalent, use=use)


def second_node(cluster: Cluster, source: Device, target: Device) -> int:
    """The first node of a cluster that stands for the second of two nodes, where the first node stands for the first."""
    fabric = cluster.fabric
    return 1 if fabric is None or leaf(cluster, source) == leaf(cluster, target) else fabric.nodes_per_leaf


def first_path(fleet: Fleet, source: End, target: End, traffic: Traffic, second: int) -> Path:
    """The path between devices of the first node and of the second one, which stand for those of source and target."""
    first_end = End(Device(source.device.cluster, 0, source.device.index), source.near)
    second_end = End(Device(target.device.cluster, second, target.device.index), target.near)
    return _path(fleet, first_end, second_end, traffic)


@functools.lru_cache(maxsize=65536)  # all devices of a node use the same NICs
def of_number(link: LinkName, number: int) -> LinkName:
    """The link of another node, or leaf."""
    return (*link[:3], number, *link[4:]) if link[0] == "leaf" else (*link[:2], number, *link[3:])


@functools.lru_cache(maxsize=65536)
def _path(fleet: Fleet, source: End, target: End, traffic: Traffic) -> Path:
    """The path between devices on the first equivalent nodes."""
    nic, operation, protocol = traffic.nic, traffic.operation, traffic.protocol
    if (source.device.cluster, source.device.node) == (target.device.cluster, target.device.node):
        return _inside(fleet.cluster(source.device.cluster).node, source, target, traffic)
    here, there = nic_of(fleet, source.device, nic), nic_of(fleet, target.device, nic)
    latency = max(end.spec.protocol(protocol).latency for end in (here, there))
    overhead = max(end.spec.protocol(protocol).overhead for end in (here, there))
    use: dict[LinkName, float] = {}
    share = _share_between_leaves(fleet, source.device, target.device, nic)
    for (device, near), used, direction in ((source, here, "out"), (target, there, "in")):
        cluster = fleet.cluster(device.cluster)
        for index in near:
            use["host", device.cluster, device.node, index, direction] = 1 / len(near)
            if cluster.node.uplink_devices:
                uplink = "uplink", device.cluster, device.node, cluster.node.uplink(index), direction
                use[uplink] = use.get(uplink, 0.0) + 1 / len(near)
            if used.send_limit and operation in ("send_recv", "all_to_all"):
                use["send", device.cluster, device.node, index, nic, direction] = 1 / len(near)
        if _crosses_sockets(cluster.node, used, device, near, operation):
            use["socket", device.cluster, device.node, direction] = 1.0
        rails = sorted({i for index in near for i in near_nics(cluster.node.count, used.count, index)})
        weight = 1 / len(rails) / (used.reached(operation, protocol) * share)
        for rail in rails:
            use["nic", device.cluster, device.node, nic, rail, direction] = weight
    latency += 0.0 if traffic.queued else max(here.spec.delay, there.spec.delay)
    latency += _between(fleet, source, target.device, traffic, use)
    interference = max(here.spec.interference, there.spec.interference)
    chunk = max(_chunk(fleet, source.device, here, traffic), _chunk(fleet, target.device, there, traffic))
    return Path(tuple(use.items()), latency, overhead, interference, chunk, max(here.spec.gap, there.spec.gap))


def _crosses_sockets(node: Node, used: Nic, device: Device, near: tuple[int, ...], operation: str) -> bool:
    """Whether a transfer of a device crosses the link between the node's CPUs on its way to the NICs of a type.

    It does not where a member of its group (`near`) is on the CPU of the NICs: rings and trees of NCCL leave the node from
    there, and over NVLink an all_to_all does too (NCCL's PXN). Without NVLink each rank of an all_to_all sends for itself."""
    if used.socket is None or not node.socket_link:
        return False
    alone = operation == "all_to_all" and not node.intra_node.name.startswith("nvlink")
    return all(node.socket(index) != used.socket for index in ((device.index,) if alone else near))


def _chunk(fleet: Fleet, device: Device, nic: Nic, traffic: Traffic) -> Seconds:
    """Seconds that a step waits for its chunk: it is copied to the NIC and then sent, each at the rate of the device's NICs.

    NVIDIA/nccl 01afd20 src/graph/tuning.cc: the latency of a tree step is that of a 256 kB chunk, base + chunk / rate, and over
    the network chunk / rate once more. The two channels of a NIC (NVIDIA/nccl#438) share its rate, so that 512 KiB pass.
    """
    rails = len(near_nics(fleet.cluster(device.cluster).node.count, nic.count, device.index))
    rate = rails * nic.bandwidth * nic.reached(traffic.operation, traffic.protocol)
    return 2 * nic.spec.protocol(traffic.protocol).chunk / rate


def _efficiency(spec: LinkSpec, operation: str, protocol: str) -> float:
    """Share of the wire rate of leaves and trunks that an operation reaches under a protocol."""
    return spec.efficiency_of(operation) * spec.protocol(protocol).share


def _inside(node: Node, source: End, target: End, traffic: Traffic) -> Path:
    """Path inside a node: out of one port and into another, at the port rate that a group of `traffic.members` reaches.

    Where the switch reduces for m members of the node, (m + 1)/m of the payload passes a port. A ring would send 2 (m - 1)/m,
    the chain of a tree over several nodes 2. Where the ports are the links of the devices to the host, a useful byte also takes
    its share of these: as between nodes, of those of all members near to the ends, because the rings of a library begin at
    different members.
    """
    link, operation, ranks = node.intra_node, traffic.operation, traffic.ranks
    protocol = link.protocol(traffic.protocol)
    weight = link.bandwidth / link.port_bandwidth(traffic.members) / (link.efficiency_of(operation) * protocol.share)
    if protocol.in_switch:
        members = traffic.members
        weight *= (members + 1) / (2 * (members - 1) if members == ranks else 2 * members)
    elif operation != "send_recv":
        weight *= 1 + link.own_piece / ((ranks - 1) * (2 if operation == "all_reduce" else 1))
    use: dict[LinkName, float] = {}
    for (device, near), side in ((source, "out"), (target, "in")):
        use["port", device.cluster, device.node, device.index, side] = weight
        for index in near if link.over_host_link else ():
            use["host", device.cluster, device.node, index, side] = 1 / len(near)
        if link.over_host_link and node.uplink(source.device.index) != node.uplink(target.device.index):
            use["uplink", device.cluster, device.node, node.uplink(device.index), side] = 1.0
    return Path(tuple(use.items()), protocol.latency, protocol.overhead, link.interference, gap=protocol.gap)


def _between(fleet: Fleet, end: End, target: Device, traffic: Traffic, use: dict[LinkName, float]) -> Seconds:
    """Add leaf and trunk links between two nodes, and limited TCP, to `use`; returns the latency that trunks add."""
    nic, operation, protocol = traffic.nic, traffic.operation, traffic.protocol
    source = end.device
    trunks = trunk_path(fleet, source.cluster, target.cluster, nic)
    if trunks is None:
        raise NoRoute(f"no {nic} link joins clusters {source.cluster} and {target.cluster}")
    here, there = fleet.cluster(source.cluster), fleet.cluster(target.cluster)
    if trunks or leaf(here, source) != leaf(there, target):
        share = _share_between_leaves(fleet, source, target, nic)
        for cluster, device, direction in ((here, source, "up"), (there, target, "down")):
            if cluster.fabric is not None:
                reached = _efficiency(nic_of(fleet, device, nic).spec, operation, protocol) * share
                use["leaf", cluster.name, nic, leaf(cluster, device), direction] = 1 / reached
    added = 0.0
    for trunk, forward in trunks:
        a, b = trunk.between if forward else trunk.between[::-1]
        use["trunk", a, b, nic, "out"] = 1 / _efficiency(nic_of(fleet, source, nic).spec, operation, protocol)
        added += trunk.latency
    for index in end.near if any(tcp.is_limited(trunk) for trunk, _ in trunks) else ():
        use["tcp", source.cluster, source.node, index, target.cluster, nic, "out"] = 1 / len(end.near)
    return added


def _share_between_leaves(fleet: Fleet, source: Device, target: Device, nic: str) -> float:
    """Share of the rate that RoCE flows between two leaves reach; 1 below one leaf and for NICs of other types."""
    here, there = fleet.cluster(source.cluster), fleet.cluster(target.cluster)
    if nic != "roce" or (here is there and leaf(here, source) == leaf(there, target)):
        return 1.0
    return min((cluster.fabric.roce_share for cluster in (here, there) if cluster.fabric), default=1.0)


def leaf(cluster: Cluster, device: Device) -> int:
    """Number of the leaf switch above a device, 0 where the cluster has one switch."""
    return device.node // cluster.fabric.nodes_per_leaf if cluster.fabric else 0
