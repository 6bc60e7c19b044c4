"""Pydantic models of a topology file, and its JSON Schema for editors.

Facts may be given in place wherever a name of the catalogue is allowed. The docstrings are descriptions in the JSON Schema.
"""

from __future__ import annotations

from collections import Counter
from typing import Literal

from pydantic import Field, model_validator

from sim.formats.adapter_facts import AdapterFacts
from sim.formats.catalog_facts import DeviceFacts, LinkFacts
from sim.formats.fields import (
    ClusterPair,
    Count,
    Flag,
    Fraction,
    HostName,
    HostNames,
    Precision,
    Price,
    Rate,
    Ratio,
    Share,
    Size,
    StrictModel,
    Time,
    Whole,
)
from sim.formats.model_facts import ModelFacts
from sim.formats.profile_facts import ProfileFacts
from sim.formats.require_facts import RequireFacts
from sim.formats.routing_facts import RoutingFacts, RoutingName
from sim.formats.stack_facts import StackConstants
from sim.hardware.topology import HEADROOM
from sim.workload.optimizers import OPTIMIZERS

TOPOLOGY_FORMAT = "holmes-sim/topology/1"


class DevicesFacts(StrictModel):
    """Devices of a node: their type, their number, and the rent of one, if it differs from the price of the type."""

    type: str | DeviceFacts
    count: Count
    price: Price | None = None


class NicFacts(StrictModel):
    """NICs of one type in a node. `bandwidth`: rate of one NIC in one direction; `efficiency`: share of it that was measured on
    these NICs, in place of the efficiencies of the type.

    Launches use `names`, the names of the NICs on the hosts: RDMA devices (mlx5_0) of an RDMA type, network interfaces (eth0)
    of Ethernet; and `gid_index`, the GID index of RoCE for NCCL."""

    type: str
    bandwidth: Rate
    count: Count = 1
    efficiency: Share | None = None
    names: list[HostName] = Field([])
    gid_index: Whole | None = None
    sharp: Flag = Field(False, description="the switches of these NICs add up gradients (SHARP); of type infiniband only")
    socket: Whole | None = Field(None, description="the CPU, 0 or 1, that all these NICs hang on; needs socket_link")
    send_limit: Rate | None = Field(
        None,
        description="the most that one device sends in messages and all_to_alls: 23 GB/s with NCCL's usual chunks of 128 KiB",
    )
    price: Price | None = Field(None, description="rent of one NIC, with its share of switches and cables")

    @model_validator(mode="after")
    def _consistent(self) -> NicFacts:
        if self.names and len(self.names) != self.count:
            raise ValueError(f"{len(self.names)} names for {self.count} NICs; give a name for each NIC, or no names")
        if self.gid_index is not None and self.type != "roce":
            raise ValueError(f"gid_index is for NICs of type roce only, not {self.type}")
        if self.socket not in (None, 0, 1):
            raise ValueError(f"socket {self.socket} does not exist: a node has the sockets 0 and 1")
        if self.sharp and self.type != "infiniband":
            raise ValueError(f"sharp is for NICs of type infiniband only, not {self.type}")
        return self


class NodeFacts(StrictModel):
    """A node: its devices, the interconnect between them, and its NICs. The first half of the devices is on socket 0, the rest
    on socket 1; `socket_link` is the rate between the two in one direction, for traffic of devices to NICs. `host_memory` and
    `host_memory_bandwidth` are those of the CPUs of the node, for optimizer state that is offloaded."""

    devices: DevicesFacts
    intra_node: str | LinkFacts
    nics: list[NicFacts] = Field([])
    socket_link: Rate | None = Field(None, description="needed where NICs say on which socket they are")
    uplink_devices: Count | None = Field(
        None, description="consecutive devices below one PCIe switch, which share one link to the host: other switches and NICs"
    )
    host_memory: Size | None = Field(None, description="memory of the node's CPUs; without it, plans do not check it")
    host_memory_bandwidth: Rate | None = Field(
        None, description="nominal rate of that memory, of all CPUs; without it, 25.6 GB/s for each device, a guess"
    )

    @model_validator(mode="after")
    def _consistent(self) -> NodeFacts:
        placed = any(nic.socket is not None for nic in self.nics)
        if placed and self.socket_link is None:
            raise ValueError("NICs with socket need the rate between the sockets; write for example socket_link: 10 GB/s")
        if self.socket_link is not None and not placed:
            raise ValueError("socket_link has no effect: no NIC says on which socket it is; write for example socket: 0 there")
        below, count = self.uplink_devices, self.devices.count
        if below is not None and (below < 2 or count % below):
            raise ValueError(
                f"uplink_devices {below} does not divide the {count} devices of a node into switches of two or more"
            )
        if self.socket_link is not None and self.devices.count < 2:
            raise ValueError("socket_link has no effect with one device; leave it and socket out")
        return self


