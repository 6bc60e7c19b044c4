"""What the lab's links carry of useful bytes, by what scale they are slowed down, and the plan on machines such as these.

A link of the model carries capacity x efficiency of an operation. A wire has one rate, whoever sends: the lab takes the
greatest efficiency among the operations that the plan uses a NIC type for (0.96 rather than 0.77 where InfiniBand carries
gradients and activations). `as_wired` gives the plan on exactly those machines, so that the simulator can say what is to be
measured: prediction x scale.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from sim.hardware.cluster import Cluster, Fleet, Trunk
from sim.hardware.link_spec import LinkSpec
from sim.network.paths import near_nics
from sim.plan.derived_groups import gradient_groups
from sim.plan.plan import Plan
from sim.units import BITS_PER_BYTE, MEGA, BytesPerSecond, Seconds

CARRIED = 700 * MEGA / BITS_PER_BYTE
"""Useful bytes a second out of all NICs together that one core carries, with gloo at both ends and room to compute.

Measured with `benchmarks.lab` on two busy cores (virtual machine, Linux 6.18): four NICs of 177 or 353 Mbit/s useful are within
4 % of the model (all_gather within 9 % at the higher rate), of 590 Mbit/s within 10 %; at 1.8 Gbit/s the cores bind and an
all_gather takes three times as long.
"""

OPERATIONS = {"pp": ("send_recv",), "cp": ("send_recv",), "ep": ("all_to_all",)}
"""Kind of group -> what it does over NICs; all others reduce and gather."""
REDUCTIONS = ("all_reduce", "all_gather", "reduce_scatter")


class Goodput:
    """Useful share of the wire rate, by cluster and NIC type, of the types that a plan's groups use."""

    def __init__(self, plan: Plan):
        self._fleet = plan.fleet
        self._operations: dict[str, set[str]] = {}
        for group in (*plan.groups, *gradient_groups(plan)):
            if group.nic != "intra_node":
                self._operations.setdefault(group.nic, set()).update(OPERATIONS.get(group.kind, REDUCTIONS))
                if group.kind == "pp" and plan.workload.model.tied_embeddings:
                    self._operations[group.nic].add("all_reduce")

    @property
    def kinds(self) -> tuple[str, ...]:
        """NIC types that the plan uses, in order of name."""
        return tuple(sorted(self._operations))

    def share(self, cluster: str, kind: str) -> float:
        """Useful share of the wire rate of a cluster's NICs of a type, for large payloads."""
        spec = self._spec(cluster, kind)
        return max(spec.efficiency_of(operation) for operation in self._operations[kind]) * _widest(spec)[0]

    def latency(self, cluster: str, kind: str) -> Seconds:
        """Latency of a step over a cluster's NICs of a type, for large payloads."""
        return _widest(self._spec(cluster, kind))[1]

    def mixed(self) -> Iterator[tuple[str, str, float]]:
        """(NIC type, operation, ratio): operations that a NIC type does worse than the best one, for which it is wired."""
        for kind in self.kinds:
            cluster = next(c for c in self._fleet.clusters if c.node.nic(kind) is not None)
            spec = self._spec(cluster.name, kind)
            best = max(spec.efficiency_of(operation) for operation in self._operations[kind])
            for operation in sorted(self._operations[kind]):
                if spec.efficiency_of(operation) < best:
                    yield kind, operation, best / spec.efficiency_of(operation)

    def _spec(self, cluster: str, kind: str) -> LinkSpec:
        nic = self._fleet.cluster(cluster).node.nic(kind)
        assert nic is not None
        return nic.spec


def _widest(spec: LinkSpec) -> tuple[float, Seconds]:
    """(share of the large rate, latency) of the protocol that large payloads take."""
    offered = [(p.share, p.latency) for p in spec.protocols if not p.in_switch]
    return max(offered, key=lambda pair: pair[0]) if offered else (1.0, spec.latency)


def carried(plan: Plan) -> BytesPerSecond:
    """Useful bytes a second that all NICs of the plan's ranks can send together, unscaled."""
    goodput, total = Goodput(plan), 0.0
    for cluster in plan.fleet.clusters:
        placed = [device for device in plan.placement if device.cluster == cluster.name]
        for nic in cluster.node.nics:
            if nic.kind in goodput.kinds:
                used = {(d.node, i) for d in placed for i in near_nics(cluster.node.count, nic.count, d.index)}
                total += len(used) * nic.bandwidth * goodput.share(cluster.name, nic.kind)
    return total


def smallest_scale(plan: Plan, cores: int) -> float:
    """The smallest of 1, 2, 5, 10, 20, 50 ... by which the plan's NICs must be slowed so that so many cores carry them."""
    least = max(carried(plan) / (cores * CARRIED), 1.0)
    decade = 10.0 ** math.floor(math.log10(least))
    return next(step * decade for step in (1, 2, 5, 10) if step * decade >= least * (1 - 1e-9))


def as_wired(plan: Plan, has_latency: bool) -> Plan:
    """The plan on machines whose links do what the lab's do, unscaled: NICs carry every operation alike, at no overhead, and
    without latency where the lab has none; communication slows no compute, as a paced rank computes by the clock. Its simulated
    step x scale is what the lab should measure."""
    goodput, fleet = Goodput(plan), plan.fleet
    clusters = tuple(_wired(cluster, goodput, has_latency) for cluster in fleet.clusters)
    trunks = tuple(Trunk(t.between, t.kind, t.bandwidth, t.latency if has_latency else 0.0) for t in fleet.trunks)
    wired = Fleet(fleet.name, clusters, trunks, fleet.communicator)
    return replace(plan, topology=replace(plan.topology, fleet=wired))


def _wired(cluster: Cluster, goodput: Goodput, has_latency: bool) -> Cluster:
    nics = []
    for nic in cluster.node.nics:
        if nic.kind in goodput.kinds:
            share = goodput.share(cluster.name, nic.kind)
            efficiency = tuple((operation, share) for operation, _ in nic.spec.efficiency)
            latency = goodput.latency(cluster.name, nic.kind) if has_latency else 0.0
            spec = replace(nic.spec, efficiency=efficiency, latency=latency, overhead=0.0, protocols=())
            nic = replace(nic, spec=replace(spec, interference=0.0))
        nics.append(nic)
    inside = replace(cluster.node.intra_node, interference=0.0)
    return replace(cluster, node=replace(cluster.node, intra_node=inside, nics=tuple(nics)))
