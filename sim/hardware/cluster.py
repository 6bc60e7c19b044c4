"""The machines of a topology: NICs, nodes, clusters of identical nodes, trunks between clusters, and the fleet of them all.

A fleet is a set of clusters. A cluster is a number of identical nodes under one fabric per NIC type; only `trunks` join
clusters. All classes are immutable values; `sim.network.sharing` simulates the traffic.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from sim.errors import PlanError
from sim.hardware.device_spec import DeviceSpec
from sim.hardware.link_spec import LinkSpec
from sim.units import BytesPerSecond, Seconds, UsdPerSecond


@dataclass(frozen=True, slots=True)
class Nic:
    """`count` equal NICs of one type in every node of a cluster; `bandwidth` is that of one NIC in one direction.

    Only launches use `names` (device or interface names on the hosts) and `gid_index` (GID of RoCE). `price` is the rent of one
    NIC, None if unknown."""

    spec: LinkSpec
    bandwidth: BytesPerSecond
    count: int
    names: tuple[str, ...] = field(default=(), compare=False)
    gid_index: int | None = field(default=None, compare=False)
    price: UsdPerSecond | None = field(default=None, compare=False)

    @property
    def kind(self) -> str:
        """The NIC type: infiniband, roce, ethernet, ..."""
        return self.spec.name

    def reached(self, operation: str, protocol: str = "") -> float:
        """Share of the wire rate that an operation reaches under a protocol, within the limit of the host."""
        share = self.spec.efficiency_of(operation) * self.spec.protocol(protocol).share
        return min(share, self.spec.host_limit / self.bandwidth) if self.spec.host_limit else share


@dataclass(frozen=True, slots=True)
class Node:
    """One host: `count` equal devices, the interconnect between them, and its NICs."""

    device: DeviceSpec
    count: int
    intra_node: LinkSpec
    nics: tuple[Nic, ...]

    def nic(self, kind: str) -> Nic | None:
        """The NICs of a type; None if the node has none."""
        return next((nic for nic in self.nics if nic.kind == kind), None)


@dataclass(frozen=True, slots=True)
class Fabric:
    """A leaf-spine network: nodes per leaf switch, and ratio of downlink to uplink bandwidth of a leaf."""

    nodes_per_leaf: int
    oversubscription: float


@dataclass(frozen=True, slots=True)
class Cluster:
    """Identical nodes under one fabric per NIC type; `hosts` are their host names, which only launches use."""

    name: str
    nodes: int
    node: Node
    fabric: Fabric | None = None
    hosts: tuple[str, ...] = field(default=(), compare=False)

    @property
    def devices(self) -> int:
        """Number of devices in the cluster."""
        return self.nodes * self.node.count

    def host(self, node: int) -> str:
        """Host name of a node: as given in the topology, else `<cluster>-node<number>`."""
        return self.hosts[node] if self.hosts else f"{self.name}-node{node}"


@dataclass(frozen=True, slots=True)
class Trunk:
    """A link between two clusters for one NIC type (`kind`); `bandwidth` in each direction, `price` is its rent."""

    between: tuple[str, str]
    kind: str
    bandwidth: BytesPerSecond
    latency: Seconds
    price: UsdPerSecond | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Device:
    """Position of a device: cluster, node and index in the node; as text `ib/node0/dev3`."""

    cluster: str
    node: int
    index: int

    def __str__(self) -> str:
        return f"{self.cluster}/node{self.node}/dev{self.index}"


_DEVICE = re.compile(r"([^/]+)/node(\d+)/dev(\d+)")


def parse_device(text: str) -> Device:
    """The device of a text `ib/node0/dev3`, the inverse of `str(device)`; raises PlanError."""
    match = _DEVICE.fullmatch(text)
    if match is None:
        raise PlanError(f"{text!r} is not a device; write for example 'ib/node0/dev3'")
    return Device(match[1], int(match[2]), int(match[3]))


@dataclass(frozen=True, slots=True)
class Fleet:
    """All clusters of a topology and the trunks between them."""

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
        """Hash, computed once: routes and transports are cached by fleet and looked up very often."""
        return self._hash

    @property
    def devices(self) -> int:
        """Number of devices in the fleet."""
        return sum(cluster.devices for cluster in self.clusters)

    def cluster(self, name: str) -> Cluster:
        """The cluster of that name; raises PlanError if there is none."""
        if name not in self._by_name:
            raise PlanError(f"cluster {name!r} is not in topology {self.name}; it has {', '.join(self._by_name)}")
        return self._by_name[name]

    def check(self, device: Device) -> None:
        """Raise PlanError unless the device exists."""
        cluster = self.cluster(device.cluster)
        if device.node >= cluster.nodes or device.index >= cluster.node.count:
            raise PlanError(
                f"device {device} does not exist: cluster {cluster.name} has {cluster.nodes} nodes "
                f"of {cluster.node.count} devices"
            )

    def spec(self, device: Device) -> DeviceSpec:
        """Specification of the device at a position."""
        return self.cluster(device.cluster).node.device
