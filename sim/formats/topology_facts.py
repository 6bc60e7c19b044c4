"""Pydantic models of a topology file, and its JSON Schema for editors.

Facts may be given in place wherever a name of the catalogue is allowed. The docstrings are descriptions in the JSON Schema.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

from pydantic import Field, model_validator

from sim.formats.catalog_facts import DeviceFacts, LinkFacts, ModelFacts
from sim.formats.fields import (
    ClusterPair,
    Count,
    HostName,
    HostNames,
    Precision,
    Price,
    Rate,
    Ratio,
    Share,
    StrictModel,
    Time,
    Whole,
)
from sim.formats.profile_facts import ProfileFacts

TOPOLOGY_FORMAT = "holmes-sim/topology/1"


class DevicesFacts(StrictModel):
    """Which devices a node has, how many, and what one of them costs here (in place of the price of its type)."""

    type: str | DeviceFacts
    count: Count
    price: Price | None = None


class NicFacts(StrictModel):
    """NICs of one type in a node: rate of one NIC in one direction, and how many; `efficiency` where it was measured here.

    For launches: `names` are what the hosts call them, RDMA devices (mlx5_0) of an RDMA type, network interfaces (eth0) of
    Ethernet; `gid_index` is the index of RoCE's address that NCCL is to use."""

    type: str
    bandwidth: Rate
    count: Count = 1
    efficiency: Share | None = None
    names: list[HostName] = Field([])
    gid_index: Whole | None = None
    price: Price | None = Field(None, description="rent of one NIC, its share of switches and cables included")

    @model_validator(mode="after")
    def _consistent(self) -> NicFacts:
        if self.names and len(self.names) != self.count:
            raise ValueError(f"{len(self.names)} names for {self.count} NICs; name each, or none")
        if self.gid_index is not None and self.type != "roce":
            raise ValueError(f"gid_index is of RoCE NICs only, not of {self.type}")
        return self


class NodeFacts(StrictModel):
    """One node of a cluster."""

    devices: DevicesFacts
    intra_node: str | LinkFacts
    nics: list[NicFacts] = Field([])


class FabricFacts(StrictModel):
    """Leaf switches of a cluster; absent means non-blocking."""

    nodes_per_leaf: Count
    oversubscription: Ratio = 1.0


class ClusterFacts(StrictModel):
    """Alike nodes under one fabric per NIC type; `hosts` are their names, for launches (`gpu[001-004]` is four of them)."""

    nodes: Count
    hosts: HostNames = Field([], description="host names, node by node")
    node: NodeFacts
    fabric: FabricFacts | None = None

    @model_validator(mode="after")
    def _consistent(self) -> ClusterFacts:
        if self.hosts and len(self.hosts) != self.nodes:
            raise ValueError(f"{len(self.hosts)} hosts for {self.nodes} nodes; name each, or none")
        return self


class TrunkFacts(StrictModel):
    """A link between two clusters; an ethernet link carries TCP between all their Ethernet NICs."""

    between: ClusterPair
    type: str
    bandwidth: Rate
    latency: Time
    price: Price | None = Field(None, description="rent of the link")


class WorkloadFacts(StrictModel):
    """What is trained: a model of the catalogue, a path to a Hugging Face config.json, or the shape in place."""

    model: str | ModelFacts
    global_batch_size: Count
    seq_len: Count
    precision: Precision = "bf16"


class TopologyFacts(StrictModel):
    """A whole scenario: clusters, links between them, and the workload to plan for."""

    format: Literal["holmes-sim/topology/1"]
    name: str
    source: str = ""
    communicator: Literal["vendor", "unified"] = Field(
        "vendor", description="unified: one collective library joins accelerators of different vendors over RDMA"
    )
    clusters: dict[str, ClusterFacts] = Field(min_length=1)
    links: list[TrunkFacts] = Field([])
    profile: str | ProfileFacts | None = Field(None, description="measured layer seconds: a shipped name, a path, or in place")
    workload: WorkloadFacts | None = None

    @model_validator(mode="after")
    def _consistent(self) -> TopologyFacts:
        named = Counter(host for cluster in self.clusters.values() for host in cluster.hosts)
        twice = [host for host, times in named.items() if times > 1]
        if twice:
            raise ValueError(f"host {twice[0]!r} is named twice; each stands once, in one cluster")
        return self


def topology_schema() -> dict[str, Any]:
    """JSON Schema of a topology file, for editors."""
    schema = TopologyFacts.model_json_schema()
    schema["title"] = "holmes-sim topology"
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    return schema
