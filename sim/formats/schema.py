"""What a topology file and the catalogue may say: pydantic models at the door, frozen dataclasses inside.

Every model forbids unknown keys. Quantities are text with a unit (`sim.units`). Where a catalogue name may stand, the facts
may stand in place. `topology_schema()` is the JSON Schema for editors.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from sim import units
from sim.errors import TopologyError
from sim.formats import hostlist
from sim.hardware.cluster import OPERATIONS, DeviceSpec, GemmCurve, LinkSpec, Protocol
from sim.hardware.stack import DEFAULT, Stack
from sim.workload.model import MLP_KINDS, PRECISION_BYTES, Model

TOPOLOGY_FORMAT = "holmes-sim/topology/1"


def _quantity(kind: str) -> Any:
    """The annotated type of a quantity: validated by `units.parse`, shown to editors as text with an example."""
    accepted, example = units.KINDS[kind]
    schema = {"type": "string", "description": f"a {kind} with its unit: {', '.join(accepted)}", "examples": [example]}

    def positive(value: object) -> float:
        si = units.parse(value, kind)
        if si <= 0:
            raise ValueError(f"{value!r} must be greater than zero")
        return si

    def not_negative(value: object) -> float:
        return units.parse(value, kind)

    return Annotated[float, BeforeValidator(not_negative if kind == "time" else positive), WithJsonSchema(schema)]


Rate: Any = _quantity("rate")
Size: Any = _quantity("size")
Time: Any = _quantity("time")
ComputeRate: Any = _quantity("compute rate")
Power: Any = _quantity("power")
Price: Any = _quantity("price")


def _whole(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{value!r} is not a whole number")
    if value < 1:
        raise ValueError(f"{value} must be at least 1")
    return value


def _share(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is not a number")
    if not 0 < value <= 2:
        raise ValueError(f"{value} must lie between 0 and 1 (a fitted one at most 2)")
    return float(value)


def _not_negative(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{value!r} is not a whole number")
    if value < 0:
        raise ValueError(f"{value} must not be negative")
    return value


def _number(least: float, most: float) -> BeforeValidator:
    def check(value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{value!r} is not a number")
        if not least <= value <= most:
            raise ValueError(f"{value} must be at least {least:g}" + (f" and at most {most:g}" if most < MOST else ""))
        return float(value)

    return BeforeValidator(check)


def _exponent(value: object) -> object:
    """A number written 3e-06: text in YAML 1.1, which wants a point in it, a number in JSON and in what PyYAML writes."""
    return float(value) if isinstance(value, str) and re.fullmatch(r"\d+(\.\d*)?[eE][+-]?\d+", value) else value


def _flag(value: object) -> object:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is neither true nor false")
    return value


def _pair(value: object) -> object:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise ValueError(f"two cluster names are expected here, not {value!r}")
    return value


def _hosts(value: object) -> object:
    """Host names in full, of text or a list in which each item may stand for several."""
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise ValueError(f"host names such as gpu[001-004], or a list of them, are expected here, not {value!r}")
    try:
        return [_host_name(name) for item in items for name in hostlist.expand(item)]
    except TopologyError as error:
        raise ValueError(str(error)) from None


def _host_name(value: object) -> str:
    """A name that is safe in a shell, in YAML and in an environment variable of NCCL."""
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.:-]*", value):
        raise ValueError(f"{value!r} is no name of a host or interface: letters, digits, '.', '_', ':' and '-'")
    return value


MOST = 1e6
HostName = Annotated[str, BeforeValidator(_host_name)]
Count = Annotated[int, BeforeValidator(_whole)]
Whole = Annotated[int, BeforeValidator(_not_negative)]
Part = Annotated[float, _number(0, 1)]
Ratio = Annotated[float, _number(1, MOST)]
Passed = Annotated[float, _number(0, MOST), BeforeValidator(_exponent)]
Measured = Annotated[float, _number(1e-9, MOST), BeforeValidator(_exponent)]
Flag = Annotated[bool, BeforeValidator(_flag)]
Share = Annotated[float, BeforeValidator(_share)]
Factor = Annotated[float, _number(0.01, 100)]
Error = Annotated[float, _number(0, MOST)]
PRECISIONS = tuple(PRECISION_BYTES)


def _precision(value: object) -> object:
    if value not in PRECISIONS:
        raise ValueError(f"precision {value!r} is unknown; known: {', '.join(PRECISIONS)}")
    return value


Precision = Annotated[str, BeforeValidator(_precision), WithJsonSchema({"enum": list(PRECISIONS)})]


class Door(BaseModel):
    """Base of all models at the door: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class GemmFacts(Door):
    """The fitted curve of matrix products (see `sim.hardware.cluster.GemmCurve`)."""

    launch: Time
    compute_efficiency: Share
    memory_efficiency: Share
    wave_exponent: Part = 0.0
    tile: tuple[Count, Count] = (128, 256)


