"""Pydantic models of catalogue entries: device, interconnect and NIC type.

A topology may give such facts in place of a name in the catalogue. The docstrings are descriptions in the JSON Schema.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import Field, RootModel, model_validator

from sim.formats.fields import (
    ComputeRate,
    Count,
    Factor,
    Flag,
    Fraction,
    Power,
    Precision,
    Price,
    Rate,
    Share,
    Size,
    StrictModel,
    Time,
    Whole,
)
from sim.formats.product_facts import JoinFacts, NextFacts, ProductFacts
from sim.hardware.device_spec import AttentionRates, DeviceSpec, GemmCurve
from sim.hardware.link_spec import OPERATIONS, LinkSpec, Protocol
from sim.hardware.stack import ATTENTION_FACTS, DEFAULT
from sim.workload.model import NARROW


class GemmFacts(StrictModel):
    """Speed of matrix products: launch time, shares of the peak FLOP/s and of the memory bandwidth that large products
    reach, and the size of an output tile. The formula is that of `sim.hardware.device_spec.GemmCurve`. `sustained`: share of
    `compute_efficiency` that is left in training, where the power limit holds for minutes; 1 if the clock does not fall.
    `older`: share that is left with the libraries of most software; a stack with `newest_products` reaches all of it. `casts`:
    of the inputs, contained in the curve or apart from it, with one copy, a transposed one too, or two with scales for blocks
    of values (`sim.kernels.casts`)."""

    launch: Time
    compute_efficiency: Share
    memory_efficiency: Share
    wave_exponent: Fraction = 0.0
    tile: tuple[Count, Count] = (128, 256)
    sustained: Share = 1.0
    older: Share = 1.0
    casts: Literal["contained", "copy", "transposed", "blocks"] = "contained"

    def curve(self) -> GemmCurve:
        """The curve of the simulator."""
        return GemmCurve(**self.model_dump())


class AttentionRateFacts(StrictModel):
    """Share of the dense peak FLOP/s that a fused attention kernel reaches; only the FLOPs of causal attention count.
    Sequences of `half_length` tokens reach half of it; 0: all sequences reach it. `backward_half_length`: that of the backward,
    where it differs. `head_dims`: dimension of a head -> forward and backward rate of its kernel as multiples of the shares; a
    head is padded to the next dimension. `fp8`: rate of a kernel that multiplies in fp8, as a multiple; 1: unknown. `alone`:
    queries of a multiprocessor at the end of a kernel, forward and backward (`AttentionRates.waiting`)."""

    forward_efficiency: Share
    backward_efficiency: Share
    half_length: Whole = 0
    backward_half_length: Whole | None = None
    head_dims: dict[Count, tuple[Factor, Factor]] = Field({})
    fp8: Factor = 1.0
    alone: tuple[Count, Count] = (174, 115)

    def rates(self) -> AttentionRates:
        """The rates of the simulator."""
        of_heads = tuple((size, *rates) for size, rates in sorted(self.head_dims.items()))
        return AttentionRates(
            self.forward_efficiency, self.backward_efficiency, float(self.half_length), self.backward_half_length, of_heads,
            self.fp8, (float(self.alone[0]), float(self.alone[1])),
        )  # fmt: skip


class AttentionFacts(AttentionRateFacts):
    """Attention kernels of most software. `newest`: those of software that runs the newest kernels of this device;
    `cudnn_9_19`: those of cuDNN 9.19 and later, where they are faster; `attention_bf16_sums`: those that add the gradients of
    queries in bf16 (both: facts of a stack)."""

    newest: AttentionRateFacts | None = None
    cudnn_9_19: AttentionRateFacts | None = None
    attention_bf16_sums: AttentionRateFacts | None = None


class DeviceFacts(StrictModel):
    """An accelerator type. `price`: rent of one device; `watts`: its power while it computes; `idle_watts`: its power while it
    waits; `host_bandwidth`: rate of its link to the host; `product`: names that importers know it by; `intra_node`: links that
    join such devices; `next`: its successor in `what-if`; `sources`: where each number comes from."""

    name: str = "device"
    vendor: str
    compute_units: Count
    peak: dict[Precision, ComputeRate]
    memory: Size
    memory_bandwidth: Rate
    host_bandwidth: Rate
    gemm: GemmFacts
    gemm_fp8: GemmFacts | None = None
    gemm_mxfp8: GemmFacts | None = None
    gemm_nvfp4: GemmFacts | None = None
    attention: AttentionFacts
    elementwise_efficiency: Share
    watts: Power | None = None
    idle_watts: Power | None = None
    price: Price | None = None
    product: ProductFacts = ProductFacts()
    intra_node: JoinFacts = JoinFacts()
    next: NextFacts | None = None
    sources: dict[str, str] = Field({})

    @model_validator(mode="after")
    def _consistent(self) -> DeviceFacts:
        if self.idle_watts is not None and (self.watts is None or self.idle_watts > self.watts):
            busy = "are not given" if self.watts is None else f"are {self.watts:g} W"
            raise ValueError(f"idle_watts {self.idle_watts:g} W must not exceed watts, which {busy}")
        return self

    def spec(self) -> DeviceSpec:
        """The device of the simulator, at the rates of the default software stack."""
        return DEFAULT.device(self.isolated())

    def gemm_of(self, precision: str) -> GemmFacts:
        """The curve of matrix products at a precision: its own if there is one."""
        own: GemmFacts | None = getattr(self, f"gemm_{precision}") if precision in NARROW else None
        return own or self.gemm

    def isolated(self) -> DeviceSpec:
        """The device at the rates measured in isolation, kernel by kernel, and at the clock of a long run."""
        return DeviceSpec(
            name=self.name,
            vendor=self.vendor,
            compute_units=self.compute_units,
            peak=tuple(sorted(self.peak.items())),
            memory=self.memory,
            memory_bandwidth=self.memory_bandwidth,
            host_bandwidth=self.host_bandwidth,
            gemm=self.gemm.curve(),
            narrow_gemm=tuple((name, found.curve()) for name in NARROW if (found := self.gemm_of(name)) is not self.gemm),
            attention=self.attention.rates(),
            newest_attention=self.attention.newest.rates() if self.attention.newest else None,
            other_attention=tuple(
                (name, facts.rates()) for name in ATTENTION_FACTS if (facts := getattr(self.attention, name)) is not None
            ),
            elementwise_efficiency=self.elementwise_efficiency,
            watts=self.watts,
            idle_watts=self.idle_watts,
            price=self.price,
        )


class EfficiencyFacts(StrictModel):
    """Share of the bandwidth that large payloads reach, for each operation."""

    all_reduce: Share
    all_gather: Share
    reduce_scatter: Share
    all_to_all: Share
    send_recv: Share


class ProtocolFacts(StrictModel):
    """A protocol of the collective library on this link, such as LL128 of NCCL. `share`: share of the link's rate that it
    reaches; `in_switch`: whether the switch reduces (NVLS); `chunk`: bytes that a rank of a tree receives before it forwards
    them, of each device's share of the payload; `in_trees`: whether only trees use the protocol; `operation`: the only one that
    uses it; `gap`: time of each message of a rank to a peer."""

    name: str
    overhead: Time
    latency: Time
    share: Share
    in_switch: Flag = False
    chunk: Size = 0.0
    in_trees: Flag = False
    operation: Literal["", "all_to_all"] = ""
    gap: Time = 0.0


class NicTypeFacts(StrictModel):
    """A NIC type: latency of a transfer step, overhead of a message or collective, and efficiencies. The topology gives the
    bandwidth. `interference`: slowing of compute while a collective of the same rank is on the network; `gap`: time between two
    messages of a rank to different peers; `host_limit`: largest rate that the host's software reaches over one NIC."""

    name: str = "nic"
    rdma: Flag
    latency: Time
    overhead: Time
    efficiency: EfficiencyFacts
    protocols: list[ProtocolFacts] = Field([])
    interference: Fraction
    gap: Time = 0.0
    host_limit: Rate | None = None
    sources: dict[str, str] = Field({})

    def spec(self) -> LinkSpec:
        """The NIC type of the simulator, at the rates of the default software stack."""
        return DEFAULT.link(self.isolated())

    def isolated(self) -> LinkSpec:
        """The NIC type (or interconnect) at the rates measured in isolation."""
        return LinkSpec(
            name=self.name,
            latency=self.latency,
            overhead=self.overhead,
            efficiency=tuple((name, getattr(self.efficiency, name)) for name in OPERATIONS),
            interference=self.interference,
            rdma=self.rdma,
            protocols=tuple(Protocol(**facts.model_dump()) for facts in self.protocols),
            gap=self.gap,
            host_limit=self.host_limit or 0.0,
        )


