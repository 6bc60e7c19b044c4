"""The machines of a topology: NICs, nodes, clusters of identical nodes, trunks between clusters, and the fleet of them all.

A fleet is a set of clusters. A cluster is a number of identical nodes under one fabric per NIC type; only `trunks` join
clusters. A node is what one interconnect joins: a host, or several hosts in an NVLink domain. All classes are immutable values;
`sim.network.sharing` simulates the traffic.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from sim.errors import PlanError
from sim.hardware.device_spec import DeviceSpec
from sim.hardware.link_spec import LinkSpec
from sim.units import Bytes, BytesPerSecond, Seconds, UsdPerSecond


@dataclass(frozen=True, slots=True)
class Nic:
    """`count` equal NICs of one type in every node of a cluster; `bandwidth` is that of one NIC in one direction.

    `sharp`: their switches add up the gradients of a data-parallel group (`sim.collectives.sharp`). `socket`: the CPU (0 or 1)
    that they all hang on; None if each is near to its devices. `send_limit`: the most that one device sends over them in
    messages and all_to_alls, 0 if the NICs alone limit it.
    Only launches use `names` (device or interface names on the hosts) and `gid_index` (GID of RoCE). `price` is the rent of one
    NIC, None if unknown."""

    spec: LinkSpec
    bandwidth: BytesPerSecond
    count: int
    names: tuple[str, ...] = field(default=(), compare=False)
    gid_index: int | None = field(default=None, compare=False)
    price: UsdPerSecond | None = field(default=None, compare=False)
    sharp: bool = False
    socket: int | None = None
    send_limit: BytesPerSecond = 0.0

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
    """`count` equal devices, the interconnect between them, and their NICs: a host, or an NVLink domain of several `hosts`.

    NCCL also treats an NVLink domain over several hosts as one node: it fuses the topologies of these hosts (NVIDIA/nccl,
    src/graph/topo.cc, ncclTopoGetSystem). `socket_link` is the rate in each direction of the link between its two CPUs, for
    traffic of devices to NICs of the other CPU; 0 where no NIC says on which CPU it is. `host_memory` is that of one
    host, None if unknown. `uplink_devices`: so many consecutive devices are below one PCIe switch, whose one link to the host
    carries what they send to other switches and to NICs; 0 where each device has a link of its own."""

    device: DeviceSpec
    count: int
    intra_node: LinkSpec
    nics: tuple[Nic, ...]
    hosts: int = 1
    socket_link: BytesPerSecond = 0.0
    host_memory: Bytes | None = None
    uplink_devices: int = 0

    @property
    def host(self) -> Node:
        """One host of the node as a node of its own, with its devices and NICs."""
        if self.hosts == 1:
            return self
        nics = tuple(replace(nic, count=nic.count // self.hosts) for nic in self.nics)
        return replace(self, count=self.count // self.hosts, nics=nics, hosts=1)

    @property
    def inside(self) -> str:
        """Text of the interconnect: its name, and the devices that it joins if these are on several hosts."""
        return self.intra_node.name + (f", domains of {self.count}" if self.hosts > 1 else "")

    def joined(self, hosts: int) -> Node:
        """The NVLink domain of several hosts that are each like this node.

        Devices and NICs are numbered host by host, so that each device is near to NICs of its own host
        (`sim.network.paths.near_nics`)."""
        nics = tuple(replace(nic, count=nic.count * hosts) for nic in self.nics)
        return replace(self, count=self.count * hosts, nics=nics, hosts=self.hosts * hosts)

    def socket(self, index: int) -> int:
        """The CPU (0 or 1) of a device: the first half of the devices is on the first one."""
        return 2 * index // self.count

    def uplink(self, index: int) -> int:
        """The PCIe switch of a device, numbered from 0; the device itself where each has a link of its own."""
        return index // (self.uplink_devices or 1)

    def nic(self, kind: str) -> Nic | None:
        """The NICs of a type; None if the node has none."""
        return next((nic for nic in self.nics if nic.kind == kind), None)


@dataclass(frozen=True, slots=True)
class Fabric:
    """A leaf-spine network: nodes per leaf switch, ratio of downlink to uplink bandwidth of a leaf, and share of the rate that
    RoCE flows between leaves reach, since several may be sent over one uplink (`sim/catalog/routing.yaml`)."""

    nodes_per_leaf: int
    oversubscription: float
    roce_share: float = 1.0

    @property
    def is_narrow(self) -> bool:
        """Whether traffic between leaves is slower than below them."""
        return self.oversubscription > 1 or self.roce_share < 1


@dataclass(frozen=True, slots=True)
class Cluster:
    """Identical nodes under one fabric per NIC type; `hosts` are the names of their hosts, which only launches use."""

    name: str
    nodes: int
    node: Node
    fabric: Fabric | None = None
    hosts: tuple[str, ...] = field(default=(), compare=False)

    @property
    def devices(self) -> int:
        """Number of devices in the cluster."""
        return self.nodes * self.node.count

    @property
    def num_hosts(self) -> int:
        """Number of hosts in the cluster: of nodes, unless these are NVLink domains."""
        return self.nodes * self.node.hosts

    def host(self, number: int) -> str:
        """Name of a host: as given in the topology, else `<cluster>-node<number>` or, in a domain, `<cluster>-node0-host3`."""
        if self.hosts:
            return self.hosts[number]
        node, host = divmod(number, self.node.hosts)
        return f"{self.name}-node{node}" + (f"-host{host}" if self.node.hosts > 1 else "")

    def hosts_of(self, node: int) -> tuple[str, ...]:
        """Names of the hosts of a node."""
        return tuple(self.host(node * self.node.hosts + index) for index in range(self.node.hosts))

    def on_host(self, device: Device) -> tuple[int, int]:
        """(number of a device's host in the cluster, index of the device on that host)."""
        host, index = divmod(device.index, self.node.count // self.node.hosts)
        return device.node * self.node.hosts + host, index


@dataclass(frozen=True, slots=True)
class Trunk:
    """A link between two clusters for one NIC type (`kind`); `bandwidth` in each direction, `price` is its rent.

    TCP on it: the largest `window` of a connection in bytes (0: as large as needed), the share `loss` of packets that are lost,
    and the `connections` that carry the traffic of one rank (`sim.network.tcp`)."""

    between: tuple[str, str]
    kind: str
    bandwidth: BytesPerSecond
    latency: Seconds
    price: UsdPerSecond | None = field(default=None, compare=False)
    window: Bytes = 0.0
    loss: float = 0.0
    connections: int = 1


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