class AttentionFacts(Door):
    """Share of the dense peak that a fused attention kernel reaches, causal FLOPs counted."""

    forward_efficiency: Share
    backward_efficiency: Share


class DeviceFacts(Door):
    """An accelerator; `price` of one of them for an hour, `watts` while it computes, `idle_watts` while it waits."""

    name: str = "device"
    vendor: str
    compute_units: Count
    peak: dict[Precision, ComputeRate]
    memory: Size
    memory_bandwidth: Rate
    host_bandwidth: Rate
    gemm: GemmFacts
    attention: AttentionFacts
    elementwise_efficiency: Share
    watts: Power | None = None
    idle_watts: Power | None = None
    price: Price | None = None
    sources: dict[str, str] = {}

    @model_validator(mode="after")
    def _consistent(self) -> DeviceFacts:
        if self.idle_watts is not None and (self.watts is None or self.idle_watts > self.watts):
            busy = "are not given" if self.watts is None else f"are {self.watts:g} W"
            raise ValueError(f"idle_watts {self.idle_watts:g} W must not exceed watts, which {busy}")
        return self

    def spec(self) -> DeviceSpec:
        """The device as the simulator knows it: under the default software stack."""
        return DEFAULT.device(self.isolated())

    def isolated(self) -> DeviceSpec:
        """The device as it was measured, kernel by kernel."""
        return DeviceSpec(
            name=self.name,
            vendor=self.vendor,
            compute_units=self.compute_units,
            peak=tuple(sorted(self.peak.items())),
            memory=self.memory,
            memory_bandwidth=self.memory_bandwidth,
            host_bandwidth=self.host_bandwidth,
            gemm=GemmCurve(**self.gemm.model_dump()),
            attention_forward=self.attention.forward_efficiency,
            attention_backward=self.attention.backward_efficiency,
            elementwise_efficiency=self.elementwise_efficiency,
            watts=self.watts,
            idle_watts=self.idle_watts,
            price=self.price,
        )


class EfficiencyFacts(Door):
    """Share of the wire rate that large payloads reach, by operation."""

    all_reduce: Share
    all_gather: Share
    reduce_scatter: Share
    all_to_all: Share
    send_recv: Share


class ProtocolFacts(Door):
    """One protocol of the collective library on this link (see `sim.hardware.cluster.Protocol`)."""

    name: str
    overhead: Time
    latency: Time
    share: Share
    in_switch: Flag = False


class NicTypeFacts(Door):
    """A NIC type: what holds for every NIC of it; the wire rate stands in the topology."""

    name: str = "nic"
    rdma: Flag
    latency: Time
    overhead: Time
    efficiency: EfficiencyFacts
    protocols: list[ProtocolFacts] = []
    interference: Part
    sources: dict[str, str] = {}

    def spec(self) -> LinkSpec:
        """The NIC type as the simulator knows it: under the default software stack."""
        return DEFAULT.link(self.isolated())

    def isolated(self) -> LinkSpec:
        """The NIC type (or interconnect) as it was measured."""
        return LinkSpec(
            name=self.name,
            latency=self.latency,
            overhead=self.overhead,
            efficiency=tuple((name, getattr(self.efficiency, name)) for name in OPERATIONS),
            interference=self.interference,
            rdma=self.rdma,
            protocols=tuple(Protocol(**facts.model_dump()) for facts in self.protocols),
        )