class GroupRate(StrictModel):
    """Bandwidth per port of a group with at least `devices` devices, in one direction."""

    devices: Count
    bandwidth: Rate


class LinkFacts(NicTypeFacts):
    """An interconnect inside a node. `bandwidth`: rate of a device's port in one direction; `pair_bandwidth`: rate between two
    devices, if wires join each pair instead of a switch; `group_bandwidth`: rates by the number of devices of a group, if they
    depend on it in another way; `over_host_link`: the wires are the links of the devices to the host, as for PCIe cards, and
    carry the traffic to NICs too. `sim.hardware.link_spec.LinkSpec` explains `own_piece`."""

    name: str = "interconnect"
    rdma: Flag = True
    bandwidth: Rate
    pair_bandwidth: Rate | None = None
    group_bandwidth: list[GroupRate] = Field([])
    own_piece: Fraction = 0.0
    over_host_link: Flag = False

    def isolated(self) -> LinkSpec:
        """The interconnect at the rates measured in isolation."""
        return replace(
            super().isolated(),
            bandwidth=self.bandwidth,
            pair_bandwidth=self.pair_bandwidth or 0.0,
            own_piece=self.own_piece,
            over_host_link=self.over_host_link,
            group_bandwidth=tuple((group.devices, group.bandwidth) for group in self.group_bandwidth),
        )


class RoutingFacts(StrictModel):
    """A way in which leaf switches choose uplinks: share of the rate that RoCE flows between leaves reach, and its source."""

    share: Share
    source: str


class RoutingTable(RootModel[dict[str, RoutingFacts]]):
    """All ways by name."""
