"""What machines there are: specs of devices, interconnects and NICs; clusters of alike nodes; trunks between clusters.

A fleet is a set of clusters. A cluster is a number of alike nodes under one fabric per NIC type; between clusters there is
only what `trunks` says. Everything here is a value; what flows over it lives in `sim.network.sharing`.
"""

from __future__ import annotations

import functools
import itertools
import re
from dataclasses import dataclass, field

import networkx as nx

from sim.errors import NoRoute, PlanError
from sim.hardware.measured import Profile
from sim.units import Bytes, BytesPerSecond, FlopsPerSecond, Seconds, UsdPerSecond, Watts

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv")
"""Operations that a link states an efficiency for."""


@dataclass(frozen=True, slots=True)
class GemmCurve:
    """Seconds of a matrix product on a device: launch + max(FLOPs x padding^w / (peak x c), bytes / (bandwidth x m)).

    padding = tiles rounded up to whole waves over the compute units, over the tiles needed; c, m, w are fitted together
    on measured products and are not physical one by one (the catalogue names the fit).
    """

    launch: Seconds
    compute_efficiency: float
    memory_efficiency: float
    wave_exponent: float = 0.0
    tile: tuple[int, int] = (128, 256)


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """An accelerator as one rank sees it. `peak` is dense FLOP/s by precision, sorted by name.

    `launch` is what its host needs to launch the kernels of one layer's forward: no layer is faster than that. Where
    `blocking`, the host waits for each kernel before it launches the next, so that its time adds to the device's.
    `step` is what its host does once a step while the device waits. `watts` is what it draws while it computes, `idle_watts`
    while it waits, `price` its rent; None where nobody has said.
    """

    name: str
    vendor: str
    compute_units: int
    peak: tuple[tuple[str, FlopsPerSecond], ...]
    memory: Bytes
    memory_bandwidth: BytesPerSecond
    host_bandwidth: BytesPerSecond
    gemm: GemmCurve
    attention_forward: float
    attention_backward: float
    elementwise_efficiency: float
    watts: Watts | None = None
    launch: Seconds = 0.0
    step: Seconds = 0.0
    blocking: bool = False
    profile: Profile | None = None
    idle_watts: Watts | None = None
    price: UsdPerSecond | None = None

    def __hash__(self) -> int:
        """Of a few fields: quicker than of all, since seconds are cached by device."""
        return hash((self.name, self.memory))

    def runs(self, precision: str) -> str:
        """The precision of the peak that products run at; empty where there is none.

        tf32 is fp32 data on tensor cores; where the device has none of it, as before Ampere, the same program runs at fp32 (in
        PyTorch `allow_tf32` has no effect there).
        """
        names = [name for name, _ in self.peak]
        return next((name for name in (precision, *(("fp32",) if precision == "tf32" else ())) if name in names), "")

    def peak_of(self, precision: str) -> FlopsPerSecond:
        """Dense peak at a precision (tf32 falls back to fp32: `runs`); raises PlanError where the device does not have it."""
        for name, rate in self.peak:
            if name == self.runs(precision):
                return rate
        known = ", ".join(name for name, _ in self.peak)
        raise PlanError(f"device {self.name} has no {precision} peak; it has {known}")


@dataclass(frozen=True, slots=True)
class Protocol:
    """One way in which a library moves a collective's data: overhead + steps x latency + bytes / (`share` of the large rate).

    A library has several (NCCL: LL, LL128, Simple) and takes the quickest for the payload. `in_switch`: the switch itself
    reduces (NVLS), so that (n + 1)/n of the payload goes through every port instead of 2 (n - 1)/n.
    """

    name: str
    overhead: Seconds
    latency: Seconds
    share: float
    in_switch: bool = False


@dataclass(frozen=True, slots=True)
class LinkSpec:
    """An interconnect inside a node, or a NIC type: how well it carries each operation.

    A step of a collective takes `latency`, a collective or message `overhead` once; `protocols` stand for both in collectives,
    where there are any. `efficiency` is the share of the wire rate that large payloads reach, by operation. A rank sends
    n - 1 pieces of a collective's n, or 2 (n - 1) in an all_reduce, and spends the time of `own_piece` more on its own (a copy,
    in NCCL). `group_bandwidth` is the wire rate that groups of so many devices or more drive. `interference` slows compute
    while communication overlaps it.
    """

    name: str
    latency: Seconds
    overhead: Seconds
    efficiency: tuple[tuple[str, float], ...]
    interference: float
    rdma: bool = True
    bandwidth: BytesPerSecond = 0.0
    pair_bandwidth: BytesPerSecond = 0.0
    protocols: tuple[Protocol, ...] = ()
    own_piece: float = 0.0
    group_bandwidth: tuple[tuple[int, BytesPerSecond], ...] = ()

    def protocol(self, name: str) -> Protocol:
        """The protocol of a name; where the link has none of it, the link's own overhead and latency."""
        for found in self.protocols:
            if found.name == name:
                return found
        return Protocol("", self.overhead, self.latency, 1.0)

    def driven(self, members: int) -> BytesPerSecond:
        """Wire rate of a port that a group of so many devices of a node drives."""
        rates = [(least, rate) for least, rate in self.group_bandwidth if least <= members]
        if rates:
            return min(self.bandwidth, max(rates)[1])
        return min(self.bandwidth, (members - 1) * self.pair_bandwidth) if self.pair_bandwidth else self.bandwidth

    def efficiency_of(self, operation: str) -> float:
        """Share of the wire rate for an operation of `OPERATIONS`."""
        return dict(self.efficiency)[operation]