class GroupRate(Door):
    """Wire rate of a port that a group of so many devices, or more, drives."""

    devices: Count
    bandwidth: Rate


class LinkFacts(NicTypeFacts):
    """An interconnect inside a node; `pair_bandwidth` where devices are joined pair by pair instead of by a switch,
    `group_bandwidth` where it depends on their number otherwise. More in `sim.hardware.cluster.LinkSpec`."""

    name: str = "interconnect"
    rdma: Flag = True
    bandwidth: Rate
    pair_bandwidth: Rate | None = None
    group_bandwidth: list[GroupRate] = []
    own_piece: Part = 0.0

    def isolated(self) -> LinkSpec:
        """The interconnect as it was measured."""
        return replace(
            super().isolated(),
            bandwidth=self.bandwidth,
            pair_bandwidth=self.pair_bandwidth or 0.0,
            own_piece=self.own_piece,
            group_bandwidth=tuple((group.devices, group.bandwidth) for group in self.group_bandwidth),
        )


class ModelFacts(Door):
    """A transformer language model's shape."""

    name: str = "model"
    layers: Count
    hidden: Count
    heads: Count
    kv_heads: Count | None = None
    head_dim: Count | None = None
    ffn_hidden: Count
    vocab: Count
    mlp: str = Field("gelu", json_schema_extra={"enum": list(MLP_KINDS)})
    tied_embeddings: Flag = True
    learned_positions: Whole = 0
    experts: Whole = 0
    experts_per_token: Whole = 0
    shared_ffn_hidden: Whole = 0
    sources: dict[str, str] = {}

    @model_validator(mode="after")
    def _consistent(self) -> ModelFacts:
        self.model()
        return self

    def model(self) -> Model:
        """The model as the simulator knows it."""
        facts = self.model_dump(include=set(ModelFacts.model_fields) - {"sources"})
        facts["kv_heads"] = self.kv_heads or self.heads
        facts["head_dim"] = self.head_dim or 0
        return Model(**facts)


class StackNumbers(Door):
    """Numbers of a software stack that were fitted; what is not named is the default's."""

    gemm: Factor = DEFAULT.gemm
    attention: Factor = DEFAULT.attention
    elementwise: Factor = DEFAULT.elementwise
    communication: Factor = DEFAULT.communication
    launch: Time = DEFAULT.launch
    step: Time = DEFAULT.step

    def stack(self) -> Stack:
        """The stack as the simulator knows it."""
        return Stack(**self.model_dump())


class StackErrors(Door):
    """Mean absolute relative errors: with the default numbers, fitted, and on groups of cases that the fit did not see."""

    default: Error
    fitted: Error
    held_out: Error


class HeldOutFacts(Door):
    """A fit that never saw the cases of one group."""

    group: str
    fitted: StackNumbers
    cases: list[str]


class StackFacts(Door):
    """A software stack, fitted to named runs by `holmes-sim calibrate`; `blocking` is known of its runs, not fitted."""

    format: Literal["holmes-sim/stack/1"]
    name: str
    blocking: Flag = False
    fitted: StackNumbers
    error: StackErrors
    cases: list[str]
    held_out: list[HeldOutFacts] = []

    def under(self, numbers: StackNumbers) -> Stack:
        """The stack as the simulator knows it, under its fitted numbers or other ones."""
        return replace(numbers.stack(), blocking=self.blocking)


class DevicesFacts(Door):
    """Which devices a node has, how many, and what one of them costs here (in place of the price of its type)."""

    type: str | DeviceFacts
    count: Count
    price: Price | None = None


class NicFacts(Door):
    """NICs of one type in a node: rate of one NIC in one direction, and how many; `efficiency` where it was measured here.

    For launches: `names` are what the hosts call them, RDMA devices (mlx5_0) of an RDMA type, network interfaces (eth0) of
    Ethernet; `gid_index` is the index of RoCE's address that NCCL is to use."""

    type: str
    bandwidth: Rate
    count: Count = 1
    efficiency: Share | None = None
    names: list[HostName] = []
    gid_index: Whole | None = None
    price: Price | None = Field(None, description="rent of one NIC, its share of switches and cables included")

    @model_validator(mode="after")
    def _consistent(self) -> NicFacts:
        if self.names and len(self.names) != self.count:
            raise ValueError(f"{len(self.names)} names for {self.count} NICs; name each, or none")
        if self.gid_index is not None and self.type != "roce":
            raise ValueError(f"gid_index is of RoCE NICs only, not of {self.type}")
        return self


