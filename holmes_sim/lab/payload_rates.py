"""Payload rates of the lab's links, the scale by which they are slowed down, and the plan with exactly these links.

A link of the model carries capacity x efficiency of an operation. A shaped link has one rate for all operations: the lab takes
the largest efficiency among the operations that the plan uses a NIC type for (0.96 rather than 0.77 if InfiniBand carries
gradients and activations). `as_wired` returns the plan with these rates; its simulated step x scale is the expected
measurement.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

from holmes_sim.lab.traffic import LabPlan, traffic_of
from sim.disaggregation.plan import DisaggregatedPlan
from sim.disaggregation.set_groups import COMBINE, DISPATCH
from sim.hardware.cluster import Cluster, Fleet, Nic, Trunk
from sim.hardware.link_spec import LinkSpec
from sim.network.paths import near_nics
from sim.plan.islands import IslandsPlan
from sim.plan.pipelines import PipelinesPlan
from sim.plan.plan import Plan
from sim.units import BITS_PER_BYTE, MEGA, BytesPerSecond, Seconds

CARRIED = 700 * MEGA / BITS_PER_BYTE
"""Payload bytes/s that one core carries, summed over all sending NICs, with gloo at both ends and time left for compute.

Measured with `benchmarks.lab` on two busy cores (virtual machine, Linux 6.18): four NICs of 177 or 353 Mbit/s payload are
within 4 % of the model (all_gather within 9 % at the higher rate), of 590 Mbit/s within 10 %; at 1.8 Gbit/s the cores are the
bottleneck and an all_gather takes three times as long.
"""

Wired = TypeVar("Wired", Plan, IslandsPlan, DisaggregatedPlan, PipelinesPlan, Plan | PipelinesPlan)
"""A plan of any kind."""
TOKENS = ("all_to_all",)
"""Operations of groups whose ranks exchange tokens."""
OPERATIONS = {"pp": ("send_recv",), "cp": ("send_recv",), "ep": TOKENS, DISPATCH: TOKENS, COMBINE: TOKENS}
"""Kind of group -> its operations over NICs; all other kinds use `REDUCTIONS`."""
REDUCTIONS = ("all_reduce", "all_gather", "reduce_scatter")
"""Operations of groups that reduce and gather."""


class PayloadRates:
    """Payload share of the wire rate by cluster and NIC type, for the NIC types that the groups of a plan use."""

    def __init__(self, plan: LabPlan):
        traffic = traffic_of(plan)
        self._fleet, self.placement = traffic.fleet, traffic.placement
        self._operations: dict[str, set[str]] = {}
        for group in traffic.groups:
            if group.nic != "intra_node":
                self._operations.setdefault(group.nic, set()).update(OPERATIONS.get(group.kind, REDUCTIONS))
                if group.kind == "pp" and traffic.is_tied:
                    self._operations[group.nic].add("all_reduce")

    @property
    def kinds(self) -> tuple[str, ...]:
        """NIC types that the plan uses, sorted by name."""
        return tuple(sorted(self._operations))

    def share(self, cluster: str, kind: str) -> float:
        """Payload share of the wire rate of a cluster's NICs of a type, for large payloads."""
        nic = self._nic(cluster, kind)
        protocol = _large_payload_protocol(nic.spec)[0]
        return max(nic.reached(operation, protocol) for operation in self._operations[kind])

    def wire_share(self, cluster: str, kind: str) -> float:
        """Payload share of the rate of wires between nodes: as `share`, but not within the limit of a host."""
        spec = self._nic(cluster, kind).spec
        protocol = spec.protocol(_large_payload_protocol(spec)[0])
        return max(spec.efficiency_of(operation) * protocol.share for operation in self._operations[kind])

    def latency(self, cluster: str, kind: str) -> Seconds:
        """Latency in seconds of one step over a cluster's NICs of a type, for large payloads."""
        return _large_payload_protocol(self._nic(cluster, kind).spec)[1]

    def mixed(self) -> Iterator[tuple[str, str, float]]:
        """(NIC type, operation, ratio): operations whose efficiency is lower than the best one, which sets the rate; ratio >=
        1.
        """
        for kind in self.kinds:
            cluster = next(c for c in self._fleet.clusters if c.node.nic(kind) is not None)
            nic = self._nic(cluster.name, kind)
            best = max(nic.reached(operation) for operation in self._operations[kind])
            for operation in sorted(self._operations[kind]):
                if nic.reached(operation) < best:
                    yield kind, operation, best / nic.reached(operation)

    def _nic(self, cluster: str, kind: str) -> Nic:
        """A cluster's NICs of a type."""
        nic = self._fleet.cluster(cluster).node.nic(kind)
        assert nic is not None
        return nic