@dataclass(frozen=True, slots=True)
class Nic:
    """`count` equal NICs of one type in every node of a cluster; `bandwidth` is of one NIC, one direction.

    `names` and `gid_index` are for launches alone: what the hosts call them, and the index of RoCE's address. `price` is the
    rent of one of them, None where nobody has said."""

    spec: LinkSpec
    bandwidth: BytesPerSecond
    count: int
    names: tuple[str, ...] = field(default=(), compare=False)
    gid_index: int | None = field(default=None, compare=False)
    price: UsdPerSecond | None = field(default=None, compare=False)

    @property
    def kind(self) -> str:
        """The NIC type: infiniband, roce, ethernet ..."""
        return self.spec.name


@dataclass(frozen=True, slots=True)
class Node:
    """One host: `count` equal devices on one interconnect, and its NICs."""

    device: DeviceSpec
    count: int
    intra_node: LinkSpec
    nics: tuple[Nic, ...]

    def nic(self, kind: str) -> Nic | None:
        """The NICs of a type, or None."""
        return next((nic for nic in self.nics if nic.kind == kind), None)


@dataclass(frozen=True, slots=True)
class Fabric:
    """Leaf and spine: nodes per leaf switch, and leaf downlink over uplink bandwidth."""

    nodes_per_leaf: int
    oversubscription: float


@dataclass(frozen=True, slots=True)
class Cluster:
    """Alike nodes under one fabric per NIC type; `hosts` are their names, for launches alone."""

    name: str
    nodes: int
    node: Node
    fabric: Fabric | None = None
    hosts: tuple[str, ...] = field(default=(), compare=False)

    @property
    def devices(self) -> int:
        """Devices of the cluster."""
        return self.nodes * self.node.count

    def host(self, node: int) -> str:
        """What a node's host is called: as the topology says, else `ib-node0`."""
        return self.hosts[node] if self.hosts else f"{self.name}-node{node}"


@dataclass(frozen=True, slots=True)
class Trunk:
    """A link between two clusters for one NIC type; `bandwidth` in each direction, `price` its rent."""

    between: tuple[str, str]
    kind: str
    bandwidth: BytesPerSecond
    latency: Seconds
    price: UsdPerSecond | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Device:
    """A place for a rank, written `ib/node0/dev3`."""

    cluster: str
    node: int
    index: int

    def __str__(self) -> str:
        return f"{self.cluster}/node{self.node}/dev{self.index}"


_DEVICE = re.compile(r"([^/]+)/node(\d+)/dev(\d+)")


def parse_device(text: str) -> Device:
    """The inverse of `str(device)`; raises PlanError."""
    match = _DEVICE.fullmatch(text)
    if match is None:
        raise PlanError(f"{text!r} is not a device; write for example 'ib/node0/dev3'")
    return Device(match[1], int(match[2]), int(match[3]))


@dataclass(frozen=True, slots=True)
class Fleet:
    """All clusters and the trunks between them: the machines of one topology."""

    name: str
    clusters: tuple[Cluster, ...]
    trunks: tuple[Trunk, ...] = ()
    communicator: str = "vendor"
    _by_name: dict[str, Cluster] = field(init=False, repr=False, compare=False)
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_name", {cluster.name: cluster for cluster in self.clusters})
        object.__setattr__(self, "_hash", hash((self.name, self.clusters, self.trunks, self.communicator)))

    def __hash__(self) -> int:
        """Reckoned once: routes and transports are cached by fleet, and looked up very often."""
        return self._hash

    @property
    def devices(self) -> int:
        """Devices of the fleet."""
        return sum(cluster.devices for cluster in self.clusters)

    def cluster(self, name: str) -> Cluster:
        """The cluster of a name; raises PlanError."""
        if name not in self._by_name:
            raise PlanError(f"cluster {name!r} is not in topology {self.name}; it has {', '.join(self._by_name)}")
        return self._by_name[name]

    def check(self, device: Device) -> None:
        """Raise PlanError unless the device exists."""
        cluster = self.cluster(device.cluster)
        if device.node >= cluster.nodes or device.index >= cluster.node.count:
            raise PlanError(
                f"device {device} does not exist: cluster {cluster.name} has {cluster.nodes} nodes of {cluster.node.count}"
            )

    def spec(self, device: Device) -> DeviceSpec:
        """What kind of device stands at a place."""
        return self.cluster(device.cluster).node.device