class NodeFacts(Door):
    """One node of a cluster."""

    devices: DevicesFacts
    intra_node: str | LinkFacts
    nics: list[NicFacts] = []


class FabricFacts(Door):
    """Leaf switches of a cluster; absent means non-blocking."""

    nodes_per_leaf: Count
    oversubscription: Ratio = 1.0


class ClusterFacts(Door):
    """Alike nodes under one fabric per NIC type; `hosts` are their names, for launches (`gpu[001-004]` is four of them)."""

    nodes: Count
    hosts: Annotated[list[str], BeforeValidator(_hosts)] = Field([], description="host names, node by node")
    node: NodeFacts
    fabric: FabricFacts | None = None

    @model_validator(mode="after")
    def _consistent(self) -> ClusterFacts:
        if self.hosts and len(self.hosts) != self.nodes:
            raise ValueError(f"{len(self.hosts)} hosts for {self.nodes} nodes; name each, or none")
        return self


class TrunkFacts(Door):
    """A link between two clusters; an ethernet link carries TCP between all their Ethernet NICs."""

    between: Annotated[tuple[str, str], BeforeValidator(_pair)]
    type: str
    bandwidth: Rate
    latency: Time
    price: Price | None = Field(None, description="rent of the link")


class WorkloadFacts(Door):
    """What is trained: a model of the catalogue, a path to a Hugging Face config.json, or the shape in place."""

    model: str | ModelFacts
    global_batch_size: Count
    seq_len: Count
    precision: Precision = "bf16"


class ProfileModelFacts(ModelFacts):
    """A profiled model: its shape, the tokens of a sequence, and the parameters that `layer_update_s` updates (over all tp)."""

    seq_len: Count
    updated_parameters: Count | None = None


class ProfileRowFacts(Door):
    """Seconds of one rank for one microbatch; an update of 0 and an absent head were not measured."""

    model: str
    gpu: str
    tp: Count
    micro_batch: Count
    layer_forward_s: Measured
    layer_backward_s: Measured
    layer_update_s: Passed = 0.0
    embedding_forward_s: Passed
    embedding_backward_s: Passed
    head_forward_s: Passed | None = None
    head_backward_s: Passed | None = None
    n_entries: Count | None = None
    spread: Passed | None = Field(None, description="half the interquartile range of the layer's seconds, over their median")


class ProfileFacts(Door):
    """Measured layer seconds. `devices` names the catalogue's device of each `gpu`, `left_out` why a model's rows are not used.
    `in_place` are devices that no catalogue has: topologies give their facts in place. `collectives` says whether the exchanges
    of tensor-parallel ranks are inside the seconds, or each rank was measured apart from the others.

    A file without `format` is a measurements file: its precision and names are those of the shipped profile `sailor`.
    """

    format: Literal["holmes-sim/profile/1"] | None = None
    source: str | dict[str, str | list[str]] = ""
    notes: list[str] = []
    precision: Precision | None = None
    collectives: Literal["inside", "apart"] = "inside"
    devices: dict[str, str] = {}
    in_place: list[str] = []
    models: dict[str, ProfileModelFacts] = {}
    left_out: dict[str, str] = {}
    layer_profiles: list[ProfileRowFacts] = Field(min_length=1)
    network_fits: list[dict[str, Any]] = []


class TopologyFacts(Door):
    """A whole scenario: clusters, links between them, and the workload to plan for."""

    format: Literal["holmes-sim/topology/1"]
    name: str
    source: str = ""
    communicator: Literal["vendor", "unified"] = Field(
        "vendor", description="unified: one collective library joins accelerators of different vendors over RDMA"
    )
    clusters: dict[str, ClusterFacts] = Field(min_length=1)
    links: list[TrunkFacts] = []
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