def _large_payload_protocol(spec: LinkSpec) -> tuple[str, Seconds]:
    """(name, latency) of the protocol that large payloads use."""
    offered = [p for p in spec.protocols if not p.in_switch]
    best = max(offered, key=lambda protocol: protocol.share, default=spec.protocol(""))
    return best.name, best.latency


def carried(plan: LabPlan) -> BytesPerSecond:
    """Payload bytes/s that all NICs of the plan's ranks can send together, unscaled."""
    payload, total = PayloadRates(plan), 0.0
    for cluster in plan.fleet.clusters:
        placed = [device for device in payload.placement if device.cluster == cluster.name]
        for nic in cluster.node.nics:
            if nic.kind in payload.kinds:
                used = {(d.node, i) for d in placed for i in near_nics(cluster.node.count, nic.count, d.index)}
                total += len(used) * nic.bandwidth * payload.share(cluster.name, nic.kind)
    return total


def smallest_scale(plan: LabPlan, cores: int) -> float:
    """The smallest of 1, 2, 5, 10, 20, 50 ... such that `cores` cores can carry the scaled rates of all NICs of the plan."""
    return rounded_up(carried(plan) / (cores * CARRIED))


def rounded_up(least: float) -> float:
    """The smallest of 1, 2, 5, 10, 20, 50 ... that is at least `least`."""
    least = max(least, 1.0)
    decade = 10.0 ** math.floor(math.log10(least))
    return next(step * decade for step in (1, 2, 5, 10) if step * decade >= least * (1 - 1e-9))


def as_wired(plan: Wired, has_latency: bool) -> Wired:
    """The plan with links that behave like the lab's, unscaled. Its simulated step x scale is what the lab should measure.

    NICs carry all operations at one efficiency and without overhead, and without latency if the lab has none. Communication
    does not slow compute, because a paced rank computes by the clock.
    """
    payload, fleet = PayloadRates(plan), plan.fleet
    clusters = tuple(_wired(cluster, payload, has_latency) for cluster in fleet.clusters)
    trunks = tuple(Trunk(t.between, t.kind, t.bandwidth, t.latency if has_latency else 0.0) for t in fleet.trunks)
    wired = Fleet(fleet.name, clusters, trunks, fleet.communicator)
    if isinstance(plan, IslandsPlan):
        return replace(plan, islands=tuple(_on(island, wired) for island in plan.islands))
    if isinstance(plan, DisaggregatedPlan):
        return replace(plan, stage=plan.stage.on(wired))
    if isinstance(plan, PipelinesPlan):
        return replace(plan, pipelines=tuple(_on(pipeline, wired) for pipeline in plan.pipelines))
    return _on(plan, wired)


def _on(plan: Plan, fleet: Fleet) -> Plan:
    """The plan on another fleet."""
    return replace(plan, topology=replace(plan.topology, fleet=fleet))


def _wired(cluster: Cluster, payload: PayloadRates, has_latency: bool) -> Cluster:
    """A cluster with links that behave like the lab's."""
    nics = []
    for nic in cluster.node.nics:
        if nic.kind in payload.kinds:
            share = payload.wire_share(cluster.name, nic.kind)
            efficiency = tuple((operation, share) for operation, _ in nic.spec.efficiency)
            latency = payload.latency(cluster.name, nic.kind) if has_latency else 0.0
            spec = replace(nic.spec, efficiency=efficiency, latency=latency, overhead=0.0, protocols=(), gap=0.0, delay=0.0)
            nic = replace(nic, spec=replace(spec, interference=0.0), sharp=False, socket=None)
        nics.append(nic)
    inside = replace(cluster.node.intra_node, interference=0.0, over_host_link=False)
    return replace(cluster, node=replace(cluster.node, intra_node=inside, nics=tuple(nics)))
