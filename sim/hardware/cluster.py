"""What machines there are: specs of devices, interconnects and NICs; clusters of alike nodes; trunks between clusters.

A fleet is a set of clusters. A cluster is a number of alike nodes under one fabric per NIC type; between clusters there is
only what `trunks` says. Everything here is a value; what flows over it lives in `sim.network.sharing`.
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