@functools.lru_cache(maxsize=256)
def trunk_path(fleet: Fleet, source: str, target: str, kind: str) -> tuple[tuple[Trunk, bool], ...] | None:
    """Trunks from cluster to cluster for a NIC type, each with True where it is walked from its first end to its second.

    The path of least latency, the widest and then the first of equal ones. Empty inside one cluster; None where there is no
    path."""
    graph: nx.Graph[str] = nx.Graph()
    graph.add_nodes_from(cluster.name for cluster in fleet.clusters)
    for trunk in fleet.trunks:
        if trunk.kind == kind:
            best = trunk_between(fleet, *trunk.between, kind)
            graph.add_edge(*trunk.between, cost=(best.latency, 1 / best.bandwidth))
    hops = {(a, b): data["cost"] for a, b, data in graph.edges(data=True)}
    heaviest = max((narrow for _, narrow in hops.values()), default=1.0)
    nx.set_edge_attributes(graph, {edge: late + 1e-9 * narrow / heaviest for edge, (late, narrow) in hops.items()}, "weight")
    try:
        names: list[str] = nx.shortest_path(graph, source, target, weight="weight")
    except nx.NetworkXNoPath:
        return None
    found = ((trunk_between(fleet, a, b, kind), a) for a, b in itertools.pairwise(names))
    return tuple((trunk, trunk.between[0] == a) for trunk, a in found)


def trunk_between(fleet: Fleet, a: str, b: str, kind: str) -> Trunk:
    """The trunk of a NIC type that joins two clusters directly: of several, the one of least latency, then the widest."""
    joins = [trunk for trunk in fleet.trunks if trunk.kind == kind and set(trunk.between) == {a, b}]
    return min(joins, key=lambda trunk: (trunk.latency, -trunk.bandwidth))


def common_transport(fleet: Fleet, devices: tuple[Device, ...]) -> tuple[str, str]:
    """The (nic, transport) that a group of devices gets: automatic NIC selection as a law of the model.

    One node: its interconnect, ("intra_node", "intra_node"). Several: the fastest RDMA type that every node has and that
    joins all their clusters; where vendors differ and the fleet has no unified communicator, or no common RDMA exists,
    TCP over Ethernet staged through the host. InfiniBand and RoCE do not interoperate: NCCL ends with an error when the
    link layers of two ends differ (NVIDIA/nccl, src/transport/net_ib), it does not fall back. Raises PlanError where
    nothing joins the devices.
    """
    nodes = dict.fromkeys((device.cluster, device.node) for device in devices)
    if len(nodes) == 1:
        return "intra_node", "intra_node"
    return _joint(fleet, tuple(dict.fromkeys(cluster for cluster, _ in nodes)))


def joint_nics(fleet: Fleet, names: tuple[str, ...]) -> tuple[Nic, ...]:
    """NICs of the first of these clusters over whose type all of them can communicate; RDMA not between unlike vendors."""
    clusters = [fleet.cluster(name) for name in names]
    direct = len({cluster.node.device.vendor for cluster in clusters}) == 1 or fleet.communicator == "unified"
    return tuple(
        nic
        for nic in clusters[0].node.nics
        if (direct or not nic.spec.rdma)
        and all(cluster.node.nic(nic.kind) is not None for cluster in clusters)
        and all(trunk_path(fleet, names[0], other, nic.kind) is not None for other in names[1:])
    )


@functools.lru_cache(maxsize=1024)
def _joint(fleet: Fleet, names: tuple[str, ...]) -> tuple[str, str]:
    """The (nic, transport) of several nodes in clusters of these names."""
    clusters = [fleet.cluster(name) for name in names]
    best: tuple[bool, float, str] | None = None
    for nic in joint_nics(fleet, names):
        nics = [cluster.node.nic(nic.kind) for cluster in clusters]
        slowest = min(n.bandwidth * n.count * n.spec.efficiency_of("send_recv") for n in nics if n is not None)
        candidate = (nic.spec.rdma, slowest, nic.kind)
        best = candidate if best is None else max(best, candidate)
    if best is None:
        raise NoRoute(
            f"nothing joins clusters {' and '.join(names)}: no NIC type that all their nodes have is linked between them; "
            f"add a link of type ethernet between them to the topology"
        )
    return best[2], "rdma" if best[0] else "tcp"