class FabricFacts(StrictModel):
    """Leaf switches of a cluster: nodes below each, and oversubscription of its uplinks. A cluster without a fabric is
    non-blocking. `routing`: how leaves choose an uplink for a RoCE flow; without it, flows never share one by chance."""

    nodes_per_leaf: Count
    oversubscription: Ratio = 1.0
    routing: str | None = Field(None, description="five_tuple, queue_pairs or adaptive (sim/catalog/routing.yaml)")


class ClusterFacts(StrictModel):
    """Equal nodes under one fabric for each NIC type. `hosts`: host names for launches; `gpu[001-004]` means four hosts.

    `nvlink_domain`: number of devices that the interconnect joins across nodes: 72 in a rack of GB200 or GB300 NVL72, which has
    18 nodes of 4 devices. A cluster has whole domains only, of consecutive nodes."""

    nodes: Count
    hosts: HostNames = Field([], description="host names in the order of the nodes")
    node: NodeFacts
    nvlink_domain: Count | None = Field(None, description="devices that the interconnect joins; default: those of a node")
    fabric: FabricFacts | None = None

    @model_validator(mode="after")
    def _consistent(self) -> ClusterFacts:
        if self.hosts and len(self.hosts) != self.nodes:
            raise ValueError(f"{len(self.hosts)} hosts for {self.nodes} nodes; give a host for each node, or no hosts")
        return self


class TrunkFacts(StrictModel):
    """A link between two clusters: bandwidth in each direction, and added latency. Only NICs of its type use it; a link of type
    ethernet carries TCP."""

    between: ClusterPair
    type: str
    bandwidth: Rate
    latency: Time
    price: Price | None = Field(None, description="rent of the link")
    window: Size | None = Field(
        None, description="largest window of a TCP connection; 4 MiB where Linux is not tuned; without it, as large as needed"
    )
    loss: Fraction = Field(0.0, description="share of packets that are lost")
    connections: Count = Field(
        1, description="TCP connections for the traffic of one rank: NCCL_SOCKET_NTHREADS x NCCL_NSOCKS_PERTHREAD"
    )

    @model_validator(mode="after")
    def _tcp(self) -> TrunkFacts:
        limited = self.window is not None or self.loss
        if (limited or self.connections > 1) and self.type != "ethernet":
            raise ValueError(
                f"window, loss and connections are of TCP; a link of type {self.type} carries RDMA, leave them out"
            )
        if limited and not self.latency:
            raise ValueError("window and loss limit a link by its round trip; write for example latency: 5 ms")
        if self.connections > 1 and not limited:
            raise ValueError("connections has no effect without window or loss; write for example window: 4 MiB")
        if self.connections > 64:
            raise ValueError("connections: NCCL opens at most 64; write for example connections: 16")
        return self


class WorkloadFacts(StrictModel):
    """What is trained. `model`: a name of the catalogue, the path of a Hugging Face config.json, or the shape itself;
    `global_batch_size`: sequences per step; `seq_len`: tokens per sequence."""

    model: str | ModelFacts
    global_batch_size: Count
    seq_len: Count
    precision: Precision = "bf16"
    optimizer: str = Field("adam", description=f"what is kept for each parameter: {', '.join(OPTIMIZERS)}")
    adapter: AdapterFacts | None = Field(None, description="LoRA or QLoRA; without it, all weights are trained")
    routing: RoutingName | RoutingFacts = Field(
        "balanced", description="how tokens are divided among experts: balanced, real, or an imbalance, tokens or a capacity"
    )

    @model_validator(mode="after")
    def _optimizer(self) -> WorkloadFacts:
        if self.optimizer not in OPTIMIZERS:
            raise ValueError(f"optimizer {self.optimizer!r} is unknown; known: {', '.join(OPTIMIZERS)}")
        return self


class TopologyFacts(StrictModel):
    """A topology: clusters, the links between them, and the workload to plan for."""

    format: Literal["holmes-sim/topology/1"]
    name: str
    source: str = ""
    communicator: Literal["vendor", "unified"] = Field(
        "vendor",
        description='"unified": one collective library joins devices of different vendors over RDMA; "vendor": these use TCP',
    )
    clusters: dict[str, ClusterFacts] = Field(min_length=1)
    links: list[TrunkFacts] = Field([])
    profile: str | ProfileFacts | None = Field(
        None, description="measured layer seconds: name of a shipped profile, path of a file, or the profile itself"
    )
    stack: str | StackConstants | None = Field(
        None, description="software stack: name of a shipped one, path of a file that calibrate wrote, or its numbers"
    )
    memory_headroom: Fraction = Field(
        HEADROOM, description="share of each device's memory that plans leave free; 0: plans may fill a device"
    )
    require: RequireFacts | None = Field(None, description="what plans must keep to; holmes-sim plan --require adds a file")
    workload: WorkloadFacts | None = None

    @model_validator(mode="after")
    def _consistent(self) -> TopologyFacts:
        named = Counter(host for cluster in self.clusters.values() for host in cluster.hosts)
        twice = [host for host, times in named.items() if times > 1]
        if twice:
            raise ValueError(f"host {twice[0]!r} is given twice; each host is one node of one cluster")
        return self
